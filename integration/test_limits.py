"""Bounds: each is held, and reaching it is said. Queues, output, files, arguments."""

import json
import re
import time
import uuid

import pytest

from daemon import Gate
from world import SANITIZED, eventually, in_time, punctual

MIB = 1024 * 1024
HALF = 32768  # bytes kept of the head and of the tail of an output
MORE_OF_IT = re.compile(r"\n\[more of it: read_output with id out_[0-9a-f]+_[0-9]+\]$")
GROWTH = (400 if SANITIZED else 64) * MIB  # a sanitizer keeps freed memory for a while


def peak(process):
    """Bytes of memory the process ever had."""
    return int(process.status("VmHWM").split()[0]) * 1024


# --- output ----------------------------------------------------------------------------


def test_100_mb_of_output(cloister, acme, session):
    size = 100_000_000
    before = peak(cloister.server()), peak(cloister.launcher())
    outcome = acme.watch(session, "$ echo BEGIN; yes 0123456789abcdef | head -c "
                                  f"{size}; echo; echo THE END", 180)
    after = peak(cloister.server()), peak(cloister.launcher())
    total = len("BEGIN\n") + size + len("\nTHE END\n")
    assert outcome.tool["truncated"] is True and outcome.tool["totalBytes"] == total
    assert outcome.finished[0]["totalBytes"] == total and outcome.finished[0]["truncated"] is True
    assert outcome.details["exitCode"] == 0
    cut = re.search(r"\n\[(\d+) bytes cut\]\n", outcome.text)
    assert cut and int(cut[1]) == total - 2 * HALF
    assert outcome.text.startswith("BEGIN\n0123456789abcdef\n")
    shown = re.sub(r"\[more of it: read_output with id out_[0-9a-f]+_[0-9]+\]$", "", outcome.text)
    assert shown.endswith("\nTHE END\n") and shown != outcome.text
    assert len(shown) == 2 * HALF + len(cut[0])
    growth = [a - b for a, b in zip(after, before)]
    assert max(growth) < GROWTH, f"server and launcher grew by {growth} bytes"


@pytest.mark.parametrize("size,cut", [(2 * HALF, 0), (2 * HALF + 1, 1)])
def test_output_at_the_bound_and_one_byte_more(acme, session, size, cut):
    outcome = acme.run(session, f"$ head -c {size} /dev/zero | tr '\\0' x")
    assert outcome.tool["totalBytes"] == size and outcome.tool["truncated"] is bool(cut)
    shown, kept = MORE_OF_IT.subn("", outcome.text)
    assert shown == (f"{'x' * HALF}\n[1 bytes cut]\n{'x' * HALF}" if cut else "x" * size)
    assert kept == cut


@pytest.mark.parametrize("command,text", [
    (r"printf 'a\377b'", "a\ufffdb"),
    (r"printf 'a\000b'", "a\ufffdb"),
    (r"printf '\303'", "\ufffd"),
    (r"printf 'x\355\240\200y'", "x\ufffd\ufffd\ufffdy"),
    (r"printf '\364\220\200\200'", "\ufffd" * 4),
    (r"printf '\300\200'", "\ufffd\ufffd")])
def test_bytes_that_are_not_text(acme, session, command, text):
    outcome = acme.watch(session, f"$ {command}")
    assert outcome.text == text and outcome.finished[0]["output"] == text
    assert outcome.tool["lossy"] is True and outcome.finished[0]["lossy"] is True
    again = acme.wait(outcome.turn["id"])  # from the database
    assert again.text == text


@pytest.mark.parametrize("command,text", [
    (r"printf 'h\303\251\360\237\230\200\n'", "hé😀\n"),
    (r"printf '\"\\\\\t\001\033[0m\n'", "\"\\\\\t\x01\x1b[0m\n"),
    (r"printf '\357\277\275'", "\ufffd")])
def test_text_is_left_alone(acme, session, command, text):
    outcome = acme.run(session, f"$ {command}")
    assert outcome.text == text and outcome.tool["lossy"] is False


def test_random_bytes(acme, session):
    """Noise breaks neither JSON, nor the events, nor the database."""
    outcome = acme.watch(session, "$ head -c 60000 /dev/urandom; head -c 60000 /dev/urandom >&2")
    assert outcome.status == "completed" and outcome.tool["lossy"] is True
    assert outcome.tool["totalBytes"] == 120000 and "\0" not in outcome.text
    assert outcome.text.startswith(acme.wait(outcome.turn["id"]).text[:1000])


def test_a_very_long_answer_is_cut(acme, session):
    whole = "é" * 262144
    outcome = acme.run(session, whole)
    assert outcome.text == whole and outcome.output["assistantTextTruncated"] is False
    outcome = acme.run(session, whole + "x")
    assert outcome.text == whole and outcome.output["assistantTextTruncated"] is True


