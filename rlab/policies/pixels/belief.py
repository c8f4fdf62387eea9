"""What is believed of the margins near a base, a point of the search: their values there and their gradients.

A perturbation is (n, c, *size) in units of L2. A query asks for a move, towards the smallest perturbation that is expected to
suffice, or for a probe: a little of one more direction beside the base. Either way the gradients are made to agree with the answer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.vectors import lengths, wide
from rlab.policies.pixels.basis import Basis, make_basis

Belief = dict[str, Tensor]
MOVE, LEAN = -1, -2  # what was asked, where it was no direction of the basis; `surrogates` leans
WAYS = 5  # ways to reach the goal that are believed about
PROBE = 0.05  # length of a probe, as a share of the distance
BEYOND = 0.02  # how far beyond the boundary a move aims, as a share of the margin at the start
REACH = 5.0  # how much farther than that a move goes before the first flip
TRUST = 0.7  # the first move's share of the way
CURIOUS = 3.0  # how much more than others a band is expected to tell before it is probed
FIRST = 0.3  # probes that this expectation weighs
REST = 10.0  # the squared gradient that surrogates are expected to have missed, in those they found
FADE = 0.8  # how fast what their directions told is forgotten: they are asked again and again


def begin(state: State, task: Task) -> Belief:
    margins, n, basis = margins_of(state.clean, state, task), len(state), basis_of(state)
    least, ways = margins.topk(min(WAYS, margins.shape[1]), 1, largest=False)
    none = torch.zeros(n, basis.bands + 1, device=least.device)
    return {
        "ways": ways,
        "gradient": torch.zeros(n, ways.shape[1], *state.x0.shape[1:], device=least.device),  # drop for a unit of L2
        "base": torch.zeros_like(state.x0),
        "at_base": least,  # (n, w) margins
        "asked": torch.zeros_like(state.x0),
        "index": torch.full_like(state.sample, MOVE),  # which direction of the basis was asked
        "probed": torch.zeros(n, len(basis.band), dtype=torch.bool, device=least.device),
        "told": none,  # squared gradients found in a band, in all; the last one is the surrogates'
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
    missed = torch.nan_to_num(belief["at_base"] - seen - dot(belief["gradient"], step[:, None]), 0.0, 0.0, 0.0)
    belief["gradient"] = belief["gradient"] + wide(missed / square[:, None], belief["gradient"]) * step[:, None]
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
    nearer = won & (lengths(belief["asked"]) <= state.distance * (1 + 1e-5))
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
    gradient, row, beyond = belief["gradient"], torch.arange(len(state), device=most.device), BEYOND * state.margin0
    need = belief["at_base"] + dot(gradient, belief["base"][:, None])
    steep = gradient.flatten(2).norm(dim=2).clamp(min=1e-12)  # (n, w)
    radius, way = ((need + beyond[:, None]).clamp(min=0) / steep).min(1)
    share = (belief["tries"].sum(1) / belief["probed"].shape[1]).clamp(max=1.0)
    most = most.maximum(
        REACH * radius * share.sqrt()
    )  # what the radius were if all directions were known, by what these told
    gradient, steep, need = gradient[row, way], steep[row, way], need[row, way]
    target = gradient * wide(radius.minimum(most) / steep, gradient)
    delta = belief["base"] + wide(belief["trust"], gradient) * (target - belief["base"])
    short = torch.where(radius < most, need - (gradient * delta).flatten(1).sum(1) + beyond, 0.0).clamp(min=0)
    delta = delta + gradient * wide(short / steep.square(), gradient)
    return delta, need - (gradient * delta).flatten(1).sum(1)


def probe(belief: Belief, state: State, distance: Tensor, surrogates: bool) -> tuple[Tensor, Tensor]:
    """The next direction (n,), or LEAN, and the base with a little of it: from the band that has told most, its directions in turn.

    The surrogates' directions are worth trying first, and others only where those tell little.
    """
    basis, told, tries = basis_of(state), belief["told"], belief["tries"]
    probed = belief["probed"] & ~belief["probed"].all(1, keepdim=True)  # all of them once more
    hope = CURIOUS * told.sum(1, keepdim=True) / tries.sum(1, keepdim=True).clamp(min=1)
    if surrogates:  # what a direction is worth if what they missed is spread over all
        hope = (REST / len(basis.band)) * belief["gradient"].flatten(2).square().sum(2).mean(1, keepdim=True)
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


def far(state: State, share: float) -> float:
    """A distance that every value's changing by `share` makes."""
    return share * math.sqrt(state.x0[0].numel())
