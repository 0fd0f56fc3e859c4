#!/usr/bin/python3
"""A harness that does what it is told, well or badly.

It speaks the serve protocol, version 1. A run's prompt is a JSON list of steps; each is a
list of a name and its arguments, see class Run. A prompt that is no such list is answered
with itself. How it begins, and how it behaves between runs, is said by its arguments.

It is run by python3 in the sandbox and uses nothing but the standard library.
"""

import json
import os
import queue
import signal
import sys
import threading
import time

OUT = sys.stdout.buffer
LOCK = threading.Lock()
FLAGS = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
CAPABILITIES = ["submit", "answer", "cancel", "ping", "shutdown", "ask_id", "usage_notify",
                "error_codes", "per_run_budget", "signal_drain", "hello", "op_id"]


def write(data):
    with LOCK:
        OUT.write(data)
        OUT.flush()


def say(**line):
    write(json.dumps({"protocol": 1, **line}).encode() + b"\n")


def refuse(message, op_id=None):
    more = {"op_id": op_id} if op_id else {}
    say(type="error", error={"code": "protocol", "message": message}, message=message, **more)


class Cancelled(Exception):
    pass


class Run:
    """One run; its methods are the steps."""

    served = 0

    def __init__(self, run_id, prompt):
        self.run_id, self.prompt = run_id, prompt
        self.seq, self.spoken_id = 0, run_id
        self.answers, self.asked = queue.Queue(), None
        self.cancelled, self.heeds = threading.Event(), True
        self.said, self.done = [], False

    def line(self, **line):
        self.seq += 1
        say(seq=self.seq, run_id=self.spoken_id, **line)

    def check(self):
        if self.heeds and self.cancelled.is_set():
            raise Cancelled

    def work(self):
        Run.served += 1
        try:
            steps = json.loads(self.prompt)
            assert isinstance(steps, list)
        except (ValueError, AssertionError):
            steps = [["result", {"answer": self.prompt}]]
        if not (steps and steps[0][0] == "no_start"):
            self.line(type="start", prompt=self.prompt, warnings=[])
        try:
            for name, *arguments in steps:
                self.check()
                getattr(self, name)(*arguments)
        except Cancelled:
            self.result({"answer": "", "cancelled": True})
        if not self.done:
            self.result({"answer": "".join(self.said)})

    # --- steps ---------------------------------------------------------------------------

    def no_start(self):
        pass

    def delta(self, text, **more):
        self.said.append(text)
        self.line(type="delta", text=text, **more)

    def notify(self, kind, *data):
        self.line(type="notify", kind=kind, **({"data": data[0]} if data else {}))

    def log(self, message):
        self.line(type="log", message=message)

    def logs(self, lines, size):
        for _ in range(lines):
            self.log("w" * size)

    def other(self, line):
        self.line(**line)

    def raw(self, text):
        write(text.encode() + b"\n")

    def hex(self, digits):
        write(bytes.fromhex(digits))

    def huge(self, size):
        """A line of so many bytes, whose end counts not."""
        empty = json.dumps({"protocol": 1, "seq": self.seq + 1, "run_id": self.spoken_id,
                            "type": "log", "message": ""}).encode()
        self.seq += 1
        write(empty[:-2] + b"x" * (size - len(empty)) + empty[-2:] + b"\n")

    def flood(self, lines):
        for _ in range(lines):
            self.check()
            self.log("flood " + "x" * 500)

    def drone(self):
        """Output without an end of a line."""
        while True:
            self.check()
            write(b"x" * 1000)

    def number(self, seq):
        self.seq = seq - 1

    def speak_as(self, run_id):
        self.spoken_id = run_id or self.run_id

    def ask(self, data, patient=True):
        """Asks, and waits for the answers; an impatient one goes on at once."""
        self.asked = data.get("ask_id", "")
        self.notify("ask", data)
        while patient:
            self.check()
            try:
                answers = self.answers.get(timeout=0.05)
            except queue.Empty:
                continue
            self.delta("[" + ", ".join(answers) + "]")
            break
        self.asked = None

    def retire(self):
        self.asked = None

    def who(self):
        self.delta(f"{os.getpid()} {Run.served}")

    def sleep(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.02)

    def stop_heeding(self):
        self.heeds = False

    def wait_file(self, path):
        while not os.path.exists(path):
            self.check()
            time.sleep(0.02)

    def touch(self, path):
        with open(path, "a", encoding="utf-8") as f:
            f.write("x")

    def stderr(self, text):
        sys.stderr.write(text)
        sys.stderr.flush()

    def exit(self, code):
        OUT.flush()
        os._exit(code)

    def kill(self, number):
        os.kill(os.getpid(), number)
        time.sleep(60)

    def freeze(self):
        """Hears and says nothing any more."""
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(3600)  # another thread may have taken the signal, and this one goes on a bit

    def vanish(self):
        """Ends without a result, and lives on."""
        self.done = True

    def result(self, result):
        self.done = True
        whole = {"answer": "", "errors": [], "error_messages": [], "model": "scripted",
                 "usage": {"input": 0, "output": 0, "rounds": 1}, "cancelled": False}
        self.line(type="result", **{**whole, **result})


