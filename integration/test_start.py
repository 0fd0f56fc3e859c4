"""Starting: what is missing is named with its remedy, and there is no fallback."""

import ctypes
import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import uuid

import pytest

from daemon import AS_SERVICE, ENVIRONMENT, give, make_directory, write_file
from world import USER, demo, in_time, private_mounts, punctual

MS_BIND, MS_RDONLY, MS_REMOUNT = 4096, 1, 32
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags=0, data=None):
    if LIBC.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags,
                  os.fsencode(data) if data else None):
        raise OSError(ctypes.get_errno(), f"mount {target}")


def cover(directory):
    """Hides a directory below an empty one."""
    return private_mounts(lambda: mount("none", directory, "tmpfs", 0, "mode=755"))


def refused(daemon, *words, **start):
    """It must not start: one line with all the words, exit 2, and nothing begun."""
    code, lines = daemon.fail(**start)
    said = [line for line in lines if " warn " not in line]
    assert code == 2, f"exit {code}: {lines}"
    assert len(said) == 1 and said[0].startswith("cloisterd: "), lines
    for word in words:
        assert word in said[0], f"{word!r} is not in {said[0]!r}"
    assert "ready" not in said[0]
    return said[0]


# --- what is missing -----------------------------------------------------------------------


@pytest.mark.parametrize("option,program,words", [
    ("runsc", "/usr/bin/runsc", ("install gVisor", "--runsc")),
    ("slirp4netns", "/usr/bin/slirp4netns", ("install slirp4netns", "--slirp4netns"))])
def test_without_a_program(make_daemon, option, program, words):
    daemon = make_daemon()
    refused(daemon, "/nowhere/at-all", "No such file", *words, **{option: "/nowhere/at-all"})

    def hide():
        mount("/dev/null", program, "none", MS_BIND)

    refused(daemon, program, *words, preexec_fn=private_mounts(hide))
    refused(daemon, "/etc/passwd", "not executable", **{option: "/etc/passwd"})
    assert not os.path.exists(f"{daemon.state}/pg"), "something was started all the same"


@pytest.mark.parametrize("option", ["runner", "guest"])
def test_without_a_part_of_cloister(make_daemon, option):
    refused(make_daemon(), f"--{option}", "/nowhere/part", "build Cloister",
            **{option: "/nowhere/part"})


def test_without_tun(make_daemon):
    daemon = make_daemon()
    refused(daemon, "/dev/net/tun", "No such file", "tun module", preexec_fn=cover("/dev/net"))

    def forbid():
        mount("none", "/dev/net", "tmpfs", 0, "mode=755")
        os.mknod("/dev/net/tun", 0o20600, os.makedev(10, 200))

    refused(daemon, "/dev/net/tun", "Permission denied", "chmod 0666",
            preexec_fn=private_mounts(forbid))


def test_without_a_root_filesystem(make_daemon):
    daemon = make_daemon()
    refused(daemon, "--rootfs", "/nowhere", rootfs="/nowhere")
    refused(daemon, "--rootfs", "not a root filesystem", rootfs=daemon.state)


def test_without_postgresql(make_daemon):
    refused(make_daemon(), "PostgreSQL", postgres_bin="/nowhere/bin")


# --- the state directory -------------------------------------------------------------------


def test_a_read_only_state_directory(make_daemon):
    daemon = make_daemon()

    def read_only():
        mount(daemon.state, daemon.state, "none", MS_BIND)
        mount("none", daemon.state, "none", MS_BIND | MS_REMOUNT | MS_RDONLY)

    refused(daemon, daemon.state, "Read-only file system", "mount it writable",
            preexec_fn=private_mounts(read_only))


def small(daemon, size, fill):
    """A private mount that gives the state directory that many bytes, of which some are used."""

    def change():
        mount("none", daemon.state, "tmpfs", 0, f"mode=700,size={size}")
        give(daemon.state, 0o700)
        if fill:
            with open(f"{daemon.state}/ballast", "wb") as f:
                f.write(b"x" * fill)

    return private_mounts(change)


