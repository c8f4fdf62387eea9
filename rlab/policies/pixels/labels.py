"""Free pixels where the model tells only its label: along the boundary, by the side of it that each query lies on.

First a direction that flips, at a growing radius, and bisection along it. Then rounds: probes beside the best flip say by their
signs where the boundary's normal points, those of all rounds together; the next flip lies on the circle through the input and
the last flip, turned towards that normal as far as the model stays wrong (as in CGBA, https://arxiv.org/abs/2308.03163): its
points come nearer the further it is turned. Probes walk along the radius so that half of them flip, and no query is spent on
coming back to the boundary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.rng import normal, uniform
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.basis import cosines
from rlab.policies.pixels.belief import far
from rlab.priors.base import Prior

OPEN, BISECT, PROBE, MOVE = range(4)  # what a row is asking
START, GROW = 0.007, 1.5  # how much every value changes at first, and how much more each time no direction flips
LEVELS, PLAIN = 13, 8  # how often that grows, and from where on noise is white
HALVINGS = 5  # of the first flip's way
PROBES = 20  # of the first round; the n-th has as many times the square root of n
BESIDE = 0.3  # length of a probe, as a share of the distance
TURNS = 5  # tries of a round to find how far the circle can be followed
ANGLE, NARROW, WIDE = 0.5, 0.02, 1.2  # the first turn to try, and the least and the most to begin a round with
CALM, NEAR = (
    0.9,
    1e-3,
)  # how fast the walk along the radius slows down, and its first step at least, as a share of the distance
COLOUR = 0.03  # of a picture's probes: power of the channels' differences, in those of their mean
CENTRE = 0.5  # and how much less of them lies at the edge
WORTH = 12.0  # how much surrogates' direction weighs, in the root of probes
LED = 3  # rounds that follow surrogates alone


@dataclass(frozen=True)
class LabelSearch:
    """Directions that may flip come from the `prior`, where it knows any, and are drawn."""

    prior: Prior

    def begin(self, state: State, task: Task) -> dict[str, Tensor]:
        self.prior.check_classes(state.scores.shape[1])
        directions = self.prior.directions(state.x0, state.y, state.scale, task.goal)
        none, empty, first = torch.zeros_like(state.margin), torch.zeros_like(state.x0), torch.zeros_like(state.sample)
        return {
            "mode": first + OPEN,
            "count": first,  # queries of this mode so far
            "round": first,
            "low": none,  # bracket of the radius or the angle
            "high": none,
            "at": none,  # the radius or angle asked last
            "radius": none,  # of the flip that a round began with
            "axis": empty,  # of length one: where that flip lies
            "across": empty,  # of length one: where the circle turns to
            "normal": empty,  # probes times their signs, in all
            "walk": none,  # how far towards the input probes have moved
            "stride": none,  # of the next step of that walk
            "angle": none + ANGLE,  # that the last round found
            "towards": empty[:, None, None][:, :0, 0] if directions is None else _with_mean(unit(directions, 2)),
        }

    def ask(self, memory: dict[str, Tensor], state: State, task: Task) -> Tensor:
        """What the last answer says, and the perturbation (n, c, *size) to ask next."""
        if int(state.step[0]) > 0:
            won = task.goal.margin(state.answer, state.y) + state.slack < 0
            _learn(memory, won)
            self._go_on(memory, state, task, won)
        mode, at, axis = memory["mode"], memory["at"], memory["axis"]
        delta = wide(at, axis) * axis
        if (mode == OPEN).any():
            delta = torch.where(wide(mode == OPEN, delta), _opening(memory, state), delta)
        if (mode == PROBE).any():
            probe = wide(memory["radius"] - memory["walk"], axis) * axis
            probe = probe + wide(BESIDE * memory["radius"], axis) * unit(_beside(_noise(state), axis))
            delta = torch.where(wide(mode == PROBE, delta), probe, delta)
        turned = wide(at.cos(), axis) * axis + wide(at.sin(), axis) * memory["across"]
        return torch.where(wide(mode == MOVE, delta), wide(memory["radius"] * at.cos(), axis) * turned, delta)

    def _go_on(self, memory: dict[str, Tensor], state: State, task: Task, won: Tensor) -> None:
        """From one mode to the next, where a row is done with it."""
        mode, count, low, high = (memory[name] for name in ("mode", "count", "low", "high"))
        found = (mode == OPEN) & won
        probes = (PROBES * (memory["round"] + 1).sqrt()).long()
        bisected, moved = (mode == BISECT) & (count == HALVINGS), (mode == MOVE) & (count == TURNS)
        probed = (mode == PROBE) & (count >= probes)
        memory["round"] = memory["round"] + moved
        fresh = bisected | moved
        if found.any() or fresh.any():
            there, base = found | fresh, (state.x - state.x0) / wide(state.scale, state.x)
            gap = torch.where(moved, memory["radius"] * (low.cos() - high.cos()), high - low)
            memory["angle"] = torch.where(
                moved, torch.where(low > 0, (low + high) / 2, 0.7 * high).clamp(max=1.0), memory["angle"]
            )
            memory["axis"] = torch.where(wide(there, base), unit(base), memory["axis"])
            memory["radius"] = torch.where(there, lengths(base), memory["radius"])
            memory["stride"] = torch.where(fresh, gap.maximum(NEAR * memory["radius"]) / 2, memory["stride"])
            memory["walk"] = torch.where(fresh, 0.0, memory["walk"])
            low, high = torch.where(found, 0.0, low), torch.where(found, memory["radius"], high)
        led = fresh & self.prior.local & (memory["round"] < LED)
        turns = probed | led
        if turns.any():
            across = unit(_beside(memory["normal"] + self._led(memory, state, task, turns), memory["axis"]))
            memory["across"] = torch.where(wide(turns, across), across, memory["across"])
            low, high = torch.where(turns, 0.0, low), torch.where(turns, math.pi / 2, high)
        mode = torch.where(found, BISECT, torch.where(turns, MOVE, torch.where(fresh, PROBE, mode)))
        memory |= {"mode": mode, "low": low, "high": high, "count": torch.where(found | fresh | turns, 0, count)}
        at = torch.where(mode == BISECT, (low + high) / 2, _next_angle(memory["at"], low, high))
        memory["at"] = torch.where(turns, memory["angle"].clamp(NARROW, WIDE), at)

    def _led(self, memory: dict[str, Tensor], state: State, task: Task, rows: Tensor) -> Tensor:
        """Where the surrogates' margins fall at the best flip, (n, c, *size), zero without any."""
        lead = torch.zeros_like(state.x0)
        if self.prior.local:
            some = self.prior.directions(state.x[rows], state.y[rows], state.scale[rows], task.goal)
            lead[rows] = 0.0 if some is None else WORTH * unit(unit(some, 2).mean(1))
        return lead