# --- how a command ends ------------------------------------------------------------------


def test_exit_codes_and_signals(acme, session):
    for code in (0, 1, 255):
        outcome = acme.watch(session, f"$ exit {code}")
        assert outcome.details["exitCode"] == code and outcome.details["signal"] is None
        assert outcome.text == (f"[exit code {code}]" if code else "")
    outcome = acme.watch(session, "$ kill -SEGV $$")
    assert outcome.details["exitCode"] is None and outcome.details["signal"] == 11
    assert outcome.text == "[killed by signal 11]"


def test_a_child_that_holds_the_output(acme, session):
    def attempt():
        start = time.monotonic()
        outcome = acme.watch(session, "$ setsid sleep 300 & echo out; echo err >&2")
        took = time.monotonic() - start
        assert sorted(outcome.text.splitlines()[:2]) == ["err", "out"]
        assert outcome.text.endswith("[1 of its processes live on]")
        assert outcome.details == {"reason": "exited", "exitCode": 0, "signal": None,
                                   "survivors": 1}
        assert acme.run(session, "$ pkill -x sleep && echo found").text == "found\n"
        in_time(took < 5, f"an end after {took:.2f} s")

    punctual(attempt)


def test_a_child_that_goes_on_writing(cloister, acme, session):
    """What a survivor writes later is thrown away; it neither blocks nor reaches anybody."""
    gate = Gate(cloister)
    outcome = acme.watch(session, f"$ ({gate.wait}; yes late) & echo early")
    assert outcome.text.startswith("early\n") and "late" not in outcome.text
    gate.open()
    check = acme.run(session, "$ for i in $(seq 300); do pgrep -x yes >/dev/null && break; "
                              "sleep 0.1; done; sleep 1; pgrep -x yes >/dev/null && echo alive; "
                              "pkill -x yes")
    assert check.text == "alive\n"


def test_standard_input_is_empty(acme, session):
    outcome = acme.run(session, "$ wc -c; cat; echo done")
    assert outcome.text == "0\ndone\n"


# --- arguments of tools ------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    '{"command":"true","timeoutMs":0}', '{"command":"true","timeoutMs":3600001}',
    '{"command":"true","timeoutMs":-1}', '{"command":"true","timeoutMs":1.5}',
    '{"command":"true","timeoutMs":"1"}', '{"command":1}', '{}', '[]', 'x', '',
    '{"command":"true","env":{}}', '{"command":"true","command":"false"}'])
def test_arguments_of_shell_that_are_refused(acme, session, arguments):
    outcome = acme.watch(session, f"@shell {arguments}")
    assert outcome.text.startswith("error: invalid_arguments: ")
    assert outcome.details == {"reason": "invalid_arguments"}


def test_arguments_of_shell_that_are_taken(acme, session):
    for timeout in (3600000, 120000):
        outcome = acme.tool(session, "shell", command="pwd", timeoutMs=timeout, cwd="/tmp")
        assert outcome.text == "/tmp\n"
    assert acme.tool(session, "shell", command="sleep 60", timeoutMs=1).details["reason"] == \
        "timeout"


@pytest.mark.parametrize("tool,arguments", [
    ("read_file", {"path": "x", "limit": 0}), ("read_file", {"path": "x", "limit": 65537}),
    ("read_file", {"path": "x", "offset": -1}), ("read_file", {}), ("read_file", {"path": None}),
    ("list_files", {"limit": 0}), ("list_files", {"limit": 1001}), ("list_files", {"path": 1}),
    ("write_file", {"path": "x"}), ("write_file", {"content": "x"}),
    ("write_file", {"path": "x", "content": "y", "mode": 1}),
    ("read_file", {"path": "x" * 9000})])
def test_arguments_of_files_that_are_refused(acme, session, tool, arguments):
    outcome = acme.tool(session, tool, **arguments)
    assert outcome.text.startswith("error: invalid"), outcome.text


def test_a_tool_that_does_not_exist(acme, session):
    outcome = acme.watch(session, "@format_disk {}")
    assert outcome.text == "error: unknown_tool: format_disk"


def test_errors_of_commands_and_files(acme, session):
    for tool, arguments, reason in (
            ("shell", {"command": "true", "cwd": "/workspace/none"}, "no_cwd"),
            ("read_file", {"path": "none"}, "not_found"),
            ("read_file", {"path": "/workspace"}, "not_a_file"),
            ("list_files", {"path": "none"}, "not_found"),
            ("list_files", {"path": "/etc/passwd"}, "not_a_directory"),
            ("read_file", {"path": "/dev/zero"}, "not_a_file"),
            ("read_file", {"path": "/" + "x" * 4200}, "invalid")):
        outcome = acme.tool(session, tool, **arguments)
        assert outcome.details["reason"] == reason, (tool, arguments, outcome.text)
        assert outcome.text.startswith(f"error: {reason}: ")
    outcome = acme.tool(session, "write_file", path="/etc/x", content="y")
    assert outcome.text.startswith("error: "), "the root filesystem can be written"


