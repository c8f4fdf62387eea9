"""What every built-in filter guarantees, for every rank it supports."""

from __future__ import annotations

import math

import pytest
import torch

from rlab.filters import FAMILIES, Entry, Filter, Palette, check_filter
from rlab.filters.base import GRADIENTS
from tests.filters.samples import ALL_FILTERS, CHANNELS, NAMES, inputs, millivolts, seeded

BOUNDS = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)
over_all = pytest.mark.parametrize(("one", "rank"), ALL_FILTERS, ids=NAMES)


def test_the_list_is_complete():
    assert set(FAMILIES) >= {
        *("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate", "channel_shift", "contrast"),
        *("salt_and_pepper", "motion_blur", "pixelate", "jpeg", "baseline_wander", "powerline_hum"),
        *("muscle_noise", "lead_dropout", "frozen_frame", "flicker"),
    }


@over_all
def test_the_result_has_the_shape_of_the_input_which_does_not_change(one: Filter, rank: int):
    for x in (inputs(rank), torch.full((1, CHANNELS[rank], *(1,) * rank), 0.4)):  # and the smallest input
        before = x.clone()
        for severity in one.severities:
            result = one(x, severity, seeded())
            assert (result.shape, result.dtype) == (x.shape, x.dtype)
            assert torch.isfinite(result).all()
            assert torch.equal(x, before)


@over_all
def test_same_seed_same_result(one: Filter, rank: int):
    x = inputs(rank)
    state = torch.get_rng_state()
    first = one(x, one.default_severity, seeded(3))
    assert torch.equal(first, one(x, one.default_severity, seeded(3)))
    assert torch.equal(state, torch.get_rng_state()), "used the global generator of torch"


@over_all
def test_the_palette_keeps_it_in_bounds(one: Filter, rank: int):
    x = inputs(rank) * 3 - 1.3
    bank = Palette(tuple(Entry(one, s) for s in one.severities)).bank(x, (-1.3, 1.7), range(len(x)))
    assert bank.amin() >= -1.3
    assert bank.amax() <= 1.7


@over_all
def test_it_passes_the_check_for_users_filters(one: Filter, rank: int):
    check_filter(one, inputs(rank), BOUNDS)


@pytest.mark.parametrize("one", [one for one, rank in ALL_FILTERS if rank == 1], ids=lambda one: one.name)
def test_signals_without_bounds(one: Filter):
    check_filter(one, millivolts(), UNBOUNDED)


@over_all
def test_it_has_five_severities_and_explains_them(one: Filter, rank: int):
    assert len(one.severities) == 5
    assert one.default_severity in one.severities
    assert "severity is" in one.about
    assert "\n" not in one.about


@over_all
def test_twelve_leads_and_one(one: Filter, rank: int):
    for channels in (1, 12):
        x = inputs(rank)[:, :1].repeat(1, channels, *(1,) * rank)
        own = {one.name: one} if one.name in GRADIENTS else None
        for member in Palette.of([one.name.rstrip("+-")], rank, channels, own=own).entries:
            assert member.filter(x, member.severity, seeded()).shape == x.shape
