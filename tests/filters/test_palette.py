from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlab.errors import InputError
from rlab.filters import Filter, Palette
from tests.filters.samples import CHANNELS, RANKS, all_filters, images, inputs, millivolts

BOUNDS = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)


def fade(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    return x * (1 - severity)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("gaussian_noise", ["gaussian_noise@0.1"]),
        ("gaussian_noise@0.25", ["gaussian_noise@0.25"]),
        ("gaussian_noise@1e-2", ["gaussian_noise@0.01"]),
        ("gaussian_noise@0.1,0.3", ["gaussian_noise@0.1", "gaussian_noise@0.3"]),
        ("gaussian_noise*2", ["gaussian_noise@0.1", "gaussian_noise@0.1#2"]),
        (
            "gaussian_noise@0.1,0.3*2",
            ["gaussian_noise@0.1", "gaussian_noise@0.1#2", "gaussian_noise@0.3", "gaussian_noise@0.3#2"],
        ),
        ("dead_pixel", ["dead_pixel@1"]),
        ("illuminate", ["illuminate+@0.2", "illuminate-@0.2"]),
        ("illuminate-@0.5", ["illuminate-@0.5"]),
        ("channel_shift+-+@0.05", ["channel_shift+-+@0.05"]),
    ],
)
def test_specs(spec: str, names: list[str]):
    assert list(Palette.of([spec], 2, 3).names) == names


def test_a_channel_shift_family_depends_on_the_channels():
    assert [len(Palette.of(["channel_shift"], 1, channels)) for channels in (1, 2, 3, 12)] == [2, 4, 8, 24]


def test_functions_filters_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "filters_of_mine.py").write_text("def dim(x, severity, generator): return x * (1 - severity)\n")
    monkeypatch.syspath_prepend(tmp_path)
    palette = Palette.of([fade, Filter("mine", fade, (0.4,)), "filters_of_mine:dim@0.2,0.7*2"], 1, 1)
    assert palette.names == ("fade@0.3", "mine@0.4", "dim@0.2", "dim@0.2#2", "dim@0.7", "dim@0.7#2")


@pytest.mark.parametrize(
    ("specs", "rank", "sentence"),
    [
        (["gausian_noise"], 2, "unknown filter 'gausian_noise'. Did you mean 'gaussian_noise'?"),
        (["gaussian_noise@high"], 2, "Did you mean 'gaussian_noise'?"),
        (["qqq"], 2, "unknown filter 'qqq'. `rlab filters` lists them all"),
        (["jpeg"], 1, "the filter 'jpeg' is for images and video, but the data are signals"),
        (["lead_dropout"], 2, "the filter 'lead_dropout' is for signals, but the data are images"),
        ([Filter("mine", fade, ranks=frozenset({1}))], 3, "the filter 'mine' is for signals, but the data are video"),
        (["gaussian_noise@0.1,"], 2, "expected a filter like"),
        (["gaussian_noise@0"], 2, "expected a severity above 0, got 0 in 'gaussian_noise@0'"),
        (["gaussian_noise@-0.1"], 2, "expected a severity above 0"),
        (["gaussian_noise@1e999"], 2, "expected a severity above 0"),
        (["gaussian_noise*0"], 2, "expected at least one draw"),
        ([""], 2, "expected a filter like"),
        ([], 2, "expected at least one filter in the palette"),
        (["gaussian_noise*256"], 2, "expected at most 255 palette entries, got 256"),
    ],
)
def test_specs_that_are_refused(specs: list[str], rank: int, sentence: str):
    with pytest.raises(InputError, match=re.escape(sentence)):
        Palette.of(specs, rank, 3)


@pytest.mark.parametrize("rank", RANKS)
def test_entry_0_is_the_input_bit_for_bit_and_the_input_is_left_alone(rank: int):
    x = inputs(rank) * 2.7 - 0.3
    before = x.clone()
    bank = Palette.of(["gaussian_noise", "dead_pixel"], rank, x.shape[1]).bank(x, (-0.3, 2.4), range(len(x)))
    assert bank.shape == (len(x), 3, *x.shape[1:])
    assert torch.equal(bank[:, 0], before)
    assert torch.equal(x, before)


