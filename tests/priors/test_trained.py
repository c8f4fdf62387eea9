"""The trained prior: directions of unit length for inputs of any rank and size, and how far changes go along them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.core.vectors import unit
from rlab.priors.trained import DirectionPrior, projection
from tests.helpers import RANKS, inside

ODD: dict[int, tuple[int, ...]] = {1: (37,), 2: (9, 13), 3: (3, 5, 7)}
EVEN: dict[int, tuple[int, ...]] = {1: (32,), 2: (8, 16), 3: (4, 8, 8)}


def make_prior(rank: int, channels: int = 2, heads: int = 3, levels: int = 2, shrink: int = 1) -> DirectionPrior:
    torch.manual_seed(0)
    return DirectionPrior(rank, channels, 8, heads, levels, shrink).eval()


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("sizes", [ODD, EVEN], ids=["odd", "even"])
@pytest.mark.parametrize("shrink", [1, 2])
def test_every_direction_has_the_inputs_shape_and_unit_length(
    rank: int, sizes: dict[int, tuple[int, ...]], shrink: int
) -> None:
    x = some(4, 2, *sizes[rank])
    directions = make_prior(rank, shrink=shrink)(x)
    assert directions.shape == (4, 3, 2, *sizes[rank])
    assert torch.allclose(directions.flatten(2).norm(dim=2), torch.ones(4, 3), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("rank", RANKS)
def test_a_row_does_not_depend_on_the_others(rank: int) -> None:
    x, made = some(3, 2, *ODD[rank]), make_prior(rank)
    together, alone = made(x), torch.cat([made(one[None]) for one in x])
    assert torch.allclose(together, alone, atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 1e-4  # and it does depend on its own input


@torch.no_grad()
@pytest.mark.parametrize("rank", RANKS)
def test_an_odd_size_is_the_padded_input_cut_back(rank: int) -> None:
    """The edge repeated by hand up to the next multiple of 4, the directions cut to size and made one long again."""
    made, size = make_prior(rank), ODD[rank]
    x = some(2, 2, *size)
    whole = x
    for axis, length in enumerate(size, 2):
        index = torch.arange(length + -length % 4).clamp(max=length - 1)
        whole = whole.index_select(axis, index)
    cut = made(whole)[inside(tuple(slice(0, length) for length in size))]
    assert torch.allclose(made(x), unit(cut, 2), atol=1e-5)


@torch.no_grad()
def test_a_shrunk_prior_sees_means_and_answers_in_blocks() -> None:
    made = make_prior(2, shrink=2)
    x = some(2, 2, 16, 16)
    directions = made(x)
    blocks = directions.unflatten(-1, (8, 2)).unflatten(-3, (8, 2))
    assert (blocks == blocks[..., :1, :, :1]).all()  # (..., 8, 2, 8, 2): one value a block of 2 by 2
    checkered = x + 0.1 * (torch.arange(16) % 2 * 2 - 1)  # the same means, so nothing is seen of it
    assert torch.allclose(made(checkered), directions, atol=1e-4)


def test_a_flat_input_and_a_dead_direction_do_not_become_nan() -> None:
    with torch.no_grad():
        assert torch.isfinite(make_prior(1)(torch.full((2, 2, 16), 0.5))).all()
    assert (unit(torch.zeros(1, 2, 1, 4), 2) == 0).all()


@pytest.mark.parametrize("rank", RANKS)
def test_unit_by_hand(rank: int) -> None:
    direction = torch.zeros(1, 2, 2, *EVEN[rank])
    direction[0, 0].flatten()[:2] = torch.tensor([3.0, 4.0])
    direction[0, 1].flatten()[-1] = -7.0
    made = unit(direction, 2)
    assert made[0, 0].flatten()[:2].tolist() == pytest.approx([0.6, 0.8])
    assert made[0, 1].flatten()[-1].item() == -1.0


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("side", [1, 2, 3])
def test_projections_is_the_dot_product_over_each_patch(rank: int, side: int) -> None:
    grid = PatchGrid.of(ODD[rank], side)  # the last patches are short
    directions, change = some(2, 3, 2, *ODD[rank]) - 0.5, some(2, 4, 2, *ODD[rank], seed=1) - 0.5
    found = projection(directions, change, grid)
    assert found.shape == (2, 4, 3, len(grid))
    expected = torch.zeros_like(found)
    for row in range(2):
        for entry in range(4):
            for head in range(3):
                for patch in range(len(grid)):
                    box = inside(grid.box(patch))
                    expected[row, entry, head, patch] = (directions[row, head][box] * change[row, entry][box]).sum()
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_prior_can_be_differentiated() -> None:
    made = make_prior(2).train()
    made(some(2, 2, 9, 13))[:, 0, 0].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in made.parameters())