def test_a_full_state_directory(make_daemon):
    daemon = make_daemon()
    mib = 1 << 20
    refused(daemon, daemon.state, "left on its file system", "free at least",
            preexec_fn=small(daemon, 64 * mib, 50 * mib))
    refused(daemon, daemon.state, "free", preexec_fn=small(daemon, 8 * mib, 0))
    # Enough to begin, not enough for a database.
    line = refused(daemon, daemon.state, preexec_fn=small(daemon, 34 * mib, 0))
    assert "No space left" in line or "could not" in line, line


def test_no_inodes(make_daemon):
    daemon = make_daemon()

    def change():
        mount("none", daemon.state, "tmpfs", 0, "mode=700,nr_inodes=1,size=256m")
        give(daemon.state, 0o700)

    refused(daemon, daemon.state, "No space left", "free some space",
            preexec_fn=private_mounts(change))


def test_a_state_directory_that_is_not_ours(make_daemon):
    daemon = make_daemon()
    os.chmod(daemon.state, 0o750)
    refused(daemon, "mode 0750", "chmod 0700")
    os.chmod(daemon.state, 0o700)
    os.chown(daemon.state, 0, 0)
    assert "chown" not in refused(daemon, daemon.state, "Permission denied", "--state")
    os.chmod(daemon.state, 0o755)
    refused(daemon, "belongs to user 0", "chown")
    give(daemon.state, 0o700)
    link = f"{daemon.var}/link"
    os.symlink(daemon.state, link)
    refused(daemon, link, "symbolic link", state=link)
    refused(daemon, "/nowhere", "No such file", state="/nowhere/state")
    for system in ("/etc", "/root", "/nowhere"):
        line = refused(daemon, f"state directory {system}: ", "name another", state=system)
        assert "chown" not in line and "chmod" not in line, line
    refused(daemon, "too long", state=f"{daemon.var}/{'x' * 60}")


def test_one_daemon_for_a_state_directory(make_daemon):
    first = make_daemon().start()
    second = make_daemon()
    refused(second, "another cloisterd uses it", "--state", state=first.state)
    assert first.client().call("GET", "/healthz") == {"ok": True}
    assert first.stop() == 0


def test_the_same_state_under_another_name(make_daemon):
    """What is locked is the directory, whatever it is called."""
    first = make_daemon().start()
    second = make_daemon()
    same = private_mounts(lambda: mount(first.state, second.state, "none", MS_BIND))
    refused(second, "another cloisterd uses it", "--state", preexec_fn=same)
    assert first.stop() == 0


STAND_IN = """#!/bin/sh
# Starts no server: its socket is that of another cluster. All else is done as ever.
case "$*" in "-D "*) ;; *) exec {real}/postgres "$@" ;; esac
cd "$2" && ln -s {other} ../run/.s.PGSQL.5432 || exit 1
printf '%s\\n%s\\n0\\n5432\\n\\n\\n\\nready\\n' "$$" "$2" >postmaster.pid
exec sleep 1000
"""


def test_one_daemon_for_a_control_database(make_daemon):
    """No lock of the file system sees that the two have one database: it has to."""
    first = make_daemon().start()
    session = first.client("acme").session()
    second = make_daemon()
    real = os.path.dirname(os.readlink(f"/proc/{first.postgres().pid}/exe"))
    os.mkdir(f"{second.var}/bin", 0o755)
    for name in os.listdir(real):
        os.symlink(f"{real}/{name}", f"{second.var}/bin/{name}")
    os.unlink(f"{second.var}/bin/postgres")
    write_file(f"{second.var}/bin/postgres", STAND_IN.format(
        real=real, other=f"{first.state}/pg/run/.s.PGSQL.5432"), 0o755)
    code, lines = second.fail(postgres_bin=f"{second.var}/bin")
    assert code != 0 and not any("ready on" in line for line in lines), lines
    assert any("another cloisterd uses this database" in line and "stop it first" in line
               for line in lines), lines
    assert first.client("acme").call("GET", f"/v1/sessions/{session}")["id"] == session
    assert first.client("acme").run(session, "$ echo still here").text == "still here\n"
    assert first.stop() == 0


def test_a_port_that_is_taken(make_daemon):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        daemon = make_daemon()
        code, lines = daemon.fail(port=taken.getsockname()[1])
        assert code != 0 and any("Address already in use" in line for line in lines), lines


# --- who may start it ----------------------------------------------------------------------


def test_root_is_refused(make_daemon):
    refused(make_daemon(), "refuses to run as root", "setpriv", prefix=[])


