"""Detection in noise: planted models whose answer is known for every group of leads, validation, counting and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlab.auditing import AuditResult
from rlab.auditing.detection import detected, distorted
from rlab.auditing.load import load_audit
from rlab.core.channels import LEADS
from rlab.data.batch import UNBOUNDED
from rlab.errors import InputError
from rlab.filters.base import snr_db
from rlab.filters.palette import Palette
from tests.auditing.cases import audit_options, watched

GROUPS = ("II, III, aVF", "I, aVR, aVL", "V1-V3", "V4-V6")
RECORDS, TIME = 8, 300


class Reader(nn.Module):
    """Finds MI where some leads are above 0, smooth and not flat: (b, 12, t) -> logits of NORM and MI."""

    def __init__(self, several: bool, *leads: str) -> None:
        super().__init__()
        self.several, self.rows = several, [LEADS.index(lead) for lead in leads]

    def forward(self, x: Tensor) -> Tensor:
        seen = x[:, self.rows]
        rough, flat = seen.diff().abs().mean((1, 2)) - 0.05, 0.1 - seen.std(2).mean(1)
        found = 4 * seen.mean((1, 2)).clamp(-1, 1) - 100 * (rough.clamp(min=0) + flat.clamp(min=0))
        return torch.stack([-found, found], 1) if not self.several else torch.stack([torch.ones_like(found), found], 1)


def chest() -> nn.Module:
    return Reader(False, "V1", "V2", "V3")


def chest_of_several() -> nn.Module:
    return Reader(True, "V1", "V2", "V3")


def inferior() -> nn.Module:
    return Reader(False, "II", "III", "aVF")


NOISE: dict[str, Any] = {
    "metric": "detection", "class": "MI", "distortion": "muscle_noise", "at": {"snr": "6dB"}, "at_least": "100%",
}  # fmt: skip
OFF: dict[str, Any] = {"metric": "detection", "class": "MI", "distortion": "lead_dropout", "at_least": "100%"}


def declared(folder: Path, model: str, *requirements: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Half of the records are MI; a slow wave in every lead, 0.5 mV up for MI and down for NORM."""
    several = model.endswith("several")
    y = np.arange(RECORDS) % 2
    wave = np.sin(np.arange(TIME) / 30) + 0.1 * np.arange(12)[:, None]
    x = (wave + np.where(y, 0.5, -2.0)[:, None, None]).astype(np.float32)
    path = folder / f"{model}.npz"
    np.savez(path, x=x, y=np.stack([np.ones(RECORDS, int), y], 1) if several else y)
    data = {"path": str(path), "rate": 100, "unit": "mV", "leads": list(LEADS), "classes": ["NORM", "MI"]}
    return {
        "model": {"name": f"tests.auditing.test_detection:{model}", "multilabel": several}, "data": data,
        "palette": ["muscle_noise@0.05mV", "lead_dropout@1"], "budget": 3, "doctor": False, "explain": False,
        "benchmark": False, "requirements": list(requirements), **more,
    }  # fmt: skip


def shares(audit: AuditResult, distortion: str = "muscle_noise") -> dict[str, float]:
    """The share of MI that is still detected, by group."""
    own = [tally for tally in audit.stages["detect"].tallies if (tally.distortion, tally.label) == (distortion, 1)]
    return {tally.channels: tally.still / tally.detected for tally in own}


