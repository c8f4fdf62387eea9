"""Where surrogates lead: steps on their gradients cost no queries, and one query per round sets the radius.

The first queries follow the surrogates' common direction, to a radius that they predict and the victim's answers correct. Later
queries lean the best flip towards one surrogate at a time, so that the answers show which of them to trust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.goals import Goal
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.basis import cosines
from rlab.policies.pixels.frames import Frames
from rlab.policies.pixels.ray import Ray
from rlab.policies.pixels.slopes import LEAN, dot, far, margins_of
from rlab.policies.pixels.state import Habits, Lead, PixelState
from rlab.priors.copies import moved_copies
from rlab.priors.surrogates import SurrogatePrior

STEPS = 12  # on the surrogates before the first query
FIRST = 0.005  # how much every value changes in the first step
RADIUS = 1.4  # the first radius, relative to what the surrogates predict
ONLY, MOST = 2.5, 0.018  # the same for a search of one query, unless every value would change by more than MOST
ANGLE, SHRINK = 0.2, 0.02  # of a leaning
# Frames are compared after this many queries, and after a flip from which the radius shrinks to no less than this share: far
# from the boundary, margins are curved.
START, READY = 3, 0.6
NARROWEST = 0.25  # the least share of ANGLE
BLUR = 1.0  # standard deviation of the blur of the surrogates' gradients, in values


@dataclass(frozen=True)
class Guide:
    """Surrogates of a search that keeps values within `bounds`."""

    prior: SurrogatePrior
    bounds: tuple[float, float]
    habits: Habits

    def begin(self, state: State, goal: Goal) -> Lead:
        self.prior.check_classes(state.scores.shape[1])
        empty, sets = torch.zeros_like(state.x0), 2 * len(self.prior.surrogates)
        return Lead(
            ray=Ray.begin(state, empty, far(state, FIRST)),
            spare=empty[:, None].repeat(1, sets, *(1,) * (empty.dim() - 1)),
            leant=torch.zeros_like(state.sample),
            alike=self.prior.alike(state.x0, state.y, goal),
            angle=torch.full_like(state.margin, ANGLE),
            blurred=torch.zeros_like(state.margin, dtype=torch.bool),
            frames=Frames.every(state.margin),
        )

    def opening(self, memory: PixelState, state: State) -> Tensor:
        """(n,) bool: rows that follow the surrogates' common direction."""
        assert memory.lead is not None
        return (state.step < self.habits.opening) | (state.margin >= 0) | memory.lead.frames.trial

    def open(self, memory: PixelState, state: State, task: Task, rows: Tensor) -> tuple[PixelState, Tensor]:
        """The perturbation (n, c, *size) to query next where `rows`."""
        assert memory.lead is not None
        some, lead, first = state[rows], memory.lead[rows], not memory.proposals
        margins = margins_of(some.answer, some, task)
        if first:
            lead = self._first(lead, some, task, margins.argmin(1))
        else:
            lead = _answered(lead, some, lengths(memory.queried[rows]), margins.amin(1))
            if self.habits.blurs:
                missed = some.margin >= 0
                ray = replace(lead.ray, towards=blurred(lead.ray.towards, missed & ~lead.blurred))
                lead = replace(lead, blurred=lead.blurred | missed, ray=ray)
            for number in range(self.habits.steps):
                _, directions = self._directions(
                    lead, some, task, margins.argmin(1), lead.delta, memory.proposals, number
                )
                lead = _turned(lead, directions)
        whole = memory.lead.put(rows, lead)
        return replace(memory, lead=whole), whole.delta

    def _first(self, lead: Lead, state: State, task: Task, rival: Tensor) -> Lead:
        """The direction and radius of the first query; a search of one query goes further at once."""
        only, start = task.budget <= 3, None
        for number in range(STEPS + self.habits.steps * only):
            margins, directions = self._directions(lead, state, task, rival, lead.delta, 0, number)
            start = margins if start is None else start
            if 0 < number < STEPS:
                lead = lead.at(_predicted(lead.ray.radius, state.margin0, start - margins))
            elif only and number == STEPS:
                lead = lead.at((ONLY * lead.ray.radius).clamp(max=far(state, MOST)))
            lead = _turned(lead, directions)
        return lead if only else lead.at(RADIUS * lead.ray.radius)

    def learn(self, memory: PixelState) -> PixelState:
        """With a wider angle after a leaning that flipped nearer, and a narrower one after others: margins are curved."""
        assert memory.lead is not None
        nearer = (memory.queried == memory.base).flatten(1).all(1)
        pace = torch.where(nearer, self.habits.wider, self.habits.narrower).where(memory.index == LEAN, 1.0)
        angle = (memory.lead.angle * pace).clamp(NARROWEST * ANGLE, ANGLE)
        return replace(memory, lead=replace(memory.lead, angle=angle))

    def lean(
        self, memory: PixelState, state: State, task: Task, rows: Tensor, move: Tensor
    ) -> tuple[PixelState, Tensor]:
        """The `move` (n, c, *size) that should suffice, turned towards the next surrogate's direction where `rows`."""
        assert memory.lead is not None
        lead = self._replenished(memory, memory.lead, state, task, rows)
        spare, last = lead.spare, lead.spare.shape[1] - 1
        at, row = lead.leant.clamp(max=last), torch.arange(len(state), device=rows.device)
        centre, earlier = unit(move), torch.arange(last + 1, device=rows.device) < at[:, None]
        towards = spare[row, at]
        known = dot(spare, towards[:, None]) * earlier  # the part along directions that were used before
        towards = towards - (wide(known, spare) * spare).sum(1)
        towards = unit(towards - centre * wide((centre * towards).flatten(1).sum(1), centre))
        spare = spare.index_put((row, at), torch.where(wide(rows, towards), towards, spare[row, at]))
        angle = lead.angle
        turned = unit(centre + wide(angle, towards) * towards)
        far_enough = (1 + angle.square()).sqrt() * lengths(move)  # if the direction were worth nothing
        delta = turned * wide(far_enough.minimum((1 - SHRINK) * lengths(memory.base)), turned)
        return replace(memory, lead=replace(lead, spare=spare, leant=lead.leant + rows)), delta

    def _replenished(self, memory: PixelState, lead: Lead, state: State, task: Task, rows: Tensor) -> Lead:
        """New directions at the base where all have been used."""
        own = lead.spare.shape[1] // 2
        used = rows & (lead.leant == 2 * own)
        if not used.any():
            return lead
        some, old = state[used], lead[used]
        rival = margins_of(some.answer, some, task).argmin(1)
        _, new = self._directions(old, some, task, rival, memory.base[used], memory.proposals)
        narrow = old.angle < ANGLE / 2
        if narrow.any():
            new = torch.where(wide(narrow, new), unit(_swinging(new, memory.proposals // own), 2), new)
        spare, leant = torch.cat([old.spare[:, own:], new], 1), torch.full_like(old.leant, own)
        return lead.put(used, replace(old, spare=spare, leant=leant))

    def _directions(
        self, lead: Lead, state: State, task: Task, rival: Tensor, delta: Tensor, round: int, number: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Each surrogate's margin (n, s) at the perturbation, and the unit direction in which it falls (n, s, c, *size). Each
        sees two copies of the input, which differ between surrogates and between steps."""
        x = (state.x0 + wide(state.scale, delta) * delta).clamp(*self.bounds)

        def margin(scores: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
            return task.goal.alternatives(scores, labels).gather(1, rival[:, None]).squeeze(1)

        every = moved_copies(task.grid.kind)
        first = 2 * (round * STEPS + number)
        copies = [
            [every[(first + 3 * surrogate + second) % len(every)] for second in range(min(2, len(every)))]
            for surrogate in range(len(self.prior.surrogates))
        ]
        margins, gradients = self.prior.gradients(x, (state.y, rival), margin, copies, lead.alike)
        return margins, -unit(lead.chosen(blurred(gradients, lead.blurred)), 2)


def _turned(lead: Lead, directions: Tensor) -> Lead:
    """With the mean of the surrogates' directions (n, s, c, *size) added; these also become the first spare ones."""
    towards = lead.ray.towards + unit(directions.mean(1))
    spare = torch.cat([_ordered(directions, towards), lead.spare[:, : directions.shape[1]]], 1)
    return replace(lead, ray=replace(lead.ray, towards=towards), spare=spare)


def _swinging(clips: Tensor, number: int) -> Tensor:
    """(n, s, c, t, h, w), each frame times a cosine over time, which differs with the number: frames need not count alike."""
    frames = cosines(clips.shape[-3], clips.device)
    return clips * frames[number % len(frames)][:, None, None]


def _ordered(directions: Tensor, along: Tensor) -> Tensor:
    """Directions (n, s, c, *size), those that agree most with `along` (n, c, *size) first."""
    order = dot(directions, along[:, None]).argsort(1, descending=True)
    return directions[torch.arange(len(order), device=order.device)[:, None], order]


def _predicted(radius: Tensor, need: Tensor, drop: Tensor) -> Tensor:
    """(n,): where the victim's margin `need` vanishes if it falls like the median surrogate's, by `drop` (n, s) at the radius."""
    usual = drop.median(1).values
    return (radius * need / usual.clamp(min=1e-6)).clamp(0.3 * radius, 4 * radius)


def _answered(lead: Lead, state: State, queried: Tensor, margin: Tensor) -> Lead:
    """With the answer to the last query, of length `queried` (n,): the next radius, and other frames if these gain more. The
    radius of better frames is searched for anew; frames that were tried and gain less say nothing about it."""
    frames, flipped = lead.frames, state.margin < 0
    gain = (state.margin0 - margin) / queried.clamp(min=1e-12)
    better = frames.better(gain)
    worse, anew = frames.trial & ~better, replace(lead.ray, missed=0 * margin, last=0 * margin, margin=state.margin0)
    found = lead.ray.put(better, anew[better]).answered(state, queried, margin)
    shorter = lead.ray.radius.minimum(torch.where(flipped, 0.99 * state.distance, torch.inf))
    found = found.put(worse, replace(lead.ray, radius=shorter)[worse])
    ready = flipped & (found.radius > READY * queried) & (state.step >= START)
    after = frames.after(gain, ready, state.x0.shape[2] if state.x0.dim() == 5 else 1)
    return replace(lead, ray=found, frames=after)


def blurred(x: Tensor, rows: Tensor) -> Tensor:
    """Pictures (n, ..., h, w), blurred by a Gaussian of standard deviation BLUR where `rows` (n,) bool."""
    if not rows.any():
        return x
    out = x
    for axis in (-2, -1):
        waves = cosines(x.shape[axis], x.device)
        pitch = torch.arange(len(waves), device=x.device) * math.pi / len(waves)
        kept = torch.exp(-0.5 * (BLUR * pitch).square())
        out = (out.movedim(axis, -1) @ ((waves.T * kept) @ waves)).movedim(-1, axis)
    return torch.where(wide(rows, x), out, x)
