"""The controller: which of a few candidates to ask about next, learned by a dueling double DQN.

A candidate is an assignment the belief would propose if it aimed so far, drew so randomly, or kept to the best flip's patches;
the first is always the fixed rule's own. Each is described by what the belief says of it and by how the run stands, and nothing
in that depends on rank, palette, size or model: one file of weights serves signals, images and clips.

    Q(run, c) = V(run) + A(run, c) - mean over legal c' of A(run, c')        dueling: https://arxiv.org/abs/1511.06581

An untrained controller finds all candidates equal and takes the rule's. Shapes: n samples, c candidates, p patches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.core.distances import POWERS
from rlab.core.env import State, Task
from rlab.core.rng import uniform
from rlab.errors import InputError
from rlab.policies.belief.frontier import Frontier, make_frontier
from rlab.policies.belief.geometry import cost_of
from rlab.policies.belief.posterior import code_of, codes_of
from rlab.policies.belief.rule import Effects, RuleChoice
from rlab.priors.file import MOST_WIDTH, fill, read_tensors
from rlab.storage.files import write_atomically
from rlab.storage.outside import short

VERSION = 1
LONG = 100  # queries after which a run's age says no more
SOME = 0.25  # of the patches, whose effects alone are drawn where a candidate draws only some
Kind = Literal[
    "free", "some", "near"
]  # all effects are drawn; those of some patches; only the best flip's changes may stay
# How the effects are drawn (kind, temperature) and which boldnesses are tried with it, in multiples of the rule's; the first of
# all is the rule. Before the first flip the drop aimed at is multiplied by the boldness, after it the share of the distance aimed
# at is raised to that power.
GROUPS: tuple[tuple[Kind, float, tuple[float, ...]], ...] = (
    ("free", 1.0, (1.0, 0.7, 1.6)),
    ("free", 0.0, (1.0, 0.7, 1.6)),
    ("some", 1.0, (1.0, 0.7, 1.6, 0.4)),
    ("near", 1.0, (1.0, 0.4)),
)
CANDIDATES = tuple((boldness, temperature, kind) for kind, temperature, each in GROUPS for boldness in each)
DESCRIBED = 12  # numbers a candidate is described by
STANDING = 15  # numbers the run is described by


@dataclass(frozen=True)
class Candidates:
    """What may be asked next of n samples."""

    assignment: Tensor  # (n, c, p)
    described: Tensor  # (n, c, DESCRIBED) what the belief says of each
    standing: Tensor  # (n, STANDING) how the run stands
    legal: Tensor  # (n, c) bool
    expected: Tensor  # (n, c) the drop that is expected of each, in units of what is needed

    def take(self, choice: Tensor) -> tuple[Tensor, Tensor]:
        """choice (n,) -> assignment (n, p) and what is expected of it (n,)."""
        rows = torch.arange(len(choice), device=choice.device)
        return self.assignment[rows, choice], self.expected[rows, choice]


def dueling(value: Tensor, advantage: Tensor, legal: Tensor) -> Tensor:
    """value (n,), advantage and legal (n, c) -> (n, c): minus infinity where a candidate is not legal."""
    mean = (advantage * legal).sum(1, keepdim=True) / legal.sum(1, keepdim=True).clamp(min=1)
    return (value[:, None] + advantage - mean).masked_fill(~legal, -torch.inf)


def choose_candidate(q: Tensor, tolerance: float = 0.0) -> Tensor:
    """(n, c) -> (n,): the best, but the rule's own (the first) unless another is better by more than the tolerance."""
    best, choice = q.max(1)
    return torch.where(best > q[:, 0] + tolerance, choice, 0)


def make_candidates(
    rule: RuleChoice, memory: Mapping[str, Tensor], effects: Effects, state: State, task: Task
) -> Candidates:
    """Every candidate, along the way that the rule chose, and what the belief says of it."""
    rows, cost, flipped = torch.arange(len(state), device=rule.way.device), memory["cost"], state.margin < 0
    need, mean = effects.need[rows, rule.way], effects.mean[rows, rule.way]
    drawn = effects.temperature[:, None, None] * effects.deviation
    some = uniform(~state.seed, state.step, mean.shape[2])[:, None] < SOME
    held, at = (state.assignment > 0)[:, None], (state.assignment - 1).clamp(min=0)[:, None]
    kept = torch.where(held, (mean + drawn).gather(1, at), 0.0)
    frontiers = (
        rule.frontier,
        make_frontier(mean, cost),
        make_frontier(torch.where(some, mean + drawn, mean), cost),
        make_frontier(kept, cost.gather(1, at)),
    )
    assignments = [
        _aimed(frontier, boldnesses, memory, need, state, task)
        for frontier, (_, _, boldnesses) in zip(frontiers, GROUPS, strict=True)
    ]
    assignments[-1] = assignments[-1] * state.assignment[:, None]  # its frontier knows one entry: the best flip's own
    assignments[0][:, 0] = rule.assignment
    asked, near = torch.cat(assignments, 1), torch.tensor([kind == "near" for _, _, kind in CANDIDATES])
    again = (code_of(asked)[:, :, None] == codes_of(memory)[:, None]).any(2)
    legal = (~near.to(flipped.device) | flipped[:, None]) & ~again  # what was asked before tells nothing new
    legal[:, 0] = True
    expected = _summed(mean, asked) / need[:, None]
    deviation = effects.temperature[:, None] * _summed(effects.deviation, asked) / need[:, None]
    power, spent, whole = POWERS[task.distance], _summed(cost, asked), cost.amax(1).sum(1, keepdim=True)
    best = torch.where(flipped[:, None], _summed(cost, state.assignment[:, None]), whole)
    error = memory["error"][:, None]
    described = [
        (expected - 1).clamp(-2, 3),
        deviation.clamp(-2, 2),
        ((expected - 1 - memory["bias"][:, None]) / (error + 0.05)).clamp(-5, 5) / 2,
        log_share(spent, best, power),
        log_share(spent, whole, power),
        (asked > 0).float().mean(2),
        (asked != state.assignment[:, None]).float().mean(2),
        (asked != state.asked[:, None]).float().mean(2),
    ]
    kinds = torch.tensor([(math.log(b), t, kind == "some", kind == "near") for b, t, kind in CANDIDATES])
    described.extend(kinds.to(cost).expand(len(state), -1, -1).unbind(2))
    standing = _standing(memory, state, task, log_share(best, whole, power)[:, 0])
    return Candidates(asked, torch.stack(described, 2), standing, legal, expected)