@pytest.mark.parametrize(
    ("model", "group"), [("chest", "V1-V3"), ("inferior", "II, III, aVF"), ("chest_of_several", "V1-V3")]
)
def test_the_requirement_fails_exactly_where_the_model_reads(model: str, group: str, tmp_path: Path) -> None:
    audit, watch = watched(declared(tmp_path, model, NOISE), tmp_path / "out")
    assert shares(audit) == {each: float(each != group) for each in GROUPS}
    (verdict,) = audit.verdicts
    assert (verdict.passed, verdict.value, verdict.samples) == (False, 0.0, RECORDS // 2)
    assert verdict.note.startswith(f"{group}: 0 of 4; ")  # the worst group comes first
    assert audit.stages["detect"].rows.model == RECORDS * len(GROUPS)
    assert audit.rows.total == watch.rows


def test_groups_left_out_and_channels_together(tmp_path: Path) -> None:
    spared, _ = watched(declared(tmp_path, "chest", NOISE, channels="I,II;V4-V6"), tmp_path / "spared")
    assert shares(spared) == {"I, II": 1.0, "V4-V6": 1.0}
    assert spared.passed
    whole, _ = watched(declared(tmp_path, "chest", NOISE, channels="together"), tmp_path / "whole")
    assert shares(whole) == {"all channels": 0.0}


def test_without_an_snr_the_severities_of_the_palette_count(tmp_path: Path) -> None:
    mild = {**NOISE, "at": None}
    audit, _ = watched(declared(tmp_path, "chest", mild, OFF), tmp_path / "out")
    assert shares(audit, "lead_dropout") == {group: float(group != "V1-V3") for group in GROUPS}
    assert set(shares(audit).values()) == {1.0}
    assert [verdict.passed for verdict in audit.verdicts] == [True, False]
    assert audit.verdicts[1].note.startswith("lead_dropout@1 in V1-V3: 0 of 4; ")


def test_new_requirements_cost_their_own_queries_and_all_are_counted(tmp_path: Path) -> None:
    first, before = watched(declared(tmp_path, "chest", NOISE), tmp_path / "out")
    more, after = watched(declared(tmp_path, "chest", NOISE, OFF), tmp_path / "out")
    assert after.rows == RECORDS * len(GROUPS)  # for the leads that are off
    assert more.rows.total == before.rows + after.rows
    again, none = watched(declared(tmp_path, "chest", OFF), tmp_path / "out")
    assert none.rows == 0
    assert again.rows.total == more.rows.total
    assert [verdict.value for verdict in (*first.verdicts, *again.verdicts)] == [0.0, 0.0]


def test_a_class_that_the_model_never_detects_does_not_pass(tmp_path: Path) -> None:
    values = declared(tmp_path, "chest_of_several", {**NOISE, "class": "NORM"})
    values["model"]["name"] = f"{__name__}:never"
    audit, _ = watched(values, tmp_path / "out")
    assert np.isnan(audit.verdicts[0].value)
    assert not audit.passed


class Blind(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_full((len(x), 2), -1.0)


def never() -> nn.Module:
    return Blind()


def test_junit_page_and_record_have_it_as_any_other_requirement(tmp_path: Path) -> None:
    audit, _ = watched(declared(tmp_path, "chest", NOISE), tmp_path / "out", page=True)
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot().iter("testcase")
    failures = {case.get("name"): case.find("failure") is not None for case in cases}
    assert failures == {"attack": False, "detect": False, str(audit.verdicts[0].requirement): True}
    page = audit.page.read_text(encoding="utf-8")
    assert "detection for class MI under muscle_noise at snr 6dB" in page
    assert "still detected" in page
    assert AuditResult.load(tmp_path / "out").stages["detect"].tallies == audit.stages["detect"].tallies


WRONG: list[tuple[dict[str, Any], str]] = [
    ({**NOISE, "class": None}, "add 'class: MI'"),
    ({**NOISE, "distortion": None}, "add 'distortion: muscle_noise'"),
    ({**NOISE, "at": {"queries": 5}}, "write 'at: {snr: 12dB}'"),
    ({**NOISE, "at": {"snr": "6mV"}}, "'mV' is not a unit of snr"),
    ({**NOISE, "distortion": "rain"}, "unknown distortion 'rain': there are muscle_noise, lead_dropout"),
    ({**NOISE, "class": "AF"}, "unknown class, or one without samples, 'AF': there are NORM, MI"),
    ({**OFF, "at": {"snr": "12dB"}}, "it has no SNR: leave out 'at'"),
    ({**NOISE, "at_least": "120%"}, "detection is a share"),
    ({**NOISE, "model": "other"}, "'model' does not apply to detection"),
]


@pytest.mark.parametrize(("requirement", "why"), WRONG, ids=lambda one: str(one)[:40])
def test_mistakes_are_one_sentence_before_the_first_query(
    requirement: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=why) as refused:
        load_audit(audit_options(declared(tmp_path, "chest", requirement)), tmp_path / "out")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("channels", [(1,), (0, 3, 5), tuple(range(6))])
def test_the_ratio_holds_within_the_channels_and_the_others_stay(channels: tuple[int, ...]) -> None:
    x = torch.sin(torch.arange(400) / 9).repeat(3, 6, 1) * torch.arange(1.0, 7.0)[:, None]
    palette = Palette.of(["muscle_noise@12dB"], 1, 6, 100.0, "mV")
    found = distorted(x, palette, channels, 12.0, UNBOUNDED, [1, 2, 3])
    own, others = list(channels), [row for row in range(6) if row not in channels]
    assert torch.allclose(snr_db(x[:, own], found[:, own]), torch.tensor(12.0), atol=1e-3)
    assert torch.equal(found[:, others], x[:, others])


def test_a_class_is_detected_where_it_is_labelled_and_found() -> None:
    nan = float("nan")
    scores = torch.tensor([[0.9, 0.6], [0.2, 0.8], [nan, nan]])
    assert detected(scores, torch.tensor([[1, 0], [1, 1], [1, 1]])).tolist() == [
        [True, False],
        [False, True],
        [False] * 2,
    ]
    assert detected(scores, torch.tensor([0, 0, 0])).tolist() == [[True, False], [False, False], [False, False]]


@pytest.mark.real
def test_a_public_network_on_real_records(real: Path, tmp_path: Path) -> None:
    """Muscle noise that is hardly there hides nothing, and lead V1-V3 being off hides some infarctions."""
    pytest.importorskip("onnxruntime")
    model = {"name": str(real / "ecg12" / "cnn3_ptbxl5_100hz.onnx"), "output": "logits", "multilabel": True}
    values = {
        **declared(tmp_path, "chest", {**NOISE, "at": {"snr": "60dB"}}, OFF), "model": model,
        "data": {"path": str(real / "ptbxl"), "split": "val", "limit": 16, "classes": ["NORM", "MI", "STTC", "CD", "HYP"]},
    }  # fmt: skip
    audit, watch = watched(values, tmp_path / "out")
    assert shares(audit).keys() == set(GROUPS)
    assert set(shares(audit).values()) == {1.0}
    assert min(shares(audit, "lead_dropout").values()) < 1
    assert audit.rows.total == watch.rows
