"""The networks for twelve leads: as torch modules they give what their files give, and ours is trained as described."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.victims import train_twelve
from benchmarks.victims.twelve_leads import CLASSES, OURS, PUBLIC, twelve_lead_victim
from rlab.data.batch import UNBOUNDED, Batch
from rlab.victims.torch_module import TorchVictim


@pytest.mark.real
@pytest.mark.parametrize("name", PUBLIC)
def test_a_translated_network_gives_the_logits_of_its_file(name: str, real: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    with np.load(real / "ecg12" / "ptbxl_500_folds1_8.npz", allow_pickle=False) as held:
        x = held["x"][::50].astype("float32").transpose(0, 2, 1) / 1000  # mV
    session = runtime.InferenceSession(real / "ecg12" / f"{name}_ptbxl5_100hz.onnx")
    (wanted,) = session.run(["logits"], {"ecg": x})
    columns = [PUBLIC[name].index(each) for each in CLASSES]
    with torch.no_grad():
        got = twelve_lead_victim(name).model(torch.from_numpy(x))
    assert torch.allclose(got, torch.from_numpy(wanted[:, columns]), atol=1e-3)


def test_macro_auc_by_hand() -> None:
    scores = torch.tensor([[0.9, 1.0], [0.4, 1.0], [0.6, 1.0], [0.1, 1.0]])
    labels = torch.tensor([[1, 1], [1, 0], [0, 0], [0, 1]])
    assert train_twelve.macro_auc(scores, labels) == pytest.approx((3 / 4 + 1 / 2) / 2)  # ties count half


def test_variations_keep_what_is_seen_and_mixtures_keep_the_sum() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 12, 1000)
    moved = train_twelve.varied(x, scale=0.0, wander=0.0, noise=0.0, dropped=0.0)
    assert torch.equal(moved.sort(2).values, x.sort(2).values)  # moved in time only, the same way in all leads
    shifts = [[int((row[lead] == x[i, lead, 0]).nonzero()[0]) for lead in (0, 5)] for i, row in enumerate(moved)]
    assert all(first == second for first, second in shifts)
    assert len({first for first, _ in shifts}) > 1
    assert 0 < float((train_twelve.varied(x, dropped=0.3) == 0).all(2).float().mean()) < 0.6
    inputs, labels = train_twelve.mixed(x, torch.eye(6))
    assert torch.allclose(labels.sum(1), torch.ones(6))
    assert torch.allclose(inputs.sum(0), x.sum(0), atol=1e-3)


@pytest.mark.slow
def test_training_learns_what_is_easy() -> None:
    torch.manual_seed(0)
    y = torch.arange(64)[:, None] % 5 == torch.arange(5)
    x = 0.1 * torch.randn(64, 12, 200)
    for label in range(5):
        x[y[:, label], label] += 3 * torch.sin(torch.arange(200) / (2 + label))
    batch = Batch(x, y.long(), bounds=UNBOUNDED)
    net = train_twelve.fit(batch, 12, 0)
    victim = TorchVictim(net, outputs="logits", multilabel=True, bounds=UNBOUNDED)
    assert train_twelve.measured(victim, batch)["macro_auc"] > 0.95


@pytest.mark.real
@pytest.mark.slow
def test_our_network_is_as_good_as_the_page_says_on_records_it_has_not_seen(real: Path) -> None:
    assert all((real / part).is_dir() for part in ("ptbxl", "ecg12"))
    train, left_out = train_twelve.training_records()
    assert not {*train.ids} & {*left_out.ids, *train_twelve.records("9").ids} - {f"more:{i}" for i in range(500)}
    shared = {x.numpy().tobytes() for x in train.x} & {x.numpy().tobytes() for x in left_out.x}
    assert not shared
    found = train_twelve.measured(twelve_lead_victim(OURS), train_twelve.records("9"))
    assert found["macro_auc"] == pytest.approx(0.939, abs=0.005)
    assert found["labels_right"] > 0.85
