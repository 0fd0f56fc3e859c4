"""The walls: what a sandbox can see and reach, and that the daemon stays out of it."""

import json
import os
import platform
import re
import time
import uuid

import pytest

from rules import counters
from watch import Opens
from world import demo, descendants, eventually, in_time, punctual

SECRET = "the host's secret"


@pytest.fixture
def workspace(cloister):
    return cloister.tenants["acme"].workspace


@pytest.fixture
def secret(cloister):
    """A file of the host that the service user can read."""
    path = f"{cloister.var}/secret-{uuid.uuid4()}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(SECRET)
    os.chmod(path, 0o644)
    return path


def plant(path, make):
    make(path)
    os.lchown(path, os.stat(os.path.dirname(path)).st_uid, os.stat(os.path.dirname(path)).st_gid)


def everything(outcome):
    """All that a turn said to anybody."""
    return json.dumps([outcome.turn, outcome.output, [e for _, _, e in outcome.events]])


# --- links, FIFOs and devices in the workspace ---------------------------------------------


@pytest.mark.parametrize("planted_by", ["the host", "the sandbox"])
@pytest.mark.parametrize("shape", ["file", "directory", "chain", "relative", "proc"])
def test_a_symlink_leads_nowhere_outside(acme, session, workspace, secret, cloister, shape,
                                         planted_by):
    target = {"file": secret, "directory": cloister.var, "chain": f"{workspace}/hop",
              "relative": "../../" + os.path.basename(secret),
              "proc": f"/proc/self/cwd/../..{secret}"}[shape]
    name = f"link-{uuid.uuid4()}"
    if planted_by == "the host":
        plant(f"{workspace}/{name}", lambda path: os.symlink(target, path))
        if shape == "chain" and not os.path.islink(f"{workspace}/hop"):
            plant(f"{workspace}/hop", lambda path: os.symlink(secret, path))
    else:
        acme.run(session, f"$ ln -sfn '{target}' {name}; ln -sfn '{secret}' hop")
    inside = name if shape != "directory" else f"{name}/{os.path.basename(secret)}"
    for tool in ("read_file", "list_files"):
        outcome = acme.tool(session, tool, path=inside)
        assert outcome.text.startswith("error: "), outcome.text
        assert SECRET not in everything(outcome)
    outcome = acme.watch(session, f"$ cat {inside}; ls -la {inside}/")
    assert outcome.text.endswith("[exit code 2]") and SECRET not in everything(outcome)
    acme.tool(session, "write_file", path=inside, content="overwritten")
    with open(secret, encoding="utf-8") as f:
        assert f.read() == SECRET, "the host's file was written through a link"


def test_writing_below_a_link_to_a_host_directory(acme, session, workspace, cloister):
    name = f"dir-{uuid.uuid4()}"
    plant(f"{workspace}/{name}", lambda path: os.symlink(f"{cloister.var}/tokens", path))
    outcome = acme.tool(session, "write_file", path=f"{name}/evil", content="x")
    assert not os.path.exists(f"{cloister.var}/tokens/evil")
    assert sorted(os.listdir(f"{cloister.var}/tokens")) == sorted(cloister.tenants)
    assert outcome.status == "completed"


def test_writing_a_hard_link_leaves_the_other_name_alone(acme, session, workspace, secret):
    """A write replaces the name; the file it shared with the host keeps its content."""
    name = f"hard-{uuid.uuid4()}"
    os.link(secret, f"{workspace}/{name}")
    outcome = acme.tool(session, "write_file", path=name, content="mine")
    assert outcome.details["reason"] == "done", outcome.text
    with open(secret, encoding="utf-8") as f:
        assert f.read() == SECRET
    assert acme.tool(session, "read_file", path=name).text == "mine"


def test_no_hard_link_crosses_the_walls(acme, session):
    outcome = acme.run(session, "$ ln /etc/passwd here; ln /workspace /state/x; echo a >/state/a; "
                                "ln /state/a /workspace/a; ls /workspace/a here")
    assert outcome.text.count("ln: ") == 3 and "exit code 2" in outcome.text, outcome.text


