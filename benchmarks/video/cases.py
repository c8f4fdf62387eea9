"""Attacks on clips: the victims, the policies, and the parts that are switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rlab
from benchmarks.victims import CLIP_NETS
from rlab.policies import parse_policy
from rlab.policies.base import Policy

PALETTE, PATCH = ("gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"), 8
STUDIED = "tsm"  # the victim of all tables of parts
AGENTS = Path(rlab.__file__).parent / "assets" / "agent_clips.safetensors"
SIDES = (5, 13)  # patch sizes of the papers
TITLES = {
    "curves": "",
    "ablations": "What each part of the agents contributes",
    "beliefs": "What each part of the belief search contributes",
}


def agents(options: str = "") -> Policy[Any]:
    """The two agents that ship."""
    return parse_policy(f"agents({options})")


def reduced(policy: str) -> Policy[Any]:
    """Another policy whose flips are reduced like the agents': regions are restored before single patches."""
    made = parse_policy(policy)
    object.__setattr__(made, "regions", agents().regions)
    return made


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


def _sides(section: str, policy: Callable[[], str | Policy[Any]]) -> Iterator[Case]:
    for side in SIDES:
        yield Case(section, STUDIED, f"patch {side} x {side}", policy, 200, {"patch": side})


def cases() -> Iterator[Case]:
    for victim in CLIP_NETS:
        yield Case("curves", victim, "auto", _said("auto"), 1000)
        yield Case("curves", victim, "square", lambda: reduced("square"), 1000)
        yield Case("curves", victim, "two agents", agents, 300)
        yield Case("curves", victim, "random", lambda: reduced("random"), 300)
    rows: dict[str, tuple[Callable[[], str | Policy[Any]], dict[str, Any]]] = {
        "two agents, L1 + L2": (agents, {}),
        "without the temporal agent": (lambda: agents("temporal=False"), {}),
        "L1 only": (lambda: agents("levels=1"), {}),
        "without reverse removal": (agents, {"cleanup": False}),
        "removal by single patches": (lambda: agents("by_region=False"), {}),
    }
    for attack, (policy, options) in rows.items():
        yield Case("ablations", STUDIED, attack, policy, 200, options)
    yield from _sides("ablations", agents)
    specs = {
        "auto": "auto",
        "nothing expected of the middle": "auto(central=0)",
        "nothing shared by frames and cells": "auto(shared=0)",
        "single patches from the start": None,
        "one change a query": None,
        "adding alone, then reverse removal": None,
        "along the agents' directions": f"belief(prior='{AGENTS}')",
    }
    for attack, spec in specs.items():
        yield Case("beliefs", STUDIED, attack, _said(spec) if spec else None, 200)
    yield from _sides("beliefs", _said("auto"))