class Harness:
    def __init__(self):
        self.run, self.begun = None, threading.Event()

    def submit(self, op):
        if "refuse" in FLAGS:
            return refuse(FLAGS["refuse"] or "no work today", op.get("op_id"))
        if self.run and not self.run.done:
            return refuse("a run is active", op.get("op_id"))
        if not op.get("run_id") or not str(op.get("prompt", "")).strip():
            return refuse("run_id or prompt is missing", op.get("op_id"))
        if "mute" in FLAGS:
            return None
        self.run = Run(op["run_id"], op["prompt"])
        threading.Thread(target=self.run.work, daemon=True).start()
        return None

    def answer(self, op):
        run = self.run
        if not run or run.done or op.get("run_id") != run.run_id or run.asked is None:
            return refuse("nothing was asked", op.get("op_id"))
        if op.get("ask_id", run.asked) != run.asked:
            return refuse("stale ask_id", op.get("op_id"))
        return run.answers.put([str(a) for a in op["answers"]])

    def cancel(self, op):
        if not self.run or self.run.done or op.get("run_id") != self.run.run_id:
            return refuse("no such run", op.get("op_id"))
        return self.run.cancelled.set()

    def hello(self, op):
        if FLAGS.get("hello") == "refused":
            return refuse("no common version", op.get("op_id"))
        if FLAGS.get("hello") == "silent":
            return None
        return say(type="hello", protocol_version=int(FLAGS.get("hello", 1)),
                   capabilities=CAPABILITIES, pid=os.getpid(), op_id=op.get("op_id"))

    def ping(self, op):
        if "no-pong" not in FLAGS:
            say(type="pong", op_id=op.get("op_id"))

    def take(self, line):
        try:
            op = json.loads(line)
            name = op["op"]
            assert name in ("submit", "answer", "cancel", "hello", "ping", "shutdown")
        except (ValueError, KeyError, TypeError, AssertionError):
            refuse("not understood")
            return True
        if name == "shutdown":
            return False
        getattr(self, name)(op)
        return True

    def serve(self):
        for line in sys.stdin.buffer:
            if line.strip() and not self.take(line):
                break
        if "stay" in FLAGS:
            while True:
                time.sleep(1)
        if "farewell" in FLAGS:
            with open(FLAGS["farewell"], "w", encoding="utf-8") as f:
                f.write("bye")
        os._exit(0)


def begin():
    if "exit" in FLAGS:
        sys.stderr.write("cannot begin: no licence\n")
        sys.exit(int(FLAGS["exit"]))
    if "garbage" in FLAGS:
        write(b"Welcome!\n\xff\xfe\x00\n[1,2]\n{\"type\":\n")
    if "slow" in FLAGS:
        time.sleep(float(FLAGS["slow"]))
    if "silent" in FLAGS:
        time.sleep(3600)
    if "birth" in FLAGS:
        with open(FLAGS["birth"], "a", encoding="utf-8") as f:
            f.write("x")
    capabilities = [c for c in CAPABILITIES if c not in FLAGS.get("without", "").split(",")]
    say(type="ready", pid=os.getpid(), protocol_version=int(FLAGS.get("version", 1)),
        capabilities=capabilities)


if __name__ == "__main__":
    begin()
    Harness().serve()
