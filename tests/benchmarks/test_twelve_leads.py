"""The networks for twelve leads as torch modules give what their files give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.victims.twelve_leads import CLASSES, PUBLIC, twelve_lead_victim


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
