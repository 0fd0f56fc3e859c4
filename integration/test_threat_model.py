"""docs/threat-model.md names tests: that they exist, and that no invariant is without one."""

import glob
import re

from world import ROOT


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def existing():
    found = set()
    for path in glob.glob(f"{ROOT}/integration/**/test_*.py", recursive=True):
        found |= set(re.findall(r"^ *def (test_\w+)", read(path), re.MULTILINE))
    for path in glob.glob(f"{ROOT}/*/**/test_*.c", recursive=True):
        found |= set(re.findall(r"^static void (test_\w+)", read(path), re.MULTILINE))
    return found


def test_every_test_that_is_named_exists():
    text = read(f"{ROOT}/docs/threat-model.md")
    exist = existing()
    assert len(exist) > 300
    names = set(re.findall(r"`(test_\w+)`", text))
    assert names and names <= exist, names - exist
    for path in set(re.findall(r"`((?:integration|daemon|runner|guest|docs)/[^` ]*)`", text)):
        assert glob.glob(f"{ROOT}/{path}"), f"{path} does not exist"


def test_every_invariant_is_attacked():
    text = read(f"{ROOT}/docs/threat-model.md")
    section = text.split("## Invariants")[1].split("\n## ")[0]
    invariants = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(invariants) == 7
    for invariant in invariants:
        assert re.search(r"`test_\w+`", invariant), invariant[:80]
