"""A run chooses its number of threads by a few queries, counts them, and keeps the number. No test measures time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.data.batch import Batch
from rlab.errors import Notice
from rlab.results.result import AttackResult
from rlab.runs import threads
from rlab.runs.attack import run_attack
from rlab.runs.chunk_work import FinishedRows
from rlab.runs.options import AttackOptions
from rlab.storage.config import check
from rlab.storage.steps import read_versions
from rlab.victims.account import PHASES
from tests.helpers import PALETTE, assert_same, labelled_by, linear_surrogate, make_batch

TIMED = 8  # queries of each timed sample: four rounds with both numbers
Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Two threads, and a clock by which a forward takes 1 s with one of them, and with both as long as it is told."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, took, now = torch.get_num_threads(), {1: 1.0, 2: 2.0}, [0.0]
    torch.set_num_threads(2)

    def tick() -> float:
        now[0] += took[torch.get_num_threads()]
        return now[0]

    monkeypatch.setattr(threads, "perf_counter", tick)
    yield lambda several: took.update({2: several})
    assert torch.get_num_threads() == 2  # as it was
    torch.set_num_threads(before)


class Seeing(rlab.TorchVictim):  # type: ignore[misc]  # notes what a final class sees
    """Notes the numbers of threads of all queries but those that are timed."""

    def __init__(self) -> None:
        super().__init__(linear_surrogate(192).model, outputs="logits")
        self.used: set[int] = set()

    def __call__(self, x: Tensor, phase: str = "search", *given: Any, **further: Any) -> Tensor:  # type: ignore[misc]
        if phase != "timing":
            self.used.add(torch.get_num_threads())
        return super().__call__(x, phase, *given, **further)


def case(**options: Any) -> tuple[Seeing, Batch, AttackOptions]:
    given = {
        "patch": (2, 2),
        "palette": PALETTE,
        "budget": 80,
        "chunk": 3,
        "until": "flip",
        "policy": "random",
        **options,
    }
    return Seeing(), labelled_by(linear_surrogate(192), make_batch(2, 5)), check(AttackOptions, given)


@pytest.mark.parametrize(("several", "best"), [(0.5, 2), (0.95, 1)])
def test_the_faster_number_is_used_and_its_queries_are_counted(
    several: float, best: int, clock: Clock, tmp_path: Path
) -> None:
    clock(several)
    victim, batch, options = case(until="budget")
    result = run_attack(options, victim, batch, tmp_path / "run", options.plain())
    assert victim.used == {best}
    assert read_versions(tmp_path / "run")["threads"] == str(best)
    assert result.queries[:, PHASES.index("timing")].tolist() == [TIMED] * 3 + [0] * 2  # the first chunk
    assert victim.rows["timing"] == 3 * TIMED
    assert result.total_queries == victim.rows.total()
    assert result.queries.sum(1).max() == 80  # the budget, which the timing counts towards
    assert (result.effort <= 80 - result.queries[:, PHASES.index("timing")]).all()
    again = run_attack(options, victim, batch)  # the same model in the same process
    assert victim.rows["timing"] == 3 * TIMED
    assert victim.used == {best}
    assert again.queries[3:].equal(result.queries[3:])


@pytest.mark.parametrize(
    ("options", "omp", "used"),
    [({"threads": 2}, "1", 2), ({}, "2", 2), ({"budget": 79}, None, 2), ({"noisy": True}, None, 2)],
)
def test_nothing_is_timed_if_the_user_chose_or_the_choice_does_not_pay(
    options: dict[str, Any], omp: str | None, used: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if omp is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", omp)
    victim, batch, declared = case(**options)
    run_attack(declared, victim, batch)
    assert victim.used == {used}
    assert victim.rows["timing"] == 0


def test_other_models_are_not_timed(clock: Clock) -> None:
    victim = rlab.CallableVictim(lambda x: x.reshape(len(x), -1)[:, :3], outputs="logits")
    _, batch, options = case()
    run_attack(options, victim, labelled_by(victim, batch))
    assert victim.rows["timing"] == 0


def test_a_resumed_run_keeps_its_number_and_is_not_timed_again(clock: Clock, tmp_path: Path) -> None:
    victim, batch, options = case()
    whole = run_attack(options, victim, batch, tmp_path / "whole", options.plain())

    def stop(part: Any) -> None:
        if isinstance(part, FinishedRows):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_attack(options, Seeing(), batch, tmp_path / "run", options.plain(), stop)
    clock(0.1)  # now two threads would be faster
    resumed = Seeing()
    assert_same(run_attack(options, resumed, batch, tmp_path / "run", options.plain()), whole)
    assert resumed.rows["timing"] == 0
    assert 1 in resumed.used
    assert AttackResult.load(tmp_path / "run").total_queries == whole.total_queries


def test_another_number_goes_on_with_a_run_and_says_so(clock: Clock, tmp_path: Path) -> None:
    _, batch, options = case(threads=1)

    def stop(part: Any) -> None:
        if isinstance(part, FinishedRows):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_attack(options, Seeing(), batch, tmp_path / "run", options.plain(), stop)
    with pytest.warns(Notice, match="threads=1 and goes on with threads=2"):
        run_attack(case(threads=2)[2], Seeing(), batch, tmp_path / "run", options.plain())


class Noting(nn.Module):
    """Writes the number of threads to a file."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear_surrogate(192).model

    def forward(self, x: Tensor) -> Tensor:
        with Path(os.environ["USED"]).open("a") as file:
            file.write(f"{torch.get_num_threads()}\n")
        answer: Tensor = self.inner(x)
        return answer


@pytest.mark.slow
def test_workers_use_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USED", str(tmp_path / "used"))
    _, batch, _ = case()
    rlab.attack(f"{__name__}:Noting", batch, budget=20, workers=2, threads=3, progress=False)
    assert set((tmp_path / "used").read_text().split()) == {"3"}
