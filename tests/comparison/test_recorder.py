"""Rows that attacks send to the victim, and rows of other libraries' attacks: each is counted, none is beyond the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.comparison import ATTACKS, parse_library
from rlab.comparison.recorder import Decided, QueryRecorder, run_recorded
from rlab.core.rng import sample_seeds, seeded_globals
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.progress import ProgressState
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim
from tests.comparison import planted
from tests.comparison.planted import Brightness, greys

BUDGET = 60


@pytest.fixture(scope="module")
def digits() -> Batch:
    return rlab.load("demo:digits")[:8]


@pytest.fixture
def bright() -> TorchVictim:
    return planted.bright()


def lighten(step: float) -> Any:
    """An attack like a library's: it adds `step` to all samples it still attacks, in one call."""

    def run(ask: QueryRecorder, rows: Tensor) -> None:
        x, y = ask.x, ask.y
        now, left = x.clone(), torch.arange(len(x))
        while len(left):
            now[left] = now[left] + step
            left = left[ask(now[left]).argmax(1) == y[left]]

    return run


def test_decided_samples_count_before_the_last_is_decided(bright: TorchVictim) -> None:
    shares, state = list[str](), ProgressState(3)

    def hear(part: Sized) -> None:
        state.hear(part)
        shares.append(state.share())

    run_recorded(bright, greys(0.36, 0.42, 0.48), 20, lighten(0.03), together=3, progress=hear)
    assert list(dict.fromkeys(shares)) == [f"{done}/3 samples" for done in range(4)]


@pytest.mark.parametrize("together", [1, 10])
def test_rows_of_each_sample_until_its_flip(bright: TorchVictim, together: int) -> None:
    state = ProgressState(4)
    result = run_recorded(
        bright, greys(0.36, 0.42, 0.48, 0.6), 20, lighten(0.03), together=together, progress=state.hear
    )
    assert (state.share(), state.note()) == ("4/4 samples", "3 flipped, 0 held, 1 skipped")
    assert result.attacked.tolist() == [True, True, True, False]  # the last is misclassified
    assert result.queries.tolist() == [6, 4, 2, 1]  # the clean prediction is the first
    assert result.succeeded.tolist() == [True, True, True, False]
    assert result.l2[:3].tolist() == pytest.approx([4 * 0.15, 4 * 0.09, 4 * 0.03], abs=1e-5)
    assert math.isnan(result.l2[3])
    assert bright.rows == {"search": 4 + 9, "verify": 3}
    assert result.rows == 16
    assert [[at for at, _ in flips] for flips in result.improvements] == [[6], [4], [2], []]


@pytest.mark.parametrize("together", [1, 10])
def test_no_row_beyond_the_budget(bright: TorchVictim, together: int) -> None:
    result = run_recorded(bright, greys(0.36, 0.42, 0.48), 5, lighten(0.03), together=together)
    assert result.queries.tolist() == [4, 4, 2]
    assert result.succeeded.tolist() == [False, True, True]
    assert result.charged.tolist() == [5, 4, 2]
    assert bright.rows["search"] == 3 + 7
    assert result.rows == 10 + 2 <= 3 * 5


def test_one_call_of_many_rows_is_cut_at_the_budget(bright: TorchVictim) -> None:
    result = run_recorded(bright, greys(0.1), 6, lambda ask, rows: ask(ask.x.repeat(50, 1, 1, 1)))
    assert bright.rows["search"] == 5
    assert result.queries.tolist() == [5]
    assert not result.succeeded.any()


def test_rows_of_one_sample_in_one_call_stop_at_its_budget(bright: TorchVictim) -> None:
    def run(recorder: QueryRecorder, rows: Tensor) -> None:
        samples = torch.tensor([1, 0, 1, 1, 0, 1])
        scores = recorder.ask(recorder.x[samples], samples)
        assert scores.isnan().any(1).tolist() == [False, False, False, True, False, True]

    result = run_recorded(bright, greys(0.1, 0.2), 4, run, together=2)
    assert result.queries.tolist() == [3, 3]
    assert bright.rows["search"] == 6


def test_an_attack_that_gives_up_early_is_a_failure(bright: TorchVictim) -> None:
    result = run_recorded(bright, greys(0.1), 50, lambda ask, rows: ask(ask.x))
    assert result.queries.tolist() == [2]
    assert result.charged.tolist() == [50]


def test_a_minimiser_counts_by_its_nearest_flip(bright: TorchVictim) -> None:
    def run(ask: QueryRecorder, rows: Tensor) -> None:
        for step in (0.5, 0.2, 0.4, -0.1):
            ask((ask.x + step).clamp(0, 1))

    result = run_recorded(bright, greys(0.4), 50, run, until="budget")
    assert result.queries.tolist() == [5]  # all of them, also those after the nearest flip
    assert result.l2.tolist() == pytest.approx([4 * 0.2], abs=1e-5)
    ((first, second),) = result.improvements  # the third also flips, but farther away
    assert [first[0], second[0]] == [2, 3]
    assert second[1] == pytest.approx(4 * 0.2, abs=1e-5)
    assert result.best_within(2).tolist() == pytest.approx([first[1]])
    assert first[1] > second[1]


