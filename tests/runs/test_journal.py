"""A run that was stopped at any call of the model pays again only for that call, whatever it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from rlab.errors import FolderError
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.base import Victim
from tests.helpers import PALETTE, PATCHES, assert_same, exact_victim, labelled_by, make_batch
from tests.runs.staged import staged_case, staged_run

Run = Callable[[Path, Victim], AttackResult]


class Stopping(Victim):
    """Answers like `inner`, until call STOP_AT stops the run; with `noise`, no answer is like another."""

    def __init__(self, inner: Victim, noise: float = 0.0, labels: bool = False) -> None:
        super().__init__(outputs="labels" if labels else "logits", classes=3 if labels else None)
        self.inner, self.noise, self.calls, self.unanswered = inner, noise, 0, 0

    def _predict(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == int(os.environ.get("STOP_AT", "-1")):
            self.unanswered = len(x)
            raise KeyboardInterrupt
        scores = self.inner._predict(x) * float(os.environ.get("DRIFT", "1"))
        return scores + self.noise * torch.randn(scores.shape)


def stopped_at(call: int, run: Run, folder: Path, victim: Stopping) -> Stopping:
    """The victim of a run that was stopped at this call."""
    with mock.patch.dict(os.environ, STOP_AT=str(call)), pytest.raises(KeyboardInterrupt):
        run(folder, victim)
    return victim


def attacked(**options: Any) -> Run:
    own = exact_victim(2)
    batch = labelled_by(own, make_batch(2, 5), wrong=(1,))
    usual = {"patch": PATCHES[2], "palette": PALETTE, "budget": 16, "chunk": 3, "policy": "belief"}
    attack = make_attack(batch, **{**usual, **options})
    return lambda folder, victim: run_attack(attack, victim, batch, folder, {"model": {"name": "exact"}})


def staged(folder: Path, victim: Victim) -> AttackResult:
    return staged_run(folder, victim)


RUNS: dict[str, tuple[Run, Victim]] = {
    "belief": (attacked(), exact_victim(2)),
    "random": (attacked(policy="random"), exact_victim(2)),
    "greedy with cleanup": (attacked(policy="greedy", budget=40), exact_victim(2)),
    "all of the budget": (attacked(until="budget"), exact_victim(2)),
    "pixels": (attacked(palette=["pixels"], patch=None, policy="auto"), exact_victim(2)),
    "learning": (staged, staged_case()[0]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_call_is_paid_once_but_the_one_that_was_stopped(name: str, tmp_path: Path) -> None:
    run, inner = RUNS[name]
    whole = run(tmp_path / "whole", unbroken := Stopping(inner))
    total = unbroken.rows.total()
    assert total == int(whole.queries.sum())
    for last in sorted({2, unbroken.calls // 2, unbroken.calls - 1}):
        stopped, resumed = stopped_at(last, run, tmp_path / str(last), Stopping(inner)), Stopping(inner)
        result = run(tmp_path / str(last), resumed)
        assert_same(result, whole)
        check = resumed.rows.pop("resume", 0)
        assert check <= 1
        assert stopped.rows.total() + resumed.rows.total() == total + stopped.unanswered
        assert name == "learning" or not list(tmp_path.rglob("*.journal"))


def test_a_noisy_model_is_not_asked_again_either(tmp_path: Path) -> None:
    """Its answers differ, so the end of the run does; what was answered before the stop is the same."""
    run = attacked(noisy=True, until="budget")
    stopped = stopped_at(8, run, tmp_path / "run", Stopping(exact_victim(2), noise=0.01))
    resumed = Stopping(exact_victim(2), noise=0.01)
    result = run(tmp_path / "run", resumed)
    assert stopped.rows.total() + resumed.rows.total() == int(result.queries.sum()) + stopped.unanswered


def test_a_model_with_labels_only(tmp_path: Path) -> None:
    run = attacked()
    unbroken = Stopping(exact_victim(2), labels=True)
    whole = run(tmp_path / "whole", unbroken)
    stopped = stopped_at(6, run, tmp_path / "run", Stopping(exact_victim(2), labels=True))
    resumed = Stopping(exact_victim(2), labels=True)
    assert_same(run(tmp_path / "run", resumed), whole)
    resumed.rows.pop("resume", None)
    assert stopped.rows.total() + resumed.rows.total() == unbroken.rows.total() + stopped.unanswered


def test_a_damaged_answer_is_asked_again(tmp_path: Path) -> None:
    run, inner = RUNS["belief"]
    whole = run(tmp_path / "whole", unbroken := Stopping(inner))
    stopped_at(unbroken.calls // 2, run, tmp_path / "run", Stopping(inner))
    for path in (tmp_path / "run").rglob("*.journal"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # the last record is damaged
    assert_same(run(tmp_path / "run", Stopping(inner)), whole)


def test_another_model_does_not_go_on_with_the_answers_of_a_first_chunk(tmp_path: Path) -> None:
    """What its environment changes about a model, as behind an address, no digest sees."""
    run, inner = RUNS["belief"]
    stopped_at(4, run, tmp_path / "run", Stopping(inner))
    other = Stopping(inner)
    with mock.patch.dict(os.environ, DRIFT="1.3"), pytest.raises(FolderError, match="begun with another model"):
        run(tmp_path / "run", other)
    assert other.rows == {"resume": 1}
