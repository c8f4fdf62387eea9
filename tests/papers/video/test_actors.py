"""The agents' own rewards against numbers worked out by hand."""

from __future__ import annotations

import math

import torch

from rlab.papers.video.actors import few_frames, on_salient, representative


def test_frames_cost_only_beyond_the_limit() -> None:
    kept = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    assert few_frames(kept, 2).tolist() == [0, 0, -0.25, -0.5]


def test_representative_frames_are_near_all_others() -> None:
    frames = torch.tensor([[[0.0], [0.0], [4.0], [4.0]]])  # two scenes; the mean distance of two frames is 2
    kept = torch.tensor([[1, 0, 1, 0]]).bool()
    assert representative(frames, kept).item() == 1  # one of each
    one_scene = torch.tensor([[1, 1, 0, 0]]).bool()
    assert math.isclose(representative(frames, one_scene).item(), math.exp(-2.0 / 2), rel_tol=1e-5)
    assert representative(torch.zeros(1, 4, 1), one_scene).item() == 1  # a clip that stands still


def test_a_region_on_what_is_salient_is_rewarded() -> None:
    salient = torch.tensor([[[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]])  # the second frame shows nothing
    region = torch.tensor([[[0, 0, 0, 1], [0, 0, 0, 1]]]).bool()
    both = torch.tensor([[True, True]])
    assert on_salient(salient, region, both).item() == 0.5  # 1 on the first frame, 0 on the other
    assert on_salient(salient, region, torch.tensor([[True, False]])).item() == 1
    off = torch.tensor([[[1, 0, 0, 0], [1, 0, 0, 0]]]).bool()
    assert on_salient(salient, off, torch.tensor([[True, False]])).item() < 0
