"""Descriptions as differences: what comes out is what went in, and who has another text notices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import ProtocolViolation
from metromq.federation import grid_city, with_broker
from metromq.federation.city import BrokerSpec
from metromq.federation.coordination.patches import patch_between, patched
from metromq.federation.description import Description

TEXTS = st.lists(st.sampled_from(["{a}", "{b}", "{c}", "}", "ä", '"', "{"]), max_size=12).map("".join)


@given(TEXTS, TEXTS, TEXTS)
def test_a_patch_makes_the_text_again_from_the_one_that_it_was_made_from(before: str, after: str, other: str) -> None:
    patch = patch_between(before, after)
    assert patched(before, patch) == after
    if other != before:
        assert patched(other, patch) is None


def test_a_newcomer_is_a_short_patch_of_a_long_description() -> None:
    city = grid_city(l_b=5, l_c=4, count=500)
    joined = with_broker(city, BrokerSpec("newcomer", area="1/1/1/1/1"))
    before, after = (Description(epoch, one).to_fact().value for epoch, one in enumerate((city, joined)))
    patch = patch_between(before, after)
    assert patched(before, patch) == after
    assert len(patch) < 1000 < 40_000 < len(after)


@pytest.mark.parametrize("patch", ["", "1", "[]", '["x"]', "[[", '["{digest}", [1]]', '["{digest}", [["a", "b"]]]'])
def test_nonsense_is_a_violation(patch: str) -> None:
    digest = patch_between("text", "text").split('"')[1]
    with pytest.raises(ProtocolViolation, match="makes no sense"):
        patched("text", patch.replace("{digest}", digest))
