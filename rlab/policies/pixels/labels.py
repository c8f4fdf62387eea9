"""Free pixels when the model returns labels only: along the boundary, by the side of it on which each query lies.

A sample goes through phases. OPEN: a direction that flips, at a growing radius. BISECT: the boundary along it. Then rounds of
PROBE and TURN: the signs of probes beside the best flip, summed over all rounds, estimate the boundary's normal; the next flip
lies on the circle through the input and the last flip, turned towards that normal as far as the model stays wrong (as in CGBA,
https://arxiv.org/abs/2308.03163): the further it turns, the nearer it comes. Probes walk along the radius so that half of them
flip, and no query is spent on returning to the boundary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Proposal, State, Task
from rlab.core.vectors import lengths, unit, wide
from rlab.data.kinds import Kind
from rlab.policies.base import Policy
from rlab.policies.pixels.basis import shaped_noise, white_noise
from rlab.policies.pixels.query import Values, perturb, propose_values
from rlab.policies.pixels.slopes import far
from rlab.priors.base import Prior

START, GROW = 0.007, 1.5  # how much every value changes at first, and the growth each time no direction flips
LEVELS, PLAIN = 13, 8  # the number of these radii, and the first one with white noise
HALVINGS = 5  # of the way to the first flip
PROBES = 20  # in the first round; the n-th round has sqrt(n) times as many
BESIDE = 0.3  # length of a probe, as a share of the distance
TURNS = 5  # tries per round to find how far the circle can be followed
ANGLE, NARROW, WIDE = 0.5, 0.02, 1.2  # the first angle to try, and the smallest and largest to start a round with
CALM = 0.9  # how fast the walk along the radius slows down
NEAR = 1e-3  # its smallest first step, as a share of the distance
WORTH = 12.0  # the weight of the surrogates' direction, relative to the square root of the number of probes
LED = 3  # rounds that follow surrogates alone


class Phase(IntEnum):
    OPEN = 0
    BISECT = 1
    PROBE = 2
    TURN = 3
    AIM = 4  # between rounds, without a query: choose where the circle turns


@dataclass(frozen=True)
class LabelState(Rows):
    """Perturbations are (n, c, *size) in units of L2."""

    phase: Tensor  # (n,) of `Phase`
    count: Tensor  # (n,) queries of this phase so far
    round: Tensor  # (n,)
    low: Tensor  # (n,) bracket of the radius (BISECT) or the angle (TURN)
    high: Tensor  # (n,)
    at: Tensor  # (n,) the last radius or angle
    radius: Tensor  # (n,) of the flip that the round started from
    axis: Tensor  # (n, c, *size) of length one: where that flip lies
    across: Tensor  # (n, c, *size) of length one: where the circle turns
    normal: Tensor  # (n, c, *size) sum of all probes times their signs
    walk: Tensor  # (n,) how far probes have moved towards the input
    stride: Tensor  # (n,) the next step of that walk
    angle: Tensor  # (n,) the result of the last round
    towards: Tensor  # (n, k, c, *size) the prior's directions, for OPEN
    queried: Tensor  # (n, c, *size) the last perturbation


@dataclass(frozen=True)
class LabelPolicy(Policy[LabelState]):
    """Directions that may flip come from the `prior`, if it has any, and from noise."""

    reduces: ClassVar[bool] = True

    values: Values
    prior: Prior

    def begin(self, state: State, task: Task) -> LabelState:
        self.prior.check_classes(state.scores.shape[1])
        directions = self.prior.directions(state.x0, state.y, state.scale, task.goal)
        none, empty, first = torch.zeros_like(state.margin), torch.zeros_like(state.x0), torch.zeros_like(state.sample)
        towards = empty[:, None][:, :0] if directions is None else _with_mean(unit(directions, 2))
        return LabelState(
            phase=first + Phase.OPEN, count=first, round=first, low=none, high=none, at=none, radius=none,
            axis=empty, across=empty, normal=empty, walk=none, stride=none, angle=none + ANGLE, towards=towards,
            queried=empty,
        )  # fmt: skip

    @torch.no_grad()
    def observe(self, state: State, memory: LabelState, task: Task) -> LabelState:
        """Each row moves on within its phase, or to the next one."""
        won, flip = state.last_flipped(task), (state.x - state.x0) / wide(state.scale, state.x)
        before = memory.phase
        for phase, learn in _LEARN.items():
            rows = before == phase
            if rows.any():
                memory = memory.put(rows, learn(memory[rows], won[rows], flip[rows]))
        started = (memory.phase == Phase.PROBE) & (before != Phase.PROBE)
        aims = (memory.phase == Phase.AIM) | (started & self.prior.local & (memory.round < LED))
        if not aims.any():
            return memory
        return memory.put(aims, _aim(memory[aims], self._lead(state, task, aims)))

    @torch.no_grad()
    def propose(self, state: State, memory: LabelState, task: Task) -> Proposal[LabelState]:
        delta = torch.zeros_like(state.x0)
        for phase, query in _QUERIES.items():
            rows = memory.phase == phase
            if rows.any():
                delta[rows] = query(memory[rows], state[rows], task.grid.kind)
        x, queried = perturb(state, delta, self.values)
        return propose_values(state, x, replace(memory, queried=queried), task)

    def _lead(self, state: State, task: Task, rows: Tensor) -> Tensor:
        """Where the surrogates' margins fall at the best flip of some rows, (r, c, *size); zero without surrogates."""
        x = state.x[rows]
        if not self.prior.local:
            return torch.zeros_like(x)
        directions = self.prior.directions(x, state.y[rows], state.scale[rows], task.goal)
        return torch.zeros_like(x) if directions is None else WORTH * unit(unit(directions, 2).mean(1))


