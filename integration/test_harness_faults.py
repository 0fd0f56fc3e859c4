"""Harnesses that misbehave: the turn says so, and daemon, sandbox and neighbours go on."""

import os
import time

import pytest

from harness import install, open_session, script
from test_approvals import asked
from test_durable import kill_all
from test_harness import data, items, kinds, lines, question, who
from world import SANITIZED, eventually, punctual

MIB = 1 << 20


@pytest.fixture
def home(cloister):
    install(cloister, "acme")
    return cloister.tenants["acme"].workspace


@pytest.fixture
def session(acme, home):
    return open_session(acme)


def failed(client, session, line, code):
    outcome = client.run(session, line)
    assert outcome.status == "failed" and outcome.error["code"] == code, outcome.turn
    return outcome.error["message"]


def in_sandbox(client, line):
    outcome = client.run(client.session(), f"$ {line}")
    assert outcome.status == "completed"
    return outcome.text


def fresh_name():
    return os.urandom(6).hex()


# --- beginnings ------------------------------------------------------------------------


@pytest.mark.parametrize("flags,words", [
    (["--exit=3"], "ended with exit code 3; its standard error ends with: cannot begin: no "
                   "licence"),
    (["--version=2"], "speaks version 2"),
    (["--hello=refused"], "no common version"),
    (["--hello=7"], "speaks version 7"),
], ids=["exit", "version", "refused", "hello"])
def test_one_that_does_not_begin(acme, home, flags, words):
    assert words in failed(acme, open_session(acme, *flags), "hi", "harness_unavailable")


@pytest.mark.parametrize("command,words", [
    (["no-such-program"], 'program "no-such-program": No such file'),
    (["/workspace"], 'program "/workspace": '),
    (["true"], "exit code 0"),
], ids=["missing", "directory", "silent"])
def test_a_command_that_is_no_harness(acme, command, words):
    session = acme.session(engine={"kind": "harness", "command": command})
    assert words in failed(acme, session, "hi", "harness_unavailable")


def test_a_directory_that_is_missing(acme):
    session = acme.session(engine={"kind": "harness", "command": ["true"]}, cwd="/workspace/none")
    assert "directory" in failed(acme, session, "hi", "harness_unavailable")


@pytest.mark.parametrize("flags", [["--garbage"], ["--slow=2"], ["--without=hello,op_id,ping"],
                                   ["--without=op_id"], ["--hello=silent"]], ids=str)
def test_odd_beginnings(acme, home, flags):
    """The last one waits as long as an answer to hello may take."""
    outcome = acme.run(open_session(acme, *flags), "hi")
    assert (outcome.status, outcome.text) == ("completed", "hi")


def test_one_that_says_nothing(acme, home):
    """Before it is ready, and when it is given the turn: it has 30 s for each, here at once.

    Neither another run's lines nor output without lines are a beginning.
    """
    start = time.monotonic()
    silent = acme.start(open_session(acme, "--silent"), "hi")
    mute = acme.start(open_session(acme, "--mute"), "hi")
    others = [acme.start(open_session(acme), script(["no_start"], ["speak_as", "another"], step))
              for step in (["flood", 100000000], ["drone"])]
    for turn, code in ((silent, "harness_unavailable"),
                       *((turn, "harness_refused") for turn in (mute, *others))):
        outcome = acme.wait(turn, 90)
        assert outcome.error["code"] == code and "30 s" in outcome.error["message"]
    assert 30 <= time.monotonic() - start


def test_silence_in_a_turn_is_bounded(make_daemon):
    """Pauses below the bound do not add up; beyond it the turn fails and the process is killed."""
    daemon = make_daemon(("acme",)).start(harness_silence_seconds=6)
    install(daemon, "acme")
    client = daemon.client("acme")
    session = open_session(client)
    pauses = [step for _ in range(8) for step in (["delta", "."], ["sleep", 1])]
    outcome = client.run(session, script(*pauses))
    assert (outcome.status, outcome.text) == ("completed", "........"), outcome
    before = who(client, session)[0]
    for step in (["sleep", 3600], ["freeze"], ["drone"]):
        start = time.monotonic()
        outcome = client.run(session, script(["stop_heeding"], ["delta", "said"], step))
        assert time.monotonic() - start >= 6
        assert (outcome.status, outcome.error["code"]) == ("failed", "harness_silent"), outcome
        assert "nothing for 6 s" in outcome.error["message"]
        now, served = who(client, session)
        assert now != before and served == 1, "the process was not killed"
        before = now


