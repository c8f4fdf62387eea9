"""What is believed of the margins near a base, a point of the search: their values there and their slopes.

A perturbation is (n, c, *size) in units of L2. A query asks for a move, towards the smallest perturbation that is expected to
suffice, or for a probe: a little of one more direction beside the base. Either way the slopes are made to agree with the answer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.policies.pixels.basis import Basis, make_basis

Belief = dict[str, Tensor]
MOVE, LEAN = (
    -1,
    -2,
)  # what was asked, where it was no direction of the basis: see `rlab.policies.pixels.surrogates` for LEAN
WAYS = 5  # ways to reach the goal that are believed about
PROBE = 0.05  # length of a probe, as a share of the distance
BEYOND = 0.02  # how far beyond the boundary a move aims, as a share of the margin at the start
REACH = 5.0  # how much farther than that a move goes before the first flip
TRUST = 0.7  # the first move's share of the way
CURIOUS, FIRST = (
    3.0,
    0.3,
)  # how much more than others a band is expected to tell before it is probed; probes that it weighs

REST = 10.0  # the squared slope that surrogates are expected to have missed, in those they found
FADE = 0.8  # how fast what their directions told is forgotten: they are asked again and again


def begin(state: State, task: Task) -> Belief:
    margins, n, basis = margins_of(state.clean, state, task), len(state), basis_of(state)
    least, ways = margins.topk(min(WAYS, margins.shape[1]), 1, largest=False)
    none = torch.zeros(n, basis.bands + 1, device=least.device)
    return {
        "ways": ways,
        "slope": torch.zeros(n, ways.shape[1], *state.x0.shape[1:], device=least.device),  # drop for a unit of L2
        "base": torch.zeros_like(state.x0),
        "at_base": least,  # (n, w) margins
        "asked": torch.zeros_like(state.x0),
        "index": torch.full_like(state.sample, MOVE),  # which direction of the basis was asked
        "probed": torch.zeros(n, len(basis.band), dtype=torch.bool, device=least.device),
        "told": none,  # squared slopes found in a band, in all; the last one is the surrogates'
        "tries": none.clone(),
        "trust": torch.full_like(least[:, 0], TRUST),
        "failed": torch.zeros_like(state.sample, dtype=torch.bool),  # whether the last query was a move that did
    }


def learn(belief: Belief, state: State, task: Task) -> None:
    """The last answer. A move near the boundary becomes the base, and so does any nearer flip."""
    index, flipped = belief["index"], state.margin < 0
    seen = margins_of(state.answer, state, task).gather(1, belief["ways"])
    step = belief["asked"] - belief["base"]
    square = step.flatten(1).square().sum(1).clamp(min=1e-12)
    missed = torch.nan_to_num(belief["at_base"] - seen - dot(belief["slope"], step[:, None]), 0.0, 0.0, 0.0)
    belief["slope"] = belief["slope"] + wide(missed / square[:, None], belief["slope"]) * step[:, None]
    moved, basic = index == MOVE, index >= 0
    basis, at = basis_of(state), index.clamp(min=0)[:, None]
    band = torch.where(basic, basis.band[at[:, 0]], basis.bands)[:, None]
    told = (missed.square().mean(1) / square).masked_fill(moved, 0.0)[:, None]
    leant = torch.where(index == LEAN, FADE, 1.0)
    for name, more in (("told", told), ("tries", (~moved)[:, None].float())):
        belief[name] = torch.cat([belief[name][:, :-1], belief[name][:, -1:] * leant[:, None]], 1)
        belief[name] = belief[name].scatter_add(1, band, more)
    belief["probed"] = belief["probed"].scatter(1, at, belief["probed"].gather(1, at) | basic[:, None])
    won = task.goal.margin(state.answer, state.y) + state.slack < 0
    nearer = won & (length(belief["asked"]) <= state.distance * (1 + 1e-5))
    least, before = seen.amin(1), belief["at_base"].amin(1)
    near = least.abs() < torch.minimum(2 * before.abs(), 0.5 * state.margin0)
    good = torch.where(flipped, nearer, least < before)
    rebase = nearer | (moved & (good | (flipped & near)))
    belief["base"] = torch.where(wide(rebase, step), belief["asked"], belief["base"])
    belief["at_base"] = torch.where(rebase[:, None], seen, belief["at_base"])
    belief["failed"] = moved & ~good
    belief["trust"] = (belief["trust"] * torch.where(moved, torch.where(good, 1.5, 0.5), 1.03)).clamp(0.05, 1.0)


def move(belief: Belief, state: State, most: Tensor) -> tuple[Tensor, Tensor]:
    """From the base towards the smallest perturbation expected to suffice, by any way, no longer than `most` (n,), as far as moves
    are trusted: (n, c, *size), and the margin expected there (n,)."""
    slope, row, beyond = belief["slope"], torch.arange(len(state), device=most.device), BEYOND * state.margin0
    need = belief["at_base"] + dot(slope, belief["base"][:, None])
    steep = slope.flatten(2).norm(dim=2).clamp(min=1e-12)  # (n, w)
    radius, way = ((need + beyond[:, None]).clamp(min=0) / steep).min(1)
    share = (belief["tries"].sum(1) / belief["probed"].shape[1]).clamp(max=1.0)
    most = most.maximum(
        REACH * radius * share.sqrt()
    )  # what the radius were if all directions were known, by what these told
    slope, steep, need = slope[row, way], steep[row, way], need[row, way]
    target = slope * wide(radius.minimum(most) / steep, slope)
    delta = belief["base"] + wide(belief["trust"], slope) * (target - belief["base"])
    short = torch.where(radius < most, need - (slope * delta).flatten(1).sum(1) + beyond, 0.0).clamp(min=0)
    delta = delta + slope * wide(short / steep.square(), slope)
    return delta, need - (slope * delta).flatten(1).sum(1)


def probe(belief: Belief, state: State, distance: Tensor, surrogates: bool) -> tuple[Tensor, Tensor]:
    """The next direction (n,), or LEAN, and the base with a little of it: from the band that has told most, its directions in turn.

    The surrogates' directions are worth trying first, and others only where those tell little.
    """
    basis, told, tries = basis_of(state), belief["told"], belief["tries"]
    probed = belief["probed"] & ~belief["probed"].all(1, keepdim=True)  # all of them once more
    hope = CURIOUS * told.sum(1, keepdim=True) / tries.sum(1, keepdim=True).clamp(min=1)
    if surrogates:  # what a direction is worth if what they missed is spread over all
        hope = (REST / len(basis.band)) * belief["slope"].flatten(2).square().sum(2).mean(1, keepdim=True)
    worth = (told + FIRST * hope) / (tries + FIRST)
    left = torch.zeros_like(worth).scatter_add(1, basis.band.expand_as(probed), (~probed).float())
    left[:, -1] = float(surrogates)
    worth[:, -1] = torch.where(tries[:, -1] == 0, torch.inf, worth[:, -1])
    worth = worth.masked_fill(left == 0, -1.0)
    band = worth.argmax(1, keepdim=True)
    index = basis.order.expand_as(probed).masked_fill(probed | (basis.band != band), -1).argmax(1)
    belief["probed"] = probed
    delta = belief["base"] + wide(PROBE * distance, state.x0) * basis.vectors(index)
    return torch.where(band[:, 0] == basis.bands, LEAN, index), delta


def basis_of(state: State) -> Basis:
    return make_basis(tuple(state.x0.shape[1:]), state.x0.device)


def margins_of(scores: Tensor, state: State, task: Task) -> Tensor:
    """(n, a): how far each way to the goal is, with the slack of a noisy model."""
    return task.goal.alternatives(scores, state.y) + state.slack[:, None]


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(n, w, ...) twice -> (n, w)."""
    return (a * b).flatten(2).sum(2)


def length(delta: Tensor) -> Tensor:
    return delta.flatten(1).norm(dim=1)


def unit(delta: Tensor) -> Tensor:
    return delta / wide(length(delta).clamp(min=1e-12), delta)


def wide(values: Tensor, like: Tensor) -> Tensor:
    """(n,) or (n, w) with as many axes as `like`."""
    return values.view(*values.shape, *(1,) * (like.dim() - values.dim()))


def far(state: State, share: float) -> float:
    """A distance that every value's changing by `share` makes."""
    return share * math.sqrt(state.x0[0].numel())
