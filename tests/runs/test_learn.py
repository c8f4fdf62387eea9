"""Learning a simulator: exact budgets, the same file after a stop, answers of earlier runs, and attacks that use it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import rlab
from rlab.data.batch import Batch
from rlab.errors import FolderError, InputError, OptionError
from rlab.learning.simulator import FILE, SIMULATOR
from rlab.results.page import summary_blocks
from rlab.results.result import AttackResult
from rlab.victims.torch_module import TorchVictim
from tests.command import rlab_command
from tests.helpers import PALETTE, PATCHES, FlakyVictim, assert_same, labelled_by
from tests.learning.toys import bright_batch, linear_victim, small_students

HOW: dict[str, Any] = {"palette": PALETTE, "patch": PATCHES[2]}
ATTACK: dict[str, Any] = {**HOW, "budget": 6, "until": "budget", "policy": "belief"}


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_students(steps=2), mock.patch("rlab.learning.ENOUGH", 0.0):  # two steps are too few to agree
        yield


def samples(victim: TorchVictim, n: int = 8) -> Batch:
    return labelled_by(victim, bright_batch(2, n))


@pytest.mark.parametrize("queries", [32, 75])
def test_the_budget_is_spent_exactly(queries: int, tmp_path: Path) -> None:
    victim = linear_victim()
    card = rlab.learn(victim, bright_batch(2, 40), queries=queries, out=tmp_path / "sim", **HOW).card
    assert dict(victim.rows) == {"learn": queries}
    assert (card.queries, card.clean, card.distorted) == (queries, min(queries, 40), max(0, queries - 40))


def test_too_few_inputs_are_refused_before_the_first_query() -> None:
    victim = linear_victim()
    with pytest.raises(InputError, match="at least 8 inputs"):
        rlab.learn(victim, bright_batch(2, 7), queries=32, **HOW)
    assert not victim.rows


def test_inputs_need_no_labels() -> None:
    x = bright_batch(2, 40).x
    card = rlab.learn(linear_victim(), x, queries=32, **HOW).card
    assert rlab.learn(linear_victim(), x.numpy(), queries=32, **HOW).card == card


def test_lost_answers_count_and_are_left_out() -> None:
    class Lossy(rlab.Victim):
        """Loses its second request for good."""

        retries, calls = 1, 0

        def _predict(self, x: torch.Tensor) -> torch.Tensor:
            from rlab.victims.failures import Unanswered

            self.calls += 1
            if self.calls == 2:
                raise Unanswered("lost")
            scores: torch.Tensor = linear_victim().model(x)
            return scores

    victim = Lossy(outputs="logits")
    card = rlab.learn(victim, bright_batch(2, 100), queries=100, **HOW).card
    assert victim.rows["learn"] <= 100
    assert card.queries == victim.rows["learn"]
    assert card.clean < 100


def test_a_stopped_run_goes_on_without_repeating_queries(tmp_path: Path) -> None:
    def stop(call: int) -> None:
        if call == int(os.environ.get("STOP_AT", "-1")):
            raise ConnectionError("gone")

    batch = bright_batch(2, 200)
    whole = rlab.learn(linear_victim(), batch, queries=200, out=tmp_path / "whole", **HOW)
    stopped, victim = (FlakyVictim(linear_victim(), stop) for _ in range(2))
    with mock.patch.dict(os.environ, STOP_AT="3"), pytest.raises(rlab.VictimError):
        rlab.learn(stopped, batch, queries=200, out=tmp_path / "stopped", **HOW)
    again = rlab.learn(victim, batch, queries=200, out=tmp_path / "stopped", **HOW)
    assert stopped.rows["learn"] + victim.rows["learn"] == 200 + 64  # what was on its way is queried again, no more
    assert again.digest == whole.digest
    rlab.learn(victim, batch, queries=200, out=tmp_path / "stopped", **HOW)
    assert victim.rows["learn"] == 200 - 128
    with pytest.raises(FolderError, match="queries differs"):
        rlab.learn(victim, batch, queries=100, out=tmp_path / "stopped", **HOW)


def test_an_attack_uses_a_simulator_and_says_what_it_cost(tmp_path: Path) -> None:
    victim = linear_victim()
    batch = samples(victim)
    rlab.learn(victim, bright_batch(2, 40, seed=1), queries=50, out=tmp_path / "sim", **HOW)
    spent = victim.rows.total()
    result = rlab.attack(victim, batch, simulator=str(tmp_path / "sim"), out=tmp_path / "run", **ATTACK)
    assert result.setting.policy == "belief with 3 students"
    assert "50 queries before this run" in str(result)
    assert any("50 queries before this run" in str(block) for block in summary_blocks(result))
    assert result.summary()["queries"] == victim.rows.total() - spent  # learning was paid for before
    assert AttackResult.load(tmp_path / "run").setting == result.setting
    in_memory = rlab.attack(victim, batch, simulator=rlab.read_simulator(tmp_path / "sim"), **ATTACK)
    assert_same(in_memory, result)


def test_auto_imagines_with_students() -> None:
    victim = linear_victim()
    simulator = rlab.learn(victim, bright_batch(2, 40), queries=32, **HOW)
    with mock.patch("rlab.policies.imagine.policy.STEPS", 2):
        result = rlab.attack(victim, samples(victim, 2), simulator=simulator, budget=5, **HOW)
    assert result.setting.policy == "auto -> imagine with 3 students"


@pytest.mark.parametrize(("agreement", "left_out"), [(0.32, True), (0.75, False)])
def test_students_that_agree_too_rarely_are_left_out(agreement: float, left_out: bool) -> None:
    """The search is then the same as without them, and says so before it begins."""
    victim = linear_victim()
    batch, given = samples(victim, 2), rlab.learn(victim, bright_batch(2, 40), queries=32, **HOW)
    weak = replace(given, card=given.card.model_copy(update={"agreement": agreement}))
    with mock.patch("rlab.policies.imagine.policy.STEPS", 2), mock.patch("rlab.learning.ENOUGH", 0.75):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = rlab.attack(victim, batch, simulator=weak, budget=6, **HOW)
        assert any("leaves them out" in str(each.message) for each in said) == left_out
        assert ("students" not in result.setting.policy) == ("left them out" in str(result)) == left_out
        if left_out:
            assert_same(replace(rlab.attack(victim, batch, budget=6, **HOW), setting=result.setting), result)


def test_students_of_another_model_leave_the_search_as_it_is() -> None:
    """Where they fail on the untouched input, `auto` goes on as if it were alone."""
    victim = linear_victim()
    batch, given = samples(victim, 6), rlab.learn(victim, bright_batch(2, 40), queries=32, **HOW)
    batch = batch[(batch.y != 1).nonzero().flatten().tolist()]
    for student in given.students:
        torch.nn.init.zeros_(student.last.weight)
        student.last.bias.data = torch.tensor([-9.0, 9.0, -9.0])  # always class 1
    with mock.patch("rlab.policies.imagine.policy.STEPS", 2):
        result = rlab.attack(victim, batch, simulator=given, budget=8, until="budget", **HOW)
    assert "imagine" in result.setting.policy
    assert_same(replace(rlab.attack(victim, batch, budget=8, until="budget", **HOW), setting=result.setting), result)


def test_training_says_how_far_it_is_and_what_it_costs() -> None:
    said = list[str]()
    with mock.patch.multiple("rlab.learning.distil", FIRST_STEPS=1):
        rlab.learn(linear_victim(), bright_batch(2, 40), queries=32, progress=False, tell=said.append, **HOW)
    assert sum("agrees on" in line and " s on " in line for line in said) == 3


def test_a_run_belongs_to_its_simulator(tmp_path: Path) -> None:
    victim = linear_victim()
    batch = samples(victim)
    for seed in (0, 1):
        rlab.learn(victim, batch, queries=32, seed=seed, out=tmp_path / f"sim{seed}", **HOW)
    rlab.attack(victim, batch, simulator=str(tmp_path / "sim0"), out=tmp_path / "run", **ATTACK)
    (tmp_path / "sim0" / FILE).write_bytes((tmp_path / "sim1" / FILE).read_bytes())
    with pytest.raises(FolderError, match="another configuration"):
        rlab.attack(victim, batch, simulator=str(tmp_path / "sim0"), out=tmp_path / "run", **ATTACK)


@pytest.mark.parametrize("surrogates", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_students_join_surrogates_and_serve_free_pixels(surrogates: int) -> None:
    victim = linear_victim()
    batch = samples(victim)
    simulator = rlab.learn(victim, batch, queries=32, **HOW)
    given: dict[str, Any] = {"surrogate": linear_victim().model} if surrogates else {}
    result = rlab.attack(victim, batch[:2], simulator=simulator, palette="pixels", budget=5, **given)
    named = "surrogates LinearNet and " if surrogates else ""
    assert result.setting.policy == f"auto -> pixels with {named}3 students"


@pytest.mark.slow
def test_learning_within_an_attack_counts_for_its_total(tmp_path: Path) -> None:
    victim = linear_victim()
    batch = samples(victim)
    result = rlab.attack(victim, batch, learn=40, out=tmp_path / "run", **ATTACK)
    assert victim.rows["learn"] == 40
    assert result.summary()["queries"] == victim.rows.total()
    assert result.learning_queries == AttackResult.load(tmp_path / "run").learning_queries == 40
    assert "40 queries in this run" in str(result)
    assert (tmp_path / "run" / SIMULATOR / FILE).exists()
    assert_same(rlab.attack(victim, batch, learn=40, **ATTACK), result)
    before = victim.rows.total()
    rlab.attack(victim, batch, learn=40, out=tmp_path / "run", **ATTACK)
    assert victim.rows.total() == before
    with pytest.raises(FolderError):  # before anything is spent on learning
        rlab.attack(victim, batch, learn=50, out=tmp_path / "run", **ATTACK)
    assert victim.rows.total() == before


def test_answers_of_earlier_runs_cost_nothing(tmp_path: Path) -> None:
    victim = linear_victim()
    batch = samples(victim)
    run = rlab.attack(victim, batch, out=tmp_path / "run", **ATTACK)
    spent, changed = victim.rows.total(), int((run.perturbed != run.original).flatten(1).any(1).sum())
    simulator = rlab.learn(earlier=[tmp_path / "run"], out=tmp_path / "sim")
    card = simulator.card
    assert victim.rows.total() == spent
    assert (card.queries, card.clean, card.distorted) == (0, len(batch), changed)
    both = rlab.learn(victim, bright_batch(2, 40, seed=1), queries=32, earlier=[tmp_path / "run"], **HOW).card
    assert (both.queries, both.answers) == (32, 32 + len(batch) + changed)
    with pytest.raises(InputError, match="shape"):
        rlab.learn(linear_victim(), bright_batch(1, 40), queries=32, earlier=[tmp_path / "run"])


def test_both_a_simulator_and_learning_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="leave out one"):
        rlab.attack(linear_victim(), bright_batch(2, 4), simulator="sim.safetensors", learn=40)
    with pytest.raises(OptionError, match="only for `rlab attack`"):
        rlab.compare(linear_victim(), samples(linear_victim()), learn=40, policies="auto,random", budget=8)


def npz(folder: Path, n: int = 40) -> Path:
    batch = bright_batch(2, n)
    np.savez(folder / "data.npz", x=batch.x.numpy(), y=linear_victim()(batch.x).argmax(1).numpy())
    (folder / "my_linear.py").write_text(
        "from tests.learning.toys import LinearNet\n\n\ndef net():\n    return LinearNet()\n"
    )
    return folder / "data.npz"


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, patch = npz(tmp_path), ("--patch", "2,2", "-p", PALETTE[0])
    said = rlab_command("learn", "my_linear:net", data, "--queries", 50, "--out", "sim", *patch)
    assert said.code == 0, said.err
    assert re.search(r"queries +│ +50", said.out)
    assert "rlab attack MODEL DATA --simulator sim" in said.out
    for run in ("a", "b"):
        attack = (
            "attack",
            "my_linear:net",
            data,
            "--limit",
            8,
            "--budget",
            4,
            "--policy",
            "belief",
            "--pictures",
            0,
            *patch,
        )
        said = rlab_command(*attack, "--simulator", "sim", "--out", f"runs/{run}")
        assert said.code == 0, said.err
    assert "50 queries before this run" in rlab_command("show", "runs/a").out
    said = rlab_command("learn", "--from", "runs/a", "runs/b", "--out", "again")  # as the shell expands runs/*
    assert said.code == 0, said.err
    assert "answers of 2 earlier runs, at no query" in said.out
    assert "agree" in rlab_command("show", "sim").out


BAD = {
    "nothing to learn from": ("learn",),
    "a model without data": ("learn", "demo:digits"),
    "too few queries": ("learn", "demo:digits", "demo:digits", "--queries", "3"),
    "free pixels": ("learn", "demo:digits", "demo:digits", "-p", "pixels"),
    "no run folder": ("learn", "--from", "nowhere"),
    "no simulator": ("attack", "demo:digits", "demo:digits", "--simulator", "nowhere"),
    "a word for queries": ("attack", "demo:digits", "demo:digits", "--learn", "much"),
    "too few queries to learn": ("attack", "demo:digits", "demo:digits", "--learn", "3"),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = rlab_command(*words)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "runs"])
