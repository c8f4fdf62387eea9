from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from rlab.filters import find
from rlab.filters.blur import _line, mirrored
from tests.filters.samples import RANKS, images, inputs, seeded

(GAUSSIAN,) = find("gaussian_blur", 3)
(MOTION,) = find("motion_blur", 3)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("sigma", GAUSSIAN.severities)
def test_gaussian_blur_is_scipy_s(rank: int, sigma: float):
    x = inputs(rank).double()
    along = [0.0] * (x.dim() - min(rank, 2)) + [sigma] * min(rank, 2)
    expected = ndimage.gaussian_filter(x.numpy(), along, mode="reflect", truncate=4.0)
    torch.testing.assert_close(GAUSSIAN(x, sigma, seeded()), torch.from_numpy(expected), rtol=0, atol=1e-9)


def test_gaussian_blur_of_an_input_much_shorter_than_its_kernel_is_nearly_its_mean():
    x = torch.tensor([[[0.0, 1.0, 0.5]]])
    torch.testing.assert_close(GAUSSIAN(x, 8.0, seeded()), torch.full_like(x, 0.5), rtol=0, atol=1e-4)


def test_frames_of_a_clip_are_not_mixed():
    x = torch.zeros(1, 1, 5, 9, 9)
    x[:, :, 2, 4, 4] = 1
    for one in (GAUSSIAN, MOTION):
        result = one(x, one.default_severity, seeded())
        assert result[:, :, 2].sum().item() == pytest.approx(1, abs=1e-4)
        assert result[:, :, [0, 1, 3, 4]].abs().sum() == 0


@pytest.mark.parametrize("radius", [1, 4, 11])
def test_edges_are_mirrored_as_numpy_does(radius: int):
    x = torch.arange(12.0).view(1, 1, 3, 4)
    expected = np.pad(x.numpy(), ((0, 0), (0, 0), (0, 0), (radius, radius)), mode="symmetric")
    assert np.array_equal(mirrored(x, radius, 3).numpy(), expected)


def test_motion_blur_along_the_rows_is_a_moving_average():
    weights = _line(3.0, 0.0)
    along = {column: weight for (row, column), weight in weights.items() if weight}
    assert sum(along.values()) == pytest.approx(1)
    assert sorted(along) == [-1, 0, 1]
    assert along[-1] == pytest.approx(along[1])
    assert all(row == 0 for (row, _), weight in weights.items() if weight)


@pytest.mark.parametrize("severity", MOTION.severities)
@pytest.mark.parametrize("seed", range(4))
def test_motion_blur_smears_a_point_along_a_line_of_that_length(severity: float, seed: int):
    x = torch.zeros(1, 1, 41, 41)
    x[..., 20, 20] = 1
    smeared = MOTION(x, severity, seeded(seed))[0, 0]
    assert smeared.sum().item() == pytest.approx(1, abs=1e-5)
    at = smeared.nonzero().double() - 20
    weight = smeared[smeared > 0].double()
    spread, direction = torch.linalg.eigh((at * weight[:, None]).T @ at)
    angle = torch.rand((), generator=seeded(seed)).item() * np.pi
    assert abs(direction[:, 1] @ torch.tensor([np.sin(angle), np.cos(angle)])).item() > 0.97 or severity == 2
    assert (at @ direction[:, 1]).abs().max() <= (severity - 1) / 2 + 2**0.5
    assert (at @ direction[:, 0]).abs().max() <= 2**0.5 or severity == 2
    assert spread[1] > 0.9 * ((severity - 1) ** 2 / 12), "shorter than a line of that length"


def test_motion_blur_keeps_the_mean_and_its_direction_is_drawn():
    x = images()
    results = [MOTION(x, 9.0, seeded(seed)) for seed in range(3)]
    for result in results:
        torch.testing.assert_close(result.mean((2, 3)), x.mean((2, 3)), rtol=0, atol=0.01)
    assert not torch.allclose(results[0], results[1], atol=1e-3)


@pytest.mark.parametrize("one", [GAUSSIAN, MOTION], ids=lambda one: one.name)
def test_a_flat_image_stays_flat(one):
    x = torch.full((1, 3, 20, 24), 0.3)
    torch.testing.assert_close(one(x, one.severities[-1], seeded()), x)
