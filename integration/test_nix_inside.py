"""Nix in a sandbox builds, as nix/rootfs.nix sets it up, and what it built is kept with the tenant.

The root filesystem is the one of the other tests, with Debian's Nix in the place of nixpkgs' own:
what makes Nix work there are the files that nix/rootfs.nix adds, and those are its very own."""

import os
import platform
import re
import shutil
import subprocess

import pytest

from daemon import write_file
from nix_eval import ROOT, evaluate, lib
from world import output_of

SYSTEM, STORE = f"{platform.machine()}-linux", "/state/nix/store"
LEFT_OUT = ("/usr/share/", "/usr/lib/nix/pkgconfig")
# One builds on the other; a shell is all that they need.
DERIVATIONS = """
let
  sh = name: line: derivation {
    inherit name;
    system = "SYSTEM";
    builder = "/bin/sh";
    args = [ "-c" line ];
  };
  first = sh "first" "echo made >$out";
in
{
  second = sh "second" "read -r word <${first}; echo $word twice >$out";
  program = sh "program" "PATH=/bin; mkdir -p $out/bin; ln -s /bin/true $out/bin/of-the-profile";
}
"""
FLAKE = """
{
  outputs = _: { packages.SYSTEM.default = (import ./default.nix).second; };
}
"""


def libraries(program):
    return re.findall(r"=> (/\S+)", output_of("ldd", program))


def copy_nix(layer, rootfs):
    """Debian's Nix, and what it needs that the root filesystem does not have."""
    files = [path for path in output_of("dpkg", "-L", "nix-bin").splitlines()
             if not path.startswith(LEFT_OUT) and not os.path.isdir(path)]
    missing = [path for path in libraries("/usr/bin/nix") if not os.path.exists(rootfs + path)]
    for path in files + missing:
        # A link into /usr, as /lib is, stays one.
        place = layer + os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=path in missing)


def add_files(layer, directory):
    """What nix/rootfs.nix does for Nix, with its file where this machine has none."""
    made = evaluate(f"""
      let
        lib = {lib()};
        pkgs = import {ROOT}/integration/nix/pkgs.nix {{ inherit lib; }};
        rootfs = (import {ROOT}/nix/packages.nix {{ inherit pkgs lib; }}).rootfs-nix;
      in {{ inherit (rootfs.nixConf) text; path = "${{rootfs.nixConf}}"; script = rootfs.nixFiles; }}""")
    assert made["path"] in made["script"]
    with open(f"{directory}/nix.conf", "w", encoding="utf-8") as f:
        f.write(made["text"])
    os.makedirs(f"{layer}/nix/store")
    script = made["script"].replace(made["path"], f"{directory}/nix.conf")
    subprocess.run(["bash", "-euc", script], env={**os.environ, "out": layer}, check=True)


@pytest.fixture
def rootfs(world):
    directory = world.new_directory()
    layer, whole = f"{directory}/layer", f"{directory}/rootfs"
    for path in (directory, layer, whole):
        os.mkdir(path)
    copy_nix(layer, world.rootfs)
    add_files(layer, directory)
    output_of("mount", "-t", "overlay", "-o", f"ro,lowerdir={layer}:{world.rootfs}", "overlay", whole)
    yield whole
    output_of("umount", whole)
    shutil.rmtree(directory)


@pytest.fixture
def daemon(rootfs, make_daemon):
    daemon = make_daemon(("acme", "globex")).start(rootfs=rootfs)
    for name, text in (("default.nix", DERIVATIONS), ("flake.nix", FLAKE)):
        write_file(f"{daemon.tenants['acme'].workspace}/{name}", text.replace("SYSTEM", SYSTEM))
    yield daemon
    assert daemon.stop() == 0


def test_nix_builds_in_a_sandbox_and_what_it_built_stays(daemon):
    acme = daemon.client("acme")
    session = acme.session()

    def run(command):
        outcome = acme.run(session, f"$ {command}", 120)
        assert outcome.status == "completed", outcome
        print(outcome.text)
        return outcome.text

    text = run("nix-build -A second && cat result")
    assert text.endswith("\nmade twice\n") and "error" not in text, text
    built = re.findall(rf"^building '{STORE}/\w+-(\w+)\.drv'", text, re.MULTILINE)
    assert built == ["first", "second"], text
    path = run("readlink result").strip()
    assert re.fullmatch(rf"{STORE}/\w{{32}}-second", path)
    assert run("nix build path:/workspace -o flake && cat flake").endswith("made twice\n")
    assert run("nix-env -f . -iA program && ~/.nix-profile/bin/of-the-profile && echo runs").endswith("runs\n")
    # One that Nix would lay over /nix/store does not do: nobody in a sandbox makes namespaces.
    text = run("nix-build -A second --no-out-link --store /state/laid-over || echo failed")
    assert "cannot create /nix/store/" in text and text.endswith("failed\n"), text
    # The next sandbox has it, and builds nothing again.
    before = daemon.ends("acme")
    daemon.runner("acme").kill()
    daemon.expect_end("acme", before, 60)
    assert run("nix-build -A second --no-out-link 2>&1; cat result") == f"{path}\nmade twice\n"
    assert run("~/.nix-profile/bin/of-the-profile && echo runs") == "runs\n"
    # It is the tenant's alone.
    globex = daemon.client("globex")
    assert globex.run(globex.session(), f"$ ls {STORE} 2>&1 | wc -l; test -e {path} || echo none").text.endswith("none\n")