def reduced(run: Callable[[QueryRecorder, Tensor], object]) -> Callable[[QueryRecorder, Tensor], object]:
    def both(recorder: QueryRecorder, rows: Tensor) -> None:
        with suppress(Decided):
            run(recorder, rows)
        recorder.reduce()

    return both


@pytest.mark.parametrize("together", [1, 10])
def test_bisection_after_the_flip(bright: TorchVictim, together: int) -> None:
    result = run_recorded(bright, greys(0.36, 0.42), 20, reduced(lighten(0.03)), together=together)
    assert result.queries.tolist() == [16, 14]  # ten halvings
    assert result.l2.tolist() == pytest.approx([4 * 0.14, 4 * 0.08], abs=1e-3)
    assert bright.rows == {"search": 2 + 8, "cleanup": 20, "verify": 2}
    cut = run_recorded(bright, greys(0.36), 9, reduced(lighten(0.03)))
    assert cut.queries.tolist() == [8]


def test_rows_of_unknown_samples_are_refused(bright: TorchVictim) -> None:
    x = greys(0.1, 0.2).x
    recorder = QueryRecorder(bright, x, torch.zeros(2, dtype=torch.int64), 10, "flip", (0.0, 1.0), torch.zeros(2, 2))
    with pytest.raises(OptionError):
        recorder(x.flip(0))


def test_other_bounds_are_scaled() -> None:
    seen = TorchVictim(nn.Sequential(Scale(), Brightness()), outputs="logits", bounds=(0.0, 255.0))
    batch = Batch(greys(0.42).x * 255, torch.zeros(1, dtype=torch.int64), bounds=(0.0, 255.0))
    result = run_recorded(seen, batch, 20, lighten(0.03))
    assert result.queries.tolist() == [4]
    assert result.l2.tolist() == pytest.approx([4 * 0.09], abs=1e-4)


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 255


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"art:square"}))
def test_every_library_attack_counts_its_rows(name: str, digits: Batch) -> None:
    pytest.importorskip(name.split(":")[0])
    victim = demo_victim("digits")
    result = parse_library(name)(victim, digits[:3], BUDGET, 0)
    assert result.rows == sum(victim.rows.values())
    assert int(result.queries.sum()) == victim.rows["search"]
    assert int(result.queries.max()) <= BUDGET
    assert victim.rows["verify"] == int(result.succeeded.sum())


def test_square_at_once_counts_what_the_library_counts(digits: Batch) -> None:
    torchattacks = pytest.importorskip("torchattacks")
    victim = demo_victim("digits")
    result = parse_library("torchattacks:square@1")(victim, digits, BUDGET + 2, 3)

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = victim.model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(victim.reading.arrange(x))

    right = result.attacked.nonzero().flatten()
    x, y, seed = digits.x[right], digits.y[right], int(sample_seeds(3, 0, len(digits))[right[0]]) % 2**31
    attack = torchattacks.Square(Plain().eval(), norm="L2", eps=1.0, n_queries=BUDGET - 2, seed=seed)
    attack.init_hyperparam(x)
    with seeded_globals(attack.seed):
        own, _ = attack.attack_single_run(x.clone(), y)
    assert (
        result.queries[right].tolist() == (own + 2).tolist()
    )  # the library does not count its clean prediction, nor ours
    assert len(set(result.queries.tolist())) > 2  # samples end at different times, so rows had to be identified


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_library_that_fails_is_named(digits: Batch) -> None:
    pytest.importorskip("art")
    with pytest.raises(DataError, match=r"art:square failed on inputs of shape \(1, 1, 8, 8\)"):
        parse_library("art:square")(demo_victim("digits"), digits[:1], BUDGET, 0)  # needs larger images


def test_seeds_are_the_librarys_own(digits: Batch) -> None:
    pytest.importorskip("foolbox")
    victim = demo_victim("digits")
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    runs = [parse_library("foolbox:gaussian_noise@2")(victim, digits, BUDGET, 1) for _ in "ab"]
    assert runs[0].queries.tolist() == runs[1].queries.tolist()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state(legacy=False)["state"]["key"].tolist()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("torchattacks:sqare", "Did you mean 'torchattacks:square'"),
        ("torchattacks:square@", "strength above 0"),
        ("torchattacks:square@-1", "strength above 0"),
        ("torchattacks:square@nan", "strength above 0"),
        ("foolbox:blur@3", "finds its own strength"),
        ("pgd", "unknown attack 'pgd'.* and functions of yours as my_module:my_attack"),
    ],
)
def test_names_that_are_refused(spec: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_library(spec)


def test_attacks_of_libraries_say_what_they_need() -> None:
    assert parse_library("art:simba", reduce=True).needs == ("scores", "free pixels", "reduced by bisection")
    assert parse_library("foolbox:boundary", reduce=True).needs == ("labels", "free pixels")  # it goes on itself
    assert parse_library("foolbox:blur").needs == ("labels", "free pixels")


@pytest.mark.parametrize("data", [rlab.load("demo:ecg", limit=2), replace(greys(0.1), bounds=(-math.inf, math.inf))])
def test_attacks_of_libraries_need_bounded_images(data: Batch) -> None:
    victim = planted.bright()
    with pytest.raises(DataError, match="images with bounds"):
        parse_library("art:simba")(victim, data, 10, 0)
    assert victim.rows.total() == 0