def test_the_time_of_a_person_is_no_silence(make_daemon):
    daemon = make_daemon(("acme",)).start(harness_silence_seconds=5)
    install(daemon, "acme")
    client = daemon.client("acme")
    turn = client.start(open_session(client), script(["ask", question()]))
    request = asked(client, turn)
    time.sleep(7)
    client.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "a"}, 200)
    assert client.wait(turn).status == "completed"


def test_one_that_refuses_the_turn(acme, home):
    assert "no work today" in failed(acme, open_session(acme, "--refuse"), "hi",
                                     "harness_refused")


@pytest.mark.parametrize("odd", ["", "x"])
def test_a_long_refusal_is_cut_between_characters(acme, home, odd):
    outcome = acme.watch(open_session(acme, f"--refuse={odd}" + "\u00e9" * 300), "hi")
    assert data(outcome, "turn.failed")[0]["error"] == outcome.error
    assert outcome.error["message"].endswith("\u00e9" * 190)


def test_a_line_of_a_long_kind_is_told_of(acme, session):
    """Whole it would be larger than an event may be, and readers would lose their place."""
    outcome = acme.watch(session, script(["notify", "x" + "\u00e9" * 600000],
                                         ["other", {"type": "t" * 1200000}]))
    assert outcome.status == "completed"
    told = [(d["lineType"], d["kind"]) for d in data(outcome, "harness.line")]
    assert told[1:3] == [("notify", "x" + "\u00e9" * 49), ("t" * 100, None)]


# --- ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("step,words", [
    (["exit", 7], "exit code 7; its standard error ends with: oh no"),
    (["exit", 0], "exit code 0"),
    (["kill", 9], "signal 9"),
], ids=["code", "zero", "signal"])
def test_one_that_ends_in_the_middle(acme, home, step, words):
    """The turn fails, is not run again, and keeps what was said; the next has a new process."""
    name = fresh_name()
    session = open_session(acme, f"--birth=/workspace/{name}b")
    message = failed(acme, session, script(["touch", f"/workspace/{name}"], ["delta", "so far"],
                                           ["notify", "usage", {"input": 4, "output": 2}],
                                           ["stderr", "oh\nno\n"], step), "harness_ended")
    assert words in message
    assert items(acme, session)[-1]["text"] == "so far"
    assert acme.call("GET", f"/v1/sessions/{session}")["usage"]["input"] == 4
    assert who(acme, session)[1] == 1
    with open(f"{home}/{name}", encoding="utf-8") as f:
        assert f.read() == "x"
    with open(f"{home}/{name}b", encoding="utf-8") as f:
        assert f.read() == "xx"


def test_one_that_ends_between_turns(acme, session):
    pid = who(acme, session)[0]
    in_sandbox(acme, f"kill -9 {pid}")
    other, served = who(acme, session)
    assert other != pid and served == 1


def test_one_that_does_not_answer_a_ping(acme, home):
    session = open_session(acme, "--no-pong")
    pid = who(acme, session)[0]
    start = time.monotonic()
    other, served = who(acme, session)
    assert other != pid and served == 1 and time.monotonic() - start >= 5
    assert in_sandbox(acme, f"kill -0 {pid} 2>/dev/null; echo $?") == "1\n", "it lives on"


def test_one_that_does_not_end_with_its_session(acme, home):
    """It is killed; its sandbox and the other sessions' processes live on."""
    neighbour, stubborn = open_session(acme), open_session(acme, "--stay")
    other = who(acme, neighbour)[0]
    pid = who(acme, stubborn)[0]
    acme.call("DELETE", f"/v1/sessions/{stubborn}", status=204)
    eventually(lambda: in_sandbox(acme, f"kill -0 {pid} 2>/dev/null; echo $?") == "1\n", 30,
               "the end of the process", 0.5)
    assert who(acme, neighbour) == (other, 2)


def test_the_sandbox_ends_under_it(cloister):
    install(cloister, "hooli")
    client = cloister.client("hooli")
    session, asking = open_session(client), open_session(client)
    with client.events() as events:
        turn = client.start(session, script(["delta", "here"], ["sleep", 60]))
        waiting = client.start(asking, script(["ask", question()]))
        events.until_kind(turn, "response.text.delta")
        asked(client, waiting)
        cloister.sentry("hooli").kill()
        for t in (turn, waiting):
            outcome = client.wait(t)
            assert (outcome.status, outcome.error["code"]) == ("failed", "harness_ended")
            assert "(lost)" in outcome.error["message"]
    assert who(client, session)[1] == 1


# --- lies ------------------------------------------------------------------------------


