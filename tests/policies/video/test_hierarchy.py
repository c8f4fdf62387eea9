"""Coarse to fine: cells of every level tile the frame, children tile their parent."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.errors import InputError
from rlab.policies.video.hierarchy import Hierarchy


def test_two_levels_by_hand() -> None:
    found = Hierarchy((2, 3), coarse=2, levels=2)
    assert found.boxes(1) == [(0, 1, 0, 2), (0, 1, 2, 3), (1, 2, 0, 2), (1, 2, 2, 3)]
    assert found.boxes(2) == [(0, 1, 0, 1), (0, 1, 1, 2), (0, 1, 2, 3), (1, 2, 0, 1), (1, 2, 1, 2), (1, 2, 2, 3)]
    assert found.children[0].tolist() == [[0, 1], [2, -1], [3, 4], [5, -1]]
    assert found.members[0].int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


@given(rows=st.integers(1, 15), columns=st.integers(1, 15), coarse=st.integers(1, 6), levels=st.sampled_from((1, 2, 3)))
def test_every_level_tiles_the_frame_and_every_cell_its_parent(
    rows: int, columns: int, coarse: int, levels: int
) -> None:
    found = Hierarchy((rows, columns), coarse, levels)
    assert len(found.members) == levels
    for member in found.members:
        assert torch.equal(member.sum(0), torch.ones(rows * columns, dtype=torch.int64))
        assert (member.sum(1) >= 1).all()
    for above, children, below in zip(found.members, found.children, found.members[1:], strict=False):
        for parent, row in zip(above, children, strict=True):
            assert torch.equal(below[row[row >= 0]].sum(0), parent.int())
    if levels > 1:
        assert (found.members[-1].sum(1) == 1).all()  # the last level is single patches
        assert len(found.members[-1]) == rows * columns


def test_cells_of_the_first_level_are_as_even_as_can_be() -> None:
    sizes = Hierarchy((14, 12), coarse=4, levels=1).members[0].sum(1)
    assert len(sizes) == 16
    assert set(sizes.tolist()) <= {9, 12}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"levels": 0}, "1, 2 or 3 levels"),
        ({"levels": 4}, "1, 2 or 3 levels"),
        ({"coarse": 0}, "at least 1 coarse cell"),
    ],
)
def test_what_it_refuses(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Hierarchy((4, 4), **options)
