"""Tools under a model whose answers are scripted. Thirty turns of one session in which a model, whose answers are scripted, makes a small
program in C: it writes, edits, patches, builds and tests in the sandbox. What is there in the
end is compared with what these turns should have made, computed here."""

import os
import stat

import pytest

from daemon import Daemon
from provider.models import declare, entry
from provider.server import Call

HEADER = """#ifndef SUM_H
#define SUM_H
long sum(const long *v, int n);
#endif
"""
SOURCE = """#include "sum.h"

long sum(const long *v, int n)
{
\tlong s = 1;

\tfor (int i = 0; i < n; i++)
\t\ts += v[i];
\treturn s;
}
"""
MAIN = """#include "sum.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
\tlong v[100];
\tint n = 0;

\tfor (int i = 1; i < argc && n < 100; i++)
\t\tv[n++] = atol(argv[i]);
\tprintf("%ld\\n", sum(v, n));
\treturn 0;
}
"""
MAKEFILE = """CFLAGS = -Wall -Wextra -Werror

adder: main.o sum.o
\t$(CC) -o $@ $^
check: adder
\tsh check.sh
clean:
\trm -f adder *.o
%.o: %.c sum.h
"""
CHECK = """set -e
test "$(./adder 1 2 3)" = 6
test "$(./adder)" = 0
echo passed
"""


class Project:
    """What the files should be, kept up beside the turns."""

    def __init__(self):
        self.files = {}

    def write(self, path, content):
        self.files[path] = content
        return "write_file", {"path": path, "content": content}

    def edit(self, path, old, new):
        assert self.files[path].count(old) == 1
        self.files[path] = self.files[path].replace(old, new)
        return "edit_file", {"path": path, "oldText": old, "newText": new}

    def edit_all(self, path, old, new):
        self.files[path] = self.files[path].replace(old, new)
        return "edit_file", {"path": path, "oldText": old, "newText": new, "replaceAll": True}

    @staticmethod
    def patch(*lines):
        return "apply_patch", {"patch": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}

    def add(self, path, content):
        self.files[path] = content
        return self.patch(f"*** Add File: {path}", *("+" + l for l in content.splitlines()))

    def move(self, old, new):
        self.files[new] = self.files.pop(old)
        return self.patch(f"*** Update File: {old}", f"*** Move to: {new}")

    def delete(self, path):
        del self.files[path]
        return self.patch(f"*** Delete File: {path}")

    def change(self, path, hunk):
        """A hunk as lines; its "-" and " " lines are in the file as they stand."""
        old = "".join(l[1:] + "\n" for l in hunk if l[0] in " -")
        assert self.files[path].count(old) == 1
        new = "".join(l[1:] + "\n" for l in hunk if l[0] in " +")
        self.files[path] = self.files[path].replace(old, new)
        return self.patch(f"*** Update File: {path}", "@@", *hunk)


def sh(line):
    return "shell", {"command": line}


