from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from rlab.errors import InputError
from rlab.filters import FAMILIES, Entry, Filter, Palette, check_filter, check_palette, find, register
from tests.filters.samples import images, millivolts

BOUNDS = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)


def refused(apply: Callable[..., object], sentence: str, bounds=BOUNDS, clip=False, severities=(0.1, 0.2, 0.3)) -> None:
    one = Filter("my_filter", apply, severities, clip=clip)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=re.escape(f"the filter 'my_filter' {sentence}")):
        check_filter(one, images(), bounds)


def fade(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    return x * (1 - severity)


def test_a_sound_filter_passes():
    check_filter(Filter("fade", fade), images(), BOUNDS)
    check_filter(Filter("fade", fade), 255 * images(), (0, 255))
    check_filter(Filter("fade", fade), millivolts(), UNBOUNDED)


def test_one_that_raises():
    def raises(x, severity, generator):
        raise KeyError("oops")

    refused(raises, "failed on inputs of shape (3, 3, 32, 32) at severity 0.1 with KeyError: 'oops'")


def test_one_with_other_arguments():
    refused(lambda x: x, "failed on inputs")
    with pytest.raises(InputError, match=re.escape("expected a function (x, severity, generator) -> x")):
        check_filter(Filter("mine", lambda x: x), images(), BOUNDS)  # type: ignore[arg-type, misc]


def test_one_that_returns_no_tensor():
    refused(lambda x, severity, generator: x.numpy(), "returned ndarray: expected a torch tensor")


def test_one_that_returns_another_shape():
    refused(lambda x, severity, generator: x[:, :1], "returned shape (3, 1, 32, 32) for inputs of (3, 3, 32, 32)")


def test_one_that_returns_another_dtype():
    refused(lambda x, severity, generator: x.double(), "returned torch.float64 for inputs of torch.float32")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_that_returns_nan(value: float):
    refused(lambda x, severity, generator: x.where(x < 0.5, value), "returned NaN or infinite values", clip=True)


def test_one_that_leaves_the_bounds():
    sentence = "values up to 1.7 for inputs in [0, 1]: clamp its result, or set clip=True on it"
    refused(lambda x, severity, generator: torch.full_like(x, 1.7), f"returned {sentence}")
    refused(lambda x, severity, generator: torch.full_like(x, -0.25), "returned values down to -0.25 for inputs in")


def test_one_that_leaves_the_bounds_is_fine_where_it_is_clipped_or_there_are_none():
    def brighter(x, severity, generator):
        return x + severity

    refused(brighter, "returned values up to")
    check_filter(Filter("brighter", brighter, clip=True), images(), BOUNDS)
    check_filter(Filter("brighter", brighter), millivolts(), UNBOUNDED)


def test_one_that_works_in_place():
    x = images()
    before = x.clone()
    refused(lambda x, severity, generator: x.mul_(1 - severity), "changed its input in place: work on x.clone()")
    assert torch.equal(x, before)


def test_one_that_takes_its_own_random_numbers():
    sentence = "gave two different results under the same seed: take random numbers from the generator"
    refused(lambda x, severity, generator: x * (1 - severity * torch.rand_like(x)), sentence)


def test_one_that_distorts_less_at_a_larger_severity():
    refused(
        lambda x, severity, generator: x * severity, "distorts less at severity 0.2 (mean L2", severities=(0.1, 0.2)
    )


def test_distances_are_those_after_clipping():
    """Beyond the clip two severities may look alike, which is allowed, or one be nearer than it would be without it."""
    check_filter(Filter("flash", lambda x, s, g: x + 10 * s, (0.5, 0.6), clip=True), images(), BOUNDS)
    nearer = Filter("nearer", lambda x, s, g: x - 0.5 if s < 0.55 else x + 10, (0.5, 0.6), clip=True)
    with pytest.raises(InputError, match="'nearer' distorts less at severity"):
        check_filter(nearer, torch.full((1, 3, 8, 8), 0.9), BOUNDS)


def test_one_that_does_nothing():
    refused(
        lambda x, severity, generator: x.clone(), "does nothing: it changed no value of 3 samples at severities 0.1"
    )


def test_severities_given_are_the_ones_tried():
    tried = set()

    def notes(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
        tried.add(severity)
        return x * (1 - severity)

    check_filter(Filter("notes", notes), images(), BOUNDS, severities=[0.4, 0.15])
    assert tried == {0.15, 0.4}


def test_palette_tries_the_ladder_and_what_is_used_on_at_most_four_samples():
    calls: list[tuple[int, float]] = []

    def notes(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
        calls.append((len(x), severity))
        return x * (1 - severity)

    one = Filter("notes", notes, (0.1, 0.3))
    check_palette(Palette((Entry(one, 0.2), Entry(one, 0.2, 1), Entry(one, 0.3))), images().repeat(3, 1, 1, 1), BOUNDS)
    assert calls == [(4, s) for s in (0.1, 0.2, 0.3) for _ in range(2)]


def test_palette_names_the_filter_at_fault():
    palette = Palette.of(["gaussian_noise", fade, lambda x, s, g: x / 0], 2, 3)
    with pytest.raises(InputError, match="the filter '<lambda>' returned NaN or infinite"):
        check_palette(palette, images(), BOUNDS)


def test_black_images_do_not_speak_against_built_in_filters():
    black = torch.zeros(2, 3, 8, 8)
    check_palette(Palette.of(["dead_pixel", "gaussian_blur", "contrast", "illuminate-"], 2, 3), black, BOUNDS)
    with pytest.raises(InputError, match="'fade' does nothing"):
        check_palette(Palette.of([fade], 2, 3), black, BOUNDS)


@pytest.fixture
def registered() -> Iterator[Filter]:
    one = Filter("backwards", lambda x, severity, generator: x * severity)
    register(one)
    yield one
    del FAMILIES["backwards"]


def test_a_filter_the_user_registered_is_tried_in_full(registered: Filter):
    assert find("backwards", 3) == (registered,)
    with pytest.raises(InputError, match="'backwards' distorts less"):
        check_palette(Palette.of(["backwards"], 2, 3), images(), BOUNDS)