@pytest.mark.parametrize("planted_by", ["the host", "the sandbox"])
def test_a_fifo_does_not_hold_anybody(acme, session, workspace, planted_by):
    name = f"fifo-{uuid.uuid4()}"
    if planted_by == "the host":
        plant(f"{workspace}/{name}", os.mkfifo)
    else:
        assert acme.run(session, f"$ mkfifo {name}").text == ""

    def attempt():
        start = time.monotonic()
        assert acme.tool(session, "read_file", path=name).details["reason"] == "not_a_file"
        assert acme.tool(session, "list_files", path=name).details["reason"] == "not_a_directory"
        listed = [json.loads(line) for line in acme.tool(session, "list_files").text.splitlines()]
        assert next(e for e in listed if e["name"] == name)["type"] == "other"
        took = time.monotonic() - start
        in_time(took < 4, f"somebody was held for {took:.2f} s")

    punctual(attempt)
    start = time.monotonic()
    acme.tool(session, "write_file", path=name, content="x")
    assert time.monotonic() - start < 20
    assert acme.run(session, "$ echo next").text == "next\n"


@pytest.mark.parametrize("major,minor", [(1, 5), (1, 8), (5, 0)])
def test_a_device_is_dead(acme, session, workspace, major, minor):
    """/dev/zero, /dev/random and the terminal, planted by root of the host."""
    name = f"device-{uuid.uuid4()}"
    plant(f"{workspace}/{name}",
          lambda path: os.mknod(path, 0o20666, os.makedev(major, minor)))
    outcome = acme.tool(session, "read_file", path=name)
    assert outcome.details["reason"] in ("not_a_file", "denied", "io"), outcome.text
    outcome = acme.run(session, f"$ timeout 5 head -c 10 {name} | wc -c")
    assert outcome.text.splitlines()[-1] == "0", outcome.text
    os.unlink(f"{workspace}/{name}")


def test_no_device_can_be_made_inside(acme, session):
    outcome = acme.run(session, "$ mknod disk b 8 0; mknod mem c 1 1; ls disk mem")
    assert outcome.text.count("cannot access") == 2, outcome.text


def test_a_socket_in_the_workspace(acme, session):
    outcome = acme.run(session, "$ python3 -c 'import socket; "
                                "socket.socket(socket.AF_UNIX).bind(\"sock\")'; ls sock; rm -f sock")
    listed = acme.tool(session, "list_files")
    assert outcome.status == listed.status == "completed"


def test_the_daemon_opens_nothing_of_a_tenant(acme, session, workspace, cloister):
    """Every file operation is the sandbox's: seen from the host, by process."""
    tenant = cloister.tenants["acme"]
    state = f"{cloister.state}/tenants/{tenant.id}/state"
    acme.run(session, "$ mkdir -p watched/sub && echo content >watched/file")
    places = [workspace, f"{workspace}/watched", f"{workspace}/watched/sub", state]
    with Opens(places) as opens:
        acme.run(session, "$ cat watched/file; ls -R /workspace /state >/dev/null; touch /state/x")
        acme.tool(session, "read_file", path="watched/file")
        acme.tool(session, "list_files", path="watched")
        acme.tool(session, "write_file", path="watched/sub/new", content="x")
        acme.call("POST", "/v1/sessions", {"cwd": "watched/sub"}, 201)
        acme.call("POST", "/v1/sessions", {"cwd": "watched/nowhere"}, 201)
        seen = opens.pids()
    daemon = {cloister.process.pid, cloister.server().pid, cloister.runner("acme").pid}
    assert seen, "nothing was seen at all: the watch is blind"
    assert not daemon & set(seen), {pid: seen[pid] for pid in daemon & set(seen)}
    sandbox = {p.pid for p in descendants(cloister.runner("acme").pid)}
    assert set(seen) <= sandbox, {pid: paths for pid, paths in seen.items() if pid not in sandbox}


# --- what is inside ------------------------------------------------------------------------


def test_the_environment_holds_no_secret(acme, session, cloister):
    text = acme.run(session, "$ env; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; "
                             "tr '\\0' '\\n' <$p/cmdline; done").text
    for tenant in cloister.tenants.values():
        assert tenant.token not in text and tenant.token_file not in text
    for word in (cloister.var, cloister.world.programs, cloister.world.rootfs, "PGHOST", "postgres",
                 "CLOISTER_", "SUDO_", "LD_PRELOAD", "KEY=", "SECRET", "PASSWORD"):
        assert word not in text, word
    names = {line.partition("=")[0] for line in acme.run(session, "$ env").text.splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "GIT_PAGER", "PWD",
                     "SHLVL", "_", "TERM"}


