"""That scripts/check-chaos notices what it is there to notice, and leaves out nothing that it can
break."""

import os
import random
import re
import subprocess

import pytest

from chaos import sabotage
from chaos.faults import KINDS, draw
from world import BUILD, PATIENCE, ROOT, SANITIZED

CI_ROUNDS = 12  # of "make check-chaos ROUNDS=12"
CGROUPS = ("Cgroup", "OtherCgroup")
NO_CGROUPS = "cgroups are not looked at"


@pytest.mark.parametrize("seed", range(20))
def test_the_short_form_has_one_round_of_each_kind(seed):
    kinds = [kind for kind, _ in draw(random.Random(seed), CI_ROUNDS)]
    assert sorted(kinds, key=str) == sorted(KINDS, key=str)


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_rounds_have_all_there_is(seed):
    drawn = {(kind, variant) for kind, variant in draw(random.Random(seed), 100)}
    assert drawn == {(kind, variant) for kind in KINDS for variant in kind.variants}


@pytest.fixture(scope="module")
def told():
    """The checker, and a daemon of its own to which everything is done at once: {name: words}.

    It takes longer than other tests: a daemon has to work, and to work again, to be judged."""
    if SANITIZED:
        pytest.skip("what is judged here is the judge, and not the programs")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    done = subprocess.run([f"{ROOT}/scripts/check-chaos", "--sabotage", "--seed", "1", BUILD],
                          capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "CLOISTER_PATIENCE": str(max(PATIENCE, 5))})
    lines = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
    lines["output"] = f"{done.stdout}\n{done.stderr}"
    return lines


@pytest.mark.parametrize("name", [*sabotage.NAMES, "well"])
def test_the_checker_names(told, name):
    if name in CGROUPS and NO_CGROUPS in told["output"]:
        pytest.skip("this machine lets nobody make cgroups")
    assert name in told, told["output"]
    assert told[name] != sabotage.NOT_NAMED, told["output"]
