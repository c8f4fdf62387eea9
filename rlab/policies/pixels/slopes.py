"""What is believed about the margins near a base point: their values there and their gradients.

A query is a move, towards the smallest perturbation that should suffice, or a probe: a little of one more direction beside
the base. Either way the gradients are corrected to agree with the answer.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.vectors import lengths, wide
from rlab.policies.pixels.basis import Basis, make_basis
from rlab.policies.pixels.state import PixelState

MOVE, LEAN = -1, -2  # the `index` of a query that probes no direction of the basis; `surrogates` leans
RIVALS = 5  # classes that could win, each with gradients of its own
PROBE = 0.05  # length of a probe, as a share of the distance
BEYOND = 0.02  # how far beyond the boundary a move aims, as a share of the initial margin
REACH = 5.0  # how much further than that a move goes before the first flip
TRUST = 0.7  # the share of the way that the first move goes
CURIOUS = 3.0  # how much more is expected of a band before it is probed
FIRST = 0.3  # the weight of this expectation, in probes
REST = 10.0  # squared gradient that surrogates are expected to have missed, relative to what they found
NEAR = 2  # a move becomes the base if its margin is at most this many times as far from zero as the base's
FADE = 0.8  # how fast gains of the surrogates' directions are forgotten, because they are used again and again


def begin(state: State, task: Task) -> PixelState:
    margins, n, basis = margins_of(state.clean, state, task), len(state), basis_of(state)
    least, rivals = margins.topk(min(RIVALS, margins.shape[1]), 1, largest=False)
    none = torch.zeros(n, basis.bands + 1, device=least.device)
    return PixelState(
        rivals=rivals,
        gradient=torch.zeros(n, rivals.shape[1], *state.x0.shape[1:], device=least.device),
        base=torch.zeros_like(state.x0),
        at_base=least,
        queried=torch.zeros_like(state.x0),
        index=torch.full_like(state.sample, MOVE),
        probed=torch.zeros(n, len(basis.band), dtype=torch.bool, device=least.device),
        gained=none,
        tries=none.clone(),
        trust=torch.full_like(least[:, 0], TRUST),
        failed=torch.zeros_like(state.sample, dtype=torch.bool),
    )


def learn(memory: PixelState, state: State, task: Task) -> PixelState:
    """With the last answer. A move near the boundary becomes the base, and so does any nearer flip."""
    index, flipped = memory.index, state.margin < 0
    margins = margins_of(state.answer, state, task).gather(1, memory.rivals)
    step = memory.queried - memory.base
    square = step.flatten(1).square().sum(1).clamp(min=1e-12)
    missed = torch.nan_to_num(memory.at_base - margins - dot(memory.gradient, step[:, None]), 0.0, 0.0, 0.0)
    moved, basic = index == MOVE, index >= 0
    basis, at = basis_of(state), index.clamp(min=0)[:, None]
    band = torch.where(basic, basis.band[at[:, 0]], basis.bands)[:, None]
    gain = (missed.square().mean(1) / square).masked_fill(moved, 0.0)[:, None]
    nearer = state.last_flipped(task) & (lengths(memory.queried) <= state.distance * (1 + 1e-5))
    least, before = margins.amin(1), memory.at_base.amin(1)
    near = least.abs() < torch.minimum(NEAR * before.abs(), 0.5 * state.margin0)
    good = torch.where(flipped, nearer, least < before)
    rebase = nearer | (moved & (good | (flipped & near)))
    return replace(
        memory,
        gradient=memory.gradient + wide(missed / square[:, None], memory.gradient) * step[:, None],
        gained=_faded(memory.gained, index).scatter_add(1, band, gain),
        tries=_faded(memory.tries, index).scatter_add(1, band, (~moved)[:, None].float()),
        probed=memory.probed.scatter(1, at, memory.probed.gather(1, at) | basic[:, None]),
        base=torch.where(wide(rebase, step), memory.queried, memory.base),
        at_base=torch.where(rebase[:, None], margins, memory.at_base),
        failed=moved & ~good,
        trust=(memory.trust * torch.where(moved, torch.where(good, 1.5, 0.5), 1.03)).clamp(0.05, 1.0),
    )


def _faded(by_band: Tensor, index: Tensor) -> Tensor:
    """(n, b + 1): the surrogates' column, the last, fades where they were used again."""
    fade = torch.where(index == LEAN, FADE, 1.0)[:, None]
    return torch.cat([by_band[:, :-1], by_band[:, -1:] * fade], 1)


