"""Properties of the grid for any rank, size and patch, including smaller last patches."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.core.grid import PatchGrid
from rlab.errors import OptionError
from tests.helpers import inside as within


@st.composite
def grids(draw: st.DrawFn) -> PatchGrid:
    size = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    return PatchGrid(tuple(size), tuple(draw(st.integers(1, length)) for length in size))


@given(grids())
def test_boxes_are_no_larger_than_the_patch_and_only_the_last_is_short(grid: PatchGrid) -> None:
    for patch, place in enumerate(itertools.product(*(range(count) for count in grid.shape))):
        for at, box, side, count, length in zip(place, grid.box(patch), grid.patch, grid.shape, grid.size, strict=True):
            assert box.start == at * side
            assert box.stop == (length if at == count - 1 else (at + 1) * side)


@given(grids())
def test_the_number_of_patches(grid: PatchGrid) -> None:
    assert len(grid) == math.prod(grid.shape)
    assert grid.shape == tuple(math.ceil(n / side) for n, side in zip(grid.size, grid.patch, strict=True))
    assert grid.rank == len(grid.size) == len(grid.shape)


@given(grids(), st.lists(st.integers(1, 3), max_size=2))
def test_expand_puts_each_value_into_its_box(grid: PatchGrid, lead: list[int]) -> None:
    values = torch.arange(math.prod(lead) * len(grid)).reshape(*lead, len(grid))
    full = grid.expand(values)
    assert full.shape == (*lead, *grid.size)
    for patch in range(len(grid)):
        inside = full[within(grid.box(patch))].reshape(*lead, -1)
        assert (inside == values[..., patch, None]).all()


@given(grids(), st.integers(0, 2**32 - 1))
def test_total_and_reduce_are_the_sum_and_mean_of_each_box(grid: PatchGrid, seed: int) -> None:
    values = torch.rand(2, *grid.size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for patch in range(len(grid)):
        inside = values[within(grid.box(patch))].flatten(1)
        torch.testing.assert_close(grid.total(values)[:, patch], inside.sum(1))
        torch.testing.assert_close(grid.reduce(values)[:, patch], inside.mean(1))
    torch.testing.assert_close(grid.total(values).sum(1), values.flatten(1).sum(1))


def test_by_hand() -> None:
    grid = PatchGrid((3, 5), (2, 2))
    assert grid.shape == (2, 3)
    assert grid.box(5) == (slice(2, 3), slice(4, 5))
    rows = [[0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [3, 3, 4, 4, 5]]
    assert grid.expand(torch.arange(6)).tolist() == rows
    assert grid.total(torch.ones(3, 5)).tolist() == [4, 4, 2, 2, 2, 1]


def test_one_number_is_the_patch_length_along_every_axis() -> None:
    assert PatchGrid.of((8, 6), 2) == PatchGrid((8, 6), (2, 2))
    assert PatchGrid.of([4, 8, 8], [2, 4, 4]) == PatchGrid((4, 8, 8), (2, 4, 4))


@pytest.mark.parametrize(
    ("size", "patch", "sentence"),
    [
        ((8, 8), (2,), "expected a patch with 2 sides"),
        ((8,), (0,), "at least 1"),
        ((8,), (-3,), "at least 1"),
        ((8, 4), (8, 5), "larger than the input"),
    ],
)
def test_patches_that_do_not_fit_are_refused(size: tuple[int, ...], patch: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        PatchGrid(size, patch)


@pytest.mark.parametrize("index", [-1, 4])
def test_a_box_outside_the_grid(index: int) -> None:
    with pytest.raises(IndexError):
        PatchGrid((4, 4), (2, 2)).box(index)


GROUPED = PatchGrid((3, 5), (2, 2), (1, -1, 0, 1))


def test_groups_of_channels_by_hand() -> None:
    assert GROUPED.shape == (2, 2, 3)
    assert GROUPED.cells == (2, 3)
    assert GROUPED.groups == ((2,), (0, 3))
    assert GROUPED.box(11) == (slice(2, 3), slice(4, 5))
    assert [GROUPED.group(patch) for patch in (0, 5, 6, 11)] == [0, 0, 1, 1]
    assert [GROUPED.holds(6, channel) for channel in range(4)] == [True, False, False, True]
    full = GROUPED.spread(torch.arange(1, 13))
    assert full[:, 0, 0].tolist() == [7, 0, 1, 7]
    assert full[:, 2, 4].tolist() == [12, 0, 6, 12]
    assert GROUPED.collect(torch.ones(4, 3, 5)).tolist() == [4, 4, 2, 2, 2, 1, 8, 8, 4, 4, 4, 2]
    assert GROUPED.points().tolist() == [4, 4, 2, 2, 2, 1, 8, 8, 4, 4, 4, 2]
    marked = torch.arange(12) == 7
    assert GROUPED.places(marked).tolist() == [[False, True, False], [False] * 3]
    assert GROUPED.cover(marked)[0].tolist() == [False, False, True, True, False]


@given(grids(), st.lists(st.integers(-1, 2), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_what_is_collected_in_a_patch_is_what_is_spread_from_it(grid: PatchGrid, own: list[int], seed: int) -> None:
    known = sorted({group for group in own if group >= 0})
    if not known:
        return
    grouped = PatchGrid(grid.size, grid.patch, tuple(known.index(group) if group >= 0 else -1 for group in own))
    values = torch.rand(len(own), *grid.size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    where = grouped.spread(torch.eye(len(grouped), dtype=torch.float64))  # (p, c, *size)
    torch.testing.assert_close(grouped.collect(values), (where * values).flatten(1).sum(1))
    torch.testing.assert_close(grouped.points().double(), where.flatten(1).sum(1))
    assert torch.equal(grouped.cover(torch.eye(len(grouped)) > 0), (where > 0).any(1))


def test_groups_with_a_gap_are_refused() -> None:
    with pytest.raises(OptionError, match="without a gap"):
        PatchGrid((4,), (2,), (0, 2))
