"""Coarse before fine: regions and groups that follow the grid, effects of groups, victims that look at one region alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.policies.belief import levels
from rlab.policies.belief.geometry import WHOLE, make_geometry
from rlab.policies.belief.levels import GROUPS, coarsened, group_levels, region_levels
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims import CallableVictim

# Of every rank a grid of more patches than groups, and a region of it.
SIZES: dict[int, tuple[int, ...]] = {1: (2000,), 2: (48, 40), 3: (8, 24, 32)}
PATCHES: dict[int, tuple[int, ...]] = {1: (2,), 2: (1, 1), 3: (1, 4, 4)}
GRIDS = {rank: PatchGrid(size, PATCHES[rank]) for rank, size in SIZES.items()}
WHERE: dict[int, tuple[slice, ...]] = {
    1: (slice(600, 700),),
    2: (slice(10, 20), slice(22, 32)),
    3: (slice(2, 5), slice(8, 16), slice(12, 24)),
}
Array = NDArray[np.float32]


@pytest.mark.parametrize("rank", SIZES)
def test_groups_halve_until_they_are_few(rank: int) -> None:
    grid = GRIDS[rank]
    table = group_levels(grid)
    counts = [len(level.unique()) for level in table]
    assert counts == [int(level.max()) + 1 for level in table]  # no group is empty
    assert GROUPS / 2 < counts[0] <= GROUPS
    assert counts == sorted(set(counts))
    assert counts[-1] == len(grid)
    assert torch.equal(table[-1], torch.arange(len(grid)))


@pytest.mark.parametrize(("size", "patch"), [((32, 32), 4), ((320,), 10), ((224, 224), 14), ((4, 32, 32), (1, 8, 8))])
def test_few_patches_are_not_grouped(size: tuple[int, ...], patch: int | tuple[int, ...]) -> None:
    grid = PatchGrid.of(size, patch)
    assert torch.equal(group_levels(grid), torch.arange(len(grid))[None])


def test_regions_of_a_clip_are_frames_cells_and_both() -> None:
    grid = PatchGrid.of((8, 24, 32), (1, 4, 4))
    frame, place = torch.arange(len(grid)) // 48, torch.arange(len(grid)) % 48
    regions = region_levels(grid)
    assert [int(level.max()) + 1 for level in regions] == [1, 4, 8, 4, 16, 48, 64, 2, 4]
    assert torch.equal(regions[2], frame)
    assert torch.equal(regions[5], place)
    assert torch.equal(regions[6], regions[1] * 16 + regions[4])
    assert torch.equal(regions[7], frame % 2)
    assert torch.equal(regions[8], frame % 4)


@pytest.mark.parametrize("rank", SIZES)
def test_effects_of_groups_against_brute_force(rank: int) -> None:
    draw = torch.Generator().manual_seed(rank)
    grid = GRIDS[rank]
    table = group_levels(grid)
    group = table[torch.tensor([0, len(table) - 1, 1])]
    effect = torch.randn(3, 2, 2, len(grid), generator=draw, dtype=torch.float64)
    cost = torch.rand(3, 2, len(grid), generator=draw, dtype=torch.float64) + 0.1
    made = coarsened(effect, cost, group)
    for row, name in [(0, 0), (0, 7), (1, 5), (2, 3)]:
        inside = group[row] == name
        summed = effect[row, :, :, inside].sum(2)
        torch.testing.assert_close(made[row, :, :, inside].sum(2), summed)
        rate = made[row, :, :, inside] / cost[row, :, inside]
        torch.testing.assert_close(rate, (summed / cost[row, :, inside].sum(1))[..., None].expand_as(rate))
    torch.testing.assert_close(made[1], effect[1])  # single patches are their own groups


def attacked(rank: int, n: int = 4, **options: Any) -> AttackResult:
    """By a belief that expects as much of any place, a model that looks at the mean over one region alone."""
    x = torch.rand(n, 1, *SIZES[rank], generator=torch.Generator().manual_seed(rank)) * 0.2 + 0.6

    def answer(rows: Array) -> Array:
        seen = torch.stack([row[0][WHERE[rank]].mean() for row in torch.from_numpy(rows)])
        return torch.stack([seen - 0.45, 0.45 - seen], 1).mul(8).numpy()

    batch = Batch(x, torch.zeros(n, dtype=torch.long), bounds=(0.0, 1.0), classes=("kept", "lost"))
    chosen: dict[str, Any] = {
        "policy": "belief(central=0.0)",
        "budget": 60,
        "until": "budget",
        "palette": ["dead_pixel@1.0"],
    } | options
    made = make_attack(batch, patch=GRIDS[rank].patch, distance="map", **chosen)
    return run_attack(made, CallableVictim(answer, outputs="logits"), batch)


def times_the_region(result: AttackResult, rank: int) -> float:
    """The median distance of the best flip over that of distorting as much of the region as suffices."""
    inside = torch.zeros(SIZES[rank])
    inside[WHERE[rank]] = 1
    return float(result.best_within(60).median() / (0.25 * inside.mean()))


@pytest.mark.parametrize(
    ("rank", "most"),
    [pytest.param(1, 2.4, marks=pytest.mark.slow), pytest.param(2, 2.6, marks=pytest.mark.slow), (3, 1.2)],
)
def test_few_frames_of_a_region_are_found(rank: int, most: float) -> None:
    assert times_the_region(attacked(rank), rank) < most


def test_without_levels_a_region_of_many_patches_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "GROUPS", 10**9)
    group_levels.cache_clear()
    try:
        assert times_the_region(attacked(2), 2) > 4
    finally:
        group_levels.cache_clear()


@pytest.mark.parametrize(("second", "grouped"), [(2.0, True), (-1.0, False)])
def test_patches_are_not_grouped_where_every_entry_has_its_opposite(second: float, grouped: bool) -> None:
    grid = GRIDS[1]
    first = torch.rand(2, 3, *grid.size, generator=torch.Generator().manual_seed(0))
    made = make_geometry(torch.stack([first, second * first], 1), None, grid)
    assert made.level.tolist() == [0 if grouped else len(group_levels(grid)) - 1] * 2
    evened = made.gram[:, 1, 1] / grid.total(first.square().sum(1))
    whole = first.flatten(1).norm(dim=1) * (1 + abs(second)) / 2
    expected = (WHOLE / whole).square() if grouped else torch.ones(2)
    torch.testing.assert_close(evened, expected[:, None].expand_as(evened))


@pytest.mark.parametrize("rank", SIZES)
def test_the_same_whoever_is_attacked_beside(rank: int) -> None:
    """So a run that was stopped between chunks goes on as if it had not been."""
    together, alone = (attacked(rank, n=2, budget=14, chunk=chunk) for chunk in (2, 1))
    assert torch.equal(together.assignment, alone.assignment)
    assert together.improvements == alone.improvements
    assert torch.equal(together.assignment, attacked(rank, n=2, budget=14, chunk=2).assignment)
