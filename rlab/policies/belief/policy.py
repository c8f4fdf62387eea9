"""The belief search: each query is the cheapest whole assignment that the belief expects to suffice.

One step may add here and restore there. Before the first flip a proposal aims at a drop; after it, at a distance: a share of
the best flip's. Reducing is the same act; `rlab.core.pruning` restores what the best flip does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlab.core.env import Accept, Proposal, State, Task, render
from rlab.core.grid import PatchGrid
from rlab.core.pruning import Calm
from rlab.core.rng import normal, uniform
from rlab.core.vectors import wide
from rlab.data.kinds import Kind
from rlab.errors import OptionError
from rlab.policies.base import Policy
from rlab.policies.belief.answers import Assumptions, along, no_answers, observe
from rlab.policies.belief.geometry import Geometry, check_directions, make_geometry, make_projection
from rlab.policies.belief.levels import coarsened, group_levels, region_levels
from rlab.policies.belief.posterior import Posterior, choose, evidence
from rlab.policies.belief.rule import Effects, fewest, first_rate, follow_rule
from rlab.policies.belief.signs import observe_side
from rlab.policies.belief.state import BeliefState
from rlab.priors.base import NoPrior, Prior
from rlab.storage.config import named_keywords

# Hypotheses about a sample, weighted by evidence: (beta, s) of the prior's directions, sigma of the rest, tau of the noise.
ALONG = ((0.2, 0.2), (0.5, 0.5), (1.0, 1.0))
NOWHERE = ((0.0, 0.0),)
REST = {True: (0.03, 0.1), False: (0.02, 0.05, 0.1, 0.3)}  # with a prior's directions and without
NOISE = (0.03, 0.1)
DOUBT = 2.5  # log odds against a hypothesis without directions before the first query, if a prior gives some
LIFT = 1.25  # the drop expected from changing everything, in units of the margin
MIDDLE = (0.5, 0.5, 0.03, LIFT, 0.03)  # the hypothesis for the first query if a prior gives directions
CENTRAL: dict[Kind, float] = {"signal": 0.25, "image": 0.25, "video": 0.7}
SHARED: dict[Kind, float] = {"signal": 0.3, "image": 0.3, "video": 0.6}  # standard deviation of what regions share
TEMPERATURE: dict[Kind, float] = {"signal": 0.1, "image": 0.1, "video": 0.05}
FINER = 4  # misses in a row after which proposals use smaller groups of patches
FEW = 320  # changes for which the temperatures are meant; with more, draws are cooler because deviations add up
BOLD = {True: 1.0, False: 0.7}  # the first drop to aim at, with a prior's directions and without
BOLDER = 1.05  # how much further a proposal aims after one that did not flip
EARLY = 12  # queries after which the hypotheses are weighted less often, and only few rivals are left
FEW_RIVALS = 2  # that are left then: the nearest ones
RENEW = 0.7  # directions are computed again when the distance falls below this share of where they were computed last
REHEARSALS = 8  # evaluations of a prior with gradients along the first proposal
_RANGES = {
    "temperature": (0, 10), "warming": (0, 10), "bold": (0.01, 10), "shrink": (0.01, 0.99), "relevance": (0, 1),
    "central": (0, 1), "shared": (0, 10),
}  # fmt: skip


@named_keywords
@dataclass(frozen=True)
class Belief(Policy[BeliefState]):
    """The belief search: each query is the cheapest assignment that the belief expects to flip the model.

    None stands for a default that depends on the data or the prior. `rlab.Auto` is this search with a shipped prior.
    """

    reduces: ClassVar[bool] = True

    prior: Prior = field(default_factory=NoPrior, repr=False)
    temperature: float | None = None  # of the draws that proposals are made from; 0 is the mean of the belief
    warming: float = 0.01  # by how much the temperature rises with every query that does not help
    bold: float | None = None  # the drop to aim at before the first flip, in units of the margin
    shrink: float = 0.65  # the first share of the distance to aim at after it
    rivals: int = 5  # classes that could win, each with a belief of its own
    remember: int = 40  # queries
    central: float | None = None  # how much more is expected from the middle of a picture than from its border
    shared: float | None = None  # standard deviation of what the patches of a region (frames, cells) have in common
    relevance: float = 0.8  # how much more the rest is expected to matter where the prior's directions are large

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise OptionError(f"expected prior to be a Prior, got {self.prior!r}: pass its file as the policy instead")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not low <= value <= high):
                raise OptionError(f"expected {name} of the policy 'belief' between {low} and {high}, got {value!r}")
        for name in ("rivals", "remember"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise OptionError(f"expected {name} of the policy 'belief' to be at least 1, got {value!r}")

    def __str__(self) -> str:
        return f"belief with prior {self.prior}"

    def by_labels(self) -> Policy[Any]:
        return self

    @torch.no_grad()
    def begin(self, state: State, task: Task) -> BeliefState:
        """The geometry of what the palette can do, and no answers yet."""
        self.prior.check_classes(state.scores.shape[1])
        directions = self.prior.directions(state.x0, state.y, state.scale, task.goal)
        check_directions(directions, state.x, str(self.prior))
        change = (state.bank[:, 1:] - state.bank[:, :1]).div_(wide(state.scale, state.bank))
        central = CENTRAL[task.grid.kind] if self.central is None else self.central
        geometry = make_geometry(change, directions, task.grid, task.distance, self.relevance, central)
        at_input = geometry.projection if self.prior.local else geometry.projection[:, :, :0]
        memory = self.first(geometry, at_input, state, task)
        return self._rehearsed(memory, state, task) if self.prior.local else memory

    def first(self, geometry: Geometry, at_input: Tensor, state: State, task: Task) -> BeliefState:
        """The memory before the first query of a search; what the palette can do holds for every search on these inputs."""
        margins = _margins(state.clean, state, task)
        need, rivals = margins.topk(1 if task.labels else min(self.rivals, margins.shape[1]), 1, largest=False)
        model = self._model(task.grid, geometry)
        ones = torch.ones(len(state), device=state.x.device)
        bold = (BOLD[geometry.projection.shape[2] > 0] if self.bold is None else self.bold) * ones
        answers = no_answers(geometry, model, rivals.shape[1], state.noise / state.margin0)
        return BeliefState(
            geometry=geometry,
            answers=answers,
            at_input=at_input,
            rivals=rivals,
            need=need,
            weights=ones.new_zeros(len(ones), len(model.hypotheses)) if task.labels else evidence(answers, model),
            bold=bold,
            shrink=self.shrink * ones,
            rate=first_rate(bold, need, geometry.cost),
            level=geometry.level,
            idle=0 * ones,
            misses=0 * ones,
            calm=Calm.begin(state),
            renewed=torch.inf * ones,
        )

    def _rehearsed(self, memory: BeliefState, state: State, task: Task) -> BeliefState:
        """Average the prior's directions over the way to the first proposal; the victim is not queried."""
        every = torch.arange(len(state), device=state.x.device)
        for _ in range(REHEARSALS):
            proposed = self.propose(state, memory, task).assignment
            there = self._projection(render(state.bank, proposed, task.grid), every, state, task)
            projection = (memory.geometry.projection + there) / 2
            memory = replace(memory, geometry=replace(memory.geometry, projection=projection), at_input=projection)
        return memory

    def _projection(self, x: Tensor, rows: Tensor, state: State, task: Task) -> Tensor:
        """The changes of some rows, projected on the prior's directions at x."""
        directions = self.prior.directions(x, state.y[rows], state.scale[rows], task.goal)
        check_directions(directions, state.x[rows], str(self.prior))
        change = state.bank[rows, 1:] - state.bank[rows, :1]
        return make_projection(change / wide(state.scale[rows], change), directions, task.grid)

    @torch.no_grad()
    def propose(self, state: State, memory: BeliefState, task: Task) -> Proposal[BeliefState]:
        effects = self.draw(state, memory, task)
        choice = follow_rule(memory, effects, state, task)
        after = replace(memory, rate=choice.frontier.rate_at(choice.steps))
        return Proposal(choice.assignment, torch.full_like(state.step, Accept.IF_NEARER), after)

    @torch.no_grad()
    def fewer(self, state: State, memory: BeliefState, task: Task, most: Tensor) -> Tensor:
        if not task.labels:  # the best flip may be forgotten
            model, drop = self._model(task.grid, memory.geometry), _drops(state.scores, memory, state, task)
            answers = observe(memory.answers, memory.geometry, model, state.assignment, drop, self.remember + 1)
            memory = replace(memory, answers=answers)
        return fewest(memory, self.draw(state, memory, task), state, task, most)

    @torch.no_grad()
    def observe(self, state: State, memory: BeliefState, task: Task) -> BeliefState:
        model = self._model(task.grid, memory.geometry)
        memory = self._answered(memory, model, state, task)
        memory = self._renew(memory, state, task) if self.prior.local else memory
        queries = memory.answers.queries
        if not task.labels and (queries <= EARLY or queries % 8 == 0):
            memory = replace(memory, weights=evidence(memory.answers, model))
        return memory

    @torch.no_grad()
    def draw(self, state: State, memory: BeliefState, task: Task) -> Effects:
        """What the belief says of every change; the draw depends on the row's seed and step."""
        model, geometry, answers = self._model(task.grid, memory.geometry), memory.geometry, memory.answers
        (f, p), directions = geometry.cost.shape[1:], geometry.projection.shape[2]
        count = f * p + directions + answers.regional.shape[2] + answers.drop.shape[1]
        chance = uniform(state.seed, state.step, count + count % 2 + 1)
        chosen = choose(memory.weights, chance[:, 0])
        if not answers.queries and directions:
            chosen = torch.full_like(chosen, model.hypotheses.index(MIDDLE))
        near = self._near(memory, state, task)
        posterior = Posterior(geometry, answers, model, model.table[chosen], near)
        mean, deviation = posterior.mean_and_deviation(normal(chance[:, 1:])[:, :count])
        levels = group_levels(task.grid, chance.device)
        group = levels[memory.level]
        if len(levels) > 1:
            mean = coarsened(mean, geometry.cost, group)
            deviation = coarsened(deviation[:, None], geometry.cost, group)[:, 0]
        return Effects(mean, deviation, self._temperature(memory, group, state, task), memory.need.gather(1, near))

    def _temperature(self, memory: BeliefState, group: Tensor, state: State, task: Task) -> Tensor:
        """(n,): higher after queries that did not help, lower for many changes."""
        usual = TEMPERATURE[task.grid.kind] if self.temperature is None else self.temperature
        restless = (state.margin < 0) | task.labels  # labels say nothing of a drop until something flips
        warm = usual + self.warming * torch.where(restless, memory.idle, 0.0)
        changes = memory.geometry.cost.shape[1] * (group.amax(1) + 1)
        return warm.clamp(max=4 * usual) * (FEW / changes).clamp(max=1.0).sqrt()

    def _model(self, grid: PatchGrid, geometry: Geometry) -> Assumptions:
        shared = SHARED[grid.kind] if self.shared is None else self.shared
        return _assumed(grid, geometry.projection.shape[2] > 0, shared, geometry.cost.device)

    def _near(self, memory: BeliefState, state: State, task: Task) -> Tensor:
        """(n, a): the rivals to consider, all of them at first."""
        rivals = memory.rivals
        if memory.answers.queries <= EARLY:
            return torch.arange(rivals.shape[1], device=rivals.device).expand(len(rivals), -1)
        scores = torch.where((state.margin < 0)[:, None], state.scores, state.answer)
        margins = _margins(scores, state, task).gather(1, rivals)
        return margins.topk(min(FEW_RIVALS, rivals.shape[1]), 1, largest=False).indices

    def _answered(self, memory: BeliefState, model: Assumptions, state: State, task: Task) -> BeliefState:
        """With the last answer, and what it says about how bold to be."""
        answers, weights, won = memory.answers, memory.weights, state.last_flipped(task)
        if task.labels:
            answers, weights = observe_side(answers, weights, memory.geometry, model, state.queried, won, self.remember)
        else:
            drop = _drops(state.answer, memory, state, task)
            answers = observe(answers, memory.geometry, model, state.queried, drop, self.remember)
        misses = torch.where(won, 0.0, memory.misses + 1)
        finer = misses >= FINER
        return replace(
            memory,
            answers=answers,
            weights=weights,
            shrink=torch.where(won, (0.88 * memory.shrink).clamp(min=0.5), (memory.shrink**0.7).clamp(max=0.985)),
            bold=torch.where(won, memory.bold, (BOLDER * memory.bold).clamp(max=3.0)),
            idle=torch.where(won, 0.5 * memory.idle, memory.idle + 1),
            misses=torch.where(finer, 0.0, misses),
            calm=memory.calm.after(state),
            level=(memory.level + finer).clamp(max=len(group_levels(task.grid)) - 1),
        )

    def _renew(self, memory: BeliefState, state: State, task: Task) -> BeliefState:
        """Where the best flip came much nearer, average the directions at the input and at the flip."""
        nearer = (state.margin < 0) & (state.distance < RENEW * memory.renewed)
        rows = nearer.nonzero()[:, 0]
        if not len(rows):
            return memory
        at_flip = self._projection(state.x[rows], rows, state, task)
        some = (memory.at_input[rows] + at_flip) / 2
        projection = memory.geometry.projection.index_copy(0, rows, some)
        directed = memory.answers.along.index_copy(0, rows, along(some, memory.answers.tried[rows]))
        return replace(
            memory,
            geometry=replace(memory.geometry, projection=projection),
            answers=replace(memory.answers, along=directed),
            renewed=torch.where(nearer, state.distance, memory.renewed),
        )


