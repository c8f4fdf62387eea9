"""The common corruptions: bounds, chance, levels, and those that can be worked out by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import rlab
from rlab.corruptions import CLIPS, KINDS, LEVELS, SIGNALS, corrupt
from rlab.errors import OptionError
from rlab.filters import Palette
from rlab.filters.corruptions import SMALL

STILL = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}  # no chance in them
TRADED = {"glass_blur", "frost", "elastic_transform", "motion_blur"}  # levels trade parameters
LAST = LEVELS[-1]


def pictures(n: int = 3, side: int = 32) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 8, 8, generator=rng)
    return torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")


@pytest.mark.parametrize("side", [32, SMALL + 1])  # the parameters of CIFAR-10-C and those of ImageNet-C
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_stays_in_range_depends_on_its_seed_alone_and_grows(kind: str, side: int) -> None:
    x = pictures(2, side)
    weak, strong = (corrupt(x, kind, level, 1) for level in (1, LAST))
    assert weak.shape == x.shape
    assert strong.min() >= 0
    assert strong.max() <= 1
    assert torch.equal(strong, corrupt(x, kind, LAST, 1))
    assert torch.equal(strong, corrupt(x, kind, LAST, 2)) is (kind in STILL)
    assert float((strong - x).abs().mean()) > 1e-3
    if kind not in TRADED:
        assert float((strong - x).norm()) > float((weak - x).norm())


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_for_each_row_gives_a_row_the_same_in_every_batch(kind: str) -> None:
    x = pictures(3)
    together, alone = corrupt(x, kind, 3, [5, 6, 7]), corrupt(x[1:2], kind, 3, [6])
    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 32, 48), (3, 2, 70, 66)])
def test_any_size_and_number_of_channels_images_and_clips(kind: str, shape: tuple[int, ...]) -> None:
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    changed = corrupt(x, kind, LAST)
    assert changed.shape == x.shape
    assert bool(((changed >= 0) & (changed <= 1)).all())


def test_by_hand() -> None:
    x = torch.tensor([0.2, 0.6]).repeat(16).expand(1, 3, 32, 32)
    assert torch.allclose(corrupt(x, "contrast", 2), torch.tensor([0.3, 0.5]).repeat(16).expand(1, 3, 32, 32))
    colour = torch.tensor([0.2, 0.4, 0.5]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    brighter = torch.tensor([0.24, 0.48, 0.6]).view(1, 3, 1, 1).expand(1, 3, 32, 32)  # V from 0.5 to 0.6
    assert torch.allclose(corrupt(colour, "brightness", 2), brighter)
    flat = torch.full((1, 3, 32, 32), 0.5)
    for kind in (
        "defocus_blur",
        "zoom_blur",
        "motion_blur",
        "glass_blur",
        "pixelate",
        "elastic_transform",
    ):
        assert torch.allclose(corrupt(flat, kind, 5), flat, atol=1e-5), kind
    for kind, spread in (("gaussian_noise", 0.1), ("shot_noise", 0.1)):
        noise = corrupt(flat.expand(8, 3, 32, 32), kind, 5) - 0.5
        assert float(noise.std()) == pytest.approx(spread, rel=0.05)
    hit = corrupt(flat.expand(8, 3, 32, 32), "impulse_noise", 5) != 0.5
    assert float(hit.float().mean()) == pytest.approx(0.07, abs=0.01)
    large = torch.full((2, 3, 65, 65), 0.5)
    assert float((corrupt(large, "gaussian_noise", 1) - 0.5).std()) == pytest.approx(0.08, rel=0.05)


def test_pixels_that_glass_moves_are_neighbours() -> None:
    x = torch.arange(24.0).div(24).expand(1, 1, 24, 24)  # CIFAR-10-C's level 1: by one pixel, hardly blurred
    moved = (corrupt(x, "glass_blur", 1) - x) * 24
    assert moved.abs().max() > 0.9
    assert moved.min() > -24  # copies of copies may come from further on, but only from the right and below
    assert torch.equal(moved[..., :2], torch.zeros(1, 1, 24, 2))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: corrupt(pictures(), "fogg", 3), "'fog'"),
        (lambda: corrupt(pictures(), "fog", 6), "from 1 to 5, got 6"),
        (lambda: corrupt(pictures() * 255, "fog", 3), r"in \[0, 1\]"),
        (lambda: corrupt(pictures(), "freeze", 3), r"expected clips"),
        (lambda: corrupt(torch.rand(2, 1, 50), "fog", 3), r"shape \(2, 1, 50\)"),
        (lambda: Palette.of(["c_fog@2.5"], 2, 3), "from 1 to 5, got 2.5"),
        (lambda: Palette.of(["c_fog"], 1, 3), "for images and video"),
    ],
)
def test_one_sentence_says_what_is_wrong(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(OptionError, match=said):
        call()


def test_the_palette_has_every_kind_that_the_data_can_have() -> None:
    assert Palette.of(["corruptions"], 2, 3).names == tuple(f"c_{kind}@3" for kind in KINDS)
    assert Palette.of(["corruptions"], 3, 3).names[:15] == Palette.of(["corruptions"], 2, 3).names
    signals = Palette.of(["corruptions"], 1, 2, 360.0, "mV").names
    assert "baseline_wander@12dB" in signals
    assert not any("resampling" in name for name in signals)  # only whole records have another rate
    assert not any("hum" in name for name in Palette.of(["corruptions"], 1, 2, 90.0, "mV").names)


def counted(frames: int = 16) -> torch.Tensor:
    """Clips whose frames are as bright as their numbers."""
    return torch.arange(float(frames)).div(frames).view(1, 1, frames, 1, 1).expand(2, 3, frames, 4, 4)


@pytest.mark.parametrize("kind", [kind for kind in CLIPS if kind != "h264"])
def test_what_happens_to_clips_moves_frames_and_makes_none(kind: str) -> None:
    x = counted()
    weak, strong = (corrupt(x, kind, level, 3) for level in (1, LAST))
    assert set(strong.unique().tolist()) <= set(x.unique().tolist())
    assert float((strong - x).norm()) > float((weak - x).norm())
    order = (strong[:, 0, :, 0, 0] * 16).round().long()
    if kind == "jumble":
        assert torch.equal(order.sort(1).values, torch.arange(16).expand(2, 16))
    if kind in ("frame_drop", "freeze"):
        assert bool((order.diff(dim=1) >= 0).all())
        assert bool((order <= torch.arange(16)).all())
    if kind == "rolling_shutter":
        assert torch.equal(strong[:, :, :, 0], x[:, :, :, 0])
        assert float(strong[0, 0, 0, -1, 0]) == 0.5  # the last row is eight frames late


@pytest.mark.parametrize("shape", [(3, 6, 33, 35), (1, 6, 20, 20), (2, 6, 6, 10)])
def test_h264_gives_a_clip_the_same_in_every_batch_and_keeps_less_at_each_level(shape: tuple[int, ...]) -> None:
    time = torch.arange(float(shape[1])).view(1, -1, 1, 1)
    waves = (torch.arange(float(shape[3])) + 3 * time).div(4).sin().mul(0.4).add(0.5).expand(2, *shape)
    x = (waves + 0.1 * torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    levels = [corrupt(x, "h264", level, seed=level) for level in LEVELS]
    far = [float((one - x).norm()) for one in levels]
    assert far == sorted(far)
    assert far[0] < far[-1]
    assert all(torch.equal(corrupt(x[1:], "h264", 3, seed), levels[2][1:]) for seed in range(4))
    flat = torch.full((1, *shape), 0.5)
    assert torch.allclose(corrupt(flat, "h264", 1), flat, atol=2 / 255)


@pytest.mark.parametrize("kind", SIGNALS)
def test_signals_change_more_from_level_to_level(kind: str) -> None:
    time = torch.arange(720) / 360
    x = torch.stack([torch.exp(-(((time % 0.8 - 0.3) / 0.02) ** 2)), torch.sin(7 * time)])[None]
    banks = [Palette.of([spec], 1, 2, 360.0, "mV").bank(x, (-10.0, 10.0), [1]) for spec in SIGNALS[kind]]
    far = [float((bank[:, 1] - x).norm()) for bank in banks]
    assert far == sorted(far)
    assert far[0] < far[-1]


def test_an_attack_uses_them_as_any_filter() -> None:
    victim, batch = rlab.demo_victim("digits"), rlab.load("demo:digits", limit=3)
    palette: list[Any] = ["c_fog@5", rlab.filters.Distortion("c_defocus_blur", 5)]
    result = rlab.attack(victim, batch, palette=palette, budget=20, progress=False, announce=lambda understood: None)
    assert re.match("c_fog@5", result.setting.palette[0])
    assert result.setting.palette == ("c_fog@5", "c_defocus_blur@5")