def _learn(memory: dict[str, Tensor], won: Tensor) -> None:
    """The side of the boundary that was asked about last: a bracket's end, or one more sign."""
    mode, at, axis = memory["mode"], memory["at"], memory["axis"]
    outer = torch.where(mode == BISECT, won, ~won) & ((mode == BISECT) | (mode == MOVE))
    inner = torch.where(mode == BISECT, ~won, won) & ((mode == BISECT) | (mode == MOVE))
    memory["high"], memory["low"] = torch.where(outer, at, memory["high"]), torch.where(inner, at, memory["low"])
    memory["count"] = memory["count"] + 1
    sign = torch.where(mode == PROBE, torch.where(won, 1.0, -1.0), 0.0)
    step = memory["asked"] - wide(memory["radius"] - memory["walk"], axis) * axis
    memory["normal"] = memory["normal"] + wide(sign, axis) * unit(step)
    memory["walk"] = memory["walk"] + sign * memory["stride"]
    memory["stride"] = memory["stride"] * torch.where(mode == PROBE, CALM, 1.0)


def _next_angle(at: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(n,): further while the model stays wrong, back where it never did, else between."""
    further = torch.minimum(2 * at, (at + math.pi / 2) / 2)
    return torch.where(high >= math.pi / 2, further, torch.where(low > 0, (low + high) / 2, 0.4 * high))


def _opening(memory: dict[str, Tensor], state: State) -> Tensor:
    """(n, c, *size): the next direction, one of the prior or noise; the radius grows when all have been tried."""
    towards, count = memory["towards"], memory["count"]
    ways = towards.shape[1] + 1
    level = count // ways % LEVELS
    out = unit(torch.where(wide(level < PLAIN, state.x0), _noise(state), _white(state)))
    if ways > 1:
        known = towards[torch.arange(len(count), device=count.device), (count % ways).clamp(max=ways - 2)]
        out = torch.where(wide(count % ways < ways - 1, out), known, out)
    return out * wide(far(state, START) * GROW**level, out)


def _with_mean(directions: Tensor) -> Tensor:
    """(n, k, c, *size) of length one, their mean first where there are several."""
    return (
        directions if directions.shape[1] < 2 else torch.cat([unit(directions.mean(1, keepdim=True), 2), directions], 1)
    )


def _beside(x: Tensor, axis: Tensor) -> Tensor:
    """What of x is at right angles to the axis, which has length one."""
    return x - wide((x * axis).flatten(1).sum(1), axis) * axis


def _white(state: State) -> Tensor:
    count = state.x0[0].numel()
    return normal(uniform(state.seed, state.step, count + count % 2))[:, :count].view_as(state.x0)


def _noise(state: State) -> Tensor:
    """(n, c, *size): white, but of pictures of high frequencies, mostly the same in all channels, and more in the middle: there
    gradients of networks are large."""
    white = _white(state)
    if white.dim() != 4:
        return white
    channels, size = white.shape[1], white.shape[2:]
    along = [torch.arange(length, device=white.device) / length for length in size]
    power = along[0].square()[:, None] + along[1].square()
    shade = torch.where(torch.arange(channels, device=white.device)[:, None, None] > 0, COLOUR * power.mean(), power)
    mix, rows, columns = (cosines(length, white.device) for length in (channels, *size))
    shaped = rows.T @ (white * shade.sqrt()) @ columns
    off = [torch.linspace(-1, 1, length, device=white.device) for length in size]
    inner = (-CENTRE * (off[0].square()[:, None] + off[1].square())).exp()
    return (mix.T @ shaped.flatten(2)).view_as(white) * inner
