"""Child agents: a context of their own, the parent's rules, and an end that is told."""

import contextlib
import json
import signal
import time
import uuid

import pytest

from daemon import Daemon
from provider.models import declare, entry
from provider.server import Call, Hang, Say
from test_approvals import ONCE, TOOL, answer, asked, results
from test_context import messages, system
from test_durable import effects, kill_all
from world import eventually


def task(prompt):
    return f"@task {json.dumps({'prompt': prompt})}"


def agents(client, turn):
    return client.call("GET", f"/v1/turns/{turn}/agents")["data"]


def steps(client, turn):
    """Of the first child, as far as there is one."""
    return [s for agent in agents(client, turn)[1:2] for s in agent["steps"]]


def there(client, name):
    return client.run(client.session(), f"$ test -e {name} && echo yes || echo no").text == "yes\n"


def test_what_a_child_says_is_the_result(acme, session):
    outcome = acme.watch(session, task("$ echo one\n$ echo two; exit 3") + "\n" + task("words"))
    turn = outcome.turn["id"]
    assert outcome.status == "completed" and outcome.text == "words"
    assert results(acme, session) == ["two\n[exit code 3]", "words"]
    root, first, second = agents(acme, turn)
    assert [a["path"] for a in (root, first, second)] == ["/root", "/root/task-1", "/root/task-2"]
    assert {a["status"] for a in (root, first, second)} == {"completed"}
    assert [(s["state"], s["title"], s["detail"]) for s in first["steps"]] == [
        ("info", "input", "$ echo one\n$ echo two; exit 3"),
        ("completed", "shell", '{"command":"echo one"}'),
        ("failed", "shell", '{"command":"echo two; exit 3"}'),
        ("info", "answer", "two\n[exit code 3]")]
    assert [s["title"] for s in second["steps"]] == ["input", "answer"]
    seen = [e["data"]["title"] for _, kind, e in outcome.events if kind == "agent.step"]
    assert seen == [s["title"] for s in first["steps"] + second["steps"]]
    fork = acme.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    page = acme.call("GET", f"/v1/sessions/{fork}/history")["data"]
    assert agents(acme, page[0]["turn"]["id"])[1:] == [first, second]
    acme.call("DELETE", f"/v1/sessions/{session}", status=204)
    acme.call("GET", f"/v1/turns/{turn}/agents", status=404, code="turn_not_found")


@pytest.mark.parametrize("arguments,code", [
    ("{}", "invalid_arguments"), ('{"prompt":1}', "invalid_arguments"),
    ('{"prompt":"a","prompt":"b"}', "invalid_arguments"),
    ('{"prompt":"a","more":1}', "invalid_arguments"), ("[", "invalid_arguments")])
def test_arguments_that_are_none(acme, session, arguments, code):
    assert acme.run(session, f"@task {arguments}").text.startswith(f"error: {code}: ")


def test_bounds(acme, session):
    """So many in a turn, no child of a child, no questions, and an end of what it says."""
    acme.run(session, "\n".join([task("hello")] * 9))
    said = results(acme, session)
    assert said[:8] == ["hello"] * 8 and said[8].startswith("error: task_limit: ")
    for line in (task("again"), "? sure?", "@plan_exit {\"plan\":\"x\"}"):
        assert acme.run(session, task(line)).text.startswith("error: unknown_tool: ")
    outcome = acme.run(session, task("$ head -c 60000 /dev/zero | tr '\\0' x\n$ true\n"
                                     "$ head -c 60000 /dev/zero | tr '\\0' y"))
    assert outcome.text == "y" * 60000


def test_a_child_asks_nobody(acme):
    """What would have to be asked is refused, whatever was allowed of the parent's calls."""
    session = acme.session(approvals="ask")
    name = uuid.uuid4().hex
    turn = acme.start(session, "$ true\n" + task(f"$ touch {name}"))
    answer(acme, turn, ONCE)  # of the first call, whose number the child's call has, too
    assert acme.wait(turn).text.startswith("error: not_allowed: ")
    assert not there(acme, name)
    assert acme.run(session, task("@list_files {\"path\":\"/\"}")).text.startswith('{"name":"bin"')
    turn = acme.start(session, "$ true")
    answer(acme, turn, TOOL)
    acme.wait(turn)
    assert acme.run(session, task(f"$ touch {name}; echo made")).text == "made\n"
    assert there(acme, name)


def test_no_child_removes_everything(acme, session):
    assert acme.run(session, task("$ true 'rm -rf /'")).text.startswith("error: not_allowed: ")
    turn = acme.start(session, "$ true 'rm -rf /'")
    assert asked(acme, turn)["options"] == ["allow_once", "deny"]
    acme.end(turn)


