"""Audits of models that predict boxes, maps or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlab.auditing import run_audit
from rlab.auditing.config import AuditOptions
from rlab.errors import InputError
from rlab.explanation import MethodComparison
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import decode_map
from rlab.victims.callables import CallableVictim
from tests.auditing.cases import undrawn, watched
from tests.predictions.planted import SIZE, planted_batch, planted_victim

GOALS: dict[Prediction, str] = {"boxes": "map50:0.9", "map": "pixels:0.05", "numbers": "deviate:10%"}
METRICS: dict[Prediction, tuple[str, float]] = {"boxes": ("map50", 1.0), "map": ("miou", 1.0), "numbers": ("mae", 0.0)}


def find_boxes() -> CallableVictim:
    return planted_victim("boxes")


def find_map() -> CallableVictim:
    return planted_victim("map")


def find_numbers() -> CallableVictim:
    return planted_victim("numbers")


def declared(folder, kind: Prediction, **more: Any) -> dict[str, Any]:
    """An audit of the planted model; its data lie in the folder."""
    batch = planted_batch(kind)
    y: Any = batch.y
    if kind == "boxes":
        found = TargetBoxes.decode(batch.y)
        y = torch.cat([found.xyxy, found.label[..., None].float()], 2)
    elif kind == "map":
        y = decode_map(batch.y, (SIZE, SIZE))
    np.savez(folder / "data.npz", x=batch.x.numpy(), y=np.asarray(y))
    return {
        "model": f"tests.auditing.test_kinds:find_{kind}",
        "data": {"path": str(folder / "data.npz"), "target": kind, "kind": "image"},
        "goal": GOALS[kind], "patch": 4, "budget": 30,
        "palette": ["dead_pixel@1", "illuminate@0.5"], "doctor": False, "benchmark": False, "explain": False,
    } | more  # fmt: skip


def measured(folder, kind: Prediction, **more: Any) -> dict[str, float]:
    name = METRICS[kind][0]
    limits: list[dict[str, Any]] = [
        {"metric": f"clean_{name}"},
        {"metric": name},
        {"metric": name, "at": {"snr": "200dB"}},
    ]
    values = declared(folder, kind, requirements=[{**limit, "at_least": 0} for limit in limits], **more)
    with undrawn():
        result = run_audit(AuditOptions.model_validate(values), folder / "out")
    return {str(verdict.requirement): verdict.value for verdict in result.verdicts}


@pytest.mark.parametrize("kind", METRICS)
def test_figures_untouched_under_attack_and_within_a_bound(tmp_path, kind):
    untouched, attacked, nearly = measured(tmp_path, kind).values()
    assert untouched == pytest.approx(METRICS[kind][1], abs=1e-4)
    assert nearly == untouched  # no flip is as quiet as that
    assert (attacked > untouched) if kind == "numbers" else (attacked < untouched)


def test_explanations_of_objects(tmp_path):
    stage = {"methods": ["occlusion(along=8)"], "samples": 2, "steps": 4}
    requirements = [{"metric": "pointing", "at_least": 1}]
    values = declared(tmp_path, "boxes", explain=stage, requirements=requirements)
    with undrawn():
        result = run_audit(AuditOptions.model_validate(values), tmp_path / "out")
    assert result.passed


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"benchmark": {}}, "the stage 'benchmark' needs scores of classes, but the model returns boxes"),
        ({"requirements": [{"metric": "success", "class": "dog", "below": 1}]}, "names an unknown class"),
    ],
)
def test_what_an_audit_of_boxes_cannot_do(tmp_path, more, sentence):
    values = declared(tmp_path, "boxes", requirements=[{"metric": "success", "below": 1}]) | more
    with pytest.raises(InputError, match=sentence):
        run_audit(AuditOptions.model_validate(values), tmp_path / "out")


def test_a_metric_of_another_kind_does_not_pass(tmp_path):
    values = declared(tmp_path, "numbers", requirements=[{"metric": "map50", "at_least": 0}])
    with undrawn():
        (verdict,) = run_audit(AuditOptions.model_validate(values), tmp_path / "out").verdicts
    assert not verdict.passed
    assert "map50 is for models that predict boxes, but this one predicts numbers" in verdict.note


def test_the_explanations_of_an_audit_keep_the_ground_truth(tmp_path: Path) -> None:
    values = {
        "model": "demo:ecg", "data": {"path": "demo:ecg", "limit": 3}, "palette": ["muscle_noise@0.05mV"], "budget": 3,
        "doctor": False, "benchmark": False, "explain": {"methods": ["middle"], "samples": 2, "steps": 2, "checks": False},
        "requirements": [{"metric": "clean_accuracy", "at_least": 0.1}],
    }  # fmt: skip
    audit, _ = watched(values, tmp_path / "out")
    explained = audit.find(MethodComparison)
    assert explained is not None
    truth = explained.batch.masks
    assert truth is not None
    assert truth.flatten(1).any(1).all()
