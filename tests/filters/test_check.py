from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from rlab.errors import OptionError
from rlab.filters import FAMILIES, Entry, Filter, Palette, check_filter, check_palette, find, register
from tests.filters.samples import images, millivolts

BOUNDS = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)


def fade(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    return x * (1 - severity)


def test_a_sound_filter_passes():
    check_filter(Filter("fade", fade), images(), BOUNDS)
    check_filter(Filter("fade", fade), 255 * images(), (0, 255))
    check_filter(Filter("fade", fade), millivolts(), UNBOUNDED)


def raises(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    raise KeyError("oops")


def brighter(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    return x + severity


@pytest.mark.parametrize(
    ("apply", "clip", "sentence"),
    [
        (raises, False, "failed on inputs of shape (3, 3, 32, 32) at severity 0.1 with KeyError: 'oops'; expected a"),
        (lambda x: x, False, "failed on inputs"),
        (lambda x, s, g: x.numpy(), False, "returned ndarray: return a torch tensor"),
        (lambda x, s, g: x[:, :1], False, "returned shape (3, 1, 32, 32) for inputs of shape (3, 3, 32, 32)"),
        (lambda x, s, g: x.double(), False, "returned torch.float64 for torch.float32 inputs"),
        (lambda x, s, g: x.where(x < 0.5, math.nan), True, "returned NaN or infinite values"),
        (lambda x, s, g: x.where(x < 0.5, math.inf), True, "returned NaN or infinite values"),
        (lambda x, s, g: torch.full_like(x, 1.7), False, "returned values up to 1.7 for inputs in [0, 1]: clamp"),
        (lambda x, s, g: torch.full_like(x, -0.25), False, "returned values down to -0.25 for inputs in"),
        (brighter, False, "returned values up to"),
        (lambda x, s, g: x.mul_(1 - s), False, "changed its input in place: work on x.clone()"),
        (lambda x, s, g: x * (1 - s * torch.rand_like(x)), False, "gave two different results for the same seed: draw"),
        (lambda x, s, g: x * s, False, "distorts less at severity 0.2 (mean L2"),
        (lambda x, s, g: x.clone(), False, "does nothing: it changed no value of 3 samples at severities 0.1"),
    ],
)
def test_broken_filters_are_refused(apply: Callable[..., Tensor], clip: bool, sentence: str):
    x, before = images(), images()
    with pytest.raises(OptionError, match=re.escape(f"the filter 'my_filter' {sentence}")):
        check_filter(Filter("my_filter", apply, (0.1, 0.2, 0.3), clip=clip), x, BOUNDS)
    assert torch.equal(x, before)


def test_a_filter_may_leave_the_bounds_if_it_is_clipped_or_there_are_none():
    check_filter(Filter("brighter", brighter, clip=True), images(), BOUNDS)
    check_filter(Filter("brighter", brighter), millivolts(), UNBOUNDED)


def test_distances_are_measured_after_clipping():
    """After clipping, two severities may give the same distance, which is allowed, or a smaller one, which is not."""
    check_filter(Filter("flash", lambda x, s, g: x + 10 * s, (0.5, 0.6), clip=True), images(), BOUNDS)
    nearer = Filter("nearer", lambda x, s, g: x - 0.5 if s < 0.55 else x + 10, (0.5, 0.6), clip=True)
    with pytest.raises(OptionError):
        check_filter(nearer, torch.full((1, 3, 8, 8), 0.9), BOUNDS)


def test_given_severities_replace_the_declared_ones():
    used = set()

    def notes(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
        used.add(severity)
        return x * (1 - severity)

    check_filter(Filter("notes", notes), images(), BOUNDS, severities=[0.4, 0.15])
    assert used == {0.15, 0.4}


def test_a_palette_is_checked_at_declared_and_used_severities_on_at_most_four_samples():
    calls: list[tuple[int, float]] = []

    def notes(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
        calls.append((len(x), severity))
        return x * (1 - severity)

    one = Filter("notes", notes, (0.1, 0.3))
    check_palette(Palette((Entry(one, 0.2), Entry(one, 0.2, 1), Entry(one, 0.3))), images().repeat(3, 1, 1, 1), BOUNDS)
    assert calls == [(4, s) for s in (0.1, 0.2, 0.3) for _ in range(2)]


def test_palette_names_the_filter_at_fault():
    palette = Palette.of(["gaussian_noise", fade, lambda x, s, g: x / 0], 2, 3)
    with pytest.raises(OptionError, match="the filter '<lambda>'"):
        check_palette(palette, images(), BOUNDS)


def test_black_images_do_not_fail_built_in_filters():
    black = torch.zeros(2, 3, 8, 8)
    check_palette(Palette.of(["dead_pixel", "gaussian_blur", "contrast", "illuminate-"], 2, 3), black, BOUNDS)
    with pytest.raises(OptionError):
        check_palette(Palette.of([fade], 2, 3), black, BOUNDS)


@pytest.fixture
def registered() -> Iterator[Filter]:
    one = Filter("backwards", lambda x, severity, generator: x * severity)
    register(one)
    yield one
    del FAMILIES["backwards"]


def test_a_filter_the_user_registered_is_checked_in_full(registered: Filter):
    assert find("backwards", 3) == (registered,)
    with pytest.raises(OptionError):
        check_palette(Palette.of(["backwards"], 2, 3), images(), BOUNDS)
