"""What stands in for the test driver of NixOS: the names that it offers to a script, nodes that
run commands on this machine, and a look at a script that finds what Python would only find when
it comes to it."""

import ast
import builtins
import inspect
import shlex
import subprocess
import symtable
import time
from typing import Optional, Tuple

# Of "nixos/lib/test-driver", what scripts of this repository may use besides nodes.
OFFERED = {"start_all", "subtest", "json", "DATA"}


class Node:
    """A machine, with the signatures of the real one and this machine behind it."""

    def execute(self, command: str, check_return: bool = True, check_output: bool = True,
                timeout: Optional[int] = 900) -> Tuple[int, str]:
        done = subprocess.run(["bash", "-c", f"set -euo pipefail; {command}"], stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, check=False, timeout=timeout)
        return (done.returncode if check_return else -1), (done.stdout if check_output else "")

    def succeed(self, *commands: str, timeout: Optional[int] = None) -> str:
        text = ""
        for command in commands:
            status, said = self.execute(command, timeout=timeout)
            assert status == 0, f"{command}: {status} {said}"
            text += said
        return text

    def fail(self, *commands: str, timeout: Optional[int] = None) -> str:
        text = ""
        for command in commands:
            status, said = self.execute(command, timeout=timeout)
            assert status != 0, f"{command}: did not fail: {said}"
            text += said
        return text

    def wait_until_succeeds(self, command: str, timeout: int = 900) -> str:
        return self.until(command, True, timeout)

    def wait_until_fails(self, command: str, timeout: int = 900) -> str:
        return self.until(command, False, timeout)

    def until(self, command: str, success: bool, timeout: int) -> str:
        deadline = time.monotonic() + timeout
        while True:
            status, said = self.execute(command, timeout=timeout)
            if (status == 0) == success:
                return said
            assert time.monotonic() < deadline, f"{command}: {status} {said}"
            time.sleep(0.1)

    def sleep(self, secs: int) -> None:
        self.succeed(f"sleep {shlex.quote(str(secs))}")

    # What a machine alone can do.

    def crash(self) -> None:
        raise NotImplementedError

    def start(self, allow_reboot: bool = False) -> None:
        raise NotImplementedError(allow_reboot)

    def wait_for_unit(self, unit: str, user: Optional[str] = None, timeout: int = 900) -> None:
        raise NotImplementedError(unit)


def scopes(table):
    yield table
    for child in table.get_children():
        yield from scopes(child)


def unbound(text, nodes):
    """Names that a script uses and nobody gives it."""
    top = symtable.symtable(text, "script", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    known = bound | OFFERED | set(nodes) | set(dir(builtins))
    return sorted({s.get_name() for scope in scopes(top) for s in scope.get_symbols()
                   if s.is_referenced() and (s.is_global() or scope is top) and s.get_name() not in known})


def is_node(value, nodes):
    return (isinstance(value, ast.Name) and value.id in {*nodes, "node"}) or \
        (isinstance(value, ast.Attribute) and value.attr == "node")


def bad_calls(text, nodes):
    """Calls of a node that the driver's would refuse."""
    found = []
    for call in ast.walk(ast.parse(text)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and
                is_node(call.func.value, nodes)):
            continue
        method = getattr(Node, call.func.attr, None)
        try:
            if method is None or call.func.attr == "until":
                raise TypeError("is no method of a node")
            inspect.signature(method).bind(None, *call.args, **{k.arg: k.value for k in call.keywords})
        except TypeError as fault:
            found.append(f"line {call.lineno}: {call.func.attr}: {fault}")
    return found
