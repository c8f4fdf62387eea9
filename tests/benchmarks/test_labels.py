"""Labels alone: ratios of planted curves by hand, and victims whose scores are hidden."""

from __future__ import annotations

import pytest
import torch

from benchmarks.labels import cases, run
from benchmarks.raw import Curves
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim

NEAR: Curves = (((1, 2.0), (90, 0.5)),) * 3
FAR: Curves = (((1, 4.0), (400, 1.0)),) * 3


def test_ratios_by_hand() -> None:
    rows = {cases.OURS: NEAR, cases.PEER: FAR}
    want = {"vgg labels 100": 0.125, "vgg labels 200": 0.125, "vgg labels 500": 0.5, "vgg labels 1000": 0.5}
    assert run.keyed("vgg", rows) == want
    assert "| labels ÷ hopskipjump | 0.5 [0.5, 0.5] | 0.5" in run.section("vgg", rows)


def test_every_row_sees_labels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def attack(victim: TorchVictim, batch: Batch, budget: int) -> Curves:
        seen.append((victim.reading.tells_labels, len(batch), budget))
        return NEAR

    monkeypatch.setattr(cases, "ROWS", dict.fromkeys(cases.ROWS, attack))
    monkeypatch.setattr(cases, "cifar_test", lambda n: Batch(torch.rand(n, 3, 4, 4), torch.zeros(n, dtype=torch.int64)))
    monkeypatch.setattr(run, "cifar_victim", lambda *_: TorchVictim(torch.nn.Flatten(), outputs="logits"))
    assert run.quick_ratio() == 1.0
    assert seen == [(True, cases.QUICK_IMAGES, cases.QUICK_QUERIES)] * 2
