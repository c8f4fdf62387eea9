"""The common corruptions: bounds, chance, severities, and those that can be worked out by hand."""

from __future__ import annotations

import pytest
import torch

from benchmarks.harden.corruptions import KINDS, LEVELS, corrupt

STILL = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}  # no chance in them
TRADED = {"glass_blur", "frost", "elastic_transform", "pixelate", "motion_blur"}  # levels trade parameters


def pictures(n: int = 3) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 8, 8, generator=rng)
    return torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_stays_in_range_depends_on_its_seed_alone_and_grows(kind: str) -> None:
    x = pictures()
    levels = (1, LEVELS)
    weak, strong = (corrupt(x, kind, level, 1) for level in levels)
    assert weak.shape == x.shape
    assert strong.min() >= 0
    assert strong.max() <= 1
    assert torch.equal(strong, corrupt(x, kind, LEVELS, 1))
    assert torch.equal(strong, corrupt(x, kind, LEVELS, 2)) is (kind in STILL)
    assert float((strong - x).abs().mean()) > 1e-3
    if kind not in TRADED:
        assert float((strong - x).norm()) > float((weak - x).norm())


def test_by_hand() -> None:
    x = torch.tensor([0.2, 0.6]).repeat(16).expand(1, 3, 32, 32)
    assert torch.allclose(corrupt(x, "contrast", 2), torch.tensor([0.3, 0.5]).repeat(16).expand(1, 3, 32, 32))
    colour = torch.tensor([0.2, 0.4, 0.5]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    brighter = torch.tensor([0.24, 0.48, 0.6]).view(1, 3, 1, 1).expand(1, 3, 32, 32)  # V from 0.5 to 0.6
    assert torch.allclose(corrupt(colour, "brightness", 2), brighter)
    flat = torch.full((1, 3, 32, 32), 0.5)
    for kind in ("defocus_blur", "zoom_blur", "motion_blur", "glass_blur", "pixelate"):
        assert torch.allclose(corrupt(flat, kind, 5), flat, atol=1e-5), kind
    noise = corrupt(flat.expand(8, 3, 32, 32), "gaussian_noise", 5) - 0.5
    assert float(noise.std()) == pytest.approx(0.10, rel=0.03)
