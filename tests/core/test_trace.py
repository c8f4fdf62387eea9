"""The anytime view: every improvement by hand, when a sample has settled, and how it is kept in a run folder."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, tensor

from rlab.core.env import Accept, AttackEnv, State, StepOutcome, Task, propose, snapshot
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.core.trace import LEAST, WINDOW, Trace, best_within
from rlab.results.result import AttackResult, Status
from rlab.verbs import attack
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter
from tests.helpers import PALETTE, exact_victim, labelled_by, make_batch

IMPROVEMENTS = (((3, 2.0), (5, 1.5), (9, 0.5)), ((4, 1.0),), ())


class Scripted(Victim):
    """Class 0 while the first value is as it was; the margin is one half less the sum of all changes."""

    def _predict(self, x: Tensor) -> Tensor:
        margin = 0.5 - x.flatten(1).sum(1)
        return torch.stack([margin, torch.zeros_like(margin)], 1)


def walk(assignments: list[list[list[int]]], until: Any = "budget") -> tuple[Trace, list[list[bool]], QueryMeter]:
    """Two samples of three values that an entry sets to .4; each proposal is judged, and stays."""
    victim = Scripted(outputs="logits")
    meter = QueryMeter(victim, 2, 999)
    env, trace = AttackEnv(meter.query, Task(PatchGrid((3,), (1,)), 1, Untargeted(), 999)), Trace(2, (0.0, 1.0))
    bank = torch.zeros(2, 2, 1, 3)
    bank[:, 1] = 0.4
    rows = torch.arange(2)
    clean = meter(bank[:, 0], rows, "search")
    state = env.start(torch.zeros(2, dtype=torch.long), rows, rows, bank, torch.ones(2), clean)
    settled = []
    for assignment in assignments:
        state, outcome = env.step(state, propose(tensor(assignment), Accept.ALWAYS))
        after = snapshot(state, outcome)()
        trace.note(state, after, meter)
        settled.append(trace.settled(after, until, meter).tolist())
    return trace, settled, meter


def test_every_nearer_flip_is_noted_with_the_queries_it_took() -> None:
    """Two values flip (.8 against .5), one does not; three are further than two."""
    trace, _, _ = walk([[[1, 0, 0], [1, 1, 1]], [[1, 1, 0], [0, 1, 1]], [[1, 1, 1], [0, 1, 0]], [[0, 1, 1], [1, 1, 0]]])
    two, three = 0.4 * math.sqrt(2), 0.4 * math.sqrt(3)
    assert [[queries for queries, _ in sample] for sample in trace.improvements] == [[3], [2, 3]]
    assert [far for sample in trace.improvements for _, far in sample] == pytest.approx([two, three, two])
    assert trace.best.tolist() == pytest.approx([two, two])
    assert trace.flip["l2"].tolist() == pytest.approx([two, three])  # at the first flip
    assert trace.flip["l0_patches"].tolist() == [2, 3]


def test_until_the_flip_or_the_budget() -> None:
    steps = [[[1, 0, 0], [1, 1, 1]], [[1, 1, 0], [0, 1, 1]]]
    assert walk(steps, "flip")[1] == [[False, True], [True, True]]
    assert walk(steps, "budget")[1] == [[False, False], [False, False]]


def test_steady_waits_for_a_window_without_gain() -> None:
    """Flipped at query 2, nearer at query 5: a window after the first flip nothing, a window after the last gain it is over."""
    steps = (
        [[[1, 1, 1], [0, 0, 0]]]
        + 2 * [[[1, 1, 1], [0, 0, 0]]]
        + [[[1, 1, 0], [0, 0, 0]]]
        + 2 * WINDOW * [[[1, 1, 1]] * 2]
    )
    _, settled, _ = walk(steps, "steady")
    first = next(i for i, (row, _) in enumerate(settled) if row) + 2  # queries so far, the clean one counted
    assert first == 5 + WINDOW
    flip = next(i for i, (_, row) in enumerate(settled) if row) + 2
    assert flip == 6 + WINDOW  # the other sample flipped at query 6 and never came nearer


def steady(improvements: list[tuple[int, float]], queries: int) -> bool:
    trace = Trace(1, (0.0, 1.0))
    trace.improvements[0] = improvements
    return trace._steady(0, queries)


def test_steady_by_hand() -> None:
    assert not steady([], 500)  # never flipped: there is all to gain
    assert not steady([(10, 1.0)], 10 + WINDOW - 1)
    assert steady([(10, 1.0)], 10 + WINDOW)
    enough, little = (1 - LEAST) * 0.999, (1 - LEAST) * 1.001
    last = 9 + WINDOW
    assert not steady([(10, 1.0), (last, enough)], last + 1)
    assert steady([(10, 1.0), (last, little)], last + 1)
    later = 4 * WINDOW
    assert not steady([(10, 1.0), (later - WINDOW - 1, 0.9)], later)  # later the window is a third of all queries
    assert steady([(10, 1.0), (later // 2, 0.9)], later)


def test_best_within_by_hand() -> None:
    inf = math.inf
    expected = {0: [inf] * 3, 3: [2, inf, inf], 4: [2, 1, inf], 5: [1.5, 1, inf], 8: [1.5, 1, inf], 99: [0.5, 1, inf]}
    for queries, distances in expected.items():
        assert best_within(IMPROVEMENTS, queries).tolist() == distances
    assert best_within((), 5).shape == (0,)


@pytest.fixture(scope="module")
def results() -> dict[str, AttackResult]:
    """The same samples, one wrong already, by a baseline and by the belief, until each of the three."""
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 5), wrong=(1,))
    made = {}
    for policy in ("square", "belief"):
        for until in ("flip", "steady", "budget"):
            options: dict[str, Any] = {"palette": PALETTE, "patch": 2, "budget": 45}
            made[f"{policy} {until}"] = attack(victim, batch, policy=policy, until=until, **options)
    return made


NAMES = [f"{policy} {until}" for policy in ("square", "belief") for until in ("flip", "steady", "budget")]


@pytest.mark.parametrize("name", NAMES)
def test_improvements_fall_strictly_and_end_in_what_is_stored(results: dict[str, AttackResult], name: str) -> None:
    result = results[name]
    assert result.succeeded.sum() >= 3
    assert (result.queries.sum(1) <= 45).all()
    for i, improvements in enumerate(result.improvements):
        assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(improvements))
        assert bool(improvements) == (result.status[i] is Status.SUCCEEDED)
        assert all(2 <= queries <= int(result.queries[i, :2].sum()) for queries, _ in improvements)
    won = result.succeeded
    torch.testing.assert_close(result.best_within(45)[won], result.final["l2"][won])
    first = tensor([improvements[0][1] for improvements in result.improvements if improvements])
    torch.testing.assert_close(first, result.flip["l2"][won])
    assert torch.isinf(result.best_within(45)[~won]).all()
    assert torch.isinf(result.best_within(1)).all()  # the clean query flips nobody


def test_until_decides_how_long_a_search_goes_on(results: dict[str, AttackResult]) -> None:
    for policy in ("square", "belief"):
        flip = results[f"{policy} flip"]
        assert all(len(improvements) <= 1 for improvements in flip.improvements)
        for i, improvements in enumerate(flip.improvements):
            if improvements:
                assert improvements[0] == results[f"{policy} budget"].improvements[i][0]
                assert int(flip.queries[i].sum()) == improvements[0][0] + 1  # and the verification
    spent, steady = (results[f"belief {until}"].queries.sum(1) for until in ("budget", "steady"))
    attacked = results["belief budget"].attacked
    assert (spent[attacked] == 45).all()
    assert (steady <= spent).all()
    torch.testing.assert_close(
        results["belief steady"].best_within(20)[attacked], results["belief budget"].best_within(20)[attacked]
    )


def test_what_cleanup_gives_back_is_traced() -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 5))
    result = attack(victim, batch, palette=PALETTE, patch=2, budget=80, policy="greedy(take=4)")
    longest = max(result.improvements, key=len)
    row = result.improvements.index(longest)
    assert len(longest) > 1
    assert longest[0][0] == int(result.queries[row, 0])  # the search ends at the flip
    assert longest[1][0] > int(result.queries[row, 0])


def test_a_run_folder_keeps_the_improvements(results: dict[str, AttackResult], tmp_path: Path) -> None:
    result = results["belief budget"]
    again = AttackResult.load(result.save(tmp_path / "run"))
    assert again.improvements == result.improvements
    assert any(len(improvements) > 1 for improvements in again.improvements)
    for queries in (5, 20, 45):
        assert torch.equal(again.best_within(queries), result.best_within(queries))
    assert again.where(tensor([4, 0])).improvements == (result.improvements[4], result.improvements[0])
    joined = AttackResult.join([again.where(tensor([0, 1])), again.where(tensor([2, 3, 4]))])
    assert joined.improvements == result.improvements


def test_a_row_that_is_not_accepted_is_no_improvement() -> None:
    trace = Trace(1, (0.0, 1.0))
    victim = Scripted(outputs="logits")
    env = AttackEnv(QueryMeter(victim, 1, 9).query, Task(PatchGrid((3,), (1,)), 1, Untargeted(), 9))
    bank, row = torch.zeros(1, 2, 1, 3), torch.arange(1)
    state: State = env.start(row, row, row, bank, torch.ones(1), tensor([[1.0, 0.0]]))
    flipped = replace(state, margin=tensor([-1.0]), distance=tensor([2.0]))
    no, yes = tensor([False]), tensor([True])
    outcome = StepOutcome(no, no, no)
    trace.note(flipped, snapshot(flipped, outcome)(), QueryMeter(victim, 1, 9))
    assert trace.improvements == [[]]
    trace.note(flipped, snapshot(flipped, replace(outcome, accepted=yes))(), QueryMeter(victim, 1, 9))
    assert trace.improvements == [[(0, 2.0)]]


def test_skipped_samples_that_were_queried_again_are_not_held() -> None:
    meter = QueryMeter(exact_victim(2), 3)
    meter.counts[:, 0] = torch.tensor([4, 4, 9])
    tally = Trace(3, (0.0, 1.0), attacked=torch.tensor([False, True, True])).tally(torch.tensor([2]), meter)
    assert (tally.done, tally.skipped, tally.resisted) == (2, 1, 1)
