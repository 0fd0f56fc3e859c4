"""The tools in a real sandbox: what needs its root filesystem, its files and its limits."""

import base64
import json

import pytest

from world import SANITIZED, eventually

PNG = base64.b64decode(b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU"
                       b"5ErkJggg==")


@pytest.fixture
def place(acme, session):
    """A directory of the test's own; paths in it."""
    name = f"/workspace/{session}"
    assert acme.run(session, f"$ mkdir {name}").status == "completed"

    def path(*names):
        return "/".join((name, *names))

    yield path
    acme.run(session, f"$ rm -rf {name}")


def said(acme, session, tool, **arguments):
    outcome = acme.tool(session, tool, **arguments)
    assert outcome.status == "completed", outcome.turn
    return outcome.finished[-1]["output"]


def shell(acme, session, line):
    return said(acme, session, "shell", command=line)


# --- edit_file, apply_patch --------------------------------------------------------------


def test_edits_on_the_workspace(acme, session, place):
    """Second names, renames and modes as the sandbox's filesystem has them."""
    shell(acme, session, f"cd {place()} && printf 'a\\nb\\n' >f && chmod 751 f && ln -s f link")
    assert said(acme, session, "edit_file", path=place("link"), oldText="b", newText="B") == \
        f"replaced 1 place in {place('link')}, the first at line 2"
    patch = "\n".join((
        "*** Begin Patch", f"*** Update File: {place('f')}", f"*** Move to: {place('d', 'g')}",
        "@@ a", "-B", "+bee", f"*** Add File: {place('new')}", "+n", "*** Delete File: "
        f"{place('link')}", "*** End Patch", ""))
    outcome = acme.tool(session, "apply_patch", patch=patch)
    assert outcome.details == {"reason": "done", "files": 3}
    assert shell(acme, session, f"cd {place()} && find . -type f -printf '%p %m %n\\n' | sort "
                                f"&& cat d/g new") == "./d/g 751 1\n./new 644 1\na\nbee\nn\n"


@pytest.mark.parametrize("odd", ["", "x"])
def test_a_long_name_is_cut_between_characters(acme, session, odd):
    """Half a character would be the end of the sandbox, or of an event stream."""
    path = f"/workspace/{odd}" + "/".join(["\u00e9" * 120] * 8)
    assert said(acme, session, "edit_file", path=path, oldText="a", newText="b").startswith(
        "error: not_found: ")
    patch = f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n"
    assert said(acme, session, "apply_patch", patch=patch).startswith("error: not_found: ")
    assert said(acme, session, f"a{odd}" + "\u00e9" * 40).startswith("error: unknown_tool: ")


def test_a_patch_on_a_full_disk_changes_nothing(acme, session, place):
    full = "/dev/shm" if shell(acme, session, "df --output=fstype /dev/shm | tail -1").startswith(
        "tmpfs") else "/tmp"
    shell(acme, session, f"mkdir -p {full}/p && echo old >{full}/p/f")
    try:
        shell(acme, session, f"head -c 100G /dev/zero >{full}/fill 2>/dev/null; sync")
        patch = "\n".join(("*** Begin Patch", f"*** Update File: {full}/p/f", "-old", "+new",
                           f"*** Add File: {full}/p/big", *["+" + "x" * 1000] * 900,
                           "*** End Patch", ""))
        result = said(acme, session, "apply_patch", patch=patch)
    finally:
        shell(acme, session, f"rm -f {full}/fill")
    assert result.startswith("error: no_space: "), result
    assert shell(acme, session, f"cat {full}/p/f; ls -A {full}/p; rm -r {full}/p") == "old\nf\n"


# --- search ------------------------------------------------------------------------------


def test_search(acme, session, place):
    shell(acme, session, f"cd {place()} && mkdir d .hidden && printf 'one\\n-two\\n' >d/a.c && "
                         "printf 'One' >b.txt && printf one >.hidden/c && printf 'x\\0one' >bin && "
                         "mkfifo fifo && ln -s d loop && printf '\\377one\\n' >latin && "
                         "head -c 3000 /dev/zero | tr '\\0' x >long && printf one >>long")

    def search(**arguments):
        return said(acme, session, "search", **{"path": place(), **arguments})

    assert search(pattern="^o", glob="*.c") == f"{place('d', 'a.c')}:1:one\n"
    assert search(pattern="ONE", ignoreCase=True, mode="files", glob="*.{c,txt}") == \
        f"{place('b.txt')}\n{place('d', 'a.c')}\n"
    assert search(pattern="-two", literal=True) == f"{place('d', 'a.c')}:2:-two\n"
    assert search(pattern="--files") == "[no match]"
    assert search(pattern="one", all=True, mode="count", glob="c") == f"{place('.hidden/c')}:1\n"
    assert search(pattern="two", context=1) == \
        f"{place('d', 'a.c')}-1-one\n{place('d', 'a.c')}:2:-two\n"
    assert "\ufffdone" in search(pattern="one", glob="latin")
    assert "omitted end of long line" in search(pattern="one", glob="long")
    assert "binary file matches" in search(pattern="one", glob="bin")
    assert "exit code 2" in search(pattern="(")
    assert "No such file" in search(pattern="x", path=place("gone"))
    assert search(pattern="x", mode="all").startswith("error: invalid_arguments: mode: ")
    assert search(pattern="x", context=21).startswith("error: invalid_arguments: context: ")