# What to query in each phase: (memory, state, kind of data) -> perturbation (n, c, *size)


def _query_open(memory: LabelState, state: State, kind: Kind) -> Tensor:
    """The next direction, of the prior or noise; the radius grows when all have been tried."""
    choices = memory.towards.shape[1] + 1
    level, turn = memory.count // choices % LEVELS, memory.count % choices
    out = unit(torch.where(wide(level < PLAIN, state.x0), shaped_noise(state, kind), white_noise(state)))
    if choices > 1:
        known = memory.towards[torch.arange(len(turn), device=turn.device), turn.clamp(max=choices - 2)]
        out = torch.where(wide(turn < choices - 1, out), known, out)
    return out * wide(far(state, START) * GROW**level, out)


def _query_bisect(memory: LabelState, state: State, kind: Kind) -> Tensor:
    return wide(memory.at, memory.axis) * memory.axis


def _query_probe(memory: LabelState, state: State, kind: Kind) -> Tensor:
    """A random step beside the flip, or a little nearer."""
    axis = memory.axis
    centre = wide(memory.radius - memory.walk, axis) * axis
    return centre + wide(BESIDE * memory.radius, axis) * unit(_beside(shaped_noise(state, kind), axis))


def _query_turn(memory: LabelState, state: State, kind: Kind) -> Tensor:
    """The point of the circle at an angle."""
    at, axis = memory.at, memory.axis
    turned = wide(at.cos(), axis) * axis + wide(at.sin(), axis) * memory.across
    return wide(memory.radius * at.cos(), axis) * turned


_QUERIES = {
    Phase.OPEN: _query_open,
    Phase.BISECT: _query_bisect,
    Phase.PROBE: _query_probe,
    Phase.TURN: _query_turn,
}

# What an answer says in each phase: (memory, whether it flipped (n,), the best flip (n, c, *size)) -> memory


def _learn_open(memory: LabelState, won: Tensor, flip: Tensor) -> LabelState:
    """The first flip starts the bisection."""
    radius = torch.where(won, lengths(flip), memory.radius)
    return replace(
        memory,
        phase=torch.where(won, Phase.BISECT, memory.phase),
        count=torch.where(won, 0, memory.count + 1),
        axis=torch.where(wide(won, flip), unit(flip), memory.axis),
        radius=radius,
        low=torch.where(won, 0.0, memory.low),
        high=torch.where(won, radius, memory.high),
        at=radius / 2,
    )


