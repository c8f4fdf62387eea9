"""Maps of single leads: where, and in which lead, the deciding part lies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rlab.data.batch import UNBOUNDED, Batch
from rlab.explanation.run import explain_batch
from rlab.victims.torch_module import TorchVictim

LEADS, SPOT = ("I", "II", "V1", "V2"), slice(16, 28)


class OneLead(nn.Module):
    """Class 0 is the roughness of V1 within SPOT."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        rough = x[:, 2, SPOT].square().mean(1)
        return torch.stack([4 * rough, torch.full_like(rough, 1.0)], 1)


def case() -> tuple[OneLead, TorchVictim, Batch]:
    x = torch.randn(2, 4, 48, generator=torch.Generator().manual_seed(0))
    net = OneLead()
    batch = Batch(x, torch.zeros(2, dtype=torch.int64), bounds=UNBOUNDED, leads=LEADS, rate=100.0, unit="mV")
    return net, TorchVictim(net, outputs="logits", bounds=UNBOUNDED), batch


@pytest.mark.parametrize(
    ("method", "chance"),
    [("rise(masks=400, cells=8, channels='each')", 0.25), ("occlusion(along=8, channels='each')", 0.9),
     ("occlusion(along=8, channels='I,II;V1;V2')", 0.9), ("integrated_gradients", 0.99)],
)  # fmt: skip
def test_the_deciding_lead_and_time_are_hottest(method: str, chance: float) -> None:
    _, victim, batch = case()
    found = explain_batch(victim, batch, method, labels=torch.tensor([0, 0]))
    assert found.by_lead is not None
    heat = found.by_lead.clamp(min=0)
    assert heat.sum(2).argmax(1).tolist() == [2, 2]
    assert all(SPOT.start - 6 <= at < SPOT.stop + 6 for at in heat[:, 2].argmax(1).tolist())  # a patch has 6 points
    assert (heat[:, 2].sum(1) / heat.sum((1, 2)) > chance).all()
    assert torch.allclose(
        found.maps / found.maps.amax(1, keepdim=True), heat.sum(1) / heat.sum(1).amax(1, keepdim=True), atol=0.2
    )


@pytest.mark.parametrize("method", ["rise(masks=20, channels='V1')", "occlusion(along=4, channels='V1')"])
def test_leads_of_no_group_stay_as_they_are_and_have_no_heat(method: str) -> None:
    net, victim, batch = case()
    found = explain_batch(victim, batch, method, labels=torch.tensor([0, 0]))
    assert found.by_lead is not None
    assert not found.by_lead[:, [0, 1, 3]].any()
    for row in torch.cat(net.seen)[:, [0, 1, 3]]:
        assert any(torch.allclose(row, own, atol=1e-6) for own in batch.x[:, [0, 1, 3]])


def test_without_groups_a_map_is_of_all_leads() -> None:
    _, victim, batch = case()
    for method in ("rise(masks=20)", "occlusion(along=4)", "occlusion(along=4, channels='together')"):
        assert explain_batch(victim, batch, method, labels=torch.tensor([0, 0])).by_lead is None