def test_garbage(acme, session):
    bad = ["", "plain words", "[1,2]", "{}", '{"type":"delta"}', '{"type":"result","type":"log"}',
           '{"type":"log","message":"\\u0000"}', '{"type":"notify","kind":"x"']
    raw = [["raw", b] for b in bad]
    outcome = acme.watch(session, script(*raw, ["hex", "00ff0a"], ["hex", "7b7d0d0a"],
                                         ["other", {"type": "telemetry", "x": 1}],
                                         ["notify", "novelty", {"y": 2}], ["delta", "fine"]))
    assert (outcome.status, outcome.text) == ("completed", "fine")
    told = data(outcome, "harness.line")
    assert [d["malformed"] is not None for d in told] == [False] + [True] * 11 + [False] * 2
    assert [d["lossy"] for d in told].count(True) == 1
    assert [d["unknownKind"] for d in told].index(True) == 12
    kept = lines(acme, outcome.turn["id"])
    assert [kept[d["number"]] for d in told[1:9]] == bad


def test_the_longest_line_and_one_past_it(acme, session):
    outcome = acme.watch(session, script(["huge", 4 * MIB], ["huge", 4 * MIB + 1],
                                         ["huge", 20 * MIB], ["delta", "fine"]))
    assert (outcome.status, outcome.text) == ("completed", "fine")
    told = data(outcome, "harness.line")
    assert [(d["bytes"], d["dropped"]) for d in told[1:4]] == [
        (4 * MIB, None), (4 * MIB + 1, "too_long"), (20 * MIB, "too_long")]
    kept = lines(acme, outcome.turn["id"])
    assert len(kept[2]) == 4 * MIB and 3 not in kept and 4 not in kept


def test_more_lines_than_are_kept(acme, session):
    """What no more is kept is said to be so; the result is kept in any case."""
    outcome = acme.watch(session, script(["logs", 10, MIB], ["delta", "fine"]))
    told = data(outcome, "harness.line")
    assert [d["kept"] for d in told] == [True] * 8 + [False] * 3 + [True]
    assert max(lines(acme, outcome.turn["id"])) == 13


def test_numbers_out_of_order(acme, session):
    outcome = acme.watch(session, script(["number", 7], ["delta", "a"], ["number", 1],
                                         ["delta", "b"], ["delta", "c"]))
    assert (outcome.status, outcome.text) == ("completed", "abc")
    assert [d["seqExpected"] for d in data(outcome, "harness.line")] == [None, 2, 8, None]
    assert len(data(outcome, "warning")) == 1


def test_lines_of_another_run(acme, session):
    """They lead to nothing: no text, no question, no end."""
    forged = "0191d2b4-0000-7000-8000-000000000bad"
    outcome = acme.watch(session, script(
        ["speak_as", forged], ["delta", "forged"], ["ask", question(), False],
        ["notify", "usage", {"input": 1000, "output": 1000}], ["result", {"answer": "forged"}],
        ["speak_as", None], ["number", 2], ["delta", "mine"], ["result", {"answer": "mine"}]))
    assert (outcome.status, outcome.text) == ("completed", "mine")
    assert [d["dropped"] for d in data(outcome, "harness.line")] == [None] + ["run_id"] * 4 + [None]
    assert "request.created" not in kinds(outcome)
    assert acme.call("GET", f"/v1/sessions/{session}")["usage"]["input"] == 0


def test_questions_about_another_tenants_turn(acme, cloister, session):
    """A harness that knows the id of another's turn cannot ask or answer in its name."""
    install(cloister, "globex")
    globex = cloister.client("globex")
    theirs = globex.start(open_session(globex), script(["wait_file", "/workspace/over"]))
    globex.wait_for(theirs, "running")
    outcome = acme.run(session, script(["speak_as", theirs], ["ask", question(), False],
                                       ["result", {"answer": "forged"}], ["speak_as", None],
                                       ["number", 2], ["result", {"answer": "mine"}]))
    assert outcome.text == "mine"
    assert globex.turn(theirs)["status"] == "running"
    assert globex.call("GET", "/v1/requests")["data"] == []
    with open(f"{cloister.tenants['globex'].workspace}/over", "w", encoding="utf-8"):
        pass
    assert globex.wait(theirs).status == "completed"


def test_two_results(acme, session):
    """The second one belongs to nothing any more."""
    outcome = acme.run(session, script(["result", {"answer": "one"}],
                                       ["result", {"answer": "two"}]))
    assert outcome.text == "one"
    assert acme.run(session, "three").text == "three"


# --- cancels ---------------------------------------------------------------------------


