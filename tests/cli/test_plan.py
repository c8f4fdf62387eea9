"""--dry-run: nothing is written, hardly anything is asked, and what it tells is not exceeded by the command itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from torch import Tensor

from rlab.cli.plan import TIMED
from rlab.victims.torch_module import TorchVictim
from tests.auditing.cases import declared, undrawn
from tests.command import rlab_command

DIGITS = ["demo:digits", "demo:digits", "--limit", 3]
ATTACK = [*DIGITS, "--budget", 20]
MAKE = ["benchmark", "make", *DIGITS, "--patch", 2, "--ladder", "times:1.5", "--steps", 5, "--budget", 60]
EXPLAIN = ["explain", *DIGITS, "--compare", "--steps", 4, "--pictures", 0]
EXPLAIN += ["--method", "occlusion,gradcam,rise(masks=20)"]
HARDEN = ["harden", *DIGITS[:2], "--limit", 20, "--budget", 12, "--epochs", 1, "--adversary-budget", 4]
AUDIT = ["audit", "audit.yaml"]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Rows that torch models are asked about."""
    asked, predict = [], TorchVictim._predict

    def count(self: TorchVictim, x: Tensor) -> Tensor:
        asked.append(len(x))
        return predict(self, x)

    with mock.patch.object(TorchVictim, "_predict", count):
        yield asked


def plan_of(*words: Any) -> dict[str, Any]:
    """What the object of a dry run says, which asks no more than it takes to time a model and writes nothing."""
    before = sorted(Path().rglob("*"))
    with counted() as asked:
        said = rlab_command(*words, "--out", "run", "--dry-run", "--json", "-q")
    assert said.code == 0, said.err
    assert sum(asked) <= 1 + TIMED
    assert sorted(Path().rglob("*")) == before
    plan: dict[str, Any] = json.loads(said.out)
    assert plan["dry_run"] is True
    assert plan["out"] == "run"
    assert plan["seconds_at_most"] > 0
    assert plan["rows_at_most"] == sum(rows for rows in plan["rows"].values() if rows is not None)
    return plan


def rows_of(*words: Any) -> int:
    """What the command itself says that it asked."""
    said = rlab_command(*words, "--out", "run", "--json", "-q")
    assert said.code in (0, 1), said.err
    rows = json.loads(said.out)["rows"]
    return rows if isinstance(rows, int) else sum(rows.values())


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["attack", *ATTACK], 3 * 20),
        (["compare", *ATTACK, "--policies", "random,square"], 2 * 3 * 20),
        (["compare", *ATTACK, "--policies", "random", "--attacks", "foolbox:blur"], 2 * 3 * 20),
    ],
)
def test_attacks_take_their_budget_at_most(words: list[Any], rows: int) -> None:
    plan = plan_of(*words)
    assert (plan["rows_at_most"], plan["budget"]) == (rows, 20)


def test_a_function_is_not_asked() -> None:
    Path("my_paid.py").write_text(
        "def model():\n    def ask(x):\n        raise RuntimeError('asked')\n    return ask\n"
    )
    said = rlab_command("attack", "my_paid:model", *ATTACK[1:], "--dry-run", "--json", "-q")
    assert said.code == 0, said.err
    assert json.loads(said.out)["seconds_at_most"] is None


def test_a_benchmark_is_made_and_run_within_what_was_told() -> None:
    plan = plan_of(*MAKE)
    assert 3 < rows_of(*MAKE) <= plan["rows_at_most"] <= 3 * (60 + 5 + 11)
    Path("run").rename("bench")
    words = ["benchmark", "run", "bench", "--model", "net=demo:digits"]
    plan = plan_of(*words)
    assert 3 < rows_of(*words) <= plan["rows_at_most"]


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ["random", "gradient"])
def test_a_hardening_stays_within_what_was_told(adversary: str) -> None:
    words = [*HARDEN, "--adversary", adversary]
    plan = plan_of(*words)
    assert 20 < rows_of(*words) <= plan["rows_at_most"]


@pytest.mark.slow
def test_an_audit_stays_within_what_was_told() -> None:
    harden = {"data": {"path": "demo:digits", "split": "train", "limit": 20}, "epochs": 1}
    Path("audit.yaml").write_text(yaml.safe_dump(declared(harden=harden)))
    plan = plan_of(*AUDIT)
    with undrawn():
        rows = rows_of(*AUDIT)
    doctor = json.loads(Path("run/doctor/doctor.json").read_text())["queries"]
    assert 20 < rows - doctor <= plan["rows_at_most"]
    assert plan["rows"]["doctor"] is None