def test_roots_group_is_refused(make_daemon):
    refused(make_daemon(), "root's group",
            prefix=["setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups", "--"])


def test_supplementary_groups_are_refused(make_daemon):
    refused(make_daemon(), "supplementary groups", "clear them",
            prefix=["setpriv", f"--reuid={USER}", f"--regid={USER}", "--groups=1,2", "--"])


def test_capabilities_are_refused(make_daemon):
    refused(make_daemon(), "capabilities", "drop them",
            prefix=["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                    "--inh-caps=+net_admin", "--ambient-caps=+net_admin", "--"])


@pytest.mark.parametrize("identity,words", [
    ([], "root"),
    (["setpriv", f"--reuid={USER}", f"--regid={USER}", "--groups=1,2", "--"], "groups")])
def test_the_runner_refuses_too(place, world, identity, words):
    tenant = place.tenants["acme"]
    make_directory(f"{place.var}/run")
    arguments = {
        "tenant": tenant.id, "workspace": tenant.workspace, "workspace-id": "1:1",
        "state": place.state, "state-id": "1:1", "rootfs": world.rootfs,
        "guest": f"{world.programs}/cloister-guest", "runsc": "/usr/bin/runsc",
        "slirp4netns": "/usr/bin/slirp4netns", "runtime-dir": f"{place.var}/run",
        "boundary": "development"}
    words_of = [word for k, v in arguments.items() for word in (f"--{k}", v)]
    done = subprocess.run(
        [*identity, f"{world.programs}/cloister-runner", "serve", *words_of], cwd="/",
        input="", capture_output=True, text=True, check=False)
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert os.listdir(f"{place.var}/run") == []


def test_the_service_boundary_is_refused_or_whole(make_daemon):
    """It needs the delegated cgroup of a unit; what starts the tests has none to give."""
    line = refused(make_daemon(), "boundary", boundary="service")
    assert "development" in line or "cgroup" in line, line
    refused(make_daemon(), "boundary", boundary=None)  # service is the default


@pytest.mark.parametrize("host", ["0.0.0.0", demo.HOST_ADDRESS, "::", "192.168.0.1"])
def test_development_listens_on_loopback_alone(make_daemon, host):
    refused(make_daemon(), "--host", "loopback", host=host)


@pytest.mark.parametrize("changed,word", [
    ({"port": 65536}, "--port"), ({"port": "x"}, "--port"), ({"port": -1}, "--port"),
    ({"max_running_turns": 0}, "--max-running-turns"), ({"colour": "blue"}, "--colour"),
    ({"max_running_turns": 2, "max_running_turns_per_tenant": 3}, "per-tenant"),
    ({"tenants": None}, "--tenants"), ({"state": None}, "--state"),
    ({"rootfs": None}, "--rootfs"), ({"host": "localhost"}, "--host"),
    ({"drain_seconds": 3601}, "--drain-seconds"), ({"boundary": "none"}, "--boundary")])
def test_options(make_daemon, changed, word):
    refused(make_daemon(), word, **changed)


def program(world, *arguments, prefix=AS_SERVICE):
    return subprocess.run([*prefix, f"{world.programs}/cloisterd", *arguments], cwd="/",
                          env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_help_and_version(world):
    assert re.match(r"^cloisterd \d+\.\d+", program(world, "version").stdout)
    for topic in ([], ["serve"], ["check"]):
        done = program(world, *topic, "--help")
        assert done.returncode == 0 and done.stdout.startswith("usage: ") and not done.stderr
    for wrong in ([], ["dance"], ["serve", "more"], ["check"], ["version", "--port=1"]):
        done = program(world, *wrong)
        assert done.returncode == 2 and done.stderr.startswith("cloisterd: "), (wrong, done)


# --- the registry --------------------------------------------------------------------------


@pytest.fixture
def place(make_daemon):
    """A registry without a fault, and what it names."""
    return make_daemon(("acme", "globex"))


def document(daemon):
    with open(daemon.registry, encoding="utf-8") as f:
        return json.load(f)


def check(daemon, *more):
    done = program(daemon.world, "check", daemon.registry, f"--state={daemon.state}", *more)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_good_registry(place):
    code, lines, error = check(place)
    assert (code, lines, error) == (0, ["ok: 2 tenants"], "")
    place.write_registry({"version": 1, "tenants": [place.tenants["acme"].entry()]})
    assert check(place)[:2] == (0, ["ok: 1 tenant"])


def test_who_checks_as_root_is_told_how_the_service_does(place):
    """What is the service user's is not root's, so the answers differ."""
    done = program(place.world, "check", place.registry, prefix=())
    assert done.returncode == 1 and "must be root's" in done.stdout, done
    said = re.search(r"as the service user: (setpriv --reuid cloister .* cloisterd check \S+)$", done.stderr)
    assert said, done.stderr
    again = subprocess.run(said[1].split(), cwd="/", capture_output=True, text=True, check=False,
                           env={**ENVIRONMENT, "PATH": f"{place.world.programs}:{ENVIRONMENT['PATH']}"})
    assert (again.returncode, again.stdout) == (0, "ok: 2 tenants\n"), again
    place.write_registry({"version": 2})
    assert "as root" not in check(place)[2]


def edit(path, value):
    """A change to the document: path is a list of keys; ... removes."""

    def change(registry, _daemon):
        at = registry
        for key in path[:-1]:
            at = at[key]
        if value is ...:
            del at[path[-1]]
        else:
            at[path[-1]] = value

    return change


def copy(to, source):
    def change(registry, daemon):
        at = registry
        for key in source:
            at = at[key]
        edit(to, at)(registry, daemon)

    return change


A, G = ["tenants", 0], ["tenants", 1]
AC, GC = [*A, "credentials", 0], [*G, "credentials", 0]

FAULTS = {
    "version": (edit(["version"], 2), "version: "),
    "no version": (edit(["version"], ...), "version: "),
    "version of another type": (edit(["version"], "1"), "version: "),
    "no tenants": (edit(["tenants"], []), "tenants: "),
    "tenants of another type": (edit(["tenants"], {}), "tenants: "),
    "unknown field": (edit(["comment"], "x"), "comment: unknown field"),
    "unknown field of a tenant": (edit([*G, "colour"], 1), "tenants[1].colour: unknown field"),
    "unknown field of a credential": (edit([*GC, "token"], "x"),
                                      "tenants[1].credentials[0].token: unknown field"),
    "no id": (edit([*A, "id"], ...), "tenants[0].id: "),
    "nil id": (edit([*A, "id"], str(uuid.UUID(int=0))), "tenants[0].id: the nil UUID"),
    "upper case id": (edit([*A, "id"], str(uuid.UUID(int=10 ** 38)).upper()),
                      "tenants[0].id: must be a UUID in canonical form"),
    "id with blanks": (edit([*A, "id"], " 01980000-0000-7000-8000-000000000001"),
                       "tenants[0].id: must be a UUID in canonical form"),
    "id twice": (copy([*G, "id"], [*A, "id"]), "tenants[1].id: the same id as tenants[0].id"),
    "name twice": (copy([*G, "name"], [*A, "name"]), "tenants[1].name: the same name"),
    "bad name": (edit([*G, "name"], "Globex Inc"), "tenants[1].name: "),
    "no credentials": (edit([*G, "credentials"], []), "tenants[1].credentials: 0 entries"),
    "credential id twice": (copy([*GC, "id"], [*AC, "id"]),
                            "tenants[1].credentials[0].id: the same id"),
    "token twice": (copy([*GC, "tokenFile"], [*AC, "tokenFile"]),
                    "tenants[1].credentials[0].tokenFile: the same token"),
    "relative token file": (edit([*GC, "tokenFile"], "tokens/globex"),
                            "tenants[1].credentials[0].tokenFile: must be an absolute path"),
    "no such token file": (edit([*GC, "tokenFile"], "/nowhere/token"),
                           "tenants[1].credentials[0].tokenFile: /nowhere"),
    "relative workspace": (edit([*G, "workspaceRoot"], "ws"),
                           "tenants[1].workspaceRoot: must be an absolute path"),
    "workspace with dots": (edit([*G, "workspaceRoot"], "/srv/../tmp"),
                            "tenants[1].workspaceRoot: \"..\""),
    "no such workspace": (edit([*G, "workspaceRoot"], "/nowhere/ws"),
                          "tenants[1].workspaceRoot: /nowhere"),
    "the root as workspace": (edit([*G, "workspaceRoot"], "/"), "tenants[1].workspaceRoot: "),
    "a file as workspace": (lambda r, d: edit([*G, "workspaceRoot"],
                                              d.tenants["acme"].token_file)(r, d),
                            "tenants[1].workspaceRoot: "),
    "workspace twice": (copy([*G, "workspaceRoot"], [*A, "workspaceRoot"]),
                        "tenants[1].workspaceRoot: the same directory"),
    "nested workspace": (lambda r, d: edit([*G, "workspaceRoot"], f"{d.var}/workspaces")(r, d),
                         "tenants[0].workspaceRoot: lies inside tenants[1].workspaceRoot"),
    "workspace in the state": (lambda r, d: edit([*G, "workspaceRoot"], d.state)(r, d),
                               "tenants[1].workspaceRoot: lies inside the state directory"),
    "workspace around the tokens": (lambda r, d: edit([*G, "workspaceRoot"],
                                                      f"{d.var}/tokens")(r, d),
                                    "tenants[0].credentials[0].tokenFile: lies inside"),
    "workspace around everything": (lambda r, d: edit([*G, "workspaceRoot"], d.var)(r, d),
                                    "tenants[1].workspaceRoot: the registry lies inside it"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_text(place, name):
    change, line = FAULTS[name]
    registry = document(place)
    change(registry, place)
    place.write_registry(registry)
    code, lines, error = check(place)
    assert code == 1 and any(found.startswith(line) for found in lines), (lines, error)
    assert "fault" in error
    status, said = place.fail()
    assert status == 2 and any(found.startswith(line) for found in said), said
    assert not os.path.exists(f"{place.state}/pg"), "it was started all the same"


def globex_token(daemon):
    return daemon.tenants["globex"].token_file


def replace(daemon, path, make):
    os.unlink(path)
    make(path)


def swap_for_link(path):
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


MODES = {
    "token readable by all": (lambda d: os.chmod(globex_token(d), 0o644), "mode 0644"),
    "token readable by the group": (lambda d: os.chmod(globex_token(d), 0o640), "mode 0640"),
    "token that may be executed": (lambda d: os.chmod(globex_token(d), 0o700), "mode 0700"),
    "token of somebody else": (lambda d: (os.chown(globex_token(d), 65534, 65534),
                                           os.chmod(globex_token(d), 0o644)), "uid 65534"),
    "token that is a link": (lambda d: swap_for_link(globex_token(d)), "symbolic link"),
    "token that is a directory": (lambda d: replace(d, globex_token(d), make_directory),
                                  "not a regular file"),
    "token that is a FIFO": (lambda d: (replace(d, globex_token(d), os.mkfifo),
                                        give(globex_token(d), 0o600)), "not a regular file"),
    "token that is empty": (lambda d: write_file(globex_token(d), " \n"), "empty"),
    "token that is short": (lambda d: write_file(globex_token(d), "x" * 31), "shorter than 32"),
    "token that is long": (lambda d: write_file(globex_token(d), "x" * 4097), "4096"),
    "token with blanks": (lambda d: write_file(globex_token(d), "x" * 32 + " y"), "printable"),
}


@pytest.mark.parametrize("name", MODES)
def test_a_fault_of_a_token_file(place, name):
    change, words = MODES[name]
    change(place)
    code, lines, _ = check(place)
    assert code == 1 and len(lines) == 1, lines
    assert lines[0].startswith("tenants[1].credentials[0].tokenFile: ") and words in lines[0]
    assert place.fail()[0] == 2


def test_the_longest_and_the_shortest_token(place):
    for token in (secrets.token_hex(16), " \t" + secrets.token_hex(2000) + "\r\n"):
        write_file(globex_token(place), token)
        assert check(place)[0] == 0


def workspaces(daemon):
    return f"{daemon.var}/workspaces"


PLACES = {
    "a directory above that others may write": (lambda d: os.chmod(workspaces(d), 0o777), "0777"),
    "a directory above that the group may write": (lambda d: os.chmod(workspaces(d), 0o770),
                                                   "0770"),
    "a directory above of somebody else": (lambda d: (os.chown(workspaces(d), 65534, -1),
                                                      os.chmod(workspaces(d), 0o755)),
                                           "uid 65534"),
    "a link on the way": (lambda d: swap_for_link(workspaces(d)), "symbolic link"),
    "a link at the end": (lambda d: swap_for_link(d.tenants["globex"].workspace),
                          "symbolic link"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_fault_of_a_workspace(place, name):
    change, words = PLACES[name]
    change(place)
    code, lines, _ = check(place)
    assert code == 1, lines
    assert any(line.startswith("tenants[1].workspaceRoot: ") and words in line
               for line in lines), lines


def test_a_sticky_directory_of_root_will_do(place, world):
    """All the tests' places are below /tmp."""
    mode = os.stat(os.path.dirname(world.directory)).st_mode
    assert mode & stat.S_ISVTX and mode & 0o002
    assert check(place)[0] == 0


REGISTRY_FILES = {
    "writable by all": (lambda d: os.chmod(d.registry, 0o602), "mode 0602"),
    "of the service, readable by all": (lambda d: os.chmod(d.registry, 0o644), "mode 0644"),
    "of root, writable by the group": (lambda d: (os.chown(d.registry, 0, 0),
                                                  os.chmod(d.registry, 0o664)), "mode 0664"),
    "of somebody else": (lambda d: (os.chown(d.registry, 65534, -1),
                                      os.chmod(d.registry, 0o644)), "uid 65534"),
    "a link": (lambda d: swap_for_link(d.registry), "symbolic link"),
    "a FIFO": (lambda d: (replace(d, d.registry, os.mkfifo), give(d.registry, 0o600)),
               "not a regular file"),
    "missing": (lambda d: os.unlink(d.registry), "No such file"),
    "no JSON": (lambda d: write_file(d.registry, "{\"version\": 1,\n  oops}"), "line 2"),
    "duplicate keys": (lambda d: write_file(d.registry, "{\"version\": 1, \"version\": 1}"),
                       "duplicate key"),
    "too large": (lambda d: write_file(d.registry, " " * (16 * 1024 * 1024 + 1)), "16777216"),
}


@pytest.mark.parametrize("name", REGISTRY_FILES)
def test_a_fault_of_the_file(place, name):
    change, words = REGISTRY_FILES[name]
    change(place)
    code, lines, error = check(place)
    assert code == 1 and len(lines) == 1 and words in lines[0], (lines, error)
    assert place.fail()[0] == 2


def test_a_fault_of_the_file_hides_no_other(place):
    write_file(place.registry, json.dumps({"version": 2, "tenants": []}), 0o640)
    code, lines, error = check(place)
    assert code == 1 and "3 faults" in error
    assert lines[0].startswith(f"{place.registry}: mode 0640, group or others can read it; let ")
    assert lines[1] == "version: must be 1" and lines[2].startswith("tenants: 0 entries")
    status, said = place.fail()
    assert status == 2 and set(lines) <= set(said)


def test_a_registry_of_root_that_all_may_read(place):
    os.chown(place.registry, 0, 0)
    os.chmod(place.registry, 0o644)
    assert check(place)[0] == 0


def test_all_faults_in_one_file(place):
    """Every one is reported, not only the first."""
    registry = document(place)
    wanted = []
    extra = [json.loads(json.dumps(registry["tenants"][1])) for _ in range(4)]
    registry["tenants"] += extra
    for path, value, line in (
            (["version"], 3, "version: must be 1"),
            (["more"], 1, "more: unknown field"),
            ([*A, "colour"], 1, "tenants[0].colour: unknown field"),
            ([*A, "name"], "ACME", "tenants[0].name: "),
            (["tenants", 2, "id"], "x", "tenants[2].id: "),
            (["tenants", 2, "workspaceRoot"], "/", "tenants[2].workspaceRoot: "),
            (["tenants", 3, "workspaceRoot"], "/nowhere/a", "tenants[3].workspaceRoot: /nowhere"),
            (["tenants", 3, "credentials"], [], "tenants[3].credentials: 0 entries"),
            (["tenants", 4, "id"], str(uuid.UUID(int=0)), "tenants[4].id: the nil UUID"),
            (["tenants", 4, "credentials", 0, "tokenFile"], "/nowhere/t",
             "tenants[4].credentials[0].tokenFile: /nowhere")):
        edit(path, value)(registry, place)
        wanted.append(line)
    del registry["tenants"][5]["name"]
    os.chmod(place.tenants["acme"].token_file, 0o604)
    wanted += ["tenants[5].name: required field is missing",
               f"tenants[0].credentials[0].tokenFile: {place.tenants['acme'].token_file}: "
               "mode 0604, group or others can read it",
               "tenants[5].id: the same id as tenants[1].id",
               "tenants[5].workspaceRoot: the same directory as tenants[1].workspaceRoot",
               "tenants[2].credentials[0].id: the same id as tenants[1].credentials[0].id",
               "tenants[2].credentials[0].tokenFile: the same token as "
               "tenants[1].credentials[0].tokenFile"]
    place.write_registry(registry)
    code, lines, error = check(place)
    assert code == 1
    for line in wanted:
        assert any(found.startswith(line) for found in lines), f"{line} is not in {lines}"
    number = int(re.search(r"(\d+) faults", error)[1])
    assert number == len(lines) >= len(wanted)
    # serve says the same and does not start.
    status, said = place.fail()
    assert status == 2 and set(lines) <= set(said)


# --- what breaks while it runs -------------------------------------------------------------


def unavailable(daemon, line, word):
    """A turn of acme's that gets no sandbox; the log has that word of the runner's reason, which
    is waited for, but not for long."""

    def attempt():
        client = daemon.client("acme")
        outcome = client.run(client.session(), line)
        assert outcome.status == "failed" and outcome.error["code"] == "sandbox_unavailable"
        told = [line for line in daemon.log().splitlines() if outcome.turn["id"] in line]
        in_time(word in " ".join(told), daemon.log())
        return outcome

    return punctual(attempt)


def test_a_sandbox_that_cannot_start(make_daemon):
    """The turn fails with a name; no command runs anywhere else."""
    daemon = make_daemon().start()
    client, other = daemon.client("acme"), daemon.client("globex")
    workspace = daemon.tenants["acme"].workspace
    os.rename(workspace, workspace + ".old")
    make_directory(workspace)
    outcome = unavailable(daemon, "$ touch /workspace/ran; id", "workspace")
    assert daemon.var not in outcome.error["message"], outcome.error
    assert outcome.output is None and os.listdir(workspace) == []
    # The other tenant has nothing to do with it, and once it is repaired all is well.
    assert other.run(other.session(), "$ echo fine").text == "fine\n"
    os.rmdir(workspace)
    os.rename(workspace + ".old", workspace)
    assert client.run(client.session(), "$ echo back").text == "back\n"
    assert daemon.stop() == 0


def test_a_workspace_that_became_a_link(make_daemon):
    daemon = make_daemon().start()
    client = daemon.client("acme")
    workspace = daemon.tenants["acme"].workspace
    os.rename(workspace, workspace + ".old")
    os.symlink(f"{daemon.var}/tokens", workspace)
    outcome = client.run(client.session(), "$ cat /workspace/*")
    assert outcome.status == "failed" and outcome.error["code"] == "sandbox_unavailable"
    assert daemon.tenants["globex"].token not in json.dumps(outcome.turn)
    assert daemon.stop() == 0


@pytest.mark.parametrize("part", ["runsc", "slirp4netns", "guest"])
def test_a_program_that_does_not_work(make_daemon, part):
    """It is there, so the start succeeds; what it should do fails, and that is said."""
    daemon = make_daemon()
    fake = f"{daemon.var}/fake-{part}"
    shutil.copy("/bin/false", fake)
    give(fake, 0o755)
    daemon.start(**{part: fake})
    client = daemon.client("acme")
    for _ in range(2):
        outcome = client.run(client.session(), "$ id")
        assert outcome.status == "failed" and outcome.error["code"] == "sandbox_unavailable"
        assert outcome.error["message"]
    assert client.run(client.session(), "still talking").text == "still talking"
    assert daemon.stop() == 0


def test_a_foreign_mount_in_the_workspace(make_daemon):
    """A mount below a workspace could be anything: the sandbox does not start with it."""
    daemon = make_daemon()
    inside = f"{daemon.tenants['acme'].workspace}/mounted"
    make_directory(inside)

    def change():
        mount("/etc", inside, "none", MS_BIND)

    daemon.spawn(daemon.command(), preexec_fn=private_mounts(change))
    daemon.wait_ready()
    outcome = unavailable(daemon, "$ cat mounted/passwd", "mount")
    assert daemon.var not in outcome.error["message"], outcome.error
    assert daemon.stop() == 0
