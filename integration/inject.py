"""Makes a thread of another process execute one system call, by ptrace, as root.

What comes back is what code that took over the process would get: its filters, its
Landlock domain, its credentials. The thread's registers, and the stack below it that
holds the arguments' bytes, are put back afterwards. The "syscall" instruction stands in
the zeros that fill up the last page of the program, where no other thread comes by.
x86-64 only.
"""

import ctypes
import errno
import os
import platform
import signal
import struct

SUPPORTED = platform.machine() == "x86_64"

PTRACE_CONT, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH = 7, 12, 13, 17
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
SYSCALL_TRAP = b"\x0f\x05\xcc"  # syscall; int3
SCRATCH = 64 * 1024  # bytes below the red zone that arguments may take
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

NUMBERS = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "mmap": 9, "mprotect": 10,
    "getpid": 39, "socket": 41, "connect": 42, "sendto": 44, "bind": 49, "clone": 56, "fork": 57,
    "execve": 59, "kill": 62, "fcntl": 72, "truncate": 76, "rename": 82, "mkdir": 83,
    "unlink": 87, "chmod": 90, "ptrace": 101, "getpriority": 140, "prctl": 157, "mount": 165,
    "init_module": 175, "tkill": 200, "getdents64": 217, "tgkill": 234, "keyctl": 250,
    "openat": 257, "unshare": 272, "prlimit64": 302, "setns": 308, "process_vm_writev": 311,
    "memfd_create": 319, "bpf": 321, "execveat": 322, "io_uring_setup": 425, "pidfd_open": 434,
}


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags "
        "rsp ss fs_base gs_base ds es fs gs").split()]


class Ended(Exception):
    """The process ended in the call: the name of the signal, or "exit N"."""


def ptrace(request, pid, address=0, data=0):
    ctypes.set_errno(0)
    if LIBC.ptrace(request, pid, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace {request:#x} of {pid}: {os.strerror(code)}")


class Injector:
    """Holds one thread, stopped, while the with block runs."""

    def __init__(self, tid):
        self.tid = tid
        self.saved = Registers()
        self.memory = None
        self.dead = False

    def __enter__(self):
        ptrace(PTRACE_SEIZE, self.tid)
        ptrace(PTRACE_INTERRUPT, self.tid)
        self.wait()
        ptrace(PTRACE_GETREGS, self.tid, 0, ctypes.addressof(self.saved))
        self.memory = os.open(f"/proc/{self.tid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self.code = self.padding()
        self.base = (self.saved.rsp - 4096 - SCRATCH) & ~15
        self.stack = os.pread(self.memory, SCRATCH, self.base)
        os.pwrite(self.memory, SYSCALL_TRAP, self.code)
        return self

    def padding(self):
        """Where executable memory ends in zeros, with room for the instruction."""
        with open(f"/proc/{self.tid}/maps", encoding="utf-8") as f:
            fields = [line.split() for line in f]
        ends = [int(words[0].split("-")[1], 16) for words in fields if words[1] == "r-xp"]
        for end in ends:
            if os.pread(self.memory, 16, end - 16) == bytes(16):
                return end - 16
        raise AssertionError("no page of the program has room at its end")

    def __exit__(self, *_):
        try:
            if not self.dead:
                os.pwrite(self.memory, bytes(len(SYSCALL_TRAP)), self.code)
                os.pwrite(self.memory, self.stack, self.base)
                ptrace(PTRACE_SETREGS, self.tid, 0, ctypes.addressof(self.saved))
                ptrace(PTRACE_DETACH, self.tid)
        finally:
            os.close(self.memory)

    def wait(self):
        _, status = os.waitpid(self.tid, WALL)
        self.dead = not os.WIFSTOPPED(status)
        if os.WIFSIGNALED(status):
            raise Ended(signal.Signals(os.WTERMSIG(status)).name)
        if os.WIFEXITED(status):
            raise Ended(f"exit {os.WEXITSTATUS(status)}")
        return os.WSTOPSIG(status)

    def place(self, arguments):
        """Numbers as they are, bytes and lists of bytes by their address in the process."""
        at = self.base

        def store(data):
            nonlocal at
            assert at + len(data) <= self.base + SCRATCH, "too much for the scratch space"
            os.pwrite(self.memory, data, at)
            start, at = at, at + ((len(data) + 15) & ~15)
            return start

        def address(value):
            if isinstance(value, str):
                value = os.fsencode(value) + b"\0"
            if isinstance(value, bytes):
                return store(value)
            if isinstance(value, list):
                return store(b"".join(struct.pack("Q", address(v)) for v in value) + bytes(8))
            return value & (1 << 64) - 1

        return [address(value) for value in arguments]

    def call(self, name, *arguments):
        """What the call returns; OSError with its errno; Ended."""
        registers = Registers.from_buffer_copy(self.saved)
        values = self.place(arguments) + [0] * (6 - len(arguments))
        registers.rdi, registers.rsi, registers.rdx = values[:3]
        registers.r10, registers.r8, registers.r9 = values[3:]
        registers.rax = NUMBERS[name]
        registers.orig_rax = (1 << 64) - 1  # nothing to restart
        registers.rsp, registers.rip = self.base, self.code
        ptrace(PTRACE_SETREGS, self.tid, 0, ctypes.addressof(registers))
        stop = None
        while stop != signal.SIGTRAP:  # other signals are not delivered
            ptrace(PTRACE_CONT, self.tid)
            stop = self.wait()
        ptrace(PTRACE_GETREGS, self.tid, 0, ctypes.addressof(registers))
        assert registers.rip == self.code + len(SYSCALL_TRAP), "not our instruction"
        result = ctypes.c_longlong(registers.rax).value
        if -4096 < result < 0:
            raise OSError(-result, f"{name}: {os.strerror(-result)}")
        return result

    def error(self, name, *arguments):
        """"worked", or the name of the error that the call met, or how the process ended."""
        try:
            self.call(name, *arguments)
        except OSError as problem:
            return errno.errorcode[problem.errno]
        except Ended as end:
            return str(end)
        return "worked"