def test_a_session_whose_directory_does_not_exist(acme):
    session = acme.session(cwd="never/made")
    assert acme.watch(session, "$ pwd").details["reason"] == "no_cwd"
    assert acme.tool(session, "write_file", path="here", content="x").details["reason"] == "done"
    assert acme.run(session, "$ pwd").text == "/workspace/never/made\n"


# --- files -------------------------------------------------------------------------------


def test_a_file_in_pieces(acme, session):
    content = "".join(f"line {i:05}\n" for i in range(10000))  # 110,000 bytes
    outcome = acme.tool(session, "write_file", path="deep/er/pieces.txt", content=content)
    assert outcome.text == f"wrote {len(content)} bytes to /workspace/deep/er/pieces.txt"
    first = acme.tool(session, "read_file", path="deep/er/pieces.txt")
    assert first.tool["truncated"] is True and first.tool["totalBytes"] == len(content)
    assert first.text == content[:65536] + \
        f"\n[65536 of {len(content)} bytes; go on with offset 65536]"
    rest = acme.tool(session, "read_file", path="deep/er/pieces.txt", offset=65536)
    assert rest.text == content[65536:] and rest.tool["truncated"] is False
    some = acme.tool(session, "read_file", path="deep/er/pieces.txt", offset=11, limit=10)
    assert some.text.startswith("line 00001")
    past = acme.tool(session, "read_file", path="deep/er/pieces.txt", offset=10 ** 9)
    assert past.details["reason"] == "done" and past.text == ""


def test_a_large_file_is_written_whole(acme, session):
    content = "0123456789abcdef" * 50000  # 800,000 bytes, three windows of credit
    assert acme.tool(session, "write_file", path="large", content=content).details["reason"] == \
        "done"
    assert acme.run(session, "$ stat -c %s large; sha256sum <large").text.startswith("800000\n")


def test_writing_replaces_whole_files(acme, session):
    for content in ("long " * 100, "", "short"):
        acme.tool(session, "write_file", path="replaced", content=content)
        assert acme.tool(session, "read_file", path="replaced").text == content


def entries(outcome):
    lines = [line for line in outcome.text.splitlines() if not line.startswith("[")]
    return [json.loads(line) for line in lines]


def test_a_listing_is_bounded(acme, session):
    acme.run(session, "$ mkdir -p many && cd many && seq -f %04g 1001 | xargs touch")
    whole = acme.tool(session, "list_files", path="many")
    assert len(entries(whole)) == 1000 and whole.text.endswith("[1000 of 1001 entries]")
    assert whole.tool["truncated"] is True
    some = acme.tool(session, "list_files", path="many", limit=3)
    assert [e["name"] for e in entries(some)] == ["0001", "0002", "0003"]
    acme.run(session, "$ rm many/1001")
    assert acme.tool(session, "list_files", path="many").tool["truncated"] is False


def test_names_of_all_kinds(acme, session):
    acme.run(session, "$ mkdir -p names/sub && cd names && touch $'a\\nb' $'\\377' 'q\"' '[x]' && "
                      "ln -s / link && mkfifo fifo && echo 1234 >five")
    listed = entries(acme.tool(session, "list_files", path="names"))
    found = {e["name"]: e for e in listed}
    assert {n: e["type"] for n, e in found.items()} == {
        "a\nb": "file", "\ufffd": "file", 'q"': "file", "[x]": "file", "sub": "directory",
        "link": "symlink", "fifo": "other", "five": "file"}
    assert found["\ufffd"]["lossy"] is True and found["five"]["size"] == 5


# --- turns -------------------------------------------------------------------------------


def test_64_calls_in_one_turn_and_one_more(acme, session):
    outcome = acme.watch(session, "\n".join(f"$ echo {i}" for i in range(64)))
    assert outcome.text == "63\n" and len(outcome.output["tools"]) == 64
    assert [f["output"] for f in outcome.finished] == [f"{i}\n" for i in range(64)]
    outcome = acme.run(session, "\n".join(f"$ echo {i}" for i in range(65)))
    assert outcome.status == "failed" and outcome.error["code"] == "model_failed"
    assert "64" in outcome.error["message"] and outcome.output is None


