"""Sees who opens what below a directory, with fanotify(7)."""

import contextlib
import ctypes
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
FAN_CLASS_NOTIF, FAN_CLOEXEC, FAN_NONBLOCK = 0, 1, 2
FAN_MARK_ADD = 1
FAN_OPEN, FAN_ACCESS, FAN_MODIFY, FAN_OPEN_EXEC = 0x20, 0x1, 0x2, 0x1000
FAN_ONDIR, FAN_EVENT_ON_CHILD = 0x40000000, 0x08000000
EVENT = struct.Struct("=IBBHQii")


class Opens:
    """While it is open, every open of the directories and of what is in them is noted."""

    def __init__(self, directories):
        self.fd = LIBC.fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK,
                                     os.O_RDONLY | os.O_CLOEXEC)
        assert self.fd >= 0, f"fanotify_init: {os.strerror(ctypes.get_errno())}"
        mask = FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_OPEN_EXEC | FAN_ONDIR | FAN_EVENT_ON_CHILD
        for directory in directories:
            failed = LIBC.fanotify_mark(self.fd, FAN_MARK_ADD, ctypes.c_uint64(mask), -1,
                                        os.fsencode(directory))
            assert not failed, f"fanotify_mark: {os.strerror(ctypes.get_errno())}"

    def pids(self):
        """{process: [paths]} since the last call."""
        seen = {}
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return seen
            while data:
                length, _version, _, _, _mask, fd, pid = EVENT.unpack_from(data)
                path = "?"
                with contextlib.suppress(OSError):
                    path = os.readlink(f"/proc/self/fd/{fd}")
                if fd >= 0:
                    os.close(fd)
                seen.setdefault(pid, []).append(path)
                data = data[length:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
