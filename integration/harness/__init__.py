"""The scripted harness of the tests, as a session has it."""

import json
import os

from daemon import write_file

HERE = os.path.dirname(os.path.realpath(__file__))
PROGRAM = "/workspace/harness.py"


def install(daemon, tenant):
    """Puts the program into the tenant's workspace."""
    with open(f"{HERE}/harness.py", encoding="utf-8") as f:
        write_file(f"{daemon.tenants[tenant].workspace}/harness.py", f.read(), 0o755)


def command(*flags):
    return ["python3", PROGRAM, "serve", *flags]


def open_session(client, *flags, **fields):
    return client.session(engine={"kind": "harness", "command": command(*flags)}, **fields)


def script(*steps):
    """A prompt; each step is a list."""
    return json.dumps(steps)