def test_mounts_name_no_host_path(acme, session, cloister):
    text = acme.run(session, "$ cat /proc/mounts /proc/self/mountinfo").text
    for word in (cloister.var, "/var/cache", "/tmp/cloister", cloister.tenants["acme"].id,
                 "/var/lib", "ext4", "/dev/vd", "/dev/sd", "/dev/nvme"):
        assert word not in text, text
    points = {line.split()[1] for line in acme.run(session, "$ cat /proc/mounts").text.splitlines()}
    assert points == {"/", "/proc", "/dev", "/dev/pts", "/dev/shm", "/sys", "/tmp", "/var/tmp",
                      "/run", "/workspace", "/state"}


def test_the_root_filesystem_is_read_only(acme, session):
    outcome = acme.run(session, "$ for d in / /etc /usr/bin /var /root /cloister /home; do "
                                "touch $d/x 2>/dev/null && echo wrote $d; done; true")
    assert outcome.text == ""
    assert acme.run(session, "$ for d in /workspace /state /tmp /var/tmp /run /dev/shm; do "
                             "touch $d/x && rm $d/x || echo $d; done").text == ""


def test_no_socket_of_the_host(acme, session):
    assert acme.run(session, "$ find / -xdev -type s 2>/dev/null; find /run /tmp /var /workspace "
                             "/state /dev -type s 2>/dev/null").text == ""
    outcome = acme.run(session, "$ for s in /run/postgresql/.s.PGSQL.5432 /var/run/docker.sock "
                                "/run/dbus/system_bus_socket; do ls $s; done")
    assert outcome.text.count("cannot access") == 3


def test_no_powers(acme, session):
    text = acme.run(session, "$ cat /proc/self/status /proc/1/status").text
    for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        values = re.findall(rf"^{field}:\s*(\w+)$", text, re.MULTILINE)
        assert all(int(v, 16) == 0 for v in values), (field, values)
        assert values or field == "CapAmb", f"{field} is not shown"
    outcome = acme.run(session, "$ mount -t tmpfs x /tmp; umount /workspace; chroot / true; "
                                "unshare -m true; hostname evil; date -s 2000-01-01 >/dev/null; "
                                "hostname")
    assert outcome.text.splitlines()[-1] == "cloister"
    assert len(outcome.text.splitlines()) >= 6, outcome.text


RAW = """
import socket
kinds = {"packet": (socket.AF_PACKET, socket.SOCK_RAW, 3),
         "packet datagrams": (socket.AF_PACKET, socket.SOCK_DGRAM, 3),
         "raw": (socket.AF_INET, socket.SOCK_RAW, 255), "icmp": (socket.AF_INET, socket.SOCK_RAW, 1),
         "raw6": (socket.AF_INET6, socket.SOCK_RAW, 255), "netfilter": (16, socket.SOCK_RAW, 12)}
for name, args in kinds.items():
    try:
        socket.socket(*args)
        print(name, "OPENED")
    except OSError as error:
        print(name, error.errno)
"""


def test_no_raw_sockets(acme, session):
    acme.tool(session, "write_file", path="raw.py", content=RAW)
    outcome = acme.run(session, "$ python3 raw.py")
    assert len(outcome.text.splitlines()) == 6 and "OPENED" not in outcome.text, outcome.text


def test_the_host_has_no_name_inside(acme, session):
    host = platform.node()
    text = acme.run(session, "$ hostname; cat /etc/hosts /etc/hostname /etc/resolv.conf "
                             "/etc/machine-id /proc/version 2>/dev/null").text
    assert host not in text or len(host) < 3
    assert "nameserver" not in text, "names are resolved only where the registry says so"
    assert "search" not in text and "domain" not in text
    with open("/etc/machine-id", encoding="utf-8") as f:
        machine = f.read().strip()
    assert not machine or machine not in text


