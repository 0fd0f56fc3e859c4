"""What "make install" leaves in a tree of its own: releases side by side while one is in use."""

import os
import shutil
import subprocess

import pytest

from nix_eval import ROOT

PROGRAMS = ("cloisterd", "cloister-runner", "cloister-guest")


class Tree:
    def __init__(self, path):
        self.path, self.lib = path, f"{path}/root/usr/lib/cloister"

    def install(self, name, prefix=()):
        """A release whose programs wait when they are run; what differs is behind their end."""
        done = self.begin(name, prefix)
        _, error = done.communicate(timeout=60)
        assert done.returncode == 0, error
        return os.path.dirname(os.path.realpath(f"{self.lib}/cloisterd"))

    def begin(self, name, prefix=()):
        build = f"{self.path}/{name}"
        os.makedirs(build, exist_ok=True)
        for program in PROGRAMS:
            shutil.copy("/usr/bin/sleep", f"{build}/{program}")
            with open(f"{build}/{program}", "ab") as f:
                f.write(name.encode())
        return subprocess.Popen([*prefix, f"{ROOT}/scripts/install", build], text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                env={**os.environ, "DESTDIR": f"{self.path}/root", "PREFIX": "/usr"})

    def releases(self):
        return {f"{self.lib}/releases/{name}" for name in os.listdir(f"{self.lib}/releases")}


@pytest.fixture
def tree(tmp_path):
    return Tree(os.path.realpath(tmp_path))


def test_a_release_is_a_directory_and_a_link_to_it(tree):
    one = tree.install("one")
    assert os.path.dirname(one) == f"{tree.lib}/releases" and set(os.listdir(one)) == set(PROGRAMS)
    assert os.path.realpath(f"{tree.path}/root/usr/bin/cloisterd") == f"{one}/cloisterd"
    assert {os.stat(f"{one}/{name}").st_mode & 0o7777 for name in PROGRAMS} == {0o755}
    # The same one again changes nothing.
    assert tree.install("one") == one and tree.releases() == {one}
    with open(f"{tree.path}/root/usr/lib/systemd/system/cloister.service", encoding="utf-8") as f:
        assert "ExecStart=/usr/lib/cloister/cloisterd serve " in f.read()


@pytest.mark.parametrize("program", ["cloisterd", "cloister-runner"])
def test_what_runs_keeps_its_release(tree, program):
    one = tree.install("one")
    running = subprocess.Popen([f"{one}/{program}", "600"])
    try:
        two = tree.install("two")
        assert two != one and tree.releases() == {one, two}
        # Back, as docs/operate-debian.md has it, and there again.
        assert tree.install("one") == one and tree.releases() == {one}
        assert tree.install("two") == two and tree.releases() == {one, two}
        assert running.poll() is None and os.path.exists(f"{one}/cloister-guest")
    finally:
        running.kill()
        running.wait()
    three = tree.install("three")
    assert tree.releases() == {three}


def test_only_releases_are_removed(tree):
    """By their own names: what a link names is somebody else's, and so is what nobody made here."""
    one = tree.install("one")
    elsewhere = f"{tree.path}/elsewhere"
    os.mkdir(elsewhere)
    place = f"{tree.lib}/releases"
    os.symlink(elsewhere, f"{place}/{'a' * 16}")
    os.symlink(f"{tree.path}/nowhere", f"{place}/{'b' * 16}")
    os.symlink("/nonexistent", f"{place}/link")
    for name in ("c" * 15, "d" * 17, "E" * 16, "saved"):
        os.mkdir(f"{place}/{name}")
    with open(f"{place}/{'f' * 16}", "w", encoding="ascii"):
        pass
    foreign = tree.releases() - {one}
    os.mkdir(f"{place}/{'0' * 16}")
    two = tree.install("two")
    assert tree.releases() == foreign | {two} and os.path.isdir(elsewhere)


def test_two_at_the_same_time(tree):
    for _ in range(4):
        for done in [tree.begin(name) for name in ("one", "two", "three")]:
            _, error = done.communicate(timeout=60)
            assert done.returncode == 0, error
        (release,) = tree.releases()
        assert os.path.realpath(f"{tree.lib}/cloisterd") == f"{release}/cloisterd"
        assert set(os.listdir(release)) == set(PROGRAMS)


def test_nothing_is_removed_where_not_everything_is_seen(tree):
    """As without /proc, or without the power to look at what others run."""
    one = tree.install("one")
    blind = ["setpriv", "--bounding-set=-sys_ptrace"]  # this process has more than that
    two = tree.install("two", blind)
    assert tree.releases() == {one, two}
    assert tree.install("two") == two and tree.releases() == {two}


def test_a_release_that_is_there_is_left_as_it_is(tree):
    """But for what an installation that was ended has not put there."""
    one = tree.install("one")
    before = {name: os.stat(f"{one}/{name}") for name in PROGRAMS}
    os.chmod(f"{one}/cloister-guest", 0o600)
    with open(f"{one}/cloister-runner", "r+b") as f:
        f.truncate(100)
    assert tree.install("one") == one and set(os.listdir(one)) == set(PROGRAMS)
    after = {name: os.stat(f"{one}/{name}") for name in PROGRAMS}
    assert after["cloisterd"].st_ino == before["cloisterd"].st_ino
    assert after["cloisterd"].st_mtime_ns == before["cloisterd"].st_mtime_ns
    for name in ("cloister-runner", "cloister-guest"):
        assert (after[name].st_size, after[name].st_mode) == (before[name].st_size, before[name].st_mode)
