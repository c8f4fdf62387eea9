"""What the sections of the benchmark on clips share: the options of a run, one attack told on the way, and its figures."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import rlab
from benchmarks import common
from benchmarks.video_agents import PALETTE, PATCH
from rlab.core.grid import PatchGrid
from rlab.core.trace import Improvements
from rlab.data.batch import Batch
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.victims.base import Victim
from rlab.victims.zoo import clip_victim

HEADINGS = ("attack", "success", "queries", "search", "MAP", "L2", "Linf", "frames", "patches", "s a clip")


@dataclass(frozen=True)
class Figures:
    """What a table tells of one attack; medians."""

    success: float
    queries: float
    search: float
    map255: float
    l2: float
    linf: float
    frames: float
    patches: float
    seconds: float  # a clip

    @classmethod
    def of(cls, result: rlab.AttackResult) -> Figures:
        tried, won = result.attacked, result.succeeded
        budget = result.setting.budget
        queries = torch.where(won, result.effort, budget)[tried].float()
        touched = (result.assignment != 0).view(len(result), result.setting.grid.shape[0], -1).any(2).sum(1)

        def median(values: torch.Tensor) -> float:
            return float(values[won].float().median()) if won.any() else math.nan

        return cls(
            success=float(won.sum()) / max(1, int(tried.sum())),
            queries=float(queries.median()) if len(queries) else math.nan,
            search=median(result.queries[:, 0]),
            map255=median(result.final["map255"]),
            l2=median(result.final["l2"]),
            linf=median(result.final["linf"]),
            frames=median(touched),
            patches=median(result.final["l0_patches"]),
            seconds=float(result.seconds.sum()) / len(result),
        )

    def cells(self, name: str) -> tuple[str, ...]:
        figures = (self.queries, self.search, self.map255, self.l2, self.linf, self.frames, self.patches, self.seconds)
        return (name, f"{self.success:.1%}", *("–" if math.isnan(one) else f"{one:.4g}" for one in figures))


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    batch: Batch
    agents: Path | None
    weights: Path
    budget: int
    patience: int | None
    l2_penalty: float
    own_patience: int
    device: str
    seed: int
    quick: bool
    mobilenet: str | None = None
    fresh: bool = False
    full: bool = False
    pages: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def victim(self, name: str) -> Victim:
        if self.quick:
            return rlab.demo_victim("clips")
        path = self.weights / f"{name}.safetensors"
        if not path.exists():
            raise common.Absent(
                f"{path.name} is not in {self.weights.name}: train it with python -m benchmarks.train_clips"
            )
        return clip_victim(path, self.device)

    def agent(self, name: str = "pair", **options: Any) -> Policy:
        """The agents trained under this name; without a folder those that come with the package."""
        path = "auto" if self.agents is None and name == "pair" else self.file(name)
        said = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return parse_policy(f"{path}({said})").suited(PatchGrid.of(self.batch.size, (1, PATCH, PATCH)))

    def file(self, name: str) -> str:
        path = None if self.agents is None else self.agents / name / "agent.safetensors"
        if path is None or not path.exists():
            raise common.Absent(f"there are no agents {name!r}: train them with --train FOLDER, then --agents FOLDER")
        return str(path)

    def run(self, name: str, victim: Victim, policy: str | Policy, patch: int = PATCH, **options: Any) -> Figures:
        """One attack, told on the way."""
        together = len(self.batch) if self.device != "cpu" else None
        chosen: dict[str, Any] = {"patience": self.patience, "chunk": together, "seed": self.seed} | options
        made = make_attack(
            self.batch, palette=PALETTE, patch=(1, patch, patch), budget=self.budget, policy=policy, **chosen
        )
        began = time.monotonic()
        found = Figures.of(made(victim, self.batch))
        print(
            f"{name}: {found.success:.1%}, {found.queries:g} queries, MAP {found.map255:.3g}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return found

    def ours(self, name: str, victim: Victim, policy: Policy, patch: int = PATCH, **options: Any) -> Figures:
        return self.run(
            name, victim, policy, patch, **({"l2_penalty": self.l2_penalty, "patience": self.own_patience} | options)
        )

    def reduced(self, policy: str) -> Policy:
        """Another policy whose flips are reduced as the agents' are: regions are given back before single patches."""
        made = parse_policy(policy)
        object.__setattr__(made, "regions", self.agent().regions)
        return made

    def curve(self, name: str, victim: Victim, policy: Policy) -> tuple[Improvements, ...]:
        """What each clip the victim had right reached, (queries, MAP / 255), until the budget is spent."""
        made = make_attack(
            self.batch, palette=PALETTE, patch=(1, PATCH, PATCH), budget=self.budget + 1, policy=policy, until="budget",
            distance="map", patience=self.own_patience, seed=self.seed,
            chunk=len(self.batch) if self.device != "cpu" else None,
        )  # fmt: skip
        began, result = time.monotonic(), made(victim, self.batch)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
        return tuple(improvements for improvements, attacked in pairs if attacked)

    def other(self, name: str, victim: Victim, policy: str) -> Figures:
        """A policy that does not change with ours: from results/raw where it was run before; --quick leaves nothing there."""
        make = functools.partial(self.run, f"{name}, {policy}", victim, self.reduced(policy))
        if self.quick:
            return make()
        patience = "-regions" if self.patience is None else f"-regions-patience{self.patience}"
        file = f"video-{name}-{policy}{patience}-n{len(self.batch)}-b{self.budget}-s{self.seed}"
        return Figures(**common.kept_values(file, self.fresh, lambda: asdict(make())))

    def page(self, title: str, about: str, rows: Mapping[str, Figures], more: Sequence[str] = ()) -> None:
        shown = common.table(HEADINGS, [figures.cells(name) for name, figures in rows.items()])
        self.pages.append("\n\n".join([f"## {title}", about, shown, *more]))

    def note(self, name: str, figures: Figures) -> None:
        self.figures |= {
            f"{name}_success": figures.success,
            f"{name}_queries": figures.queries,
            f"{name}_map": figures.map255,
        }

    @property
    def about(self) -> str:
        side = self.batch.size
        extra = f"; every cleanup gives regions back first; the agents' ends after {self.own_patience} failed tries in a row"
        extra += ", the others' tries every patch" if self.patience is None else f", the others' after {self.patience}"
        return (
            f"{len(self.batch)} clips of {side[0]} frames of {side[1]} x {side[2]}, budget {self.budget} queries a clip, "
            f"palette `{' '.join(PALETTE)}`, patches of {PATCH} x {PATCH} on single frames{extra}."
        )