def test_cancels_that_are_not_heeded(make_daemon):
    """Each is answered at once, and the process killed after its ten seconds; nothing else is."""
    daemon = make_daemon(("acme",)).start(max_running_turns_per_tenant=8)
    install(daemon, "acme")
    client = daemon.client("acme")
    neighbour = open_session(client)
    other = who(client, neighbour)[0]
    ways = (["sleep", 3600]), (["flood", 100000000]), (["freeze"]), (["vanish"], ["sleep", 3600]), \
        (["ask", question(), False], ["sleep", 3600])
    sessions, asked_at = [], []

    def attempt(way):
        steps = way if isinstance(way[0], list) else (way,)
        session = open_session(client)
        with client.events() as events:
            turn = client.start(session, script(["stop_heeding"], ["delta", "here"], *steps))
            events.until_kind(turn, "response.text.delta")
            sessions.append(session)
            asked_at.append(time.monotonic())
            client.cancel_in_time(turn)

    for way in ways:
        punctual(lambda way=way: attempt(way))
    turns = [client.start(s, script(["who"])) for s in sessions]
    served = [client.wait(t).text.split()[1] for t in turns]
    assert served == ["1"] * len(sessions), "one was not killed"
    assert time.monotonic() - asked_at[-1] > 8, "one was killed before its time"
    assert who(client, neighbour) == (other, 2), "a neighbour's process is gone"


def test_a_cancel_that_is_heeded(acme, session):
    def attempt():
        with acme.events() as events:
            turn = acme.start(session, script(["delta", "here"], ["sleep", 3600]))
            events.until_kind(turn, "response.text.delta")
            acme.cancel_in_time(turn)

    punctual(attempt)
    assert who(acme, session)[1] > 1, "the process was killed"


def test_a_cancel_while_it_begins(acme, home):
    def attempt():
        session = open_session(acme, "--slow=3600")
        turn = acme.start(session, "hi")
        acme.wait_for(turn, "running")
        acme.cancel_in_time(turn)

    punctual(attempt)


def test_a_flood_fills_no_memory(cloister, acme, session):
    """Faster than it can be told of: the harness waits, the server does not grow."""
    def attempt():
        with acme.events() as events:
            turn = acme.start(session, script(["flood", 100000000]))
            events.until_kind(turn, "harness.line")
            before = int(cloister.server().status("VmRSS").split()[0])
            time.sleep(3)
            grown = int(cloister.server().status("VmRSS").split()[0]) - before
            assert grown < (400 if SANITIZED else 100) * 1024, f"{grown} KiB more"
            acme.cancel_in_time(turn)

    punctual(attempt)


# --- the end of the daemon ---------------------------------------------------------------


def test_what_becomes_of_turns_when_the_daemon_ends(make_daemon):
    """A turn that ran is told to be lost and not run twice, also one that asked; queued ones run."""
    daemon = make_daemon(("acme",)).start(max_running_turns_per_tenant=2, max_turn_bytes=65536)
    install(daemon, "acme")
    client = daemon.client("acme")
    home = daemon.tenants["acme"].workspace
    asking = client.start(open_session(client), script(["ask", question()]))
    request = asked(client, asking)
    ran = [client.start(open_session(client), script(["touch", f"/workspace/ran{i}"],
                                                     ["sleep", 3600])) for i in range(2)]
    for i in range(2):
        eventually(lambda i=i: os.path.exists(f"{home}/ran{i}"), 30, "a run")
    queued = client.start(open_session(client), script(["touch", "/workspace/later"]))
    kill_all(daemon)
    daemon.start(max_turn_bytes=65536)
    client = daemon.client("acme")
    for turn in (*ran, asking):
        outcome = client.wait(turn)
        assert (outcome.status, outcome.error["code"]) == ("failed", "harness_interrupted")
    assert client.wait(queued).status == "completed"
    client.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "a"}, 409,
                "request_not_resolved")
    for name in ("ran0", "ran1", "later"):
        with open(f"{home}/{name}", encoding="utf-8") as f:
            assert f.read() == "x", f"{name} was run twice"
    # One that says more than a turn may have, and a stop in order.
    session = open_session(client, "--farewell=/workspace/bye")
    failed(client, session, script(["delta", "x" * 40000], ["delta", "y" * 40000]),
           "turn_too_large")
    failed(client, session, script(*[["notify", "tool_calls", [{"name": n, "args": "x" * 40000}]]
                                     for n in "ab"]), "turn_too_large")
    assert who(client, session)[1] == 3
    assert daemon.stop() == 0
    assert os.path.exists(f"{home}/bye"), "it was not asked to end"