def test_no_configuration_of_the_tenant_changes_a_search(acme, session, place):
    shell(acme, session, f"cd {place()} && printf '#!/bin/sh\\ntouch {place('ran')}\\n' >pre && "
                         f"chmod +x pre && echo one >f && echo --pre={place('pre')} >rc")
    assert said(acme, session, "search", pattern="--pre=" + place("pre"), path=place(),
                glob="f") == "[no match]"
    assert said(acme, session, "search", pattern="one", path=f"--pre={place('pre')}") \
        .endswith("exit code 2]")
    assert shell(acme, session, f"ls {place()}") == "f\npre\nrc\n"


def test_a_large_result_of_a_search_is_read_later(acme, session, place):
    shell(acme, session, f"seq -f 'line %06g' 1 20000 >{place('many')}")
    outcome = acme.tool(session, "search", pattern="line", path=place())
    result, output = outcome.finished[-1], outcome.details["outputId"]
    assert result["truncated"]
    assert f": {place('many')}:10000:line 010000\n[1 lines, each after its offset]" in said(
        acme, session, "read_output", id=output, contains="line 010000")
    assert said(acme, session, "read_output", id=output, line=20000).startswith(
        f"{place('many')}:20000:line 020000\n")


# --- output, background ------------------------------------------------------------------


def test_outputs_do_not_cross_tenants_and_end_with_the_sandbox(make_daemon):
    daemon = make_daemon(("acme", "globex")).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    session = acme.session()
    output = acme.tool(session, "shell", command="seq 20000").details["outputId"]
    assert said(acme, session, "read_output", id=output, line=7, lines=1).startswith("7\n")
    assert said(globex, globex.session(), "read_output", id=output).startswith(
        "error: not_found: ")
    assert daemon.stop() == 0
    daemon.start()
    acme = daemon.client("acme")
    assert said(acme, acme.session(), "shell", command="seq 20000").startswith("1\n")
    assert said(acme, acme.session(), "read_output", id=output).startswith("error: not_found: ")
    assert daemon.stop() == 0


def test_a_background_command_lives_through_turns(acme, session, place):
    started = acme.tool(session, "shell", background=True,
                        command=f"cd {place()} && exec python3 -um http.server 8123")
    command = started.details["outputId"]
    try:
        assert "Serving HTTP" in said(acme, session, "shell_read", id=command, offset=0,
                                      waitMs=30000)
        assert shell(acme, session, "curl -s -o /dev/null -w '%{http_code}' "
                                    "http://127.0.0.1:8123/") == "200"
        read = []

        def logged():
            read.append(said(acme, session, "shell_read", id=command))
            return '"GET / HTTP/1.1" 200' in "".join(read)

        eventually(logged, 20, "a line of the request", 0.1)
        other = acme.session()
        assert command in said(acme, other, "shell_read")
    finally:
        assert said(acme, session, "shell_stop", id=command).endswith("[ended: stopped]")
    assert shell(acme, session, "curl -s http://127.0.0.1:8123/ || echo gone") == "gone\n"


# --- plans, reading tools ----------------------------------------------------------------


def test_a_plan_is_an_event_and_in_the_history(acme, session):
    steps = [{"step": "look", "status": "completed"}, {"step": "do", "status": "pending"}]
    outcome = acme.tool(session, "update_plan", steps=steps)
    kinds = [kind for _, kind, _ in outcome.events]
    assert kinds.index("plan.updated") == kinds.index("tool.finished") + 1
    assert next(e["data"] for _, k, e in outcome.events if k == "plan.updated") == {"plan": steps}
    assert outcome.tool["details"]["plan"] == steps
    assert json.dumps(steps, separators=(",", ":")) in json.dumps(
        acme.call("GET", f"/v1/sessions/{session}/history"), separators=(",", ":"))


def test_reading_tools_run_while_a_session_plans(acme, place):
    session = acme.session(approvals="plan")
    for tool, arguments in (("shell", {"command": "true"}), ("shell_stop", {"id": "x"}),
                            ("shell_write", {"id": "x", "text": ""}),
                            ("write_file", {"path": "x", "content": ""}),
                            ("edit_file", {"path": "x", "oldText": "a", "newText": "b"}),
                            ("apply_patch", {"patch": ""})):
        assert said(acme, session, tool, **arguments).startswith("error: planning: "), tool
    assert said(acme, session, "search", pattern="x", path=place()) == "[no match]"
    assert said(acme, session, "shell_read").startswith(("[no command", "out_"))
    assert said(acme, session, "read_output", id="x").startswith("error: not_found: ")
    assert said(acme, session, "read_file", path="/etc/hosts").startswith("127.0.0.1")


# --- images ------------------------------------------------------------------------------


def test_an_image_is_told_of_where_nobody_sees_it(acme, session, place):
    shell(acme, session, f"echo {base64.b64encode(PNG).decode()} | base64 -d >{place('p')}")
    outcome = acme.tool(session, "read_file", path=place("p"))
    assert outcome.finished[-1]["output"] == \
        f"[image/png, {len(PNG)} bytes; this model cannot see images]"
    assert outcome.finished[-1]["imageCount"] == 0
    assert outcome.details["image"] == {"mimeType": "image/png", "size": len(PNG), "shown": False}


# --- many at once, and much of it --------------------------------------------------------


def test_a_huge_file_costs_the_server_no_memory(cloister, acme, session, place):
    shell(acme, session, f"truncate -s 100G {place('huge')}; echo x >>{place('huge')}")
    before = int(cloister.server().status("VmHWM").split()[0])
    assert said(acme, session, "read_file", path=place("huge"), line=2).startswith("[line 2 is not")
    assert said(acme, session, "edit_file", path=place("huge"), oldText="x", newText="y") \
        .startswith("error: too_large: ")
    assert said(acme, session, "read_file", path=place("huge"), offset=100 << 30) == "x\n"
    assert int(cloister.server().status("VmHWM").split()[0]) < \
        before + (400 if SANITIZED else 64) * 1024