def _aimed(
    frontier: Frontier,
    boldnesses: Sequence[float],
    memory: Mapping[str, Tensor],
    need: Tensor,
    state: State,
    task: Task,
) -> Tensor:
    """(n, b, p): the cheapest sets of a frontier that bring the drop aimed at, or after the flip stay within the distance."""
    bold = torch.tensor(boldnesses, device=need.device)
    distance = memory["shrink"][:, None] ** bold * state.distance[:, None]
    nearer = frontier.for_cost(cost_of(distance, task.distance, state.x[0].numel()))
    enough = frontier.for_effect(bold * (memory["bold"] * need)[:, None])
    return frontier.cuts(torch.where(state.margin[:, None] < 0, nearer, enough).clamp(min=1))


def _summed(per_change: Tensor, assignment: Tensor) -> Tensor:
    """per_change (n, f, p), assignment (n, c, p) -> (n, c)."""
    return torch.cat([torch.zeros_like(per_change[:, :1]), per_change], 1).gather(1, assignment).sum(2)


def _standing(memory: Mapping[str, Tensor], state: State, task: Task, best: Tensor) -> Tensor:
    """(n, STANDING): how the run stands; `best` (n,) is the log distance of the best flip over that of everything distorted."""
    weights, (f, p) = memory["weights"].softmax(1), memory["cost"].shape[1:]
    standing = [
        log_scaled(state.step, LONG),
        (1 - state.step / min(task.budget, LONG)).clamp(min=0),
        (state.margin < 0).float(),
        (memory["idle"] / 10).clamp(max=3),
        memory["shrink"],
        memory["bold"],
        -(weights * weights.clamp(min=1e-9).log()).sum(1) / math.log(weights.shape[1]),  # entropy of the evidence
        memory["bias"],
        memory["error"],
        memory["wins"],
        (task.goal.margin(state.answer, state.y) / state.margin0).clamp(-2, 2),
        best / 2,
        *log_scaled(torch.tensor([p, f]), 1000).to(best)[:, None].expand(2, len(best)),
        torch.full_like(best, float(memory["projection"].shape[2] > 0)),
    ]
    return torch.stack(standing, 1)


def log_share(part: Tensor, whole: Tensor, power: int) -> Tensor:
    """Logarithm of a distance over another, from summed costs (see geometry); bounded."""
    return ((part.clamp(min=1e-12) / whole.clamp(min=1e-12)).log() / max(power, 1)).clamp(-6, 3)


def log_scaled(count: Tensor, most: int) -> Tensor:
    """0 at none, 1 at `most`; a count beyond stays there."""
    return (torch.log1p(count.float()) / math.log1p(most)).clamp(max=1)


class Controller(nn.Module):
    """One scorer with shared weights over the candidates, and a value over how the run stands."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.advantage = _perceptron(DESCRIBED + STANDING, width)
        self.value = _perceptron(STANDING, width)

    def forward(self, described: Tensor, standing: Tensor, legal: Tensor) -> Tensor:
        """(n, c, DESCRIBED), (n, STANDING), (n, c) -> Q (n, c)."""
        run = standing[:, None].expand(*described.shape[:2], STANDING)
        advantage = self.advantage(torch.cat([described, run], 2))[..., 0]
        return dueling(self.value(standing)[:, 0], advantage, legal)

    @torch.no_grad()
    def choose(self, candidates: Candidates, tolerance: float = 0.0) -> Tensor:
        """(n,) the candidate to take."""
        self.to(candidates.standing.device)
        return choose_candidate(self(candidates.described, candidates.standing, candidates.legal), tolerance)


def _perceptron(inputs: int, width: int) -> nn.Sequential:
    """Its last layer is zero, so that nothing is preferred before anything is learned."""
    last = nn.Linear(width, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), last)


def save_controller(controller: Controller, path: Path, card: Mapping[str, Any]) -> None:
    """Weights and a header with the card: models and data it saw, command, how it did."""
    weights = {name: value.detach().cpu().contiguous() for name, value in controller.state_dict().items()}
    header = {"version": VERSION, "kind": "controller", "width": controller.width, "about": dict(card)}
    write_atomically(path, to_bytes(weights, metadata={"rlab": json.dumps(header)}))


@cache
def read_controller(path: str) -> tuple[Controller, dict[str, Any]]:
    """A file -> the controller, and its card."""
    header, weights = read_tensors(Path(path), "controller file")
    version = header.get("version") if isinstance(header, dict) and header.get("kind") == "controller" else None
    if version != VERSION:
        raise InputError(
            f"expected a controller of version {VERSION} in {path}, got version {version}: "
            "make one with rlab train agents/controller.yaml, which rlab examples controller writes"
        )
    width, about = header.get("width"), header.get("about")
    if type(width) is not int or not 1 <= width <= MOST_WIDTH or not isinstance(about, dict):
        raise InputError(f"expected a width and a card in the header of {path}, got {short(header)}: train it again")
    return fill(lambda: Controller(width), weights, Path(path)), about