def _learn_bisect(memory: LabelState, won: Tensor, flip: Tensor) -> LabelState:
    low, high = torch.where(won, memory.low, memory.at), torch.where(won, memory.at, memory.high)
    memory = replace(memory, low=low, high=high, at=(low + high) / 2, count=memory.count + 1)
    return _new_round(memory, memory.count == HALVINGS, flip, high - low)


def _learn_probe(memory: LabelState, won: Tensor, flip: Tensor) -> LabelState:
    """One more sign for the normal; after enough probes, aim."""
    sign, axis, count = torch.where(won, 1.0, -1.0), memory.axis, memory.count + 1
    step = memory.queried - wide(memory.radius - memory.walk, axis) * axis
    enough = count >= (PROBES * (memory.round + 1).sqrt()).long()
    return replace(
        memory,
        phase=torch.where(enough, Phase.AIM, memory.phase),
        count=count,
        normal=memory.normal + wide(sign, axis) * unit(step),
        walk=memory.walk + sign * memory.stride,
        stride=memory.stride * CALM,
    )


def _learn_turn(memory: LabelState, won: Tensor, flip: Tensor) -> LabelState:
    low, high = torch.where(won, memory.at, memory.low), torch.where(won, memory.high, memory.at)
    over = memory.count + 1 == TURNS
    found = torch.where(low > 0, (low + high) / 2, 0.7 * high).clamp(max=1.0)
    gap = memory.radius * (low.cos() - high.cos())
    memory = replace(
        memory,
        low=low,
        high=high,
        at=_next_angle(memory.at, low, high),
        count=memory.count + 1,
        round=memory.round + over,
        angle=torch.where(over, found, memory.angle),
    )
    return _new_round(memory, over, flip, gap)


_LEARN = {
    Phase.OPEN: _learn_open,
    Phase.BISECT: _learn_bisect,
    Phase.PROBE: _learn_probe,
    Phase.TURN: _learn_turn,
}


def _new_round(memory: LabelState, rows: Tensor, flip: Tensor, gap: Tensor) -> LabelState:
    """Where `rows` (n,) bool, probe beside the best flip; `gap` (n,) is how exactly its radius is known."""
    radius = torch.where(rows, lengths(flip), memory.radius)
    return replace(
        memory,
        phase=torch.where(rows, Phase.PROBE, memory.phase),
        count=torch.where(rows, 0, memory.count),
        axis=torch.where(wide(rows, flip), unit(flip), memory.axis),
        radius=radius,
        stride=torch.where(rows, gap.maximum(NEAR * radius) / 2, memory.stride),
        walk=torch.where(rows, 0.0, memory.walk),
    )


def _aim(memory: LabelState, lead: Tensor) -> LabelState:
    """Turn towards the estimated normal, together with the surrogates' `lead` (n, c, *size)."""
    return replace(
        memory,
        phase=torch.full_like(memory.phase, Phase.TURN),
        count=torch.zeros_like(memory.count),
        across=unit(_beside(memory.normal + lead, memory.axis)),
        low=torch.zeros_like(memory.low),
        high=torch.full_like(memory.high, math.pi / 2),
        at=memory.angle.clamp(NARROW, WIDE),
    )


def _next_angle(at: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(n,): further while the model stays wrong, back if it never was, else halfway."""
    further = torch.minimum(2 * at, (at + math.pi / 2) / 2)
    return torch.where(high >= math.pi / 2, further, torch.where(low > 0, (low + high) / 2, 0.4 * high))


def _with_mean(directions: Tensor) -> Tensor:
    """(n, k, c, *size) of length one, with their mean first if there are several."""
    if directions.shape[1] < 2:
        return directions
    return torch.cat([unit(directions.mean(1, keepdim=True), 2), directions], 1)


def _beside(x: Tensor, axis: Tensor) -> Tensor:
    """The part of x at right angles to the axis, which has length one."""
    return x - wide((x * axis).flatten(1).sum(1), axis) * axis
