"""That the rounds of scripts/check-chaos leave out nothing that it can break."""

import random

import pytest

from chaos.faults import KINDS, draw

CI_ROUNDS = 12  # of "make check-chaos ROUNDS=12"


@pytest.mark.parametrize("seed", range(20))
def test_the_short_form_has_one_round_of_each_kind(seed):
    kinds = [kind for kind, _ in draw(random.Random(seed), CI_ROUNDS)]
    assert sorted(kinds, key=str) == sorted(KINDS, key=str)


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_rounds_have_all_there_is(seed):
    drawn = {(kind, variant) for kind, variant in draw(random.Random(seed), 100)}
    assert drawn == {(kind, variant) for kind in KINDS for variant in kind.variants}
