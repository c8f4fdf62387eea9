"""The whole attack: predict, search, clean up, verify; every way a sample can end, and invalid options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from rlab.core.env import Proposal, State, Task
from rlab.core.goals import Targeted
from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import DataError, InputError, ModelError, Notice, VictimError
from rlab.policies.ball import Ball
from rlab.policies.square import Square
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.verbs import attack
from rlab.victims import CallableVictim
from rlab.victims.account import PHASES
from rlab.victims.failures import Unanswered
from tests.helpers import (
    NAMED_POLICIES,
    PALETTE,
    PATCHES,
    RANKS,
    SIZES,
    FlakyVictim,
    assert_same,
    exact_victim,
    labelled_by,
    make_batch,
    planted,
)

OPTIONS: dict[str, Any] = {"palette": PALETTE, "budget": 60, "policy": "square"}  # square is the quickest policy
Array = np.ndarray[Any, Any]


def run(rank: int = 2, n: int = 8, wrong: tuple[int, ...] = (), **options: Any) -> AttackResult:
    victim = exact_victim(rank)
    return attack(
        victim, labelled_by(victim, make_batch(rank, n), wrong), **{"patch": PATCHES[rank], **OPTIONS, **options}
    )


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("policy", NAMED_POLICIES)
def test_the_planted_patch_is_found_and_nothing_else_is_left(policy: str, rank: int) -> None:
    there = planted(rank)
    options: dict[str, Any] = {
        "palette": ["dead_pixel@0.5", "illuminate@0.3"],
        "patch": PATCHES[rank],
        "distance": "l2",
    }
    result = attack(there.victim, there.batch, policy=policy, budget=500, **options)
    assert set(result.status) == {Status.SUCCEEDED}
    only = torch.zeros(len(there.grid), dtype=torch.bool)
    only[there.patch] = True
    assert torch.equal(result.assignment != 0, only.expand(len(result), -1))
    assert torch.equal(result.masks[0], there.grid.expand(only))
    assert (result.final["l0_patches"] == 1).all()
    assert (result.final["l2"] <= result.flip["l2"]).all()


def test_samples_that_are_already_wrong_cost_one_query_and_stay_unchanged() -> None:
    result = run(n=6, wrong=(1, 4))
    assert [i for i, status in enumerate(result.status) if status is Status.SKIPPED] == [1, 4]
    for i in (1, 4):
        assert result.queries[i].tolist() == [1, *[0] * (len(PHASES) - 1)]
        assert torch.equal(result.perturbed[i], result.original[i])
        assert not result.assignment[i].any()
        assert math.isnan(result.flip["l2"][i])
        assert result.final["l2"][i] == 0


@pytest.mark.parametrize(("goal", "multilabel"), [("multilabel", False), ("untargeted", True)])
def test_goal_and_model_must_agree_on_multiple_labels(goal: str, multilabel: bool) -> None:
    with pytest.raises(ModelError):
        attack(exact_victim(2, multilabel=multilabel), make_batch(2, 2), patch=2, goal=goal, **OPTIONS)


def test_labels_out_of_range_stop_the_run_at_its_first_answer() -> None:
    """Even if the bad label is in a later chunk."""
    victim, batch = exact_victim(2), make_batch(2, 6)
    batch.y[5] = 3
    with pytest.raises(DataError):
        attack(victim, batch, patch=2, chunk=2, **OPTIONS)
    assert victim.rows == {"search": 2}


def test_nan_for_untouched_samples_is_refused() -> None:
    def function(x: Array) -> Array:
        scores = np.zeros((len(x), 2))
        scores[x[:, 0, 0, 0] > 0.5] = np.nan
        return scores

    batch = make_batch(2, 8)
    bad = (batch.x[:, 0, 0, 0] > 0.5).nonzero().flatten().tolist()
    with pytest.raises(ModelError) as caught:
        attack(CallableVictim(function, outputs="logits"), batch, patch=2, **OPTIONS)
    assert f"NaN for {len(bad)} of 8 untouched samples, first '{bad[0]}'" in str(caught.value)


@pytest.mark.parametrize("keep", ["better", "always"])
def test_nan_during_a_search_fails_only_that_sample(keep: Literal["better", "always"]) -> None:
    """Samples with a large last value get NaN once they are distorted."""
    batch = make_batch(2, 8)
    clean = {row.numpy().tobytes() for row in batch.x}

    def function(x: Array) -> Array:
        scores = np.tile([1.0, 0.0], (len(x), 1))
        touched = np.array([row.tobytes() not in clean for row in x])
        scores[touched & (x[:, 0, -1, -1] > 0.5)] = np.nan
        scores[touched & (x[:, 0, -1, -1] <= 0.5)] = [0.0, 1.0]
        return scores

    options: dict[str, Any] = {"patch": (8, 4), "policy": "square(share=0.1)", "palette": ["dead_pixel@0.5"]}
    result = attack(CallableVictim(function, outputs="logits"), batch, accept=keep, budget=30, **options)
    assert set(result.status) == {Status.FAILED, Status.SUCCEEDED}
    failed = torch.tensor([status is Status.FAILED for status in result.status])
    assert result.attacked.all()
    assert (result.queries[failed, PHASES.index("verify")] == 0).all()


def test_a_flip_that_does_not_repeat_is_unverified() -> None:
    """The model errs only on inputs it has not seen before, so the stored input does not flip it again."""
    batch = make_batch(2, 5)
    seen = {row.numpy().tobytes() for row in batch.x}

    def function(x: Array) -> Array:
        known = np.array([row.tobytes() in seen for row in x])
        seen.update(row.tobytes() for row in x)
        return np.stack([known, ~known], 1) * 4.0

    result = attack(CallableVictim(function, outputs="logits"), batch, patch=2, cleanup=False, **OPTIONS)
    assert set(result.status) == {Status.UNVERIFIED}
    assert not result.succeeded.any()
    assert (result.after.argmax(1) == 0).all()  # what the verification saw
    assert (result.queries[:, PHASES.index("verify")] == 1).all()


def test_the_budget_runs_out() -> None:
    def stubborn(x: Array) -> Array:
        return np.tile([1.0, 0.0], (len(x), 1))

    result = attack(CallableVictim(stubborn, outputs="logits"), make_batch(2, 4), patch=2, palette=PALETTE, budget=17)
    assert set(result.status) == {Status.SPENT}
    assert (result.queries.sum(1) == 16).all()  # the query reserved for verification was not needed


@pytest.mark.parametrize("fails", [{1}, {2}, {3}, {4}, {1, 2}, {2, 4}, {1, 3, 5}, {2, 3}, set(range(2, 9, 2))])
@pytest.mark.parametrize(("budget", "noisy"), [(3, False), (4, False), (6, False), (4, True), (6, True)])
def test_repeated_queries_count_towards_the_budget(fails: set[int], budget: int, noisy: bool) -> None:
    """The model flips at the first distortion, but some calls fail and are repeated."""
    there = planted(1, n=1)

    def before(call: int) -> None:
        if call in fails:
            raise Unanswered("no answer")

    victim = FlakyVictim(there.victim, before)
    victim.retries, victim.backoff = 2, 0.0
    made = make_attack(there.batch, patch=24, palette=["dead_pixel@0.5"], budget=budget, noisy=noisy)
    try:
        result = run_attack(made, victim, there.batch)
    except VictimError:  # no answer to the untouched input at all
        assert sum(victim.rows.values()) == victim.calls == budget
        assert fails >= set(range(1, budget + 1))
        return
    assert int(result.queries.sum()) == sum(victim.rows.values()) == victim.calls <= budget
    verified = int(result.queries[0, PHASES.index("verify")])
    assert (result.status[0] is Status.LOST) == (budget in fails and victim.calls == budget)
    assert result.status[0] in (Status.SUCCEEDED, Status.SPENT, Status.LOST)
    assert (result.status[0] is Status.SUCCEEDED) == (bool(verified) and result.status[0] is not Status.LOST)
    assert torch.isfinite(result.after).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": 1}, "a budget of 1 queries per sample is below the cost of one step, which is 3 here"),
        ({"budget": 2}, "a budget of 2 queries per sample is below the cost of one step, which is 3 here"),
        ({"patch": 9}, "the patch .* is larger than the input"),
        ({"palette": []}, "at least one filter"),
        ({"palette": ["gausian_noise"]}, "Did you mean 'gaussian_noise'"),
        ({"policy": "randon"}, "Did you mean 'random'"),
        ({"goal": "sideways"}, "expected a goal like"),
        ({"accept": "worst"}, "'accept' .*is not valid: .*'better' or 'always'"),
        ({"chunk": -1}, "'chunk' .*is not valid"),
        ({"budget": 0}, "'budget' .*is not valid"),
        ({"palette": [lambda x, severity, generator: x + severity]}, "the filter '.*' returned values up to"),
    ],
)
def test_invalid_options_are_refused_before_any_query(options: dict[str, Any], sentence: str) -> None:
    victim = exact_victim(2)
    with pytest.raises(InputError, match=sentence):
        attack(victim, make_batch(2, 2), **{"patch": 2, **OPTIONS, **options})
    assert not victim.rows


@pytest.mark.parametrize("rank", RANKS)
def test_defaults_depend_on_the_kind_of_data(rank: int) -> None:
    batch = make_batch(rank, 2)
    made = make_attack(batch)
    assert made.budget == {1: 1000, 2: 1000, 3: 10_000}[rank]
    assert len(made.palette) >= (2 if rank == 1 else 4)  # values in a row with bounds and no rate need be no signal
    assert made.grid.size == SIZES[rank]
    assert make_attack(batch, goal=Targeted(1)).goal == Targeted(1)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("policy", NAMED_POLICIES)
def test_chunks_change_nothing_but_memory(policy: str, rank: int) -> None:
    options: dict[str, Any] = {"n": 5, "wrong": (2,), "policy": policy, "budget": 40 if policy == "greedy" else 20}
    whole, parts = run(rank, **options, chunk=64), run(rank, **options, chunk=2)  # the last chunk is a single sample
    assert whole.succeeded.any()
    assert_same(parts, whole)
    assert parts.improvements == whole.improvements


@pytest.mark.parametrize("policy", ["square", "belief"])
def test_the_same_seed_gives_the_same_run_and_another_does_not(policy: str) -> None:
    one, same, other = (run(seed=seed, policy=policy, budget=30) for seed in (5, 5, 6))
    assert_same(one, same)
    assert one.improvements == same.improvements
    assert not torch.equal(one.perturbed, other.perturbed)
    assert not torch.equal(one.seeds, other.seeds)


def test_without_cleanup_the_first_flip_is_stored() -> None:
    result = run(policy="greedy", budget=80, cleanup=False)
    won = result.succeeded
    assert won.any()
    assert (result.queries[:, PHASES.index("cleanup")] == 0).all()
    for name, values in result.flip.items():
        assert torch.equal(values[won], result.final[name][won])


def test_cleanup_only_restores_patches() -> None:
    before, after = (run(policy="greedy(take=6)", budget=80, cleanup=cleanup) for cleanup in (False, True))
    won = before.succeeded & after.succeeded
    kept = after.assignment[won] != 0
    assert won.any()
    assert torch.equal(after.assignment[won][kept], before.assignment[won][kept])
    assert kept.sum() < (before.assignment[won] != 0).sum()


def test_a_distance_penalty_gives_smaller_changes() -> None:
    """The search restores patches that cost more distance than they gain margin."""
    free, dear = (run(n=16, budget=200, policy="random", l2_penalty=l2_penalty) for l2_penalty in (0.0, 0.5))
    both = free.succeeded & dear.succeeded
    assert both.any()
    assert dear.flip["l2"][both].mean() < free.flip["l2"][both].mean()


def test_inputs_may_have_any_memory_layout() -> None:
    victim, batch = exact_victim(2), make_batch(2, 3)
    turned = replace(labelled_by(victim, batch), x=batch.x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2))
    assert not turned.x.is_contiguous()
    straight = attack(victim, labelled_by(victim, batch), palette=PALETTE, patch=2, budget=50)
    assert_same(attack(victim, turned, palette=PALETTE, patch=2, budget=50), straight)


def test_signals_without_bounds_keep_their_unit() -> None:
    batch = make_batch(1, 6)
    millivolts = Batch(x=8 * batch.x - 4, y=batch.y, bounds=UNBOUNDED, unit="mV", rate=360.0)
    victim = exact_victim(1, bounds=UNBOUNDED)
    result = attack(victim, labelled_by(victim, millivolts), palette=["gaussian_noise@0.3"], patch=4, budget=100)
    assert result.succeeded.any()
    assert result.setting.bounds == UNBOUNDED
    assert result.final["map255"].isnan().all()
    change = (result.perturbed - result.original).flatten(1).norm(dim=1)
    torch.testing.assert_close(result.final["l2"], change)


def test_the_result_describes_the_run() -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 3))
    result = attack(victim, batch, palette=PALETTE, patch=2, budget=50, policy="square(share=0.2)", seed=9)
    assert result.setting.palette == ("gaussian_noise@0.3", "dead_pixel@0.5")
    assert result.setting.policy == "square(share=0.2)"
    assert (result.setting.size, result.setting.patch, result.setting.budget) == ((8, 8), (2, 2), 50)
    assert result.setting.seed == 9
    assert result.ids == batch.ids
    assert torch.equal(result.original, batch.x)
    torch.testing.assert_close(result.before, victim.probabilities(victim(batch.x)))
    torch.testing.assert_close(result.after, victim.probabilities(victim(result.perturbed)))


def test_flips_of_a_model_that_depends_on_the_batch_hold_alone() -> None:
    """Without more queries than others take: those of the verification show it."""
    inner, x = exact_victim(2), make_batch(2, 8).x

    def relative(rows: Tensor) -> Tensor:
        return inner._predict((rows - rows.mean(0) / 2).clamp(0, 1))

    victim = CallableVictim(lambda rows: relative(torch.from_numpy(rows)).numpy())
    y = relative(x).argmax(1)
    with pytest.warns(Notice, match="Each flip was verified alone"):
        result = attack(victim, (x, y), patch=PATCHES[2], palette=PALETTE, budget=30)
    alone = torch.cat([relative(row[None]).argmax(1) for row in result.perturbed])
    assert (alone != y)[result.succeeded].all()
    assert Status.UNVERIFIED in result.status
    assert sum(victim.rows.values()) == int(result.queries.sum())
    assert int(result.queries.max()) <= 30


class Observing(Square):
    """Square, which notes how often it was called."""

    calls: ClassVar[list[str]] = []

    def observe(self, state: State, memory: Ball, task: Task) -> Ball:
        self.calls.append("observe")
        return super().observe(state, memory, task)

    def propose(self, state: State, memory: Ball, task: Task) -> Proposal[Ball]:
        self.calls.append("propose")
        return super().propose(state, memory, task)


def test_a_policy_observes_each_answer_before_it_proposes_again() -> None:
    result = run(policy=Observing(), until="budget", budget=10)
    searched = int(result.queries.sum(1).max()) - 2  # without the clean prediction and the verification
    assert Observing.calls == ["propose", *["observe", "propose"] * (searched - 1)]
