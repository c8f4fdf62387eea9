"""Students learn a victim from its answers, in every rank and for every kind of answer, and the same ones again."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from rlab.errors import DataError
from rlab.learning.answers import Answers, source_names
from rlab.learning.distil import agreement, distil, keep_aside, steps_for, vary
from rlab.learning.simulator import Simulator
from rlab.learning.students import ARCHITECTURES
from tests.learning.toys import CPU, agreement_of, answers_about, bright_batch, linear_victim, small_students


def learned(rank: int = 2, n: int = 200, seed: int = 0, steps: int = 40, **victim: bool) -> Simulator:
    teacher = linear_victim(**victim)
    answers = answers_about(teacher, bright_batch(rank, n))
    with small_students(steps):
        return distil(answers, (0.0, 1.0), multilabel=teacher.multilabel, seed=seed, device=CPU)


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_students_agree_with_a_linear_victim(rank: int) -> None:
    simulator = learned(rank)
    assert agreement_of(simulator, linear_victim(), bright_batch(rank, 200, seed=1)) >= 0.9
    assert simulator.card.agreement >= 0.8
    assert len(simulator.card.agreements) == len(simulator.students) >= 3


def test_the_agreement_on_clean_inputs_ignores_distorted_ones() -> None:
    batch = bright_batch(1, 160)
    scores = linear_victim()(batch.x, "learn")
    noisy = torch.randn(scores.shape, generator=torch.Generator().manual_seed(0))
    distorted = torch.tensor([False] * len(batch) + [True] * len(batch))
    answers = Answers(torch.cat([batch.x, 1 - batch.x]), torch.cat([scores, noisy]), distorted=distorted)
    with small_students():
        card = distil(answers, (0.0, 1.0), multilabel=False, seed=0, device=CPU).card
    assert card.clean_agreement is not None
    assert card.clean_agreement > card.agreement + 0.1


@pytest.mark.parametrize("kind", ["multilabel", "labels"])
def test_several_labels_and_labels_alone(kind: str) -> None:
    victim = {kind: True}
    with mock.patch.dict(ARCHITECTURES, {"image": ("plain",)}):
        simulator = learned(**victim)
    assert agreement_of(simulator, linear_victim(**victim), bright_batch(2, 200, seed=1)) >= 0.85


def test_the_same_answers_give_the_same_file() -> None:
    first = learned(rank=2, n=64, steps=3)
    assert learned(rank=2, n=64, steps=3).content() == first.content()
    assert learned(rank=2, n=64, steps=3, seed=1).digest != first.digest


def test_students_go_on_from_earlier_ones() -> None:
    first, answers = learned(rank=1, n=64, steps=20), answers_about(linear_victim(), bright_batch(1, 96))
    with small_students(steps=4):
        more = distil(answers, (0.0, 1.0), multilabel=False, seed=0, device=CPU, start=first)
        fresh = distil(answers, (0.0, 1.0), multilabel=False, seed=0, device=CPU)
    assert more.card.students == first.card.students
    test = bright_batch(1, 300, seed=2)
    assert agreement_of(more, linear_victim(), test) > agreement_of(fresh, linear_victim(), test)


def test_copies_of_an_input_stay_on_one_side() -> None:
    source = tuple(f"input {i % 400}" for i in range(1200))
    aside = keep_aside(source, seed=0)
    names = {name for name, kept in zip(source, aside.tolist(), strict=True) if kept}
    assert len(names) == 40
    assert int(aside.sum()) == 120
    assert not keep_aside(source, seed=1).equal(aside)


def test_at_least_32_inputs_are_kept_aside_if_there_are_enough() -> None:
    assert [int(keep_aside(tuple(map(str, range(n))), 0).sum()) for n in (8, 100, 128, 200)] == [2, 25, 32, 32]


def test_too_few_inputs() -> None:
    with pytest.raises(DataError, match="at least 8 different inputs"):
        keep_aside(("a", "b") * 40, 0)


def test_agreement_counts_decisions() -> None:
    scores, wanted = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([[2.0, 1.0], [-1.0, -3.0]])
    assert agreement(scores, wanted, multilabel=False) == 1.0
    assert agreement(scores, wanted, multilabel=True) == 0.5


def test_steps_depend_on_counts_only() -> None:
    cpu = torch.device("cpu")
    assert steps_for(100, cpu) <= steps_for(3500, cpu) <= steps_for(100_000, cpu)
    assert steps_for(3500, cpu, again=True) == steps_for(3500, cpu) // 2


@pytest.mark.parametrize("size", [(16,), (8, 16), (4, 8, 16)])
def test_variations_move_values_without_changing_them(size: tuple[int, ...]) -> None:
    x = torch.rand(8, 2, *size)
    varied = vary(x)
    assert not varied.equal(x)
    assert varied.flatten(2).sort(2).values.equal(x.flatten(2).sort(2).values)


def test_answers_join_and_name_equal_inputs_alike() -> None:
    x = torch.rand(3, 1, 8)
    one, two = Answers(x, torch.zeros(3, 2), queries=3), Answers(x[:1], torch.ones(1, 2), origins=("a run",))
    both = Answers.join([one, two])
    assert both.source[3] == both.source[0] == source_names(x)[0]
    assert (len(both), both.queries, both.origins, both.changed.any().item()) == (4, 3, ("a run",), False)
    with pytest.raises(DataError, match="one shape"):
        Answers.join([one, Answers(torch.rand(3, 1, 9), torch.zeros(3, 2))])