@cache
def _assumed(grid: PatchGrid, directed: bool, shared: float, device: torch.device) -> Assumptions:
    """What is assumed before the first query; its tensors are made once, so that no step waits for their transfer."""
    hypotheses = [(b, s, sigma, LIFT, tau) for b, s in NOWHERE for sigma in REST[False] for tau in NOISE]
    doubts = [-DOUBT * directed] * len(hypotheses)
    if directed:
        hypotheses += [(b, s, sigma, LIFT, tau) for b, s in ALONG for sigma in REST[True] for tau in NOISE]
        doubts += [0.0] * (len(hypotheses) - len(doubts))
    return Assumptions(tuple(hypotheses), region_levels(grid, device), shared, log_prior=tuple(doubts))


def _drops(scores: Tensor, memory: BeliefState, state: State, task: Task) -> Tensor:
    """(n, a): by how much scores lie below the clean margins of the rivals, in units of the initial margin."""
    return (memory.need - _margins(scores, state, task).gather(1, memory.rivals)).clamp(-3, 3)


def _margins(scores: Tensor, state: State, task: Task) -> Tensor:
    """(n, a): of every alternative to reach the goal, with the slack for noise, in units of the initial margin."""
    margins = task.goal.alternatives(scores, state.y) + state.slack[:, None]
    return (margins / state.margin0[:, None]).clamp(max=1e6)
