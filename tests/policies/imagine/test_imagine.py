"""The policy that tries candidates on surrogates before it queries."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.data.batch import Batch
from rlab.policies.imagine.policy import ImaginePolicy
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim

SIDE, PATCH, BUDGET = 8, 2, 16
PALETTE = ["dead_pixel@1.0", "illuminate@0.5"]


class Bent(nn.Module):
    """Two classes by a saturating score, so that a linear view of it misleads; `sign` -1 turns every preference around."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(sign * torch.randn(SIDE * SIDE, generator=draw).abs())

    def forward(self, x: Tensor) -> Tensor:
        score = 6 * torch.tanh((x.flatten(1) - 0.45) @ self.weight / 6)
        return torch.stack([score, torch.zeros_like(score)], 1)


@pytest.fixture
def batch() -> Batch:
    x = 0.5 + 0.4 * torch.rand(6, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return Batch(x, torch.zeros(6, dtype=torch.int64))


def distances(batch: Batch, policy: str, surrogate: nn.Module | None) -> Tensor:
    result = rlab.attack(
        TorchVictim(Bent(), outputs="logits"), batch, policy=policy, surrogate=surrogate, palette=PALETTE, patch=PATCH,
        budget=BUDGET, until="budget",
    )  # fmt: skip
    assert int(result.queries.max()) <= BUDGET
    return torch.where(result.succeeded, result.final["l2"], torch.inf)


def test_auto_imagines_where_it_has_surrogates_and_belief_does_not(batch: Batch) -> None:
    shared = {"palette": PALETTE, "patch": PATCH, "surrogate": Bent()}
    assert isinstance(make_attack(batch, policy="auto", **shared).policy, ImaginePolicy)
    assert not isinstance(make_attack(batch, policy="belief", **shared).policy, ImaginePolicy)


def test_the_victim_itself_as_surrogate_gives_a_flip_by_the_first_proposal(batch: Batch) -> None:
    result = rlab.attack(
        TorchVictim(Bent(), outputs="logits"), batch, surrogate=Bent(), palette=PALETTE, patch=PATCH, budget=BUDGET
    )
    first = [flips[0][0] for flips in result.improvements]
    assert first == [2] * len(batch)  # after the clean query


def test_a_good_surrogate_is_no_worse_than_none(batch: Batch) -> None:
    assert distances(batch, "auto", Bent()).median() <= 1.05 * distances(batch, "belief", None).median()


def test_a_surrogate_that_prefers_the_opposite_does_not_stall_the_search(batch: Batch) -> None:
    misled, alone = distances(batch, "auto", Bent(-1.0)), distances(batch, "belief", None)
    assert torch.isfinite(misled).all()
    assert misled.median() <= 1.5 * alone.median()
