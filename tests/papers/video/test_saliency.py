"""Objectness and motion: where the thing is, once a clip, and kept on disk."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.errors import InputError, MissingExtra
from rlab.papers.video import saliency
from rlab.papers.video.saliency import edge_boxes, flow_maps


def moving_square(frames: int = 6, side: int = 48) -> Tensor:
    """(1, 3, t, h, w): a textured square goes right over a still, faint background."""
    draw = torch.Generator().manual_seed(0)
    x = (0.45 + 0.02 * torch.rand(3, 1, side, side, generator=draw)).repeat(1, frames, 1, 1)
    thing = 0.6 + 0.4 * torch.rand(3, 12, 12, generator=draw)
    for i in range(frames):
        x[:, i, 18:30, 4 + 3 * i : 16 + 3 * i] = thing
    return x[None]


def contrast(maps: Tensor, i: int) -> float:
    """How much more salient the square is than the rest of frame i."""
    inside = torch.zeros(32, 32, dtype=torch.bool)
    scale = 32 / 48
    inside[round(18 * scale) : round(30 * scale), round((4 + 3 * i) * scale) : round((16 + 3 * i) * scale)] = True
    return float(maps[i][inside].mean() - maps[i][~inside].mean())


def test_both_find_a_moving_square() -> None:
    found = saliency.of_clips(moving_square())
    assert found.shape == (1, 2, 6, 32, 32)
    assert found.min() >= 0
    assert found.max() <= 1
    for i in range(6):
        assert contrast(found[0, 0], i) > 0.2
        assert contrast(found[0, 1], i) > 0.2


def test_nothing_is_salient_in_a_flat_clip() -> None:
    flat = np.full((4, 32, 32, 3), 90, np.uint8)
    assert not edge_boxes(flat).any()
    assert not flow_maps(flat).any()


def test_clips_too_short_or_small_for_flow_count_differences() -> None:
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    frames[1, 2, 2] = 255
    found = flow_maps(frames)
    assert found[1, 2, 2] == 1
    assert found[0].max() == 0
    assert flow_maps(frames[:1]).shape == (1, 8, 8)


def test_a_clip_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(frames: np.ndarray) -> np.ndarray:
        calls.append(len(frames))
        return np.zeros(frames.shape[:3], np.float32)

    monkeypatch.setattr(saliency, "edge_boxes", counted)
    monkeypatch.setattr(saliency, "_cache", type(saliency._cache)())
    clip = moving_square(frames=5)
    saliency.of_clips(torch.cat([clip, clip]))
    saliency.of_clips(clip)
    assert calls == [5]
    saliency.of_clips(clip * 0.5)
    assert calls == [5, 5]


def test_maps_over_the_patches_of_any_grid() -> None:
    maps = torch.zeros(1, 2, 4, 32, 32)
    maps[0, 0, 1, :16, :16] = 1
    small = saliency.over(maps, PatchGrid((4, 64, 64), (1, 32, 32)))
    assert small.shape == (1, 4, 2, 2, 2)
    assert small[0, 1, 0].tolist() == [[1, 0], [0, 0]]
    assert small.sum() == 1
    fine = saliency.over(maps, PatchGrid((4, 64, 64), (1, 1, 1)))
    assert fine.shape == (1, 4, 2, 64, 64)
    assert fine[0, 1, 0, :32, :32].min() == 1


def test_maps_are_kept_in_a_file_by_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip, path = moving_square(), tmp_path / "maps.safetensors"
    made = saliency.kept_maps(clip, ["a"], path)
    both = saliency.kept_maps(torch.cat([clip * 0.5, clip]), ["b", "a"], path)  # only b is new
    torch.testing.assert_close(both[1:], made, atol=0, rtol=0)
    monkeypatch.setattr(saliency, "of_clips", lambda x: pytest.fail("worked out again"))
    jittered = (clip + 0.01).clamp(0, 1)  # as another decoder would give it
    torch.testing.assert_close(saliency.kept_maps(jittered, ["a"], path), made, atol=0, rtol=0)
    with pytest.raises(InputError, match="of another clip 'a'"):
        saliency.kept_maps(clip * 0.5, ["a"], path)
    with pytest.raises(InputError, match="of another clip 'a'"):
        saliency.kept_maps(clip[:, :, :4], ["a"], path)
    path.write_bytes(b"no arrays")
    with pytest.raises(InputError, match="cannot read"):
        saliency.kept_maps(clip, ["a"], path)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    frames = np.zeros((2, 32, 32, 3), np.uint8)
    for work in (edge_boxes, flow_maps):
        with pytest.raises(MissingExtra, match=r"opencv-contrib-python-headless.*rlab-robustness\[video\]"):
            work(frames)
    with pytest.raises(MissingExtra):
        saliency.of_clips(0.123 * torch.ones(1, 3, 2, 32, 32))


def test_a_structured_edge_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="structured-edge model"):
        edge_boxes(np.zeros((1, 32, 32, 3), np.uint8), tmp_path / "model.yml.gz")
