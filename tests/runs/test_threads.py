"""A run chooses its number of threads by the size of the model, and keeps the number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.data.batch import Batch
from rlab.errors import Notice
from rlab.runs import threads
from rlab.runs.attack import run_attack
from rlab.runs.chunk_work import FinishedRows
from rlab.runs.options import AttackOptions
from rlab.runs.threads import fitting_threads, use_threads
from rlab.storage.config import check
from rlab.storage.run_file import read_versions
from tests.helpers import PALETTE, assert_same, labelled_by, linear_surrogate, make_batch


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with use_threads(2):
        yield
        assert torch.get_num_threads() == 2  # as it was


class Seeing(rlab.TorchVictim):  # type: ignore[misc]  # notes what a final class sees
    """Notes the numbers of threads of all queries."""

    def __init__(self) -> None:
        super().__init__(linear_surrogate(192).model, outputs="logits")
        self.used: set[int] = set()

    def __call__(self, *given: Any, **further: Any) -> Tensor:  # type: ignore[misc]
        self.used.add(torch.get_num_threads())
        return super().__call__(*given, **further)


def case(**options: Any) -> tuple[Seeing, Batch, AttackOptions]:
    given = {
        "patch": (2, 2),
        "palette": PALETTE,
        "budget": 20,
        "chunk": 3,
        "until": "flip",
        "policy": "random",
        **options,
    }
    return Seeing(), labelled_by(linear_surrogate(192), make_batch(2, 5)), check(AttackOptions, given)


@pytest.mark.parametrize(("values", "inside"), [(16, 1), (2**14, 2)])
def test_small_models_use_one_thread(values: int, inside: int) -> None:
    victim = rlab.TorchVictim(nn.Linear(values, 2), bounds=(0, 1))
    assert (
        fitting_threads(victim, Batch(torch.zeros(1, 1, values), torch.zeros(1, dtype=torch.int64), ("a",))) == inside
    )


@pytest.mark.parametrize(("options", "omp", "used"), [({}, None, 1), ({"threads": 2}, "1", 2), ({}, "2", 2)])
def test_the_user_chooses_or_else_the_size_of_the_model(
    options: dict[str, Any], omp: str | None, used: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if omp is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", omp)
    victim, batch, declared = case(**options)
    run_attack(declared, victim, batch, tmp_path / "run", declared.plain())
    assert victim.used == {used}
    assert read_versions(tmp_path / "run")["threads"] == str(used)


def stop(part: Any) -> None:
    if isinstance(part, FinishedRows):
        raise KeyboardInterrupt


def test_a_resumed_run_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, batch, options = case()
    whole = run_attack(options, victim, batch, tmp_path / "whole", options.plain())
    with pytest.raises(KeyboardInterrupt):
        run_attack(options, Seeing(), batch, tmp_path / "run", options.plain(), stop)
    monkeypatch.setattr(threads, "SMALL", 0)  # now all threads would fit
    resumed = Seeing()
    assert_same(run_attack(options, resumed, batch, tmp_path / "run", options.plain()), whole)
    assert resumed.used == {1}


def test_another_number_goes_on_with_a_run_and_says_so(tmp_path: Path) -> None:
    _, batch, options = case(threads=1)
    with pytest.raises(KeyboardInterrupt):
        run_attack(options, Seeing(), batch, tmp_path / "run", options.plain(), stop)
    with pytest.warns(Notice, match="begun with threads 1 and goes on with threads 2"):
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
