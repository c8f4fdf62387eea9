"""Palettes and their specs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from rlab.core.distances import snr_db
from rlab.core.grid import PatchGrid
from rlab.errors import OptionError
from rlab.filters import Filter, Palette, check_filter, check_palette
from rlab.filters.palette import Spec
from rlab.runs.options import make_attack
from tests.filters.samples import CHANNELS, RANKS, all_filters, images, inputs, millivolts, signals
from tests.helpers import make_batch

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
        ("dead_pixel@0.1,0.3*2", ["dead_pixel@0.1", "dead_pixel@0.1#2", "dead_pixel@0.3", "dead_pixel@0.3#2"]),
        ("dead_pixel", ["dead_pixel@1"]),
        ("illuminate", ["illuminate+@0.2", "illuminate-@0.2"]),
        ("illuminate-@0.5", ["illuminate-@0.5"]),
        ("channel_shift+-+@0.05", ["channel_shift+-+@0.05"]),
    ],
)
def test_specs(spec: str, names: list[str]):
    assert list(Palette.of([spec], 2, 3).names) == names


def test_functions_filters_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "filters_of_mine.py").write_text("def dim(x, severity, generator): return x * (1 - severity)\n")
    monkeypatch.syspath_prepend(tmp_path)
    palette = Palette.of([fade, Filter("mine", fade, (0.4,)), "filters_of_mine:dim@0.2,0.7*2"], 1, 1)
    assert palette.names == ("fade@0.3", "mine@0.4", "dim@0.2", "dim@0.2#2", "dim@0.7", "dim@0.7#2")


SIGNAL = {"rank": 1, "channels": 1, "rate": 360.0, "unit": "mV"}
FADE_SIGNALS = Filter("mine", fade, ranks=frozenset({1}))


@pytest.mark.parametrize(
    ("spec", "known", "words"),
    [
        ("gausian_noise", {}, "Did you mean 'gaussian_noise'?"),
        ("pixel", {}, "Did you mean 'pixels'?"),
        ("pixels", {}, "name pixels alone, or only filters"),
        ("gaussian_noise@high", {}, "Did you mean 'gaussian_noise'?"),
        ("qqq", {}, "`rlab filters`"),
        ("jpeg", {"rank": 1}, "is for images and video"),
        ("lead_dropout", {}, "is for signals"),
        (FADE_SIGNALS, {"rank": 3}, "is for signals"),
        ("gaussian_noise@0.1,", {}, "expected a filter like"),
        ("gaussian_noise@0", {}, "severity above 0"),
        ("gaussian_noise@-0.1", {}, "severity above 0"),
        ("gaussian_noise@1e999", {}, "severity above 0"),
        ("gaussian_noise*0", {}, "expected at least one draw"),
        ("", {}, "expected a filter like"),
        (None, {}, "at least one filter"),
        ("gaussian_noise*256", {}, "at most 255"),
        ("gaussian_blur@20dB", SIGNAL, "without a unit"),
        ("smoothing@0.1mV", SIGNAL, "in ms"),
        ("muscle_noise@0.1mV", SIGNAL | {"unit": ""}, "no known unit"),
        ("muscle_noise@0.1mV", SIGNAL | {"unit": "SD"}, "in SD"),
        ("muscle_noise@0.1furlong", SIGNAL, "in furlong"),
        ("muscle_noise@0mV", SIGNAL, "severity above 0"),
        ("muscle_noise@-0.1", SIGNAL, "severity above 0"),
        ("muscle_noise@20dB,", SIGNAL, "expected a filter like"),
        ("muscle_noise@2..3dB", SIGNAL, "expected a filter like"),
        ("powerline_hum60", SIGNAL | {"rate": 100.0}, "more than 120"),
    ],
)
def test_errors_in_specs(spec: Spec | None, known: dict[str, Any], words: str):
    options: dict[str, Any] = {"rank": 2, "channels": 3, **known}
    with pytest.raises(OptionError, match=re.escape(words)):
        Palette.of([] if spec is None else [spec], **options)


@pytest.mark.parametrize("rank", RANKS)
def test_entry_0_is_the_input_bit_for_bit_and_the_input_is_left_alone(rank: int):
    x = inputs(rank) * 2.7 - 0.3
    before = x.clone()
    bank = Palette.of(["gaussian_noise", "dead_pixel"], rank, x.shape[1]).bank(x, (-0.3, 2.4), range(len(x)))
    assert bank.shape == (len(x), 3, *x.shape[1:])
    assert torch.equal(bank[:, 0], before)
    assert torch.equal(x, before)


@pytest.mark.parametrize("rank", RANKS)
def test_a_sample_s_bank_does_not_depend_on_the_other_samples(rank: int):
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
    with pytest.raises(OptionError):
        Palette.of([Filter("brighten", brighten)], 2, 3).bank(images(), BOUNDS, [1, 2, 3])


def test_half_precision_banks_are_filled_in_single_precision():
    x = images().half()
    bank = Palette.of(["gaussian_blur", "gaussian_noise", "jpeg"], 2, 3).bank(x, BOUNDS, [1, 2, 3])
    exact = Palette.of(["gaussian_blur", "gaussian_noise", "jpeg"], 2, 3).bank(x.float(), BOUNDS, [1, 2, 3])
    assert bank.dtype == torch.float16
    assert torch.equal(bank, exact.half())


HUM = ("powerline_hum50", "powerline_hum60")
ADDITIVE = ("gaussian_noise", "baseline_wander", *HUM, "muscle_noise", "electrode_motion")


def bank(specs: list[str], x: Tensor, bounds: tuple[float, float] = UNBOUNDED, **known: object) -> Tensor:
    return Palette.of(specs, 1, x.shape[1], **known).bank(x, bounds, range(len(x)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("decibels", [30.0, 6.0, 0.0, -3.5])
def test_a_severity_in_decibels_is_the_snr_of_every_sample(name: str, decibels: float):
    x = millivolts() * torch.tensor([0.1, 1.0, 7.0]).view(3, 1, 1)
    filtered = bank([f"{name}@{decibels}dB"], x, rate=360.0)
    ratio = snr_db(x.double(), filtered[:, 1].double())
    assert ratio.tolist() == pytest.approx([decibels] * 3, abs=0.01)


def test_millivolts_do_not_depend_on_the_amplitude_of_the_signal():
    x = millivolts() * torch.tensor([0.1, 1.0, 7.0]).view(3, 1, 1)
    specs = ["powerline_hum50@0.3mV", "powerline_hum50@300uV", "electrode_motion@0.2mV", "muscle_noise@0.05mV"]
    filtered = bank(specs, x, rate=360.0, unit="mV").double() - x[:, None].double()
    assert filtered[:, 1].abs().amax((1, 2)).tolist() == pytest.approx([0.3] * 3, rel=1e-2)
    torch.testing.assert_close(filtered[:, 2].abs().amax((1, 2)), filtered[:, 1].abs().amax((1, 2)), rtol=1e-2, atol=0)
    assert filtered[:, 3].abs().amax((1, 2)).tolist() == pytest.approx([0.2] * 3, rel=1e-3)
    assert filtered[:, 4].flatten(1).std(1).tolist() == pytest.approx([0.05] * 3, rel=0.1)


def test_names_show_the_unit_and_are_valid_specs():
    specs = ["muscle_noise@20dB", "muscle_noise@20,10dB*2", "baseline_wander@0.3mV", "powerline_hum@-3dB", "smoothing"]
    palette = Palette.of(specs, 1, 1, 360.0, "mV")
    assert palette.names == (
        "muscle_noise@20dB",
        *("muscle_noise@20dB", "muscle_noise@20dB#2", "muscle_noise@10dB", "muscle_noise@10dB#2"),
        "baseline_wander@0.3mV",
        *("powerline_hum50@-3dB", "powerline_hum60@-3dB"),
        "smoothing@8ms",
    )
    first = [name for name in palette.names if "#" not in name]
    assert Palette.of(first, 1, 1, 360.0, "mV").names == tuple(first)


def test_a_flat_line_has_no_snr_and_does_not_change():
    x = torch.full((2, 1, 300), 0.7)
    torch.testing.assert_close(bank(["muscle_noise@10dB"], x)[:, 1], x, rtol=0, atol=1e-6)
    check_palette(Palette.of(["muscle_noise@10dB"], 1, 1), x, UNBOUNDED)


def test_decibels_of_bounded_data():
    x = 0.4 + 0.2 * signals()
    ratio = snr_db(x.double(), bank(["muscle_noise@25dB"], x, (0.0, 1.0))[:, 1].double())
    assert ratio.tolist() == pytest.approx([25.0] * 3, abs=0.05)


def test_the_default_palette_omits_hum_if_the_rate_is_too_low():
    for rate, there in ((100.0, False), (360.0, True), (None, False)):  # without a rate they may be rows of a table
        batch = make_batch(1, 2)
        object.__setattr__(batch, "rate", rate)
        assert any("hum" in name for name in make_attack(batch).palette.names) == there


@pytest.mark.parametrize("name", ["powerline_hum60@0.2", "baseline_wander@0.3", "powerline_hum50@6dB"])
def test_waves_continue_across_patch_borders(name: str):
    """Each patch shows its part of one wave over the whole signal."""
    x = millivolts()
    filtered = bank([name], x, rate=360.0)
    grid = PatchGrid((x.shape[-1],), (37,))
    whole = filtered[:, 1] - x
    for chosen in ([3, 4, 5], [0, 7], list(range(len(grid)))):
        assignment = torch.zeros(len(x), len(grid), dtype=torch.long)
        assignment[:, chosen] = 1
        mask = grid.expand(assignment)[:, None].bool()
        rendered = torch.where(mask, filtered[:, 1], filtered[:, 0])
        torch.testing.assert_close((rendered - x)[mask.expand_as(x)], whole[mask.expand_as(x)])
    smooth = whole.diff().abs().amax()
    inside = torch.cat([whole[..., : 37 * 3].diff().abs().flatten(), whole[..., 37 * 3 + 1 :].diff().abs().flatten()])
    assert smooth <= inside.max() * 1.001, "the steps across a border are no larger than elsewhere"


def test_a_users_filter_may_take_the_rate():
    rates: list[float] = []

    def beep(x: Tensor, severity: float, generator: Generator, rate: float = 1.0) -> Tensor:
        rates.append(rate)
        return x + severity * torch.sin(torch.arange(x.shape[-1]) / rate)

    beep.rated = True  # type: ignore[attr-defined]
    beep.additive = True  # type: ignore[attr-defined]
    palette = Palette.of([beep], 1, 1, 250.0)
    check_palette(palette, millivolts(), UNBOUNDED)
    assert set(rates) == {250.0}


def test_a_filter_that_is_wrongly_declared_additive_is_refused():
    def squared(x: Tensor, severity: float, generator: Generator) -> Tensor:
        return x + severity**2

    with pytest.raises(OptionError):
        check_filter(Filter("squared", squared, additive=True), millivolts(), UNBOUNDED)


@pytest.mark.parametrize("shape", [(2, 1), (1, 37), (3, 5, 9), (1, 32, 33), (2, 3, 7, 11)])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.0, 255.0), UNBOUNDED])
def test_a_bank_is_exactly_the_same_for_a_batch_and_for_single_samples(
    shape: tuple[int, ...], bounds: tuple[float, float]
) -> None:
    specs = ["gaussian_noise@0.1*2", "gaussian_blur@1.0", "dead_pixel@0.5", "illuminate@0.2", "channel_shift@0.1",
             "salt_and_pepper@0.2", "contrast@0.4"]  # fmt: skip
    palette = Palette.of(specs, len(shape) - 1, shape[0])
    x = torch.rand(13, *shape, generator=torch.Generator().manual_seed(0)) * min(bounds[1], 2.0)
    seeds = [7 * i + 3 for i in range(len(x))]
    together = palette.bank(x, bounds, seeds)
    alone = x[:, None].repeat(1, len(palette) + 1, *(1,) * (x.dim() - 1))
    for row, seed in zip(alone.unsqueeze(1), seeds, strict=True):
        palette.fill(row, bounds, seed)
    assert torch.equal(together, alone)