@pytest.mark.parametrize("rank", RANKS)
def test_a_sample_s_bank_is_the_same_alone_and_in_company(rank: int):
    x = inputs(rank)
    specs = [one for one in all_filters(CHANNELS[rank]) if rank in one.ranks]
    palette, seeds = Palette.of(specs, rank, CHANNELS[rank]), [2**62 + 5, -17, 4][: len(x)]
    together = palette.bank(x, BOUNDS, seeds)
    for row, seed in enumerate(seeds):
        assert torch.equal(palette.bank(x[row : row + 1], BOUNDS, [seed])[0], together[row])
    assert torch.equal(palette.bank(x.flip(0), BOUNDS, seeds[::-1]), together.flip(0))


def test_draws_and_seeds_differ():
    palette = Palette.of(["gaussian_noise*2"], 2, 3)
    x = images()[:1]
    first, second = palette.bank(x, BOUNDS, [1])[0], palette.bank(x, BOUNDS, [2])[0]
    assert not torch.equal(first[1], first[2])
    assert not torch.equal(first[1], second[1])


def test_as_many_seeds_as_samples():
    with pytest.raises(ValueError, match="zip"):
        Palette.of(["dead_pixel"], 2, 3).bank(images(), BOUNDS, [1])


def test_severities_mean_the_same_in_every_range():
    x, specs = images(), ["gaussian_noise@0.2", "illuminate", "dead_pixel", "jpeg", "salt_and_pepper"]
    palette = Palette.of(specs, 2, 3)
    narrow, wide = palette.bank(x, BOUNDS, [1, 2, 3]), palette.bank(x * 256 - 128, (-128.0, 128.0), [1, 2, 3])
    torch.testing.assert_close(wide, narrow * 256 - 128, rtol=0, atol=0.01)


def test_without_bounds_severity_is_a_share_of_each_sample_s_amplitude_and_nothing_is_cut():
    x = millivolts() * torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1)
    bank = Palette.of(["illuminate+@0.5", "dead_pixel"], 1, 2).bank(x, UNBOUNDED, [1, 2, 3])
    span = (x.flatten(1).amax(1) - x.flatten(1).amin(1)).view(3, 1, 1)
    torch.testing.assert_close(bank[:, 1], x + 0.5 * span)
    assert (bank[:, 2] == 0).all()


def test_a_flat_line_without_bounds_stays_finite():
    x = torch.full((1, 1, 50), 7.0)
    bank = Palette.of(["gaussian_noise", "contrast", "baseline_wander"], 1, 1).bank(x, UNBOUNDED, [1])
    assert torch.isfinite(bank).all()
    assert not torch.equal(bank[:, 1], x)


def brighten(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    return x + severity


def test_only_a_clipping_filter_is_cut_and_another_may_not_leave_the_bounds():
    cut = Palette.of([Filter("brighten", brighten, clip=True)], 2, 3).bank(images(), BOUNDS, [1, 2, 3])
    assert cut.amax() == 1
    with pytest.raises(InputError, match="'brighten' returned values up to 1"):
        Palette.of([Filter("brighten", brighten)], 2, 3).bank(images(), BOUNDS, [1, 2, 3])


def test_half_precision_banks_are_filled_in_single_precision():
    x = images().half()
    bank = Palette.of(["gaussian_blur", "gaussian_noise", "jpeg"], 2, 3).bank(x, BOUNDS, [1, 2, 3])
    exact = Palette.of(["gaussian_blur", "gaussian_noise", "jpeg"], 2, 3).bank(x.float(), BOUNDS, [1, 2, 3])
    assert bank.dtype == torch.float16
    assert torch.equal(bank, exact.half())