def test_a_child_of_a_session_that_plans(acme):
    session = acme.session(approvals="plan")
    assert acme.run(session, task("$ true")).text.startswith("error: planning: ")
    assert acme.run(session, task("@list_files {\"path\":\"/\"}")).text.startswith('{"name":"bin"')


def test_the_tokens_of_a_child_count(acme):
    used = []
    for line in ("x" * 400, task("x" * 400)):
        session = acme.session()
        acme.run(session, line)
        used.append(acme.call("GET", f"/v1/sessions/{session}")["usage"])
    assert used[0]["input"] == 100 and used[0]["output"] == 100
    # The parent is told its task and the answer, the child the task; both say it.
    assert used[1]["output"] == 200 and used[1]["input"] > 400


def test_a_child_is_cancelled(acme, session):
    turn = acme.start(session, task("$ echo first\n$ sleep 600"))
    eventually(lambda: len(steps(acme, turn)) == 2, 30, "the first step")
    assert agents(acme, turn)[1]["status"] == "running"
    acme.end(turn)
    assert agents(acme, turn)[1]["status"] == "cancelled"


def test_a_child_is_interrupted(make_daemon):
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    turn = client.start(session, task("$ echo x >>ran\n$ sleep 600") + "\n$ echo after")
    eventually(lambda: len(steps(client, turn)) == 2, 30, "the first step")
    kill_all(daemon)
    daemon.start()
    client = daemon.client("acme")
    assert client.wait(turn).status == "completed"
    first, second = results(client, session)
    assert first.startswith("error: interrupted: ") and second == "after\n"
    child = agents(client, turn)[1]
    assert child["status"] == "failed" and len(child["steps"]) == 2
    with open(f"{daemon.tenants['acme'].workspace}/ran", encoding="ascii") as f:
        assert f.read() == "x\n", "it is not done again"
    assert daemon.stop() == 0


def test_a_child_that_is_without_a_database_for_a_while(make_daemon):
    """What it did stays done, and it goes on."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    work = "\n".join(f"$ echo {i} >>effects; sleep 0.3" for i in range(8))
    turn = client.start(client.session(), task(work))
    eventually(lambda: len(steps(client, turn)) > 2, 30, "the child at work")
    cluster = [daemon.postgres(), *[p for p in daemon.tree() if p.name == "postgres"]]
    for process in cluster:
        process.kill(signal.SIGSTOP)
    try:
        time.sleep(10)
    finally:
        for process in cluster:
            with contextlib.suppress(ProcessLookupError):
                process.kill(signal.SIGCONT)
    assert client.wait(turn).status == "completed"
    assert effects(daemon) == [str(i) for i in range(8)]
    assert daemon.stop() == 0


# --- with a model of a provider -----------------------------------------------------------------


@pytest.fixture(scope="module")
def provided(world, provider):
    daemon = Daemon(world, ("acme",))
    daemon.start(models=declare(daemon, entry("m", "chat-completions", provider.url)))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture
def client(provided, provider):
    provider.will()
    return provided.client("acme")


def test_what_a_child_is_told(client, provider):
    session = client.session(instructions="Be brief.")
    client.run(session, "earlier")
    provider.will(Call("task", {"prompt": "count them"}), "text", "text")
    outcome = client.run(session, "secret of the session")
    assert outcome.status == "completed"
    first, child, last = provider.requests
    assert messages(child) == [("user", "count them")]
    assert "You are a child agent" in system(child) and "Be brief." in system(child)
    assert "You are a child agent" not in system(first)
    offered = [{t["function"]["name"] for t in r.json["tools"]} for r in (first, child)]
    assert offered[0] - offered[1] == {"task", "ask_user", "plan_enter", "plan_exit"}
    assert messages(last)[-1] == ("tool", "Grüße, Welt \U0001f30d\n")


def test_a_child_that_fails(client, provider):
    provider.will(Call("task", {"prompt": "x"}), Say(400, {"error": {"message": "no"}}), "text")
    assert client.run(client.session(), "go").status == "completed"
    assert messages(provider.requests[-1])[-1][1].startswith("error: task_failed: ")
    failing = Call("shell", {"command": "exit 7"})
    provider.will(Call("task", {"prompt": "x"}), *[failing] * 5, "text")
    assert client.run(client.session(), "go").status == "completed"
    assert messages(provider.requests[-1])[-1][1].startswith("error: task_limit: ")
    assert len(provider.requests) == 7


def test_a_child_that_waits_for_its_model_is_cancelled(client, provider):
    hang = Hang()
    provider.will(Call("task", {"prompt": "x"}), hang)
    turn = client.start(client.session(), "go")
    assert hang.began.wait(30)
    client.end(turn)
    assert hang.gone.wait(10)
