"""Attacks on clips: the victims, the policies, and the parts that are switched off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.attacks import HEADLINE_SEEDS
from benchmarks.data import WEIGHTS
from benchmarks.victims import CLIP_NETS

PALETTE, PATCH = ("gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"), 8
STUDIED, HEADLINE = "tsm", "slowfast"  # the victims of all tables of parts, and of README's row
SIDES = (5, 13)  # patch sizes of the papers
TITLES = {"curves": "", "beliefs": "What each part of the belief search contributes"}
AGENT = f"two_agents(agent='{WEIGHTS}/papers/two_agents-main-SEED.safetensors')"  # one agent for each seed
BUDGETS = {"curves": 300, "beliefs": 200}


@dataclass(frozen=True)
class Case:
    """One attack on one victim."""

    section: str
    victim: str
    attack: str
    policy: str  # SEED stands for the seed
    budget: int
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1

    def file(self, seed: int = 0) -> str:
        slug = "".join(c if c.isalnum() else "_" for c in self.attack)
        return f"{self.section}-{self.victim}-{slug}{f'-s{seed}' if seed else ''}"

    def settings(self, seed: int = 0) -> dict[str, Any]:
        return {"victim": self.victim, "attack": self.attack, "budget": self.budget, "seed": seed, **self.options}


def cases() -> Iterator[Case]:
    """All rows of a section have the same budget."""
    for victim in CLIP_NETS:
        seeds = HEADLINE_SEEDS if victim == HEADLINE else 1
        yield Case("curves", victim, "auto", "auto", BUDGETS["curves"], seeds=seeds)
        others = {"square": "square", "random": "random"} | ({"two_agents": AGENT} if victim == HEADLINE else {})
        for name, policy in others.items():
            yield Case("curves", victim, name, policy, BUDGETS["curves"], seeds=seeds)
    specs = {
        "auto": "auto",
        "nothing expected of the middle": "auto(central=0)",
        "nothing shared by frames and cells": "auto(shared=0)",
    }
    for attack, spec in specs.items():
        yield Case("beliefs", STUDIED, attack, spec, BUDGETS["beliefs"])
    for side in SIDES:
        yield Case("beliefs", STUDIED, f"patch {side} x {side}", "auto", BUDGETS["beliefs"], {"patch": side})
