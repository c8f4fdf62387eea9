"""The regions that the two agents' changes are given back by."""

from __future__ import annotations

from itertools import pairwise

import torch

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.papers.video import PairPolicy
from tests.papers.video.test_policy import pair
from tests.papers.video.tubes import GRID

TASK = Task(GRID, 3, Untargeted(), 100)  # 4 frames of 4 x 4 patches, 2 x 2 coarse cells


def test_regions_go_from_tubes_to_cells_on_single_frames() -> None:
    levels = PairPolicy(pair()).regions(TASK)
    assert [len(level.unique()) for level in levels] == [4, 8, 16]
    tube = levels[0].view(4, 4, 4)
    assert (tube == tube[:1]).all()  # the same cell on every frame
    assert tube[0].unique(return_counts=True)[1].tolist() == [4, 4, 4, 4]
    for coarse, fine in pairwise(levels):
        for region in fine.unique().tolist():
            assert len(coarse[fine == region].unique()) == 1  # each lies within one of the level before


def test_without_regions_single_patches_are_given_back() -> None:
    assert PairPolicy(pair(), by_region=False).regions(TASK) == ()


def test_regions_cover_every_patch() -> None:
    for level in PairPolicy(pair()).regions(TASK):
        assert level.shape == (len(GRID),)
        assert torch.isfinite(level.float()).all()
