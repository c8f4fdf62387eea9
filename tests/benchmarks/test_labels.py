"""The page of labels alone: ratios of planted curves by hand, and a victim whose scores nobody sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import common, labels
from benchmarks.peers_rows import Curves
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim

NEAR: Curves = [((1, 2.0), (90, 0.5))] * 3
FAR: Curves = [((1, 4.0), (400, 1.0))] * 3


def test_ratios_by_hand() -> None:
    figures: dict[str, Any] = {}
    page = labels.section("vgg", {labels.OURS: NEAR, labels.PEER: FAR}, figures)
    assert figures == {"vgg labels 100": 0.125, "vgg labels 200": 0.125, "vgg labels 500": 0.5, "vgg labels 1000": 0.5}
    assert "| labels ÷ hopskipjump | 0.5 [0.5, 0.5] | 0.5" in page


def test_what_is_kept_is_not_run_and_every_row_hears_labels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = []

    def run(victim: TorchVictim, batch: Batch, budget: int) -> Curves:
        heard.append((victim.tells_labels, len(batch), budget))
        return NEAR

    monkeypatch.setattr(common, "RAW", tmp_path)
    monkeypatch.setattr(labels, "ROWS", dict.fromkeys(labels.ROWS, run))
    monkeypatch.setattr(
        common, "cifar_test", lambda n: Batch(torch.rand(n, 3, 4, 4), torch.zeros(n, dtype=torch.int64))
    )
    monkeypatch.setattr(common, "cifar_victim", lambda *_: TorchVictim(torch.nn.Flatten(), outputs="logits"))
    words = ["--run", "--victim", "vgg", "--samples", "5", "--device", "cpu"]
    labels.main(words)
    assert heard == [(True, 5, 1000)] * len(labels.USUAL)
    labels.main(words)
    assert len(heard) == len(labels.USUAL)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["vgg labels 500"] == 1.0
    assert labels.quick_ratio() == 1.0
    assert heard[-1] == (True, labels.QUICK, labels.QUICK_QUERIES)
