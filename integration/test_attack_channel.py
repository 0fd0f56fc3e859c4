"""A hostile tenant on the protocol's channel: another guest, and processes that write into it.

Any process of a sandbox is root there and can open the guest's own descriptors, so what
the guest says is what the tenant says. None of it may look like success, harm the daemon or
another tenant, or keep the next call from its answer.
"""

import os
import re
import time

import pytest

from daemon import write_file
from hostile import CODE, Stage, put
from world import SANITIZED, eventually


@pytest.fixture(scope="module")
def shared(world):
    guest = f"{world.programs}/cloister-guest"
    directory = world.new_directory()
    os.mkdir(directory)
    os.chmod(directory, 0o755)
    put(directory, f"{CODE}/liar.py", "liar.py")

    class Liars(Stage):
        def prepare(self):
            for tenant in self.daemon.tenants.values():
                put(tenant.workspace, guest, "guest")

    stage = Liars(world, guest=f"{directory}/liar.py")
    yield stage
    stage.close()


@pytest.fixture
def stage(shared):
    yield shared
    if os.path.exists(f"{shared.workspace}/lie"):
        os.unlink(f"{shared.workspace}/lie")
    # Its next sandbox has an honest guest; everybody else never noticed.
    shared.judge()
    shared.end_sandbox()
    assert shared.run("echo honest").text == "honest\n"


def plant(stage, code):
    """The hostile tenant's next guest runs code."""
    stage.end_sandbox()
    write_file(f"{stage.workspace}/lie", code, 0o644)
    return len(stage.daemon.log())


def lie(stage, code):
    """What its next call comes to then, and what was logged."""
    before = plant(stage, code)
    outcome = stage.run("echo never", 60)
    return outcome, stage.daemon.log()[before:]


def said(log):
    """The line that names the fault."""
    return re.findall(r"sandbox of tenant \S+ is ended: (.*)", log)


# Code, and words of the fault that ends the sandbox.
LIES = {
    "a type nobody knows": ("say(0x55, started())", "unknown frame type 0x55"),
    "a frame of 4 GiB": ("say(STDOUT, started(), b'', 0xffffffff)", "4294967295 bytes"),
    "a result that is too long": ("say(EXIT, started(), b' ' * 262145)", "262145 bytes"),
    "half a frame": ("started(); raw(b'\\0\\0\\0\\x09\\x82\\0\\0'); os._exit(0)",
                     "middle of a frame"),
    "somebody else's call": ("say(STDOUT, started() + 256, b'x')", "which is not open"),
    "a call of the far future": ("started(); say(EXIT, 2 ** 64 - 1, b'{}')",
                                 "which is not open"),
    "all the credit there is": ("say(CREDIT, started(), b'\\xff' * 4)", "credit of 4294967295"),
    "an answer to nothing": ("started(); say(PONG)", "PONG without"),
    "no JSON": ("say(EXIT, started(), b'exit 0')", "line 1"),
    "deep JSON": ("say(EXIT, started(), b'[' * 65 + b']' * 65)", "protocol error"),
    "two values for a key": ("say(EXIT, started(), b'{\"code\":1,\"code\":0}')", "duplicate key"),
    "no such code": ("result(started(), reason='exited', code=256)", "above 255"),
    "a number without end": ("say(EXIT, started(), b'{\"code\":1' + b'0' * 400 + b'}')",
                             "protocol error"),
    "a reason of the host's": ("result(started(), reason='oom')", "cannot claim"),
    "survivors beyond number": ("result(started(), reason='exited', code=0, "
                                "survivors=9007199254740991)", "survivors"),
    "an error nobody knows": ("say(EXIT, started(), b'{\"error\":{\"code\":\"x\","
                              "\"message\":\"\"}}')", "unknown error"),
    "an unknown field": ("result(started(), reason='exited', code=0, admin=True)", "admin: "),
}


def test_a_lie_is_never_success(stage):
    """In every field: the call is lost, one line names the fault, the witness works on.

    Each one costs a sandbox, so here are the kinds; daemon/sandbox/test_lies.c has them all."""
    for name, (code, fault) in LIES.items():
        outcome, log = lie(stage, f"shake()\n{code}")
        assert (outcome.details["reason"], outcome.details["exitCode"]) == ("lost", None), name
        assert "never" not in outcome.text, name
        assert len(said(log)) == 1 and fault in said(log)[0], (name, log)
        assert stage.witness.run(stage.calm, "$ echo calm").text == "calm\n", name


def test_a_second_result_spoils_what_follows(stage):
    """The first was the call's own, and true as far as anybody can tell."""
    outcome, _ = lie(stage, "shake()\nc = started()\nfor code in (7, 0): "
                            "result(c, reason='exited', code=code)")
    assert (outcome.details["reason"], outcome.details["exitCode"]) == ("exited", 7)
    eventually(lambda: "which is not open" in (said(stage.daemon.log()) or [""])[-1], 10, "the fault")


START_LIES = {
    "another version": ("hear(); say(READY, 0, b'{\"version\":2,\"pid\":1}')", "version 2"),
    "a result before the greeting": ("hear(); say(EXIT, 1, b'{}')", "before READY"),
    "a greeting of a call": ("hear(); say(READY, 7, b'{\"version\":1,\"pid\":1}')",
                             "READY of call 7"),
    "a long greeting": ("hear(); say(READY, 0, b' ' * 4000 + b'{}')", "4002 bytes"),
    "rubbish": ("raw(b'GET / HTTP/1.1\\r\\n\\r\\n')", "protocol error"),
    "an end": ("hear(); os._exit(0)", "the guest ended"),
}