def test_processes_of_the_sandbox_are_the_tenants(acme, globex, session):
    marker = f"77{os.getpid()}"
    with acme.events() as events:
        turn = acme.start(session, f"$ echo there; sleep {marker}")
        events.until_output(turn, "there")
    other = globex.run(globex.session(), f"$ sleep 0.3; ps -ef | grep -c '[s]leep {marker}'; ps -ef")
    mine = acme.run(acme.session(), f"$ ps -ef | grep -c '[s]leep {marker}'")
    acme.end(turn)
    assert int(mine.text.split()[0]) >= 1 and other.text.splitlines()[0] == "0"
    assert "postgres" not in other.text and "cloisterd" not in other.text


def test_tenants_share_no_file(acme, globex):
    name = f"only-{uuid.uuid4()}"
    acme.run(acme.session(), f"$ for d in /workspace /state /tmp /run /dev/shm /var/tmp; do "
                             f"echo mine >$d/{name}; done")
    outcome = globex.run(globex.session(), f"$ find / -name '{name}' -not -path '/proc/*' "
                                           "2>/dev/null; echo searched")
    assert outcome.text == "searched\n"


def test_state_is_kept_and_temporary_is_not(make_daemon):
    daemon = make_daemon().start()
    client = daemon.client("acme")
    client.run(client.session(), "$ echo kept >/state/kept; mkdir -p ~; echo home >~/home; "
                                 "echo gone >/tmp/gone; echo w >/workspace/w")
    assert daemon.stop() == 0
    daemon.start()
    client = daemon.client("acme")
    outcome = client.run(client.session(), "$ cat /state/kept ~/home /workspace/w; ls /tmp")
    assert outcome.text == "kept\nhome\nw\n"


# --- the network ---------------------------------------------------------------------------

CONNECT = """
import errno, socket, sys, time
for target in sys.argv[1:]:
    address, _, port = target.rpartition(":")
    start = time.monotonic()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        s = socket.socket(family)
        s.settimeout(4)
        s.connect((address, int(port)))
        word = "OPEN"
    except OSError as error:
        word = errno.errorcode.get(error.errno, type(error).__name__)
    print(target, word, round(time.monotonic() - start, 2), flush=True)
"""


def connect(client, session, targets):
    """{target: (word, seconds)} as a program inside sees it."""
    client.tool(session, "write_file", path="connect.py", content=CONNECT)
    text = client.run(session, f"$ python3 connect.py {' '.join(targets)}", 120).text
    lines = [line.split() for line in text.splitlines()]
    assert len(lines) == len(targets), text
    return {target: (word, float(seconds)) for target, word, seconds in lines}


def connect_at_once(client, session, targets):
    """The same; what took a second is tried again, twice: somebody may have stood still."""
    seen = connect(client, session, targets)
    for _ in range(2):
        slow = [target for target, (_, seconds) in seen.items() if seconds >= 1]
        again = connect(client, session, slow) if slow else {}
        assert all(again[t][0] == seen[t][0] for t in slow), (seen, again)
        seen.update(again)
    return seen


def test_what_can_be_reached(acme, session, cloister):
    port = cloister.port
    forbidden = [
        f"{demo.HOST_ADDRESS}:80", f"{demo.HOST_ADDRESS}:{port}", f"{demo.PRIVATE}:80",
        f"{demo.METADATA}:80", f"10.0.2.2:{port}", "10.0.2.2:80", "10.0.2.3:80", "10.0.2.15:80",
        f"192.0.2.1:{port}", "192.0.2.1:22", "172.16.0.1:80", "192.168.1.1:80", "100.64.0.1:80",
        "198.18.0.1:80", "203.0.113.1:80", "240.0.0.1:80", "0.0.0.1:80"]
    acme.run(session, "$ true")  # there is nothing to count before it has a sandbox
    before = counters(cloister, "acme")["refused"]
    seen = connect_at_once(acme, session, [*forbidden, f"{demo.PUBLIC}:80"])
    assert seen.pop(f"{demo.PUBLIC}:80")[0] == "OPEN"
    for target, (word, seconds) in seen.items():
        assert word not in ("OPEN", "TimeoutError", "ETIMEDOUT"), (target, word)
        assert seconds < 1, f"{target} was refused only after {seconds} s"
    assert counters(cloister, "acme")["refused"] >= before + 10


