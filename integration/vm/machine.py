#!/usr/bin/python3
"""Boots the test machine, shows what its tests print, and counts how they ended.

  machine.py IMAGE PAYLOAD WORK SECONDS [ACCEL]

IMAGE is a directory made by scripts/vm-image, PAYLOAD a tar file that becomes the second
disk, WORK a directory for logs, SECONDS the time after which the machine is ended. The
image is not written to. Ends with "N passed, N failed", and exit 0 when nothing failed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

# Two processors: gVisor's threads wait for each other by spinning, which takes far more than
# twice as long on one.
MEMORY_MB, CPUS = 4096, 2
CONSOLE_LINES = 60
NOTES_BYTES = 1 << 20


def qemu(image, payload, work, accel):
    tcg = accel == "tcg"
    kernel = ["root=/dev/vda", "rw", "console=ttyS0", "quiet", "loglevel=5", "panic=-1",
              # The second processor is started by "guest", once that is safe.
              "maxcpus=1",
              # The console is read when the machine hangs: what the units say is there.
              "systemd.show_status=0", "systemd.journald.forward_to_console=1",
              "systemd.unit=multi-user.target",
              # Emulated, these cost much and protect nothing.
              *(["mitigations=off", "nokaslr"] if tcg else []),
              # Other clocks are devices, and reading one stops both processors.
              *(["tsc=reliable", "clocksource=tsc"] if tcg else [])]
    return [
        "qemu-system-x86_64", "-machine", "q35", "-smp", str(CPUS), "-m", str(MEMORY_MB),
        "-accel", "tcg,thread=multi,tb-size=1024" if tcg else accel,
        "-cpu", "max,la57=off" if tcg else "max",  # page tables of four levels are looked up faster
        "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none",
        "-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initrd.img",
        "-append", " ".join(kernel),
        # The changes live as long as this process: a reset of the machine keeps what it had
        # written to the disk and loses what it had in memory. The host's disk is left alone.
        "-drive", f"file={image}/disk,format=raw,if=virtio,snapshot=on,cache=unsafe",
        "-drive", f"file={payload},format=raw,if=virtio,readonly=on",
        # What the tests note across a reset; see reset.py.
        "-drive", f"file={work}/notes,format=raw,if=virtio,cache=unsafe",
        "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
        *port("output", work), *port("results", work),
        "-serial", f"file:{work}/console",
    ]


def port(name, work):
    return ["-chardev", f"file,id={name},path={work}/{name}",
            "-device", f"virtserialport,chardev={name},name={name}"]


def start(command):
    """QEMU, which must not outlive this process, whatever ends it."""
    guard = ["setpriv", "--pdeathsig", "KILL", "--"]
    return subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL)


def crashed(work):
    """True when a boot was not asked for: the kernel panicked."""
    with open(f"{work}/results", encoding="utf-8", errors="replace") as f:
        words = f.read()
    return words.count('"up"') > words.count('"reset"') + 1


def follow(process, work, deadline):
    """Prints what the machine prints, until it is off; what is wrong when it is not."""
    with open(f"{work}/output", "r", encoding="utf-8", errors="replace") as output:
        while True:
            ended = process.poll() is not None
            text = output.read()
            if text:
                sys.stdout.write(text)
                sys.stdout.flush()
            elif ended:
                return None
            elif crashed(work):
                return "the machine crashed"
            elif time.monotonic() > deadline:
                return "the machine did not end in time"
            else:
                time.sleep(0.2)


def read_results(path):
    """Outcome of every test that was planned, and whether the last boot came to its end."""
    outcomes, complete = {}, False
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            try:
                word = json.loads(line)
            except ValueError:
                return outcomes, False
            complete = word["kind"] == "off"
            if word["kind"] == "planned":
                outcomes.update({test: "not run" for test in word["tests"]})
            elif word["kind"] == "begun":
                outcomes[word["test"]] = "not finished"
            elif word["kind"] == "outcome" and outcomes[word["test"]] in ("not finished", "passed"):
                outcomes[word["test"]] = word["outcome"]
    return outcomes, complete


def tail(path, lines):
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as f:
            return [line for line in f.read().splitlines() if line][-lines:]
    return []


def judge(work, code, fault):
    outcomes, complete = read_results(f"{work}/results")
    bad = {test: outcome for test, outcome in outcomes.items() if outcome != "passed"}
    faults = [f"{outcome}: {test}" for test, outcome in bad.items() if outcome != "skipped"]
    failed = len(faults)
    if fault:
        faults.append(fault)
    elif code != 0:
        faults.append(f"QEMU ended with {code}")
    if not complete or not outcomes:
        faults.append("the tests did not come to their end")
    if len(faults) > failed:
        print("\n".join(["the last lines of the console:",
                         *tail(f"{work}/console", CONSOLE_LINES)]))
    for fault in faults:
        print(fault)
    skipped = sum(outcome == "skipped" for outcome in bad.values())
    print(f"{len(outcomes) - len(bad)} passed, {len(faults)} failed" +
          (f", {skipped} skipped" if skipped else ""))
    return 1 if faults else 0


def main(image, payload, work, seconds, accel="tcg"):
    begin = time.monotonic()
    for name in ("output", "results", "console"):
        with open(f"{work}/{name}", "wb"):
            pass
    with open(f"{work}/notes", "wb") as f:
        f.truncate(NOTES_BYTES)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    process = start(qemu(image, payload, work, accel))
    try:
        fault = follow(process, work, begin + float(seconds))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    print(f"machine: {time.monotonic() - begin:.0f} s")
    return judge(work, process.returncode, fault)


if __name__ == "__main__":
    if not 5 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