def test_a_lie_at_the_start_is_a_start_that_failed(stage):
    for name, (code, fault) in START_LIES.items():
        outcome, log = lie(stage, code)
        assert (outcome.status, outcome.error["code"]) == ("failed", "sandbox_unavailable"), name
        assert fault in log, (name, log)
        assert "/" not in outcome.error["message"], outcome.error


@pytest.mark.parametrize("code", [124, 128])
@pytest.mark.parametrize("ran", [True, False])
def test_an_end_is_not_a_failure_of_the_host(stage, code, ran):
    """By codes and words that runsc has for one: what ended is the guest, and so the log says."""
    _, log = lie(stage, ("shake(); started()" if ran else "hear()") +
                 f"\nos.write(2, b'starting container: lies\\n'); os._exit({code})")
    assert "could not start" not in log, log
    assert "the sandbox ended by itself with code" in log, log
    assert re.search("runner [0-9]+ ended: exit status 3", log), log


def test_floods_of_what_is_allowed(stage):
    """A million tiny frames, and results in bytes one by one: slow, but not wrong."""
    outcome, _ = lie(stage, "shake()\nc = started()\n"
                            "one = struct.pack('>IBQ', 1, STDOUT, c) + b'x'\n"
                            "for _ in range(20): raw(one * 10000)\n"
                            "body = b'{\"reason\":\"exited\",\"code\":3,\"stdoutBytes\":1,"
                            "\"stderrBytes\":0}'\n"
                            "for b in struct.pack('>IBQ', len(body), EXIT, c) + body: "
                            "raw(bytes([b]))\n")
    assert outcome.details["reason"] in ("exited", "lost"), outcome.text
    if outcome.details["reason"] == "exited":
        assert outcome.tool["totalBytes"] == 200000, "the daemon counts for itself"


def peak_mib(pid):
    """What a process has had of memory at most."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) >> 10


def test_results_of_nothing_but_values(stage):
    """Each empty object would take 800 bytes; sixteen results at once are that many lies."""
    plant(stage, """
shake()
calls = [started() for _ in range(16)]
body = b'{"x":[' + b','.join([b'{}'] * 87378) + b']}'
raw(b''.join(struct.pack('>IBQ', len(body), EXIT, c) + body for c in calls))
""")
    server = stage.daemon.server().pid
    before, logged = peak_mib(server), len(stage.daemon.log())
    reads = "\n".join(['@read_file {"path": "lie"}'] * 4)
    turns = [stage.mallory.start(stage.mallory.session(), reads) for _ in range(4)]
    for turn in turns:
        stage.mallory.wait(turn, 30)
    assert peak_mib(server) - before < 64
    assert "more than 1024 values" in said(stage.daemon.log()[logged:])[0]


@pytest.mark.parametrize("seed", range(3))
def test_noise(stage, seed):
    """Frames that are right but for a few bits, and then anything."""
    outcome, _ = lie(stage, f"""
import random
chance = random.Random({seed})
shake()
c = started()
for _ in range(200):
    frame = bytearray(struct.pack(">IBQ", 5, chance.choice([STDOUT, STDERR, CREDIT, PONG]), c))
    frame += chance.randbytes(5)
    for _ in range(chance.randrange(4)):
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    raw(bytes(frame))
raw(chance.randbytes(100000))
""")
    assert outcome.details["reason"] == "lost", outcome.text


def test_a_guest_that_never_listens(stage):
    """Nor answers: the call ends at its deadline, and its sandbox with it."""
    plant(stage, "import time\nshake()\ntime.sleep(3000)\n")
    begin = time.monotonic()
    outcome = stage.mallory.tool(stage.session, "shell", command="true", timeoutMs=1000)
    assert outcome.details["reason"] in ("timeout", "lost")
    assert outcome.details["exitCode"] is None and time.monotonic() - begin < 20


FLOOD = r"""
for i in $(seq 100); do printf 'flood %0500d\n' $i; done >/proc/1/fd/2;
for fd in /proc/1/fd/*; do
    case $(readlink $fd) in
    host:*) printf '\377\377\377\377\204\0\0\0\0\0\0\0\0' >$fd 2>/dev/null ;;
    esac
done;
sleep 5
"""


def test_a_log_that_each_sandbox_floods_anew(stage):
    """The lines are counted for the tenant, however many sandboxes it ruins one by one."""
    begin, before = time.monotonic(), len(stage.daemon.log())
    for _ in range(8):
        assert stage.run(FLOOD.replace("\n", " ")).details["reason"] == "lost"
    log = stage.daemon.log()[before:]
    assert "lines left out here" in log
    burst = 300 if SANITIZED else 50
    assert log.count("runner: sandbox: flood") <= burst + 5 * (time.monotonic() - begin)


INTO = """
for fd in /proc/1/fd/*; do
    case $(readlink $fd) in host:*) {what} >$fd 2>/dev/null ;; esac
done
sleep 1
"""


@pytest.mark.parametrize("what", ["head -c 100000 /dev/zero", "head -c 1000000 /dev/urandom",
                                  r"printf '\\0\\0\\0\\11\\202\\0\\0'",
                                  r"printf '\\377\\377\\377\\377\\204\\0\\0\\0\\0\\0\\0\\0\\0'"])
def test_processes_that_write_into_the_channel(stage, what):
    """Through the guest's descriptors in /proc: malformed, oversized and half frames."""
    outcome = stage.run(INTO.format(what=what).replace("\n", " ").replace("\\\\", "\\"))
    assert outcome.details["exitCode"] != 0, outcome.text
    assert outcome.details["reason"] in ("lost", "exited"), outcome.text
