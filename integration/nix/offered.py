# What the test driver of NixOS and nix/vm-test.nix put in front of the script, with types: read
# by mypy alone, which that driver also asks before it runs anything.
import json
from typing import Any, Callable, ContextManager

from nix_driver import Node

machine: Node
external: Node
start_all: Callable[[], None]
subtest: Callable[[str], ContextManager[None]]
DATA: Any = json.loads("{}")
