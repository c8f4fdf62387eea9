"""Submodular subset selection on a planted victim: the deciding region comes first, and every row is counted."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.explain.smdl import most_queries, most_regions, smdl
from rlab.data.batch import Batch
from rlab.explanation.base import Method
from rlab.victims.torch_module import TorchVictim


class Corner(nn.Module):
    """Class 0 shows in the upper left quarter, and half as much in the one beside it."""

    def forward(self, x: Tensor) -> Tensor:
        texture = (x - x.mean((1, 2, 3), keepdim=True)).abs()
        ahead = 8 * texture[..., :4, :4].mean((1, 2, 3)) + 4 * texture[..., :4, 4:8].mean((1, 2, 3)) - 1
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


def test_regions_are_ordered_by_what_they_explain_within_the_stated_queries() -> None:
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    victim, batch = TorchVictim(Corner(), outputs="logits"), Batch(x, torch.zeros(2, dtype=torch.int64))
    made = Method("smdl", smdl, options={"along": 4})(victim, batch, batch.y)
    assert made.queries.tolist() == [1 + 16 * 17] * 2 == [most_queries((16, 16), 4)] * 2
    by_region = made.maps.unfold(1, 4, 4).unfold(2, 4, 4).mean((3, 4)).flatten(1)
    assert by_region.argsort(1, descending=True)[:, :2].tolist() == [[0, 1]] * 2
    assert most_regions((16, 16), 700) == 5  # 25 regions take 651 queries
