"""Counting, budgets, memory and the reading of scores, apart from any kind of model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlab.errors import BudgetError, InputError, VictimError
from rlab.victims import CallableVictim
from rlab.victims.answers import looks_like_probabilities
from rlab.victims.base import Victim
from rlab.victims.failures import Unanswered
from rlab.victims.meter import QueryMeter
from rlab.victims.reading import Outputs

X = torch.linspace(0, 1, 8).view(8, 1, 1)


class Scripted(Victim):
    """Answers with a function of its rows."""

    backoff = 0.0

    def __init__(
        self,
        answer: Callable[[Tensor], Tensor],
        *,
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int = 256,
        retries: int = 0,
    ) -> None:
        super().__init__(outputs=outputs, multilabel=multilabel, chunk=chunk)
        self.answer, self.retries = answer, retries

    def _predict(self, x: Tensor) -> Tensor:
        return self.answer(x)


def test_large_inputs_go_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    victim = Scripted(lambda x: asked.append(len(x)) or two_logits(x))  # type: ignore[func-returns-value]
    monkeypatch.setattr("rlab.victims.base._CHUNK_BYTES", 3 * X[0].nbytes)
    whole = victim(X)
    assert asked == [3, 3, 2]
    assert victim.describe().startswith("Scripted on cpu, takes values in")
    monkeypatch.setattr("rlab.victims.base._CHUNK_BYTES", 1)
    assert torch.equal(victim(X), whole)
    assert asked[3:] == [1] * 8
    assert victim.rows == {"search": 16}


def two_logits(x: Tensor) -> Tensor:
    first = x.flatten(1)[:, :1]
    return torch.cat([first * 3, -first], 1)


@given(
    budget=st.integers(0, 6),
    chunk=st.integers(1, 5),
    retries=st.integers(0, 2),
    calls=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), max_size=6),
    fails=st.lists(st.booleans(), max_size=20),
)
def test_whatever_happens_no_sample_gets_more_than_its_budget(
    budget: int, chunk: int, retries: int, calls: list[list[int]], fails: list[bool]
) -> None:
    seen: Counter[int] = Counter()
    failures = iter(fails)

    def answer(x: Tensor) -> Tensor:
        seen.update((x.flatten() * 4).round().int().tolist())  # a row's value tells whose it is
        if next(failures, False):
            raise Unanswered("no answer")
        return two_logits(x)

    meter = QueryMeter(Scripted(answer, chunk=chunk, retries=retries), samples=4, budget=budget)
    for samples in calls:
        try:
            meter(torch.tensor(samples).view(-1, 1, 1) / 4, torch.tensor(samples), "search")
        except (BudgetError, VictimError):
            continue
    assert all(seen[sample] <= budget for sample in range(4))
    assert meter.counts[:, 0].tolist() == [seen[sample] for sample in range(4)]
    assert meter.victim.rows["search"] == sum(seen.values())


def test_without_a_budget_rows_are_counted_all_the_same() -> None:
    meter = QueryMeter(Scripted(two_logits), samples=2)
    meter(X[:3], torch.tensor([1, 1, 0]), "train")
    assert meter.spent(torch.tensor([0, 1])).tolist() == [1, 2]
    assert meter.left(torch.tensor([0])).tolist() == [math.inf]
    assert meter.victim.rows == {"train": 3}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_running_out_of_memory_halves_the_chunk_and_goes_on(error: Exception) -> None:
    asked: list[int] = []

    def answer(x: Tensor) -> Tensor:
        asked.append(len(x))
        if len(x) > 3:
            raise error
        return two_logits(x)

    victim = Scripted(answer)
    meter = QueryMeter(victim, samples=8)
    assert torch.equal(meter(X, torch.arange(8), "search"), two_logits(X).log_softmax(1))
    assert victim.chunk == 2
    assert asked == [8, 4, 2, 2, 2, 2]
    assert victim.rows == {"search": 20}  # what reached the model and had to be sent again counts again
    assert meter.counts[:, 0].tolist() == [3, 3, 3, 3, 2, 2, 2, 2]


def test_out_of_memory_on_one_row_is_a_sentence() -> None:
    def answer(x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(VictimError, match="out of memory"):
        Scripted(answer)(X)


def test_a_number_of_classes_that_changes_is_refused() -> None:
    victim = Scripted(lambda x: torch.zeros(len(x), 2 + len(x)))
    victim(X[:1])
    assert victim.classes == 3
    with pytest.raises(VictimError, match="4 scores"):
        victim(X[:2])


def test_probabilities_are_told_from_logits() -> None:
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    from_logits, from_probabilities = Scripted(lambda x: logits), Scripted(lambda x: logits.softmax(1))
    assert torch.allclose(from_logits(X), from_probabilities(X), atol=1e-5)
    assert (from_logits.outputs, from_probabilities.outputs) == ("logits", "probabilities")


def test_a_row_of_nan_does_not_mislead_the_detection() -> None:
    answer = two_logits(X).softmax(1)
    answer[2] = math.nan
    victim = Scripted(lambda x: answer)
    scores = victim(X)
    assert victim.outputs == "probabilities"
    assert scores.isnan().any(1).nonzero().flatten().tolist() == [2]
    assert torch.allclose(scores[0], answer[0].log())


def test_nan_alone_leaves_the_question_open() -> None:
    answers = iter([torch.full((8, 2), math.nan), two_logits(X).softmax(1)])
    victim = Scripted(lambda x: next(answers))
    seen = []
    for _ in range(2):
        seen.append((bool(victim(X).isnan().all()), victim.outputs))
    assert seen == [(True, "auto"), (False, "probabilities")]


@pytest.mark.parametrize("value", [1.5, -0.2, math.inf])
def test_declared_probabilities_outside_0_to_1_are_refused(value: float) -> None:
    victim = Scripted(lambda x: torch.full((8, 2), value), outputs="probabilities")
    with pytest.raises(VictimError, match="outputs='logits'"):
        victim(X)


def test_declared_logits_that_look_like_probabilities_are_taken_as_logits() -> None:
    answer = torch.tensor([[0.25, 0.75]]).expand(8, 2)
    assert torch.allclose(Scripted(lambda x: answer, outputs="logits")(X), answer.log_softmax(1))


def test_several_labels_come_out_as_log_odds() -> None:
    odds = torch.tensor([[-2.0, 0.5, 3.0]]).expand(8, 3)
    for answer in (odds, odds.sigmoid()):
        victim = Scripted(lambda x, answer=answer: answer, multilabel=True)  # type: ignore[misc]
        assert torch.allclose(victim(X), odds, atol=1e-4)
        assert torch.allclose(victim.probabilities(victim(X)), odds.sigmoid(), atol=1e-5)
    certain = Scripted(lambda x: torch.tensor([[0.0, 1.0]]).expand(8, 2), multilabel=True)
    assert torch.isfinite(certain(X)).all()


def test_probabilities_of_zero_stay_finite() -> None:
    victim = Scripted(lambda x: torch.tensor([[0.0, 1.0]]).expand(8, 2))
    assert torch.isfinite(victim(X)).all()
    assert victim.probabilities(victim(X))[0, 1] == 1


def test_looks_like_probabilities_needs_rows_that_sum_to_one() -> None:
    assert looks_like_probabilities(torch.tensor([[0.2, 0.8]]), multilabel=False)
    assert not looks_like_probabilities(torch.tensor([[0.2, 0.7]]), multilabel=False)
    assert looks_like_probabilities(torch.tensor([[0.2, 0.7]]), multilabel=True)
    assert not looks_like_probabilities(torch.tensor([[0.2, 1.7]]), multilabel=True)


@pytest.mark.parametrize(
    "options",
    [
        {"bounds": (1.0, 0.0)},
        {"chunk": 0},
        {"outputs": "softmax"},
        *[{"timeout": value} for value in (0, -1, math.nan, math.inf, "x")],
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InputError, match=name):
        CallableVictim(lambda x: x, **options)
