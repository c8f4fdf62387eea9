"""Training episodes: a victim, its inputs and a grid, with random palettes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rlab.core.env import AttackEnv, State, Task
from rlab.errors import ModelError
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette, unit_scale
from rlab.victims.base import Victim

_RANGE = re.compile(r"(?P<name>[^@]+)@(?P<low>[.0-9e-]+)\.\.(?P<high>[.0-9e-]+)(?P<unit>[A-Za-zµ]*)$")


def draw_bank(
    x: Tensor,
    template: Sequence[str],
    entries: int,
    rng: random.Random,
    bounds: tuple[float, float],
    rate: float | None,
    unit: str,
    own: Mapping[str, Filter] | None = None,
) -> Tensor:
    """A bank (n, entries + 1, c, *size) of inputs x under specs like 'gaussian_noise@0.05..0.4'; a range gives one severity per
    family."""
    drawn: list[Entry] = []
    while len(drawn) < entries:
        for spec in rng.sample(list(template), len(template)):
            family = Palette.of([_fix(spec, rng)], x.dim() - 2, x.shape[1], rate, unit, own).entries
            drawn.extend(replace(entry, draw=len(drawn) + i) for i, entry in enumerate(family))
    bank = x[:, None].repeat(1, entries + 1, *(1,) * (x.dim() - 1))
    Palette(tuple(drawn[:entries])).fill(bank, bounds, rng.getrandbits(40))
    return bank


def _fix(spec: str, rng: random.Random) -> str:
    match = _RANGE.match(spec)
    if match is None:
        return spec
    low, high = math.log(float(match["low"])), math.log(float(match["high"]))
    return f"{match['name']}@{math.exp(rng.uniform(low, high)):.4f}{match['unit']}"


@dataclass
class EpisodeSampler:
    """Draws the rows that step together; a row that ends starts again with another input."""

    victim: Victim
    x: Tensor  # (b, c, *size) correctly classified inputs, on the victim's device
    y: Tensor
    bounds: tuple[float, float]
    task: Task  # its budget limits an episode
    templates: Sequence[Sequence[str]]
    rng: random.Random = field(default_factory=random.Random)
    group: int = 32  # rows that share a palette
    rate: float | None = None  # samples per second of signals, for filters that depend on frequency
    unit: str = ""  # of the data, for severities given in it

    @property
    def env(self) -> AttackEnv:
        return AttackEnv(lambda x, phase, samples, assignment: self.victim(x, "train"), self.task)

    def fresh(self, rows: int) -> State:
        """New episodes; `group` rows share a palette, so that a batch has several."""
        sizes = [min(self.group, rows - at) for at in range(0, rows, self.group)]
        return State.cat([self._fresh_group(size) for size in sizes])

    def _fresh_group(self, rows: int) -> State:
        index = torch.tensor([self.rng.randrange(len(self.x)) for _ in range(rows)], device=self.x.device)
        x, y = self.x[index], self.y[index]
        template = self.rng.choice(self.templates)
        bank = draw_bank(x, template, self.task.entries, self.rng, self.bounds, self.rate, self.unit)
        seed = torch.tensor([self.rng.getrandbits(62) for _ in range(rows)], device=x.device)
        scale = unit_scale(x, self.bounds)[1].flatten()
        return self.env.start(y, index, seed, bank, scale, self.victim(x, "train"))


def teachable(victim: Victim, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """(n,) indices of inputs to train on; raises an error for a victim that cannot be trained on."""
    scores = victim(x, "train")
    if not torch.isfinite(scores).all():
        raise ModelError("the training model returns NaN: fix it before you train on it")
    once, again = victim(x[:64], "train"), victim(x[:64], "train")
    if (once - again).abs().max() > 1e-3:
        raise ModelError("the training model returns different scores for the same input: switch off dropout and noise")
    if len(x) > 1 and float((scores - scores[:1]).abs().max()) < 1e-6:
        raise ModelError("the training model returns the same scores for every input: nothing can be learned from it")
    rows = (task.goal.correct(scores, y) & ~task.goal.reached(scores, y)).nonzero().flatten()
    if not len(rows):
        raise ModelError(f"the training model is wrong on all {len(x)} training inputs: check labels with rlab doctor")
    return rows
