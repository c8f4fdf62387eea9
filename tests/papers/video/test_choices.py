"""Decisions are drawn as often as their chance says and judged as they were drawn; cells of every level tile the frame."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.errors import InputError
from rlab.papers.video.choices import FORBIDDEN, Hierarchy, choose, pick, toss


def test_pick_by_hand() -> None:
    chance = torch.tensor([[0.25, 0.5, 0.25]])
    for draw, option in ((0.0, 0), (0.2, 0), (0.25, 1), (0.7, 1), (0.75, 2), (0.999, 2)):
        assert pick(chance, torch.tensor([draw])).item() == option


def test_an_option_without_a_chance_is_never_picked() -> None:
    logits = torch.tensor([[FORBIDDEN, 0.3, FORBIDDEN, -2.0, FORBIDDEN]]).expand(4096, 5)
    draw = (torch.arange(4096) / 4096).clamp(max=1 - 2**-24)
    option, log_prob, entropy = choose(logits, draw, None)
    assert set(option.tolist()) == {1, 3}
    share = (option == 1).float().mean().item()
    assert abs(share - math.exp(0.3) / (math.exp(0.3) + math.exp(-2.0))) < 1e-3
    assert torch.isfinite(log_prob).all()
    expected = torch.distributions.Categorical(logits=torch.tensor([0.3, -2.0])).entropy()
    torch.testing.assert_close(entropy[0], expected)


def test_what_was_given_is_judged_as_what_was_drawn() -> None:
    logits = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    option, log_prob, _ = choose(logits, torch.rand(32, generator=torch.Generator().manual_seed(1)), None)
    again, judged, _ = choose(logits, None, option)
    assert torch.equal(option, again)
    assert torch.equal(log_prob, judged)


def test_toss_agrees_with_bernoulli() -> None:
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    yes, log_prob, entropy = toss(logits, torch.rand(8, 5, generator=torch.Generator().manual_seed(1)), None)
    known = torch.distributions.Bernoulli(logits=logits)
    torch.testing.assert_close(log_prob, known.log_prob(yes.float()).sum(1))
    torch.testing.assert_close(entropy, known.entropy().sum(1))
    assert torch.equal(toss(logits, None, yes)[0], yes)


def test_two_levels_by_hand() -> None:
    found = Hierarchy((2, 3), coarse=2, levels=2)
    assert found.boxes(1) == [(0, 1, 0, 2), (0, 1, 2, 3), (1, 2, 0, 2), (1, 2, 2, 3)]
    assert found.boxes(2) == [(0, 1, 0, 1), (0, 1, 1, 2), (0, 1, 2, 3), (1, 2, 0, 1), (1, 2, 1, 2), (1, 2, 2, 3)]
    assert found.children[0].tolist() == [[0, 1], [2, -1], [3, 4], [5, -1]]
    assert found.members[0].int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


@given(rows=st.integers(1, 15), columns=st.integers(1, 15), coarse=st.integers(1, 6), levels=st.sampled_from((1, 2, 3)))
def test_every_level_tiles_the_frame_and_every_cell_its_parent(
    rows: int, columns: int, coarse: int, levels: int
) -> None:
    found = Hierarchy((rows, columns), coarse, levels)
    assert len(found.members) == levels
    for member in found.members:
        assert torch.equal(member.sum(0), torch.ones(rows * columns, dtype=torch.int64))
        assert (member.sum(1) >= 1).all()
    for above, children, below in zip(found.members, found.children, found.members[1:], strict=False):
        for parent, row in zip(above, children, strict=True):
            assert torch.equal(below[row[row >= 0]].sum(0), parent.int())
    if levels > 1:
        assert (found.members[-1].sum(1) == 1).all()  # the last level is single patches
        assert len(found.members[-1]) == rows * columns


def test_cells_of_the_first_level_are_as_even_as_can_be() -> None:
    sizes = Hierarchy((14, 12), coarse=4, levels=1).members[0].sum(1)
    assert len(sizes) == 16
    assert set(sizes.tolist()) <= {9, 12}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"levels": 0}, "1, 2 or 3 levels"),
        ({"levels": 4}, "1, 2 or 3 levels"),
        ({"coarse": 0}, "at least 1 coarse cell"),
    ],
)
def test_what_it_refuses(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Hierarchy((4, 4), **options)
