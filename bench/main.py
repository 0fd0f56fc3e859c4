#!/usr/bin/python3
"""Measures a build, side by side with what it is compared with.

  bench/main.py [--short] [--list] [ROW...]      CLOISTER_BUILD names the build

Prints the table, and writes it with every figure to CLOISTER_BUILD/bench.json.
"""

import json
import os
import signal
import statistics
import sys
import time
import traceback

import place as here

from figures import notes, table
from rows import ALL, Scale, about
import rows_http  # noqa: F401
import rows_sandbox  # noqa: F401
import rows_steps  # noqa: F401
import rows_tenants  # noqa: F401
import rows_turns  # noqa: F401


def flush_time(directory):
    """Milliseconds until 8 KiB more of a file are on the disk: what a commit waits for."""
    path, took = f"{directory}/flush", []
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    for i in range(50):
        os.pwrite(fd, b"x" * 8192, i * 8192)
        begin = time.monotonic()
        os.fdatasync(fd)
        took.append((time.monotonic() - begin) * 1000)
    os.close(fd)
    os.unlink(path)
    return statistics.median(took)


def run(place, names, scale):
    """The measured rows of each name; None where measuring failed."""
    found = {}
    for name in names:
        before, begin = here.load(), time.monotonic()
        print(f"{name}: {about(name)} ...", file=sys.stderr, flush=True)
        try:
            measured = ALL[name](place, scale)
        except Exception:  # the others are no less true
            traceback.print_exc()
            found[name] = None
            continue
        seconds = time.monotonic() - begin
        found[name] = {"rows": measured, "seconds": seconds, "load": before}
        for row in measured:
            print("    " + " | ".join(c for c in row.cells() if c), file=sys.stderr)
        print(f"    {seconds:.0f} s, load before {' '.join(before)}", file=sys.stderr, flush=True)
    return found


def write(machine, found, scale):
    document = {"version": 1, "short": scale.short, "machine": machine, "measures": [
        {"name": name, "about": about(name), "seconds": round(f["seconds"], 1),
         "load": f["load"], "rows": [row.document() for row in f["rows"]]}
        for name, f in found.items() if f]}
    path = f"{here.BUILD}/bench.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(document, f, indent=1, ensure_ascii=False)
    return path


def main(arguments):
    scale = Scale("--short" in arguments)
    names = [a for a in arguments if not a.startswith("--")] or list(ALL)
    unknown = [n for n in names if n not in ALL] + \
        [a for a in arguments if a.startswith("--") and a not in ("--short", "--list")]
    if unknown or "--list" in arguments:
        for name in ALL:
            print(f"{name:14} {about(name)}")
        return f"bench: there is no {unknown[0]}" if unknown else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = here.Place()
    try:
        place.open()
        machine = {**here.versions(), "flushMs": flush_time(place.directory)}
        found = run(place, names, scale)
    finally:
        place.close()
    rows = [row for f in found.values() if f for row in f["rows"]]
    print("\n".join([table(rows), *notes(rows)]))
    print(f"bench: {write(machine, found, scale)}")
    failed = [name for name, f in found.items() if not f]
    return f"bench: failed: {' '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
