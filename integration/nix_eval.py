"""Evaluates Nix expressions of the repository. Nothing is built and no store is touched."""

import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# The lib of nixpkgs in the place of its stand-in: a directory.
LIB = os.environ.get("CLOISTER_NIXPKGS_LIB")
ENVIRONMENT = {**os.environ, "NIX_PATH": ""}


def instantiate(*arguments, text=None):
    return subprocess.run(["nix-instantiate", "--store", "dummy://", *arguments], input=text,
                          capture_output=True, text=True, check=False, env=ENVIRONMENT)


def evaluate(expression):
    """What an expression is, as JSON has it; or the complaint, as an exception."""
    done = instantiate("--eval", "--strict", "--json", "-", text=expression)
    if done.returncode:
        raise ValueError(done.stderr)
    return json.loads(done.stdout)


def lib():
    return f"(import {LIB or f'{ROOT}/integration/nix/lib.nix'})"


def machine(settings):
    """The expression for a machine on which the module is used with these settings."""
    return f"(import {ROOT}/integration/nix {{ lib = {lib()}; settings = {settings}; }})"
