"""Attacks on clips: the victims, the policies, and the parts that are switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.victims import CLIP_NETS
from rlab.core.env import Task
from rlab.policies import parse_policy
from rlab.policies.base import Policy

PALETTE, PATCH = ("gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"), 8
STUDIED = "tsm"  # the victim of all tables of parts
COARSE = 4  # cells along each side of a frame
SIDES = (5, 13)  # patch sizes of the papers
OLD_AGENTS: dict[str, dict[str, Any]] = {  # recorded with the agents of rlab 0.2.0
    "two agents, L1 + L2": {},
    "without the temporal agent": {},
    "L1 only": {},
    "without reverse removal": {"cleanup": False},
    "removal by single patches": {},
}
TITLES = {
    "curves": "",
    "ablations": "What each part of the agents contributes",
    "beliefs": "What each part of the belief search contributes",
}


def reduced(policy: str) -> Policy[Any]:
    """A policy whose flips are reduced by regions before single patches."""
    made = parse_policy(policy)
    object.__setattr__(made, "regions", regions)
    return made


def regions(task: Task) -> list[Tensor]:
    """Coarse cells, 4 x 4 on a frame, over all frames, over ever shorter runs of frames, and on single frames."""
    t, rows, columns = task.grid.shape
    row, column = (torch.arange(side) * min(COARSE, side) // side for side in (rows, columns))
    cells, frame = (row[:, None] * COARSE + column).flatten(), torch.arange(t)[:, None]
    runs = dict.fromkeys(length for length in (t, t // 2, t // 4, 1) if length)
    return [(frame // length * COARSE**2 + cells).flatten() for length in runs]


@dataclass(frozen=True)
class Case:
    """One attack on one victim. Without a policy the row was recorded with rlab 0.2.0; later versions cannot run it."""

    section: str
    victim: str
    attack: str
    policy: Callable[[], str | Policy[Any]] | None
    budget: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        slug = "".join(c if c.isalnum() else "_" for c in self.attack)
        return f"{self.section}-{self.victim}-{slug}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"victim": self.victim, "attack": self.attack, "budget": self.budget, "seed": 0, **self.options}


def _said(spec: str) -> Callable[[], str]:
    return lambda: spec


def _sides(section: str, policy: Callable[[], str | Policy[Any]] | None) -> Iterator[Case]:
    for side in SIDES:
        yield Case(section, STUDIED, f"patch {side} x {side}", policy, 200, {"patch": side})


def cases() -> Iterator[Case]:
    for victim in CLIP_NETS:
        yield Case("curves", victim, "auto", _said("auto"), 1000)
        yield Case("curves", victim, "square", lambda: reduced("square"), 1000)
        yield Case("curves", victim, "two agents", None, 300)
        yield Case("curves", victim, "random", lambda: reduced("random"), 300)
    for attack, options in OLD_AGENTS.items():
        yield Case("ablations", STUDIED, attack, None, 200, options)
    yield from _sides("ablations", None)
    specs = {
        "auto": "auto",
        "nothing expected of the middle": "auto(central=0)",
        "nothing shared by frames and cells": "auto(shared=0)",
        "single patches from the start": None,
        "one change a query": None,
        "adding alone, then reverse removal": None,
        "along the agents' directions": None,
    }
    for attack, spec in specs.items():
        yield Case("beliefs", STUDIED, attack, _said(spec) if spec else None, 200)
    yield from _sides("beliefs", _said("auto"))
