#!/usr/bin/python3
# A guest that lies: PID 1 of a sandbox in place of cloister-guest. What it does is Python
# code in /workspace/lie; without that file it becomes the honest one in /workspace/guest.
import json
import os
import struct

HELLO, START, INPUT, END, CREDIT, CANCEL, PING = range(1, 8)
READY, STDOUT, STDERR, EXIT, PONG = 0x81, 0x82, 0x83, 0x84, 0x87


def say(kind, call=0, payload=b"", length=None):
    raw(struct.pack(">IBQ", len(payload) if length is None else length, kind, call) + payload)


def raw(data):
    while data:
        data = data[os.write(1, data):]


def read(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def hear():
    size, kind, call = struct.unpack(">IBQ", read(13))
    return kind, call, read(size)


def shake():
    hear()
    say(READY, 0, b'{"version":1,"pid":1}')


def started():
    """The id of the next call that is opened."""
    while True:
        kind, call, _ = hear()
        if kind == START:
            return call


def result(call, **fields):
    say(EXIT, call, json.dumps({"stdoutBytes": 0, "stderrBytes": 0, **fields}).encode())


def linger():
    """Until the daemon closes the channel."""
    while True:
        hear()


try:
    with open("/workspace/lie", encoding="utf-8") as f:
        code = f.read()
except FileNotFoundError:
    os.execv("/workspace/guest", ["cloister-guest"])
exec(code)
linger()
