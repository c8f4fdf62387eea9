from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from rlab.filters import find
from tests.filters.samples import clips, images, seeded

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
