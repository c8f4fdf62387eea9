"""What a palette can do at each patch: by hand on a grid of 2 x 2, and the additive cost as the distance it stands for."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor, tensor

from rlab.core.distances import MEASURES, POWERS, Measure
from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.errors import DataError
from rlab.policies.belief.geometry import make_geometry
from rlab.policies.belief.levels import blocks
from tests.helpers import RANKS, make_grid
from tests.policies.belief.worlds import make_world

GRID = PatchGrid((2, 2), (1, 1))
# One channel, two entries at four patches of one value each: the second does the opposite at patch 0 and nothing at patch 3.
CHANGE = tensor([[[[[3.0, 1.0], [0.0, 2.0]]], [[[-6.0, 2.0], [4.0, 0.0]]]]])
DIRECTION = tensor([[[[[0.0, 6.0], [8.0, 0.0]]]]])  # of length 10


def test_gram_cost_mass_and_lift_by_hand() -> None:
    made = make_geometry(CHANGE, None, GRID)
    gram = tensor([[[9, -18], [-18, 36]], [[1, 2], [2, 4]], [[0, 0], [0, 16]], [[4, 0], [0, 0]]])
    assert torch.equal(made.gram[0, 1:, 1:].permute(2, 0, 1), gram.float())
    assert not made.gram[:, 0].any()
    assert not made.gram[:, :, 0].any()
    assert made.cost.tolist() == [[[9, 1, 0, 4], [36, 4, 16, 0]]]
    torch.testing.assert_close(made.mass[0], tensor([[0] * 4, [3, 1, 0, 2], [6, 2, 4, 0]]) / tensor([[6], [6], [12]]))
    # at patch 0 the entries are opposed: neither is expected to help before anything is known
    torch.testing.assert_close(made.lift[0, 1:], tensor([[0, 1, 0, 2], [0, 2, 4, 0]]) / tensor([[6], [12]]))
    assert made.projection.shape == (1, 3, 0, 4)
    root = made.root[0]
    torch.testing.assert_close(root @ root.transpose(1, 2), gram.float(), rtol=0, atol=1e-4)


def test_projections_are_on_directions_of_unit_length() -> None:
    made = make_geometry(CHANGE, torch.cat([DIRECTION, -7 * DIRECTION], 1), GRID)
    along = tensor([[0, 0, 0, 0], [0, 0.6, 0, 0], [0, 1.2, 3.2, 0]])
    torch.testing.assert_close(made.projection[0, :, 0], along)
    torch.testing.assert_close(made.projection[0, :, 1], -along)


def test_relevance_weighs_patches_by_where_the_directions_lie() -> None:
    """Energy .36 and .64 at patches 1 and 2, so a density of 4 times that, half of it counted."""
    made = make_geometry(CHANGE, DIRECTION, GRID, relevance=0.5)
    weight = 0.5 + 0.5 * 4 * tensor([0.0, 0.36, 0.64, 0.0])
    assert float(weight.mean()) == pytest.approx(1.0)
    plain = make_geometry(CHANGE, DIRECTION, GRID)
    torch.testing.assert_close(made.weight[0], weight)
    for name in ("gram", "root", "cost", "mass", "lift", "projection"):
        assert torch.equal(getattr(made, name), getattr(plain, name))  # what a change costs is no matter of belief
    assert torch.equal(make_geometry(CHANGE, None, GRID, relevance=0.5).weight, torch.ones(1, 4))


@pytest.mark.parametrize("rank", RANKS)
def test_relevance_weights_are_one_on_average_over_points(rank: int) -> None:
    """Patches at the edge are short: they count by their points."""
    world = make_world(rank, 2)
    weight = make_geometry(world.change, world.directions, world.grid, relevance=0.8).weight
    points = world.grid.total(torch.ones(world.grid.size, dtype=torch.float64))
    torch.testing.assert_close((weight * points).sum(1) / points.sum(), torch.ones(2, dtype=torch.float64))
    assert 0.2 - 1e-9 <= weight.min() < 1 < weight.max()


MIDDLES = {1: PatchGrid((9,), (2,)), 2: PatchGrid((6, 8), (2, 2)), 3: PatchGrid((2, 6, 7), (1, 2, 2))}


@pytest.mark.parametrize("rank", RANKS)
def test_more_is_expected_of_the_middle_of_a_picture(rank: int) -> None:
    grid = MIDDLES[rank]
    change = torch.rand(2, 2, 1, *grid.size, generator=torch.Generator().manual_seed(0)) + 0.1
    even, central = (make_geometry(change, None, grid, central=share) for share in (0.0, 0.5))
    for name in ("gram", "root", "cost", "mass", "projection"):
        assert torch.equal(getattr(central, name), getattr(even, name))
    weight = (central.lift[:, 1] / even.lift[:, 1])[0].view(grid.shape)
    if rank == 1:
        assert torch.equal(central.lift, even.lift)  # no moment of a signal is its middle
        return
    assert float(weight.mean()) == pytest.approx(1.0, abs=1e-5)
    assert (weight >= 0.5).all()
    frame = weight[0] if rank == 3 else weight
    torch.testing.assert_close(weight, frame.expand_as(weight))  # no moment of a clip either
    torch.testing.assert_close(frame, frame.flip(0))
    torch.testing.assert_close(frame, frame.flip(1))
    assert frame[frame.shape[0] // 2, frame.shape[1] // 2] > frame[0, 0]


def test_a_direction_of_zeros_is_no_direction() -> None:
    made = make_geometry(CHANGE, 0 * DIRECTION, GRID, relevance=0.8)
    assert all(torch.isfinite(values).all() for values in vars(made).values())
    assert not made.projection.any()


@pytest.mark.parametrize("measure", get_args(Measure))
@pytest.mark.parametrize("rank", RANKS)
def test_costs_add_up_to_the_distance_of_the_rendered_assignment(rank: int, measure: Measure) -> None:
    """Exactly for l2, map and l0; for linf a high power of the changes stands for the largest."""
    draw, grid = torch.Generator().manual_seed(rank), make_grid(rank)
    bank = torch.rand(3, 4, 2, *grid.size, generator=draw, dtype=torch.float64)
    bank[:, 2, 1] = bank[:, 0, 1]  # an entry that touches one channel only
    bank[:, 3, :, :2] = bank[:, 0, :, :2]  # and one that leaves some points alone
    assignment = torch.randint(0, 4, (3, len(grid)), generator=draw)
    cost = make_geometry(bank[:, 1:] - bank[:, :1], None, grid, measure).cost
    padded = torch.cat([torch.zeros_like(cost[:, :1]), cost], 1)
    total = padded.gather(1, assignment[:, None]).sum((1, 2))
    distance = MEASURES[measure](bank[:, 0], render(bank, assignment, grid)).double()
    power = POWERS[measure]
    if measure == "linf":
        values = bank[0, 0].numel()
        assert (total ** (1 / power) >= distance).all()
        assert (total ** (1 / power) <= distance * values ** (1 / power)).all()
        return
    expected = {0: total, 1: total / bank[0, 0].numel(), 2: total**0.5}[power]
    torch.testing.assert_close(expected, distance)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("entries", [2, 16])
def test_entries_that_do_the_same_have_a_root_in_float32(entries: int, size: float) -> None:
    """Severities of one filter are multiples of each other, and some undo others: the Gram matrices have rank one."""
    draw, grid = torch.Generator().manual_seed(0), PatchGrid((28, 28), (7, 7))
    factor = torch.linspace(-1, 1, entries).view(1, -1, 1, 1, 1)
    change = size * factor * torch.rand(2, 1, 3, 28, 28, generator=draw)
    change[:, :, :, :7, :7] = 0  # a patch where nothing changes anything
    made = make_geometry(change, None, grid)
    assert all(torch.isfinite(values).all() for values in vars(made).values())
    root, gram = made.root, made.gram[:, 1:, 1:].permute(0, 3, 1, 2)
    tolerance = 1e-5 * float(gram.max()) + 1e-9
    torch.testing.assert_close(root @ root.transpose(2, 3), gram, rtol=1e-4, atol=tolerance)


def test_entries_of_very_different_strength_have_a_root_in_float32() -> None:
    draw, grid = torch.Generator().manual_seed(0), PatchGrid((960,), (15,))
    factor = torch.randn(2, 16, 1, 1, generator=draw).exp() * torch.randn(2, 16, 1, 1, generator=draw).sign()
    made = make_geometry(factor * torch.randn(2, 1, 1, 960, generator=draw), None, grid)
    root, gram = made.root, made.gram[:, 1:, 1:].permute(0, 3, 1, 2)
    torch.testing.assert_close(root @ root.mT, gram, rtol=1e-3, atol=1e-3 * float(gram.max()))


def test_changes_that_are_not_finite_are_rejected() -> None:
    with pytest.raises(DataError, match="not finite"):
        make_geometry(torch.full((1, 2, 1, 4), torch.nan), None, PatchGrid((4,), (2,)))


@pytest.mark.parametrize(
    ("size", "along", "expected"),
    [
        ((6,), 1, [0] * 6),
        ((6,), 2, [0, 0, 0, 1, 1, 1]),
        ((5,), 2, [0, 0, 0, 1, 1]),
        ((3,), 4, [0, 1, 2]),  # no more blocks than patches
        ((2, 4), 2, [0, 0, 1, 1, 2, 2, 3, 3]),
        ((1, 2, 2), 2, [0, 1, 2, 3]),
    ],
)
def test_blocks_by_hand(size: tuple[int, ...], along: int, expected: list[int]) -> None:
    region: Tensor = blocks(PatchGrid(size, (1,) * len(size)), along)
    assert region.tolist() == expected
