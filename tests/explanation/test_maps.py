"""Thresholds, resizing and spreading of maps."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.filters import threshold_otsu

from rlab.errors import OptionError
from rlab.explanation.erasing import deal
from rlab.explanation.maps import (
    even_grid,
    otsu,
    raise_patches,
    spread,
    threshold,
    to_unit,
    top_share,
)
from tests.helpers import RANKS, SIZES


def test_otsu_agrees_with_scikit_image():
    draw = np.random.default_rng(0)
    for _ in range(5):
        values = np.concatenate([draw.normal(0, 1, 300), draw.normal(5, 1, 80)]).astype(np.float32)
        ours = float(otsu(torch.from_numpy(values)[None])[0])
        theirs = float(threshold_otsu(values, nbins=4096))
        assert ((values > ours) == (values > theirs)).mean() > 0.99


@given(st.integers(0, 10_000))
def test_otsu_is_the_best_of_all_cuts(seed):
    values = torch.rand(1, 17, generator=torch.Generator().manual_seed(seed))
    mask = threshold(values)[0]

    def between(inside):
        a, b = values[0][inside], values[0][~inside]
        return len(a) * len(b) * float(a.mean() - b.mean()) ** 2

    cuts = [between(values[0] > v) for v in values[0].sort().values[:-1]]
    assert between(mask) == pytest.approx(max(cuts), rel=1e-5)


def test_a_flat_map_has_an_empty_mask():
    assert not threshold(torch.full((2, 4, 4), 3.0)).any()
    assert not to_unit(torch.full((2, 4, 4), 3.0)).any()


@pytest.mark.parametrize("rank", RANKS)
def test_a_share_is_kept_exactly(rank):
    maps = torch.rand(3, *SIZES[rank])
    mask = top_share(maps, 0.25)
    assert mask.flatten(1).sum(1).tolist() == [maps[0].numel() // 4] * 3
    assert maps[mask].min() >= maps[~mask].flatten().median()


@pytest.mark.parametrize("rule", ["otsu:3", "share", "share:2", "share:x", "best"])
def test_unknown_rules_are_refused(rule):
    with pytest.raises(OptionError):
        threshold(torch.rand(1, 4), rule)


@pytest.mark.parametrize("rank", RANKS)
def test_raised_patches_keep_their_places(rank):
    grid = even_grid(SIZES[rank], 3)
    values = torch.zeros(len(grid), len(grid))
    values.fill_diagonal_(1.0)
    raised = raise_patches(values, grid)
    assert raised.shape == (len(grid), *SIZES[rank])
    assert (grid.reduce(raised).argmax(1) == torch.arange(len(grid))).all()


def test_spreading_stops_at_edges():
    x = torch.zeros(1, 3, 24, 24)
    x[..., 4:14, 4:14] = 1.0  # a bright square; the map knows only its corner
    maps = torch.zeros(1, 24, 24)
    maps[0, 5:8, 5:8] = 1.0
    shown = to_unit(spread(maps, x, (0.0, 1.0)))[0]
    inside = torch.zeros(24, 24, dtype=torch.bool)
    inside[4:14, 4:14] = True
    assert shown[inside].min() > shown[~inside].max()


def test_a_dealt_map_keeps_values_and_follows_credit():
    cover, credit = torch.rand(2, 5, 5), torch.zeros(2, 5, 5)
    credit[:, 4, 4], credit[:, 0, 0] = 1.0, 0.5
    dealt = deal(cover, credit)
    torch.testing.assert_close(dealt.flatten(1).sort(1).values, cover.flatten(1).sort(1).values)
    top = dealt.flatten(1).argsort(1, descending=True)
    assert top[:, :2].tolist() == [[24, 0]] * 2
    rest = list(range(1, 24))
    assert (dealt.flatten(1)[:, rest].argsort(1) == cover.flatten(1)[:, rest].argsort(1)).all()
