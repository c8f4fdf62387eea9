"""Copies of pictures: by hand, and undone."""

from __future__ import annotations

import pytest
import torch

from rlab.data.kinds import kind_of
from rlab.priors.copies import ITSELF, MIRRORED, Copy, moved_copies

FIRST = torch.tensor([True, False])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_copy_can_be_undone(rank: int) -> None:
    x = torch.rand(2, 3, *(4, 5, 6)[:rank], generator=torch.Generator().manual_seed(rank))
    copies = moved_copies(kind_of(x.shape[2:]))
    assert ITSELF in copies
    assert (
        len({copy.make(x, FIRST).flatten().numpy().tobytes() for copy in copies})
        == len(copies)
        == (1 if rank == 1 else 10)
    )
    for copy in copies:
        assert torch.equal(copy.undo(copy.make(x, FIRST), FIRST), x)


def test_moves_and_mirrors_by_hand() -> None:
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]]).expand(2, 1, 2, 3)
    assert Copy((0, 1)).make(x, FIRST)[0, 0].tolist() == [[3, 1, 2], [6, 4, 5]]
    assert Copy((1, 0)).make(x, FIRST)[0, 0].tolist() == [[4, 5, 6], [1, 2, 3]]
    mirrored = MIRRORED.make(x, FIRST)
    assert mirrored[0, 0].tolist() == [[3, 2, 1], [6, 5, 4]]
    assert mirrored[1, 0].tolist() == x[1, 0].tolist()  # it may not be