def move(memory: PixelState, state: State, most: Tensor) -> tuple[Tensor, Tensor]:
    """From the base towards the smallest perturbation that should suffice for any rival, no longer than `most` (n,), as far
    as moves are trusted: (n, c, *size), and the margin expected there (n,)."""
    gradient, row, beyond = memory.gradient, torch.arange(len(state), device=most.device), BEYOND * state.margin0
    need = memory.at_base + dot(gradient, memory.base[:, None])
    steep = gradient.flatten(2).norm(dim=2).clamp(min=1e-12)  # (n, w)
    radius, rival = ((need + beyond[:, None]).clamp(min=0) / steep).min(1)
    share = (memory.tries.sum(1) / memory.probed.shape[1]).clamp(max=1.0)
    most = most.maximum(REACH * radius * share.sqrt())  # an estimate of the radius if all directions were known
    gradient, steep, need = gradient[row, rival], steep[row, rival], need[row, rival]
    target = gradient * wide(radius.minimum(most) / steep, gradient)
    delta = memory.base + wide(memory.trust, gradient) * (target - memory.base)
    short = torch.where(radius < most, need - (gradient * delta).flatten(1).sum(1) + beyond, 0.0).clamp(min=0)
    delta = delta + gradient * wide(short / steep.square(), gradient)
    return delta, need - (gradient * delta).flatten(1).sum(1)


def probe(memory: PixelState, state: State, distance: Tensor, surrogates: bool) -> tuple[Tensor, Tensor]:
    """The next direction (n,), or LEAN, and the base with a little of it: from the band with the largest gain.

    The surrogates' directions come first; others are worth a try only if those gain little.
    """
    basis, gained, tries, probed = basis_of(state), memory.gained, memory.tries, memory.probed
    hope = CURIOUS * gained.sum(1, keepdim=True) / tries.sum(1, keepdim=True).clamp(min=1)
    if surrogates:  # the worth of a direction if what they missed is spread over all directions
        hope = (REST / len(basis.band)) * memory.gradient.flatten(2).square().sum(2).mean(1, keepdim=True)
    worth = (gained + FIRST * hope) / (tries + FIRST)
    left = torch.zeros_like(worth).scatter_add(1, basis.band.expand_as(probed), (~probed).float())
    left[:, -1] = float(surrogates)
    worth[:, -1] = torch.where(tries[:, -1] == 0, torch.inf, worth[:, -1])
    worth = worth.masked_fill(left == 0, -1.0)
    band = worth.argmax(1, keepdim=True)
    index = basis.order.expand_as(probed).masked_fill(probed | (basis.band != band), -1).argmax(1)
    delta = memory.base + wide(PROBE * distance, state.x0) * basis.vectors(index)
    return torch.where(band[:, 0] == basis.bands, LEAN, index), delta


def basis_of(state: State) -> Basis:
    return make_basis(tuple(state.x0.shape[1:]), state.x0.device)


def margins_of(scores: Tensor, state: State, task: Task) -> Tensor:
    """(n, a): the margin of each alternative, with the slack for a noisy model."""
    return task.goal.alternatives(scores, state.y) + state.slack[:, None]


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(n, w, ...) twice -> (n, w)."""
    return (a * b).flatten(2).sum(2)


def far(state: State, share: float) -> float:
    """The distance of changing every value by `share`."""
    return share * math.sqrt(state.x0[0].numel())
