"""The belief search: at every query the whole assignment is chosen anew, the cheapest that the belief expects to suffice.

One step may add here and restore there. Before the first flip a proposal aims at a drop, after it at a distance: a share of the
best flip's so far. There is no separate cleanup: reducing is the same act.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from rlab.core.env import IF_NEARER, Memory, Proposal, State, Task, render
from rlab.core.grid import PatchGrid
from rlab.core.rng import normal, uniform
from rlab.errors import InputError
from rlab.policies.base import Policy
from rlab.policies.belief.controller import Candidates, Controller, make_candidates, read_controller
from rlab.policies.belief.geometry import check_directions, make_geometry, make_projection
from rlab.policies.belief.levels import coarsened, group_levels, region_levels
from rlab.policies.belief.posterior import Belief, Model, along, choose, empty, evidence, observe, queries_of
from rlab.policies.belief.rule import Effects, RuleChoice, follow_rule, single_change
from rlab.policies.belief.signs import no_sides, observe_side
from rlab.priors.base import NoPrior, Prior

# What may hold for a sample, weighed by evidence: (beta, s) of the prior's directions, sigma of the rest, tau of the noise.
ALONG = ((0.2, 0.2), (0.5, 0.5), (1.0, 1.0))
NOWHERE = ((0.0, 0.0),)
REST = {True: (0.03, 0.1), False: (0.02, 0.05, 0.1, 0.3)}
NOISE = (0.03, 0.1)
LIFT = 1.25  # the drop that changing everything is expected to bring, in units of the margin
MIDDLE = (0.5, 0.5, 0.03, LIFT, 0.03)  # what the first query takes for true where a prior gives directions
CENTRAL = {True: 0.7, False: 0.25}  # of clips, and of signals and images
SHARED = {True: 0.6, False: 0.3}  # deviation of what regions share, likewise
TEMPERATURE = {True: 0.05, False: 0.1}
FINER = 4  # failures in a row after which proposals are made of smaller groups of patches
FEW = 320  # changes the temperatures below are meant for; draws over more are cooler, as deviations add up
BOLD = {True: 1.0, False: 0.7}  # the drop aimed at first, with a prior's directions and without
BOLDER = 1.05  # how much further a proposal aims after one that did not flip
FADE = 0.2  # how fast older errors of the belief's forecasts are forgotten
SURE = 12  # queries after which the hypotheses are weighed only now and then, and few ways are left
FEW_WAYS = 2  # that are left then: those the model is nearest to
RENEW = 0.7  # the share of the distance at which directions were last asked for, below which they are asked for again
REHEARSALS = 8  # times that a prior with gradients is asked where the first proposal leads
Changes = Literal["sets", "single", "add"]
_RANGES = {
    "temperature": (0, 10), "warming": (0, 10), "bold": (0.01, 10), "shrink": (0.01, 0.99), "relevance": (0, 1),
    "central": (0, 1), "shared": (0, 10), "tolerance": (0, 1000),
}  # fmt: skip


@dataclass(frozen=True)
class BeliefPolicy(Policy):
    """`bold`: the drop aimed at before the first flip, in margins, None for what suits the prior; `shrink`: the first share of
    the distance aimed at after it.

    `temperature` is of the draws a proposal is made from, 0 being the mean of the belief; it rises by `warming` with every query
    that brings nothing. `ways` classes that could win are believed about apart from each other. `shared` is the deviation of what
    patches of a region (frames, cells) have in common; `coarse` lets proposals begin with groups of patches where patches are many.
    None stands for what suits the data.
    """

    prior: Prior = field(default_factory=NoPrior, repr=False)
    temperature: float | None = None
    warming: float = 0.01
    bold: float | None = None
    shrink: float = 0.65
    ways: int = 5
    remember: int = 40  # queries
    central: float | None = (
        None  # how much more is expected of the middle of a picture than of its border before any query
    )
    shared: float | None = None
    coarse: bool = True
    relevance: float = 0.8  # how much more the rest is expected to matter where the prior's directions lie
    controller: str | Controller | None = field(default=None, repr=False)  # a file, or None: the fixed rule
    tolerance: float = 0.0  # how much better than the rule's own a candidate must be for the controller to take it
    # What one proposal may do to the last: any set of changes, a single one, or only add (a cleanup then follows the flip);
    # the other two are there to measure what sets and restores are worth.
    changes: Changes = "sets"
    by_labels = True

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not low <= value <= high):
                raise InputError(f"expected {name} of the policy 'belief' between {low} and {high}, got {value!r}")
        for name in ("ways", "remember"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"expected {name} of the policy 'belief' to be at least 1, got {value!r}")
        if self.changes not in get_args(Changes):
            choices = ", ".join(get_args(Changes))
            raise InputError(f"expected changes of the policy 'belief' to be {choices}, got {self.changes!r}")
        if isinstance(self.controller, str):
            read_controller(self.controller)

    @property
    def reduces(self) -> bool:
        return self.changes != "add"

    def __str__(self) -> str:
        return f"belief with prior {self.prior}"

    @torch.no_grad()
    def begin(self, state: State, task: Task) -> Memory:
        """The geometry of what the palette can do, nothing asked yet, and how bold to be."""
        scale = state.scale.view(-1, *(1,) * (state.x.dim() - 1))
        self.prior.check_classes(state.scores.shape[1])
        directions = self.prior.directions(state.x0, state.y, state.scale, task.goal)
        check_directions(directions, state.x, str(self.prior))
        change = (state.bank[:, 1:] - state.bank[:, :1]).div_(scale[:, None])
        central = CENTRAL[task.grid.rank > 2] if self.central is None else self.central
        geometry = make_geometry(change, directions, task.grid, task.distance, self.relevance, central)
        if not self.coarse:
            geometry["level"] = torch.full_like(geometry["level"], len(group_levels(task.grid)) - 1)
        need = _margins(state.clean, state, task)
        least, ways = need.topk(1 if task.labels else min(self.ways, need.shape[1]), 1, largest=False)
        ones, model = torch.ones(len(state), device=state.x.device), self._model(task.grid, geometry)
        memory = {
            **geometry,
            **empty(geometry, model, ways.shape[1]),
            **(no_sides(model, ones) if task.labels else {}),
            **({"at_input": geometry["projection"]} if self.prior.local else {}),
            "ways": ways,
            "need": least,
            "noise": state.noise / state.margin0,
            "bold": (BOLD[directions is not None] if self.bold is None else self.bold) * ones,
            "shrink": self.shrink * ones,
            "idle": 0 * ones,
            "failed": 0 * ones,
            "expected": 0 * ones,
            "bias": 0 * ones,
            "error": 0.3 * ones,
            "wins": 0 * ones,
            "renewed": torch.inf * ones,
        }
        if task.labels:
            memory["weights"] = ones[:, None] * torch.zeros(len(model.hypotheses), device=ones.device)
        return self._rehearsed(memory, state, task) if self.prior.local else memory

    def _rehearsed(self, memory: dict[str, Tensor], state: State, task: Task) -> dict[str, Tensor]:
        """Where the first proposal leads, the prior is asked again, a few times; the victim is not."""
        every = torch.arange(len(state), device=state.x.device)
        for _ in range(REHEARSALS):
            asked = self.propose(replace(state, memory=memory), task).assignment
            there = self._projection(render(state.bank, asked, task.grid), every, state, task)
            memory["at_input"] = memory["projection"] = (memory["projection"] + there) / 2
        return memory

    def _projection(self, x: Tensor, rows: Tensor, state: State, task: Task) -> Tensor:
        """Of the changes to some rows, along the prior's directions at x."""
        directions = self.prior.directions(x, state.y[rows], state.scale[rows], task.goal)
        check_directions(directions, state.x[rows], str(self.prior))
        change = state.bank[rows, 1:] - state.bank[rows, :1]
        change = change / state.scale[rows].view(-1, *(1,) * (change.dim() - 1))
        return make_projection(change, directions, task.grid)

    def values(self, state: State, task: Task) -> Tensor:
        """(n, f + 1, p): what is expected of each single change before any query: along the prior, else by its size."""
        assert not isinstance(state.memory, Tensor)
        projection = state.memory["projection"]
        return projection.mean(2) if projection.shape[2] else state.memory["lift"]

    @torch.no_grad()
    def propose(self, state: State, task: Task) -> Proposal:
        memory, effects = self._believe(state, task)
        controller = self._controller
        if controller is None:
            rule = follow_rule(memory, effects, state, task)
            return self._proposal(state, memory, self._limited(rule, memory, effects, state))
        candidates = make_candidates(follow_rule(memory, effects, state, task), memory, effects, state, task)
        return self.decide(state, memory, candidates, controller.choose(candidates, self.tolerance))

    @torch.no_grad()
    def consider(self, state: State, task: Task) -> tuple[dict[str, Tensor], Candidates]:
        """What a controller chooses from, and the memory to go on with."""
        memory, effects = self._believe(state, task)
        return memory, make_candidates(follow_rule(memory, effects, state, task), memory, effects, state, task)

    def decide(self, state: State, memory: dict[str, Tensor], candidates: Candidates, choice: Tensor) -> Proposal:
        """choice (n,) among the candidates -> the proposal."""
        assignment, expected = candidates.take(choice)
        return self._proposal(state, {**memory, "expected": expected}, assignment)

    @property
    def _controller(self) -> Controller | None:
        return read_controller(self.controller)[0] if isinstance(self.controller, str) else self.controller

    def _proposal(self, state: State, memory: dict[str, Tensor], assignment: Tensor) -> Proposal:
        return Proposal(assignment, torch.full_like(state.step, IF_NEARER), memory)

    def _limited(self, rule: RuleChoice, memory: Mapping[str, Tensor], effects: Effects, state: State) -> Tensor:
        """(n, p): what the rule asks, as far as `changes` allows."""
        if self.changes == "sets":
            return rule.assignment
        flipped = state.margin < 0
        before = torch.where(flipped[:, None], state.assignment, state.asked)
        if self.changes == "add":
            return torch.where(before > 0, before, rule.assignment)
        effect = effects.mean[torch.arange(len(state), device=before.device), rule.way]
        return single_change(before, rule.assignment, effect, memory["cost"], flipped)

    def _believe(self, state: State, task: Task) -> tuple[dict[str, Tensor], Effects]:
        """The memory with the last query in it, and what the belief says of every change."""
        assert not isinstance(state.memory, Tensor)
        memory, model = dict(state.memory), self._model(task.grid, state.memory)
        if "rate" in memory:  # something was proposed, so there is an answer
            memory = self._learn(memory, model, state, task)
            memory = self._renew(memory, state, task) if self.prior.local else memory
        (f, p), queries = memory["cost"].shape[1:], queries_of(memory)
        count = f * p + memory["projection"].shape[2] + memory["regional"].shape[2] + memory["drop"].shape[1]
        chance = uniform(state.seed, state.step, count + count % 2 + 1)
        if not task.labels and ("weights" not in memory or queries <= SURE or queries % 8 == 0):
            memory["weights"] = evidence(memory, model)
        chosen = choose(memory["weights"], chance[:, 0])
        if not queries and memory["projection"].shape[2]:
            chosen = torch.full_like(chosen, model.hypotheses.index(MIDDLE))
        near = self._near(memory, state, task)
        belief = Belief(memory, model, model.table[chosen], near)
        temperature = TEMPERATURE[task.grid.rank > 2] if self.temperature is None else self.temperature
        restless = (state.margin < 0) | task.labels  # where nothing is heard of a drop until something flips
        heat = temperature + self.warming * torch.where(restless, memory["idle"], 0.0)
        group = group_levels(task.grid, chance.device)[memory["level"]]
        heat = heat.clamp(max=4 * temperature) * (FEW / (f * (group.amax(1) + 1))).clamp(max=1.0).sqrt()
        mean, deviation = belief.mean_and_deviation(normal(chance[:, 1:])[:, :count])
        if len(group_levels(task.grid)) > 1:
            mean = coarsened(mean, memory["cost"], group)
            deviation = coarsened(deviation[:, None], memory["cost"], group)[:, 0]
        return memory, Effects(mean, deviation, heat, memory["need"].gather(1, near))

    def _model(self, grid: PatchGrid, memory: Memory) -> Model:
        assert not isinstance(memory, Tensor)
        shared = SHARED[grid.rank > 2] if self.shared is None else self.shared
        return _assumed(grid, memory["projection"].shape[2] > 0, shared, memory["cost"].device)

    def _near(self, memory: Mapping[str, Tensor], state: State, task: Task) -> Tensor:
        """(n, a): the ways that are thought about, all of them at first."""
        ways = memory["ways"]
        if queries_of(memory) <= SURE:
            return torch.arange(ways.shape[1], device=ways.device).expand(len(ways), -1)
        scores = torch.where((state.margin < 0)[:, None], state.scores, state.answer)
        margins = _margins(scores, state, task).gather(1, ways)
        return margins.topk(min(FEW_WAYS, ways.shape[1]), 1, largest=False).indices

    def _learn(self, memory: dict[str, Tensor], model: Model, state: State, task: Task) -> dict[str, Tensor]:
        """The last query, what it says of how bold to be, and of how far the belief can be trusted."""
        won = task.goal.margin(state.answer, state.y) + state.slack < 0
        if task.labels:
            memory = observe_side(memory, model, state.asked, won, self.remember)
        else:
            margins = _margins(state.answer, state, task).gather(1, memory["ways"])
            memory = observe(memory, model, state.asked, (memory["need"] - margins).clamp(-3, 3), self.remember)
        shrink, bold = memory["shrink"], memory["bold"]
        dropped = 1 - task.goal.margin(state.answer, state.y) / state.margin0
        error = (memory["expected"] - dropped).clamp(-2, 2)
        failed = torch.where(won, 0.0, memory["failed"] + 1)
        finer = failed >= FINER
        return {
            **memory,
            "shrink": torch.where(won, (0.88 * shrink).clamp(min=0.5), (shrink**0.7).clamp(max=0.985)),
            "bold": torch.where(won, bold, (BOLDER * bold).clamp(max=3.0)),
            "idle": torch.where(won, 0.5 * memory["idle"], memory["idle"] + 1),
            "failed": torch.where(finer, 0.0, failed),
            "level": (memory["level"] + finer).clamp(max=len(group_levels(task.grid)) - 1),
            "bias": memory["bias"] + FADE * (error - memory["bias"]),
            "error": memory["error"] + FADE * (error.abs() - memory["error"]),
            "wins": memory["wins"] + FADE * (won.float() - memory["wins"]),
        }

    def _renew(self, memory: dict[str, Tensor], state: State, task: Task) -> dict[str, Tensor]:
        """Where the best flip came much nearer, the directions are the mean of those at the input and those at the flip."""
        nearer = (state.margin < 0) & (state.distance < RENEW * memory["renewed"])
        rows = nearer.nonzero()[:, 0]
        if not len(rows):
            return memory
        at_flip = self._projection(state.x[rows], rows, state, task)
        memory = {**memory, "projection": memory["projection"].clone(), "along": memory["along"].clone()}
        memory["projection"][rows] = (memory["at_input"][rows] + at_flip) / 2
        memory["along"][rows] = along(memory["projection"][rows], memory["tried"][rows])
        memory["renewed"] = torch.where(nearer, state.distance, memory["renewed"])
        return memory


@cache
def _assumed(grid: PatchGrid, directed: bool, shared: float, device: torch.device) -> Model:
    """What is assumed before the first query; its tensors are made once, so that no step waits for their transfer."""
    along = ALONG if directed else NOWHERE
    hypotheses = tuple((beta, s, sigma, LIFT, tau) for beta, s in along for sigma in REST[directed] for tau in NOISE)
    return Model(hypotheses, region_levels(grid, device), shared)


def _margins(scores: Tensor, state: State, task: Task) -> Tensor:
    """(n, a): of every way to reach the goal, with the slack of a noisy model, in units of the margin at the start."""
    margins = task.goal.alternatives(scores, state.y) + state.slack[:, None]
    return (margins / state.margin0[:, None]).clamp(max=1e6)
