"""A cgroup of this run's own, so that one that is left behind in it is seen.

The boundary "development" makes none: nothing of the daemon may leave this one, or make one
below it. Where the machine lets nobody make cgroups, there is nothing to look at either.
"""

import contextlib
import os
import time


def mount_point():
    """Where version 2 is mounted; None when it is not."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        found = [line.split()[4] for line in f if " - cgroup2 " in line]
    return found[0] if found else None


class House:
    def __init__(self, path, name):
        self.path, self.name = path, name

    @classmethod
    def enter(cls):
        """This process and all it starts live in there from now on; None when that cannot be."""
        mount, outer = mount_point(), cls.of("self")
        if mount is None or outer is None:
            return None
        name = f"{outer.rstrip('/')}/cloister-chaos-{os.getpid()}"
        house = cls(f"{mount}{name}", name)
        house.outside = f"{mount}{outer}"
        try:
            os.mkdir(house.path)
            house.join(house.path)
        except OSError:
            house.leave()
            return None
        return house

    @staticmethod
    def of(pid):
        """The cgroup of a process, as it calls it; None when there is none, or no process."""
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
                return next((line[3:].rstrip("\n") for line in f if line.startswith("0::")), None)
        except OSError:
            return None

    @staticmethod
    def join(path):
        with open(f"{path}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))

    def leave(self):
        with contextlib.suppress(OSError):
            self.join(self.outside)
        for _ in range(100):  # processes that have been killed go in their own time
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
                return
            time.sleep(0.02)