def steps(p):
    """(call, what its result must hold), one after another as in thirty turns."""
    plan = [{"step": s, "status": "pending"} for s in ("sum", "check", "average")]
    yield ("update_plan", {"steps": plan}), "the plan is shown"
    yield p.write("sum.h", HEADER), "wrote"
    yield p.write("sum.c", SOURCE), "wrote"
    yield p.add("main.c", MAIN), "A "
    yield p.write("Makefile", MAKEFILE), "wrote"
    yield sh("make 2>&1"), "-o adder"
    yield p.add("check.sh", CHECK), "A "
    yield sh("make check 2>&1"), "[exit code 2]"  # it adds one too many
    yield ("search", {"pattern": "long s = \\d"}), "sum.c:5:\tlong s = 1;"
    yield p.edit("sum.c", "s = 1", "s = 0"), "the first at line 5"
    yield sh("make check 2>&1"), "passed"
    yield ("read_file", {"path": "main.c", "line": 12, "lines": 1}), "atol(argv[i])"
    yield p.edit("main.c", "atol(argv[i])", "strtol(argv[i], NULL, 0)"), "replaced 1"
    yield sh("make check 2>&1 && ./adder 0x10 1"), "passed\n17\n"
    yield p.edit_all("main.c", "100", "MAX"), "replaced 2"
    yield sh("make 2>&1"), "MAX"  # it is not declared
    yield p.change("main.c", (" #include <stdlib.h>", " ", "+#define MAX 64", "+",
                              " int main(int argc, char **argv)")), "M "
    yield sh("make check 2>&1"), "passed"
    yield ("edit_file", {"path": "sum.c", "oldText": "n", "newText": "m"}), "error: ambiguous"
    yield p.patch("*** Update File: sum.c", "-no such line", "+x", "*** Delete File: main.c"), \
        "error: no_match"
    yield p.add("average.c", "#include \"sum.h\"\n\nlong average(const long *v, int n)\n{\n"
                             "\treturn n ? sum(v, n) / n : 0;\n}\n"), "A "
    yield p.change("sum.h", (" long sum(const long *v, int n);",
                             "+long average(const long *v, int n);")), "M "
    yield p.edit("Makefile", "main.o sum.o", "main.o sum.o average.o"), "replaced 1"
    yield p.edit("main.c", "sum(v, n)", "argc > 1 && n > 9 ? average(v, n) : sum(v, n)"), \
        "replaced 1"
    yield p.edit("check.sh", "echo passed", 'test "$(./adder $(seq 11))" = 6\necho passed'), \
        "replaced 1"
    yield sh("make clean check 2>&1"), "passed"
    yield p.move("average.c", "mean.c"), " -> "
    yield p.edit("Makefile", "average.o", "mean.o"), "replaced 1"
    yield sh("make clean check 2>&1 && ./adder $(seq 20)"), "passed\n10\n"
    yield p.add("NOTES", "done\n"), "A "
    yield p.delete("NOTES"), "D "
    yield sh("make check 2>&1; make clean 2>&1; ls"), "passed"


TURNS = 30


def dealt(project):
    """The calls in thirty turns: the first ones have two each where there are more."""
    calls = list(steps(project))
    assert TURNS <= len(calls) < 2 * TURNS
    while calls:
        n = 2 if len(calls) > TURNS - dealt.turns else 1
        yield [calls.pop(0) for _ in range(n)]
        dealt.turns += 1


@pytest.fixture(scope="module")
def daemon(world, provider):
    daemon = Daemon(world, ("acme",))
    coder = entry("coder", "chat-completions", provider.url, contextWindow=1000000)
    daemon.start(models=declare(daemon, coder, {**coder, "id": "seer", "images": True}))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


def tree(root):
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            assert stat.S_ISREG(os.lstat(path).st_mode)
            with open(path, encoding="utf-8") as f:
                found[os.path.relpath(path, root)] = f.read()
    return found


def test_thirty_turns_make_a_program(daemon, provider):
    client, project = daemon.client("acme"), Project()
    session = client.session(model="coder")
    dealt.turns = 0
    for calls in dealt(project):
        provider.will(*(Call(tool, arguments) for (tool, arguments), _ in calls))
        outcome = client.watch(session, "go on")
        assert outcome.status == "completed", outcome.turn
        outputs = [f["output"] for f in outcome.finished]
        assert len(outputs) == len(calls)
        for (call, wanted), output in zip(calls, outputs):
            assert wanted in output, (call, output)
    assert dealt.turns == TURNS
    assert tree(daemon.tenants["acme"].workspace) == project.files


PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5E"
       "rkJggg==")


@pytest.mark.parametrize("model", ["seer", "coder"])
def test_a_model_that_sees_is_shown_an_image(daemon, provider, model):
    client = daemon.client("acme")
    session = client.session(model=model)
    provider.will(Call(*sh(f"echo {PNG} | base64 -d >/tmp/image")))
    assert client.run(session, "make it").status == "completed"
    provider.will(Call("read_file", {"path": "/tmp/image"}))
    outcome = client.watch(session, "look at it")
    sees = model == "seer"
    assert outcome.finished[-1]["imageCount"] == (1 if sees else 0)
    assert outcome.details["image"]["shown"] is sees
    before, after = (r.raw.count(f"data:image/png;base64,{PNG}".encode())
                     for r in provider.requests)
    assert (before, after) == (0, 1 if sees else 0)
    provider.will()
    assert client.run(session, "and now").status == "completed"
    assert b"data:image/png" not in provider.requests[0].raw  # that turn is over