def test_queues_are_bounded(make_daemon):
    daemon = make_daemon(("acme", "globex", "hooli"), options=[
        "--max-running-turns=1", "--max-queued-turns=4", "--max-queued-turns-per-tenant=2"]).start()
    acme, globex, hooli = (daemon.client(n) for n in ("acme", "globex", "hooli"))
    gate = Gate(daemon)
    running = acme.start(acme.session(), f"$ {gate.wait}")
    acme.wait_for(running, "running")
    keyed, key = acme.session(), {"clientRequestId": str(uuid.uuid4())}
    queued = [acme.start(acme.session(), "$ echo a"), acme.start(keyed, "$ echo k", **key)]
    extra = acme.session()

    def refused(client, session, code):
        answer = client.request("POST", f"/v1/sessions/{session}/turns", {"input": "x"})
        assert (answer.status, answer.code) == (429, code), answer
        assert answer.header("Retry-After")

    refused(acme, extra, "tenant_turn_queue_full")
    # What was taken already is not refused when it is sent again.
    assert acme.start(keyed, "$ echo k", **key) == queued[1]
    for session, line in ((keyed, "other"), (extra, "$ echo k")):
        acme.call("POST", f"/v1/sessions/{session}/turns", {"input": line, **key}, 409,
                  "idempotency_conflict")
    queued += [globex.start(globex.session(), "$ echo g") for _ in range(2)]
    refused(globex, globex.session(), "tenant_turn_queue_full")
    refused(hooli, hooli.session(), "turn_queue_full")
    assert acme.turn(queued[0])["status"] == "queued"
    gate.open()
    for client, turn in zip((acme, acme, globex, globex), queued):
        assert client.wait(turn).status == "completed"
    # Nothing of what was refused was stored: the session is free.
    assert acme.run(extra, "free").text == "free"


def test_tenants_take_turns(make_daemon):
    daemon = make_daemon(options=["--max-running-turns=1"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    gate = Gate(daemon)
    first = acme.start(acme.session(), f"$ {gate.wait}")
    acme.wait_for(first, "running")
    many = [acme.start(acme.session(), f"$ echo {i}") for i in range(6)]
    late = globex.start(globex.session(), "$ echo late")
    gate.open()
    begun = globex.wait(late).turn["startedAt"]
    later = [t for t in many if acme.wait(t).turn["startedAt"] > begun]
    assert len(later) >= 5, "a tenant with many queued turns held another back"


def test_turns_that_wait_for_a_person_hold_nothing(make_daemon):
    """No slot: there is one, and another turn runs in it. No thread: they have as many as none."""
    daemon = make_daemon(options=["--max-running-turns=1"]).start()
    client = daemon.client("acme")
    assert client.run(client.session(), "$ echo first").text == "first\n"
    threads = int(daemon.server().status("Threads"))
    waiting = [client.start(client.session(), "? go | yes") for _ in range(12)]
    for turn in waiting:
        client.wait_for(turn, "waiting_for_input")
    assert client.run(client.session(), "$ echo ran").text == "ran\n"
    eventually(lambda: int(daemon.server().status("Threads")) <= threads, 10,
               "no thread of a turn that waits")
    for request in client.call("GET", "/v1/requests")["data"]:
        client.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"})
    assert [client.wait(turn).text for turn in waiting] == ["yes"] * 12
    assert daemon.stop() == 0


def test_a_tenants_share_of_running_turns(make_daemon):
    daemon = make_daemon(options=["--max-running-turns=3",
                                  "--max-running-turns-per-tenant=2"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    gate = Gate(daemon)
    turns = [acme.start(acme.session(), f"$ {gate.wait}") for _ in range(3)]
    for turn in turns[:2]:
        acme.wait_for(turn, "running")
    assert globex.run(globex.session(), "$ echo mine").text == "mine\n"
    assert acme.turn(turns[2])["status"] == "queued"
    gate.open()
    assert all(acme.wait(t).status == "completed" for t in turns)


@pytest.mark.parametrize("size", [1024, 4096])
def test_the_body_bound_is_the_operators(make_daemon, size):
    daemon = make_daemon(options=[f"--max-request-bytes={size}"]).start()
    client = daemon.client("acme")
    body = b'{"title":"x"' + b" " * (size - 13) + b"}"
    client.call("POST", "/v1/sessions", body, 201)
    client.call("POST", "/v1/sessions", body + b" ", 413, "request_too_large")


# --- the sandbox's own bounds --------------------------------------------------------------


THREADS = """
import threading, time
n = 0
try:
    while n < 2000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        n += 1
except RuntimeError:
    pass
print(n, flush=True)
"""


def test_a_process_limit(acme, session):
    acme.tool(session, "write_file", path="threads.py", content=THREADS)
    outcome = acme.watch(session, "$ python3 threads.py")
    assert 100 < int(outcome.text.split()[0]) < 512, outcome.text
    assert acme.run(session, "$ echo next").text == "next\n"


def test_tmpfs_has_a_size(acme, session):
    outcome = acme.run(session, "$ head -c 400000000 /dev/zero >/tmp/full; stat -c %s /tmp/full; "
                                "rm /tmp/full", 60)
    assert "No space left" in outcome.text and int(outcome.text.split()[-1]) <= 256 * MIB
