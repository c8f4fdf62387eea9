"""Distances against numpy, SSIM against scikit-image."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from torch import Tensor, tensor

from rlab.core import distances
from rlab.core.distances import NAMES, measure
from rlab.data.batch import UNBOUNDED
from tests.helpers import CHANNELS, RANKS, SIZES

UNIT = (0.0, 1.0)


def pair(rank: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and what became of them; some points and one whole sample stay as they are."""
    draw = torch.Generator().manual_seed(seed)
    shape = (4, CHANNELS[rank], *SIZES[rank])
    x0 = torch.rand(shape, generator=draw)
    x = (x0 + 0.2 * torch.randn(shape, generator=draw)).clamp(0, 1)
    x[..., : SIZES[rank][-1] // 2] = x0[..., : SIZES[rank][-1] // 2]
    x[3] = x0[3]
    return x0, x


@pytest.mark.parametrize("rank", RANKS)
def test_distances_equal_numpy(rank: int) -> None:
    x0, x = pair(rank)
    for i, (a, b) in enumerate(zip(x0.double().numpy(), x.double().numpy(), strict=True)):
        change = b - a
        signal = a - a.mean(axis=tuple(range(1, a.ndim)), keepdims=True)
        expected = {
            "l0": float((change != 0).any(axis=0).sum()),
            "l2": math.sqrt((change**2).sum()),
            "linf": float(np.abs(change).max()),
            "mean_absolute": float(np.abs(change).mean()),
            "relative_l2": math.sqrt((change**2).sum() / (a**2).sum()),
            "snr_db": 10 * math.log10((signal**2).sum() / (change**2).sum()) if change.any() else math.inf,
        }
        for name, value in expected.items():
            assert float(getattr(distances, name)(x0, x)[i]) == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("size", [(5,), (5, 3), (5, 3, 4)])
def test_frames_that_differ(size: tuple[int, ...]) -> None:
    x0 = torch.zeros(2, 3, *size)
    x = x0.clone()
    x[0, 1, 2], x[0, 2, 4], x[0, 0, 4] = 0.1, 0.2, 0.3
    assert distances.frames(x0, x).tolist() == [2, 0]


@pytest.mark.parametrize("size", [(40,), (24, 31), (13, 24, 17)])
@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_equals_scikit_image(size: tuple[int, ...], channels: int) -> None:
    """Both take 11 taps of a Gaussian of 1.5 and average where the window lies wholly inside: they agree."""
    draw = torch.Generator().manual_seed(0)
    x0 = torch.rand(2, channels, *size, generator=draw, dtype=torch.float64)
    x = (x0 + 0.3 * torch.randn(x0.shape, generator=draw, dtype=torch.float64)).clamp(0, 1)
    expected = [
        structural_similarity(
            a, b, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1
        )
        for a, b in zip(x0.numpy(), x.numpy(), strict=True)
    ]
    assert distances.ssim(x0, x).tolist() == pytest.approx(expected, abs=1e-9)
    assert distances.ssim(x0.float(), x.float()).tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [(1,), (2,), (8, 8), (4, 8, 8), (1, 5, 12)])
def test_ssim_of_inputs_shorter_than_its_window(size: tuple[int, ...]) -> None:
    x0 = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(distances.ssim(x0, x0), torch.ones(2))
    assert (distances.ssim(x0, 1 - x0) < 0.9).all()


@pytest.mark.parametrize("rank", RANKS)
def test_distances_of_bounded_data_are_of_values_in_zero_to_one(rank: int) -> None:
    x0, x = pair(rank)
    assignment = tensor([[0, 1, 2], [0, 0, 0], [1, 1, 1], [0, 0, 1]])
    unit = measure(x0, x, assignment, UNIT)
    assert tuple(unit) == NAMES
    assert unit["l0_patches"].tolist() == [2, 0, 3, 1]
    torch.testing.assert_close(unit["map255"], 255 * distances.mean_absolute(x0, x))
    for low, high in ((0.0, 255.0), (-1.0, 1.0)):
        other = measure(x0 * (high - low) + low, x * (high - low) + low, assignment, (low, high))
        for name in ("l0_patches", "l2", "linf", "map255", "ssim"):
            torch.testing.assert_close(other[name], unit[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", RANKS)
def test_distances_without_bounds_are_in_the_unit_of_the_data(rank: int) -> None:
    x0, x = pair(rank)
    found = measure(5 * x0, 5 * x, torch.zeros(4, 1), UNBOUNDED)
    torch.testing.assert_close(found["l2"], 5 * distances.l2(x0, x))
    torch.testing.assert_close(found["linf"], 5 * distances.linf(x0, x))
    torch.testing.assert_close(found["relative_l2"], distances.relative_l2(x0, x))
    torch.testing.assert_close(found["snr_db"], distances.snr_db(x0, x))
    assert found["map255"].isnan().all()
    assert found["ssim"].isnan().all()


def test_distances_of_an_unchanged_input() -> None:
    x0 = torch.zeros(1, 1, 8)
    found = measure(x0, x0, torch.zeros(1, 2), UNIT)
    assert {name: float(found[name]) for name in ("l2", "linf", "relative_l2", "ssim")} == pytest.approx(
        {"l2": 0, "linf": 0, "relative_l2": 0, "ssim": 1}
    )


def test_unchanged_inputs_do_not_affect_the_ssim_of_the_rest() -> None:
    x0 = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    x = x0.clone()
    x[1::2] = 1 - x[1::2]
    whole, some = distances.ssim(x0, x), distances.ssim(x0[1::2], x[1::2])
    assert whole[::2].tolist() == [1.0, 1.0]
    torch.testing.assert_close(whole[1::2], some)
