"""The controller: its equations by hand, its candidates, and that it is the fixed rule before it has learned anything."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rlab.core.attack import Attack
from rlab.core.env import State, Task
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.controller import (
    CANDIDATES,
    DESCRIBED,
    STANDING,
    Candidates,
    Controller,
    choose_candidate,
    dueling,
    log_scaled,
    log_share,
    read_controller,
    save_controller,
)
from rlab.policies.belief.posterior import Belief, Model, empty, observe
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim
from tests.policies.states import Walk

SIZES = {1: (12,), 2: (4, 4), 3: (3, 3, 3)}


def slope(x: Tensor) -> Tensor:
    """A margin that falls more along later values."""
    flat = x.flatten(1)
    return 1 - flat @ torch.linspace(0, 3 / flat.shape[1], flat.shape[1])


def walk(rank: int, policy: BeliefPolicy, n: int = 3) -> Walk:
    return Walk(policy, PatchGrid.of(SIZES[rank], 1), slope, n=n)


def test_dueling_by_hand() -> None:
    q = dueling(torch.tensor([2.0]), torch.tensor([[1.0, 3.0, 100.0]]), torch.tensor([[True, True, False]]))
    assert q.tolist() == [[1.0, 3.0, -math.inf]]


def test_the_rule_is_kept_unless_another_is_better_by_more_than_the_tolerance() -> None:
    q = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.2, 1.1], [1.0, 0.5, 1.05]])
    assert choose_candidate(q).tolist() == [0, 1, 2]
    assert choose_candidate(q, 0.1).tolist() == [0, 1, 0]


def test_logarithms_by_hand() -> None:
    assert log_share(torch.tensor([4.0]), torch.tensor([1.0]), 2).item() == pytest.approx(math.log(2))
    assert log_share(torch.tensor([4.0]), torch.tensor([1.0]), 0).item() == pytest.approx(math.log(4))
    assert log_share(torch.tensor([0.0]), torch.tensor([1.0]), 1).item() == -6
    assert log_scaled(torch.tensor([0, 9, 99, 5000]), 99).tolist() == pytest.approx([0, 0.5, 1, 1])


def test_the_first_candidate_is_the_rule() -> None:
    assert CANDIDATES[0] == (1.0, 1.0, "free")


@pytest.mark.parametrize("rank", SIZES)
def test_candidates_of_every_rank(rank: int) -> None:
    rule = BeliefPolicy(controller=None)
    steps = walk(rank, rule)
    flips = 0
    for _ in range(8):
        state = steps.step()
        memory, candidates = rule.consider(state, steps.env.task)
        n, p = state.assignment.shape
        assert candidates.assignment.shape == (n, len(CANDIDATES), p)
        assert candidates.described.shape == (n, len(CANDIDATES), DESCRIBED)
        assert candidates.standing.shape == (n, STANDING)
        assert torch.isfinite(candidates.described).all()
        assert torch.isfinite(candidates.standing).all()
        assert torch.equal(candidates.assignment[:, 0], steps.proposals[-1].assignment)
        flipped = state.margin < 0
        flips += int(flipped.sum())
        for i, (_, _, kind) in enumerate(CANDIDATES):
            again = (state.memory["tried"] == candidates.assignment[:, i, None]).all(2).any(1)
            again |= (state.asked == candidates.assignment[:, i]).all(1) & (state.step > 0)
            allowed = ~again & (flipped if kind == "near" else torch.ones_like(flipped))
            assert torch.equal(candidates.legal[:, i], allowed if i else torch.ones_like(flipped))
            if kind == "near":
                near = candidates.assignment[flipped, i]
                assert ((near == 0) | (near == state.assignment[flipped])).all()
        chosen = rule.decide(state, memory, candidates, torch.full((n,), 3))
        assert torch.equal(chosen.assignment, candidates.assignment[:, 3])
    assert flips


def test_bolder_candidates_cost_more_before_the_flip_and_less_after_it() -> None:
    rule = BeliefPolicy(controller=None)
    steps = walk(2, rule, n=8)
    bold, shy = CANDIDATES.index((1.6, 0.0, "free")), CANDIDATES.index((0.7, 0.0, "free"))

    def spent() -> Tensor:
        candidates = rule.consider(steps.state, steps.env.task)[1]
        return (
            candidates.assignment.float().square().sum(2)[:, bold]
            - candidates.assignment.float().square().sum(2)[:, shy]
        )

    assert (spent() > 0).all()
    while (steps.state.margin >= 0).any():
        steps.step()
    assert (spent() <= 0).all()


def test_the_forecasts_error_is_remembered() -> None:
    policy = BeliefPolicy(controller=Controller())
    steps = walk(1, policy)
    steps.step()
    foretold = steps.proposals[0].memory["expected"]
    answered = 1 - steps.state.answer[:, 0] / steps.state.margin0
    steps.step()
    assert torch.allclose(steps.proposals[1].memory["bias"], 0.2 * (foretold - answered), atol=1e-6)


def test_draws_are_linear_in_the_temperature() -> None:
    torch.manual_seed(0)
    n, f, p, k = 2, 3, 5, 1
    root = torch.randn(n, p, f, f).tril() + 2 * torch.eye(f)
    gram = torch.zeros(n, f + 1, f + 1, p)
    gram[:, 1:, 1:] = (root @ root.transpose(2, 3)).permute(0, 2, 3, 1)
    zero = torch.zeros(n, 1, p)
    geometry = {
        "gram": gram,
        "root": root,
        "projection": torch.cat([zero[:, :, None], torch.randn(n, f, k, p)], 1),
        "cost": torch.rand(n, f, p),
        "mass": torch.cat([zero, torch.rand(n, f, p)], 1),
        "lift": torch.cat([zero, torch.rand(n, f, p)], 1),
    }
    model = Model(((0.5, 0.5, 0.1, 1.0, 0.1),), (torch.tensor([0, 0, 1, 1, 1]),))
    memory = {**geometry, **empty(geometry, model, 2)}
    for _ in range(3):
        memory = observe(memory, model, torch.randint(0, f + 1, (n, p)), torch.randn(n, 2), 60)
    belief = Belief(memory, model, torch.tensor(model.hypotheses).expand(n, -1))
    normals = torch.randn(n, f * p + k + 2 * f + 3)
    mean, deviation = belief.mean_and_deviation(normals)
    assert torch.allclose(mean, belief.draw(normals, torch.zeros(n)), atol=1e-5)
    assert torch.allclose(mean, belief.mean_and_deviation(0 * normals)[0], atol=1e-5)
    assert torch.allclose(deviation, belief.mean_and_deviation(-normals)[1].neg(), atol=1e-5)
    assert torch.allclose(mean + 0.3 * deviation[:, None], belief.draw(normals, torch.full((n,), 0.3)), atol=1e-5)


def small_attack(policy: BeliefPolicy) -> tuple[Attack, TorchVictim, Batch]:
    torch.manual_seed(0)
    victim = TorchVictim(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), outputs="logits")
    x = torch.rand(6, 1, 8, 8)
    batch = Batch(x, victim(x).argmax(1))
    how = {"palette": ["illuminate@0.3", "dead_pixel"], "patch": 2, "budget": 16, "until": "budget"}
    return make_attack(batch, policy=policy, **how), victim, batch


def test_an_untrained_controller_is_the_rule() -> None:
    rule, untrained = (small_attack(BeliefPolicy(controller=c)) for c in (None, Controller()))
    assert run_attack(*rule).improvements == run_attack(*untrained).improvements


class Last(Controller):
    """Prefers the last legal candidate."""

    def choose(self, candidates: Candidates, tolerance: float = 0.0) -> Tensor:
        return (candidates.legal * torch.arange(len(CANDIDATES))).argmax(1)


def test_a_controller_decides() -> None:
    policy = BeliefPolicy(controller=Last())
    steps = walk(2, policy)
    while (steps.state.margin >= 0).any():
        steps.step()
    state: State = steps.step()
    task: Task = steps.env.task
    _, candidates = replace(policy, controller=None).consider(state, task)
    assert torch.equal(steps.proposals[-1].assignment, candidates.assignment[:, -1])


def test_a_controller_is_read_as_it_was_written(tmp_path: Path) -> None:
    controller = Controller(8)
    nn.init.normal_(controller.advantage[-1].weight)  # type: ignore[arg-type]
    save_controller(controller, tmp_path / "c.safetensors", {"models": ["net"]})
    again, card = read_controller(str(tmp_path / "c.safetensors"))
    assert card == {"models": ["net"]}
    seen = torch.randn(2, len(CANDIDATES), DESCRIBED), torch.randn(2, STANDING), torch.ones(2, len(CANDIDATES)).bool()
    assert torch.equal(again(*seen), controller(*seen))


def test_files_that_are_no_controllers_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no controller file"):
        BeliefPolicy(controller=str(tmp_path / "none.safetensors"))
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(InputError, match="cannot read"):
        BeliefPolicy(controller=str(tmp_path / "text.safetensors"))
    agent = Path(__file__).parents[3] / "rlab" / "assets" / "prior_signals.safetensors"
    with pytest.raises(InputError, match="version"):
        BeliefPolicy(controller=str(agent))
