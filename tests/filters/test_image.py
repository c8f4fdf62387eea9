"""Blur, pixels, compression and frames, against sums and encoders done by hand."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from rlab.filters import find
from rlab.filters.image import line_weights, mirrored
from tests.filters.samples import RANKS, clips, images, inputs, seeded

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
    weights = line_weights(3.0, 0.0)
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


(JPEG,) = find("jpeg", 3)
(PIXELATE,) = find("pixelate", 3)


def through_pillow(pixels: np.ndarray, quality: int) -> np.ndarray:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, format="jpeg", quality=quality)
    return np.array(Image.open(stream))


def eight_bit(frame: Tensor) -> np.ndarray:
    """(c, h, w) -> (h, w, c) uint8."""
    return (frame.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)


def test_jpeg_of_colours_is_pillow_s():
    for x, result in zip(images(), JPEG(images(), 70.0, seeded()), strict=True):
        assert np.array_equal(eight_bit(result), through_pillow(eight_bit(x), 30))


def test_jpeg_of_a_clip_codes_every_frame():
    x, result = clips()[0], JPEG(clips(), 50.0, seeded())[0]
    for time in range(x.shape[1]):
        assert np.array_equal(eight_bit(result[:, time]), through_pillow(eight_bit(x[:, time]), 50))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_jpeg_of_other_channels_codes_them_one_by_one(channels: int):
    x = torch.cat([images(), images().flip(2)], 1)[:, :channels]
    result = JPEG(x, 70.0, seeded())
    for channel in range(channels):
        expected = through_pillow(eight_bit(x[0])[..., channel].copy(), 30)
        assert np.array_equal(eight_bit(result[0])[..., channel], expected)


def test_jpeg_of_values_beyond_the_range_codes_all_of_it():
    x = images() * 4 - 2
    result = JPEG(x, 30.0, seeded())
    assert (result - x).abs().mean() < 0.15
    assert result.amin() < -1


def test_jpeg_severity_beyond_the_encoder_s_range_is_its_worst_quality():
    x = images()
    assert torch.equal(JPEG(x, 100.0, seeded()), JPEG(x, 99.0, seeded()))


@pytest.mark.parametrize("block", [2, 4, 8])
def test_pixelate_shows_the_mean_of_each_block(block: int):
    x = images()
    blocks = x.view(3, 3, 32 // block, block, 32 // block, block).mean((3, 5))
    expected = blocks.repeat_interleave(block, 2).repeat_interleave(block, 3)
    torch.testing.assert_close(PIXELATE(x, float(block), seeded()), expected)


def test_pixelate_with_short_blocks_at_the_edge_and_frames_apart():
    x = torch.rand((1, 1, 4, 5, 7), generator=seeded())
    result = PIXELATE(x, 4.0, seeded())
    torch.testing.assert_close(result[0, 0, 2, 4, 4:], x[0, 0, 2, 4, 4:].mean().expand(3))
    torch.testing.assert_close(result[0, 0, 3, :4, :4], x[0, 0, 3, :4, :4].mean().expand(4, 4))


def test_blocks_larger_than_the_image_are_the_whole_of_it():
    x = images()
    torch.testing.assert_close(PIXELATE(x, 64.0, seeded()), x.mean((2, 3), keepdim=True).expand_as(x))


(FROZEN,) = find("frozen_frame", 3)
(FLICKER,) = find("flicker", 3)


@pytest.mark.parametrize("hold", [2, 4, 8])
def test_every_frame_is_an_earlier_one_held(hold: int):
    x = clips()
    result = FROZEN(x, float(hold), seeded())
    for time in range(x.shape[2]):
        assert torch.equal(result[:, :, time], x[:, :, time - time % hold])


def test_held_longer_than_the_clip_is_its_first_frame():
    x = clips()
    assert torch.equal(FROZEN(x, 32.0, seeded()), x[:, :, :1].expand_as(x))


def test_flicker_moves_every_frame_as_a_whole_by_up_to_the_severity():
    x = torch.full((2, 3, 400, 4, 4), 0.5)
    change = FLICKER(x, 0.2, seeded()) - x
    steps = change[:, 0, :, 0, 0]
    torch.testing.assert_close(change, steps[:, None, :, None, None].expand_as(change))
    assert 0.19 < steps.abs().max() <= 0.2 + 1e-6
    assert steps.mean().abs() < 0.02
    assert steps.std().item() == pytest.approx(0.2 / 3**0.5, rel=0.05)
