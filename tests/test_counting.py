"""Every row that reaches a model is counted: each command's figure equals the count in the model's `forward`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlab.auditing import run_audit
from rlab.benchmarking import make_benchmark, run_benchmark, verify_benchmark
from rlab.benchmarking.chunk import COUNTS
from rlab.comparison import CompareOptions, run_comparison
from rlab.data.batch import Batch
from rlab.diagnosis import examine
from rlab.explanation import MethodJudge, parse_methods
from rlab.explanation.run import METHODS
from rlab.hardening.evaluation import measure_robustness
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.run import harden
from rlab.progress import quiet
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.storage.config import check
from rlab.victims import TorchVictim
from tests.auditing.cases import audit_options, declared, undrawn

SHAPE = (1, 8, 8)
MOST = 3  # rows that fit into the memory of the small model
ATTACK: dict[str, Any] = {"palette": ["gaussian_noise@0.3", "dead_pixel@0.5"], "patch": 2, "budget": 30, "chunk": 4}


class Counted(nn.Module):
    """Counts rows on the class, so that copies count as well; `small` fails on more than MOST rows."""

    seen = 0

    def __init__(self, small: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 10)
        )
        self.small = small

    def forward(self, x: Tensor) -> Tensor:
        Counted.seen += len(x)
        if self.small and len(x) > MOST:
            raise torch.OutOfMemoryError("CUDA out of memory")
        answer: Tensor = self.net(x)
        return answer


def plain() -> TorchVictim:
    return TorchVictim(Counted(), outputs="logits")


def cramped() -> TorchVictim:
    return TorchVictim(Counted(small=True), outputs="logits")


def samples(n: int = 6) -> Batch:
    """Only the second is labelled wrong."""
    x = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(3))
    y = plain()(x).argmax(1)
    y[1] = (y[1] + 1) % 10
    Counted.seen = 0
    return Batch(x=x, y=y)


@pytest.fixture(params=[plain, cramped])
def victim(request: pytest.FixtureRequest) -> Iterator[TorchVictim]:
    Counted.seen = 0
    made: TorchVictim = request.param()
    yield made
    assert Counted.seen > 0


def test_attack(victim: TorchVictim, tmp_path: Path) -> None:
    batch = samples()
    result = run_attack(make_attack(batch, **ATTACK | {"chunk": 6}), victim, batch, tmp_path / "run", {})
    assert result.succeeded.any()
    assert int(result.queries.sum()) == result.summary()["queries"] == victim.rows.total() == Counted.seen


def test_compare(victim: TorchVictim) -> None:
    batch = samples()
    values = {"model": "none", "data": "none", "policies": ["square", "greedy"], **ATTACK | {"patch": 4, "budget": 60}}
    contenders = check(CompareOptions, values).contenders()
    comparison = run_comparison(victim, batch, contenders, 60, 0)
    assert sum(outcome.rows for outcome in comparison.outcomes.values()) == victim.rows.total() == Counted.seen


LONG = ("kernel_shap", "lime")  # methods of many queries
ECG = "waves"  # needs an ECG: tests/explanation/test_waves.py counts its queries


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
        for name, method in METHODS.items()
        if not method.flips and name != ECG
    ],
)
def test_explain(name: str) -> None:
    few = {"rise": "masks=20", "belief": "queries=150"}
    spec = f"{name}({few.get(name, '')})"
    batch, victim = samples(3), plain()
    comparison = MethodJudge(steps=3)(victim, batch, parse_methods([spec]), seed=1)
    assert victim.rows.total() + comparison.copy_rows == Counted.seen
    explanation = comparison.judged[name]
    before = Counted.seen
    again = parse_methods([spec])[0](plain(), batch, seed=1)
    assert int(again.queries.sum()) == int(explanation.queries.sum()) == Counted.seen - before


def test_doctor(victim: TorchVictim) -> None:
    assert examine(victim, samples(12), samples=8).queries == Counted.seen == victim.rows.total()


def test_benchmark(victim: TorchVictim, tmp_path: Path) -> None:
    batch = samples()
    options = ATTACK | {"ladder": "times:1.5", "steps": 5, "format": "npz"}
    benchmark = make_benchmark({"mine": victim}, batch, tmp_path / "b", **options)
    made = sum(row[name] for row in benchmark.rows for name in COUNTS)
    assert made == Counted.seen
    verified = verify_benchmark(benchmark, {"mine": victim}).asked
    assert made + verified == Counted.seen
    report = run_benchmark([benchmark], {"mine": victim})
    assert made + verified + report.asked["mine"] == Counted.seen == victim.rows.total()


def test_harden() -> None:
    batch = samples(16)
    options: dict[str, Any] = {"epochs": 1, "adversary_budget": 4}
    options |= {"adversary": "random", "validation_attacked": 4}
    hardened = harden(plain(), batch, progress=quiet, **options)
    assert hardened.rows == Counted.seen
    evaluation = check(EvaluationOptions, {"attack": ATTACK, "attacked": 4, "square_budget": 10, "pgd_steps": 2})
    measured = measure_robustness(hardened.victim, batch, evaluation)
    assert hardened.rows + measured.rows == Counted.seen


@pytest.mark.parametrize("model", [pytest.param("plain", marks=pytest.mark.slow), "cramped"])
def test_audit(model: str, tmp_path: Path) -> None:
    batch = samples(4)
    np.savez(tmp_path / "data.npz", x=batch.x.numpy(), y=batch.y.numpy())
    values = declared(
        model=f"tests.test_counting:{model}", data=str(tmp_path / "data.npz"),
        explain={"methods": ["occlusion(along=4)", "gradcam", "scorecam"], "samples": 2, "steps": 4, "checks": True},
        benchmark={"ladder": "times:1.5", "steps": 5},
    )  # fmt: skip
    if model == "cramped":
        values["explain"]["methods"] = ["occlusion(along=4)"]
    Counted.seen = 0
    with undrawn():
        run_audit(audit_options(values), tmp_path / "audit")
    record = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert record["rows"]["total"] == Counted.seen
    assert min(record["stages"]["benchmark"]["rows"]["model"], record["rows"]["copies"]) > 0
