"""Local mode: one person, no registry, this machine only."""

import http.client
import os
import secrets
import shutil

import pytest

from client import Client
from contract import CONTRACT
from daemon import AS_SERVICE, give, make_directory, write_file
from provider.models import declare, entry

LOCAL = "10ca1000-0000-8000-8000-000000000001"


@pytest.fixture
def local(make_daemon):
    """A daemon that is not started, and directories to be its roots."""
    daemon = make_daemon(())
    os.unlink(daemon.registry)
    daemon.roots = f"{daemon.var}/workspaces"
    for name in ("one", "two"):
        make_directory(f"{daemon.roots}/{name}")
    return daemon


def serve(daemon, *words, roots=("one",), token=None, **changed):
    """The command line of local mode."""
    more = [f"--workspace-root={daemon.roots}/{name}" for name in roots]
    changed.setdefault("tenants", None)
    prefix = AS_SERVICE if token is None else [*AS_SERVICE, "env", f"CLOISTER_TOKEN={token}"]
    daemon.spawn(daemon.command(*more, *words, **changed), prefix)
    return daemon


def start(daemon, *words, **options):
    serve(daemon, *words, **options).wait_ready()
    return daemon.client()


def refused(daemon, *words, **options):
    """The one line that a start which is refused writes."""
    before = len(daemon.log())
    serve(daemon, *words, **options)
    assert daemon.process.wait(30) == 2, daemon.log()
    lines = daemon.log()[before:].splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def ask(daemon, host, path="/v1/sessions", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": host, **headers}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    body = CONTRACT.check("GET", path, response.status, response.getheaders(), raw) or {}
    return response.status, body.get("error", {}).get("code")


def test_one_person_needs_no_token(local):
    client = start(local)
    assert "local mode without a token: whatever can connect to 127.0.0.1" in local.log()
    session = client.session()
    assert client.call("GET", f"/v1/sessions/{session}")["cwd"] == "/workspace"
    assert client.run(session, "$ echo here >file; pwd").text.strip() == "/workspace"
    with open(f"{local.roots}/one/file", encoding="ascii") as f:
        assert f.read() == "here\n"
    assert os.listdir(f"{local.roots}/two") == []
    assert [p for p in local.tree() if p.name == "cloister-runner" and LOCAL in p.arguments()]
    with client.events() as events:
        turn = client.start(session, "hello")
        events.until_end(turn)
    assert local.stop() == 0


def test_only_loopback_names_are_answered(local):
    start(local)
    port = local.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert ask(local, host) == (200, None), host
    for host in ("127.0.0.1", "localhost", f"evil.example:{port}", f"127.0.0.2:{port}",
                 f"localhost:{port + 1}", f"localhost.:{port}", f"0.0.0.0:{port}",
                 f"[::]:{port}"):
        for path in ("/v1/sessions", "/healthz", "/nowhere"):
            assert ask(local, host, path) == (403, "invalid_host"), (host, path)
    good = f"localhost:{port}"
    for origin in (f"http://localhost:{port}", f"http://127.0.0.1:{port}", "null",
                   "http://evil.example"):
        assert ask(local, good, Origin=origin) == (403, "origin_not_allowed"), origin


def test_a_cwd_may_be_a_host_path(local):
    client = start(local)
    root = f"{local.roots}/one"
    for asked, seen in ((root, "/workspace"), (f"{root}/", "/workspace"),
                        (f"{root}/a/../b", "/workspace/b"), (f"{root}//c/./d", "/workspace/c/d"),
                        ("/workspace/e", "/workspace/e"), ("f", "/workspace/f")):
        made = client.call("POST", "/v1/sessions", {"cwd": asked}, 201)
        assert made["cwd"] == seen, asked
    # By its letters alone: nobody looks whether it is there, or where a link leads.
    os.symlink("/etc", f"{root}/link")
    assert client.call("POST", "/v1/sessions", {"cwd": f"{root}/link"}, 201)["cwd"] == \
        "/workspace/link"
    for asked in (f"{local.roots}/two", local.roots, f"{root}/..", f"{root}/../two", f"{root}x",
                  "/", "/etc", f"/..{root}x", "..", root.upper()):
        client.call("POST", "/v1/sessions", {"cwd": asked}, 403, "workspace_not_allowed")
    os.mkdir(f"{root}/sub")
    os.chmod(f"{root}/sub", 0o777)
    session = client.session(cwd=f"{root}/sub")
    assert client.run(session, "$ pwd").text.strip() == "/workspace/sub"


def test_registered_tenants_know_no_host_paths(make_daemon):
    daemon = make_daemon(("acme",)).start()
    cwd = daemon.tenants["acme"].workspace
    daemon.client("acme").call("POST", "/v1/sessions", {"cwd": cwd}, 403, "workspace_not_allowed")


def test_several_roots_lie_below_the_workspace(local):
    client = start(local, roots=("one", "two"))
    session = client.session(cwd=f"{local.roots}/two")
    assert client.call("GET", f"/v1/sessions/{session}")["cwd"] == "/workspace/two"
    script = "$ ls /workspace; pwd; echo a >../one/f; echo b >f; mkdir d; mv f d/g; cat d/g; " \
        "touch /workspace/beside; mkdir /workspace/three; ls /workspace"
    text = client.run(session, script).text
    assert text.splitlines()[:4] == ["one", "two", "/workspace/two", "b"], text
    assert text.lower().count("read-only") == 2, text
    assert os.listdir(f"{local.roots}/one") == ["f"]
    assert os.listdir(f"{local.roots}/two/d") == ["g"]
    root = client.session()
    assert client.call("GET", f"/v1/sessions/{root}")["cwd"] == "/workspace"
    assert client.run(root, "$ cat one/f two/d/g").text.split() == ["a", "b"]
    assert local.stop() == 0


def test_a_token_of_the_environment(local):
    token = secrets.token_hex(16)
    stranger = start(local, token=token)
    stranger.call("GET", "/v1/sessions", status=401, code="unauthorized")
    person = Client(local.port, token)
    assert person.call("GET", "/v1/sessions")["data"] == []
    wrong = Client(local.port, token[:-1] + "x")
    wrong.call("GET", "/v1/sessions", status=401, code="unauthorized")
    assert ask(local, "evil.example", Authorization=f"Bearer {token}") == (403, "invalid_host")
    person.run(person.session(), "$ true")
    for process in (local.launcher(), *local.tree()):
        assert token not in process.read("environ"), process
        assert token not in process.read("cmdline"), process
    found = person.run(person.session(), "$ env; cat /proc/*/environ").text
    assert token not in found
    assert token not in local.log() and "without a token" not in local.log()


def test_a_token_of_a_file(local):
    token, path = secrets.token_hex(16), f"{local.var}/tokens/mine"
    write_file(path, f"\n{token}\n")
    start(local, f"--token-file={path}").call("GET", "/v1/sessions", status=401,
                                              code="unauthorized")
    assert Client(local.port, token).call("GET", "/v1/sessions")["data"] == []
    assert "without a token" not in local.log()
    assert not any(token in p.read("cmdline") for p in (local.launcher(), *local.tree()))


def test_what_local_mode_refuses(local):
    token, path = secrets.token_hex(16), f"{local.var}/tokens/mine"
    write_file(path, token)
    for line, words, options in (
            ("--host: 0.0.0.0 is neither", ["--host=0.0.0.0"], {"boundary": "service"}),
            ("--host: 127.0.0.2 is neither", ["--host=127.0.0.2"], {}),
            ("--allow-remote: whoever reaches 127.0.0.2", ["--host=127.0.0.2", "--allow-remote"],
             {}),
            ("--host: 10.1.1.1 is not a loopback address",
             ["--host=10.1.1.1", "--allow-remote", f"--token-file={path}"], {}),
            ("--tenants and --workspace-root exclude", [], {"tenants": "/nowhere"}),
            ("shorter than 32 bytes", [], {"token": "short"}),
            ("the token is empty", [], {"token": ""}),
            ("exclude one another", [f"--token-file={path}"], {"token": token}),
            ("--allow-remote: takes no value", ["--allow-remote=yes"], {}),
            ("--token: no such option", [f"--token={token}"], {}),
            ("lie in one another", [f"--workspace-root={local.roots}"], {}),
            ("lie in one another", [f"--workspace-root={local.state}"], {}),
            ("would both be /workspace/one", [f"--workspace-root={local.var}/tokens/one"], {}),
            ("--workspace-root", [f"--workspace-root={local.var}/missing"], {})):
        if "tokens/one" in " ".join(words):
            make_directory(f"{local.var}/tokens/one")
        assert line in refused(local, *words, **options), line
        assert token not in local.log()
    write_file(f"{local.roots}/one/token", token)
    assert "where the agent can read it" in refused(
        local, f"--token-file={local.roots}/one/token")
    os.chmod(path, 0o644)
    assert "mode 0644" in refused(local, f"--token-file={path}")


def test_no_root_holds_the_programs(local, world):
    """What a command in the sandbox can replace is not run outside of it."""
    build = f"{local.roots}/two/build"
    make_directory(build)
    programs = {name: f"{build}/{name}" for name in ("cloisterd", "cloister-runner",
                                                      "cloister-guest")}
    for name, path in programs.items():
        shutil.copy(f"{world.programs}/{name}", path)
        give(path, 0o755)
    for what, changed in (("the runner (--runner)", {"runner": programs["cloister-runner"]}),
                          ("the guest (--guest)", {"guest": programs["cloister-guest"]}),
                          ("the root filesystem (--rootfs)", {"rootfs": f"{build}/root"})):
        line = refused(local, roots=("one", "two"), **changed)
        assert f"--workspace-root {local.roots}/two: {what}, {build}/" in line, line
        assert "move it out of there, or choose another workspace" in line, line
    # Named from outside, and a link that leads out again.
    os.symlink(programs["cloister-runner"], f"{local.var}/tokens/runner")
    os.symlink(f"{world.programs}/cloister-runner", f"{build}/link")
    for path, shown in ((f"{local.var}/tokens/runner", programs["cloister-runner"]),
                        (f"{build}/link", f"{build}/link")):
        line = refused(local, roots=("two",), runner=path)
        assert f"the runner (--runner), {shown}, lies inside it" in line, line
    command = local.command(f"--workspace-root={local.roots}/two", tenants=None)
    local.spawn([programs["cloisterd"], *command[1:]])
    assert local.process.wait(30) == 2
    assert f"the program cloisterd, {programs['cloisterd']}, lies inside it" in local.log()
    line = refused(local, roots=("one",), rootfs=local.roots)
    assert f"--workspace-root {local.roots}/one: lies inside the root filesystem" in line, line


def test_no_root_holds_a_key_or_a_file_of_the_operator(local):
    key = f"{local.roots}/two/key"
    models = declare(local, entry("one", "messages", "https://127.0.0.1:9/v1"))
    inside = f"{local.roots}/two/models.json"
    shutil.copy(models, inside)
    give(inside, 0o600)
    line = refused(local, f"--models={inside}", roots=("one", "two"))
    assert f"the file of the models (--models), {inside}, lies inside it" in line, line
    os.rename(f"{local.var}/tokens/key", key)
    models = declare(local, entry("one", "messages", "https://127.0.0.1:9/v1", apiKeyFile=key))
    before = len(local.log())
    serve(local, f"--models={models}", roots=("one", "two"))
    assert local.process.wait(30) == 2, local.log()
    assert f"models[0].apiKeyFile: lies in --workspace-root {local.roots}/two" in local.log()[before:]


def test_a_registry_refuses_what_is_of_local_mode(make_daemon):
    daemon = make_daemon(("acme",))
    code, lines = daemon.fail("--allow-remote")
    assert code == 2 and "--allow-remote: only in local mode" in lines[0]
    code, lines = daemon.fail(f"--token-file={daemon.registry}")
    assert code == 2 and "--token-file: only in local mode" in lines[0]
    code, lines = daemon.fail(prefix=[*AS_SERVICE, "env", "CLOISTER_TOKEN=" + "x" * 40])
    assert code == 2 and "CLOISTER_TOKEN is for local mode" in lines[0]
    entry = daemon.tenants["acme"].entry()
    entry["id"] = LOCAL
    daemon.write_registry({"version": 1, "tenants": [entry]})
    code, lines = daemon.fail()
    assert code == 2 and "local mode" in lines[0], lines


def test_remote_with_a_token_minds_no_host(local):
    """127.0.0.2 counts as remote, like every address but the two."""
    token = secrets.token_hex(16)
    serve(local, "--host=127.0.0.2", "--allow-remote", token=token)
    from world import eventually # its address is another one than Daemon.wait_ready() knows
    import re
    found = eventually(lambda: re.search(r"ready on http://127\.0\.0\.2:(\d+)$", local.log(),
                                         re.MULTILINE), 60, "ready")
    for host in ("cloister.example", "127.0.0.2"):
        connection = http.client.HTTPConnection("127.0.0.2", int(found[1]), timeout=30)
        connection.request("GET", "/v1/sessions", headers={
            "Host": host, "Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.2", int(found[1]), timeout=30)
    connection.request("GET", "/v1/sessions")
    assert connection.getresponse().status == 401
    connection.close()