def test_loopback_is_the_sandboxs_own(acme, session, cloister):
    seen = connect(acme, session, [f"127.0.0.1:{cloister.port}", "127.0.0.1:80", "127.0.0.53:53",
                                   "127.0.0.1:5432", f"::1:{cloister.port}"])
    assert all(word != "OPEN" for word, _ in seen.values()), seen


def test_there_is_no_ipv6(acme, session):
    seen = connect(acme, session, ["2001:db8::1:80", "fd00::2:80", "fe80::1:80",
                                   "::ffff:10.99.0.1:80", "64:ff9b::a63:1:80"])
    assert all(word not in ("OPEN", "TimeoutError") for word, _ in seen.values()), seen


def test_tenants_do_not_reach_each_other(acme, globex):
    """Both have the same addresses, each in a network of its own."""
    turn = acme.start(acme.session(), "$ timeout 60 nc -l -k -p 7777")
    address = acme.run(acme.session(), "$ hostname -I; for i in $(seq 100); do "
                                       "nc -z -w 2 127.0.0.1 7777 && break; sleep 0.1; done; "
                                       "test $i -lt 100 && echo listening").text.split()
    assert address[-1] == "listening", address
    targets = [f"{a}:7777" for a in address[:-1]] + ["127.0.0.1:7777", "10.0.2.100:7777"]
    seen = connect(globex, globex.session(), targets)
    acme.cancel(turn)
    assert all(word != "OPEN" for word, _ in seen.values()), seen


UDP = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
for target in (("10.99.0.1", 53), ("169.254.169.254", 123), ("10.0.2.2", 53), ("192.0.2.1", 67)):
    try:
        s.sendto(b"x" * 32, target)
        print(target[0], s.recv(100))
    except OSError as error:
        print(target[0], "no answer")
"""


def test_datagrams_are_refused_too(acme, session, cloister):
    before = counters(cloister, "acme")
    acme.tool(session, "write_file", path="udp.py", content=UDP)
    outcome = acme.run(session, "$ python3 udp.py")
    assert outcome.text.count("no answer") == 4, outcome.text
    after = counters(cloister, "acme")
    assert after["refused"] >= before["refused"] + 4
    assert after["accepted"] == before["accepted"]


def test_an_address_the_host_gets_later_is_refused(cloister):
    """The deny set follows the host's own addresses."""
    client = cloister.client("umbrella")
    session = client.session()
    late = "198.41.7.7"
    client.run(session, "$ true")
    said = f"tenant {cloister.tenants['umbrella'].id}: runner: the host has new local addresses"
    already = cloister.log().count(said)
    demo.ip("address", "add", f"{late}/32", "dev", "lo")
    try:
        eventually(lambda: cloister.log().count(said) > already, 10, "a word of the address")
        before = counters(cloister, "umbrella")["refused"]
        word, seconds = connect_at_once(client, session, [f"{late}:80"])[f"{late}:80"]
        assert word != "OPEN" and seconds < 1, (word, seconds)
        assert counters(cloister, "umbrella")["refused"] > before
    finally:
        demo.ip("address", "del", f"{late}/32", "dev", "lo")
    assert connect(client, session, [f"{demo.PUBLIC}:80"])[f"{demo.PUBLIC}:80"][0] == "OPEN"


# --- the processes of the host ---------------------------------------------------------------


def test_nobody_has_powers(cloister, acme, session):
    acme.run(session, "$ true")
    for process in [cloister.launcher(), *cloister.tree()]:
        assert process.status("Uid") is None or process.status("Uid").split()[0] != "0", process
        if process.status("NoNewPrivs") is not None:
            assert process.status("NoNewPrivs") == "1", process
            assert process.status("Groups") == "", process


def test_tokens_are_not_on_command_lines(cloister):
    for process in [cloister.launcher(), *cloister.tree()]:
        text = process.read("cmdline") + process.read("environ")
        assert not any(t.token in text for t in cloister.tenants.values()), process


def test_the_log_holds_no_secret(cloister, acme, session):
    acme.run(session, "$ echo a-very-private-word")
    log = cloister.log()
    assert "a-very-private-word" not in log
    assert not any(t.token in log for t in cloister.tenants.values())
