"""Attacks on clips: the victims, the policies, and the parts that are switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.attacks import HEADLINE_SEEDS
from benchmarks.victims import CLIP_NETS
from rlab.core.env import Task
from rlab.policies import parse_policy
from rlab.policies.base import Policy

PALETTE, PATCH = ("gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"), 8
STUDIED, HEADLINE = "tsm", "slowfast"  # the victims of all tables of parts, and of README's row
COARSE = 4  # cells along each side of a frame
SIDES = (5, 13)  # patch sizes of the papers
TITLES = {"curves": "", "beliefs": "What each part of the belief search contributes"}
BUDGETS = {"curves": 300, "beliefs": 200}


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
    """One attack on one victim."""

    section: str
    victim: str
    attack: str
    policy: Callable[[], str | Policy[Any]]
    budget: int
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1

    def file(self, seed: int = 0) -> str:
        slug = "".join(c if c.isalnum() else "_" for c in self.attack)
        return f"{self.section}-{self.victim}-{slug}{f'-s{seed}' if seed else ''}"

    def settings(self, seed: int = 0) -> dict[str, Any]:
        return {"victim": self.victim, "attack": self.attack, "budget": self.budget, "seed": seed, **self.options}


def _said(spec: str) -> Callable[[], str]:
    return lambda: spec


def cases() -> Iterator[Case]:
    """All rows of a section have the same budget."""
    for victim in CLIP_NETS:
        seeds = HEADLINE_SEEDS if victim == HEADLINE else 1
        yield Case("curves", victim, "auto", _said("auto"), BUDGETS["curves"], seeds=seeds)
        for name in ("square", "random"):
            yield Case("curves", victim, name, partial(reduced, name), BUDGETS["curves"], seeds=seeds)
    specs = {
        "auto": "auto",
        "nothing expected of the middle": "auto(central=0)",
        "nothing shared by frames and cells": "auto(shared=0)",
    }
    for attack, spec in specs.items():
        yield Case("beliefs", STUDIED, attack, _said(spec), BUDGETS["beliefs"])
    for side in SIDES:
        yield Case("beliefs", STUDIED, f"patch {side} x {side}", _said("auto"), BUDGETS["beliefs"], {"patch": side})
