"""What the sections of the benchmark on clips share: the options of a run, one attack as a curve, and the figures of curves."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rlab
from benchmarks import common
from benchmarks.video_agents import PALETTE, PATCH
from rlab.core.grid import PatchGrid
from rlab.core.trace import Improvements, best_within
from rlab.data.batch import Batch
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.stats import Estimate, Floats, estimate, over_seeds, ratio_over_seeds, share_estimate
from rlab.victims import Victim
from rlab.victims.zoo import clip_victim
from rlab.victims.zoo.clips import CLIP_NETS

FAR = 64.0  # the MAP that no flip counts as in an area under a curve: about what distorting a whole clip comes to
SHOWN = (5, 10, 20, 50, 100, 200, 300, 1000)  # queries whose MAP a table shows


@dataclass(frozen=True)
class Curve:
    """What one attack reached on each clip that the victim had right: (queries, MAP), MAP falling."""

    section: str
    victim: str
    attack: str
    seed: int
    budget: int
    about: str
    seconds: float
    frames: float  # touched at the end, the median over flipped clips
    patches: float
    reached: tuple[Improvements, ...]

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"reached": [[[q, float(f"{far:.4g}")] for q, far in clip] for clip in self.reached]}

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.section, self.victim, self.attack, self.seed

    def within(self, queries: int) -> Floats:
        """(1, n): the MAP of the best flip within so many queries, infinity where there is none."""
        return best_within(self.reached, queries).double().numpy()[None]

    def first(self) -> Estimate:
        """Queries to the first flip, the median."""
        return over_seeds(np.array([[clip[0][0] if clip else math.inf for clip in self.reached]]), "median")

    def median(self, queries: int) -> Estimate:
        return over_seeds(self.within(queries), "median")

    def success(self, queries: int) -> Estimate:
        hits = sum(bool(clip) and clip[0][0] <= queries for clip in self.reached)
        return share_estimate(hits, len(self.reached))

    def areas(self, queries: int) -> Floats:
        """(n,): the area under log MAP over the first so many queries, a query's mean; no flip counts as FAR."""
        rows = [self.within(q)[0] for q in range(1, queries + 1)]
        areas: Floats = np.log(np.minimum(rows, FAR)).mean(0)
        return areas


def map_ratio(ours: Curve, other: Curve, queries: int) -> Estimate:
    """The median MAP within so many queries over the other's: 0 where the other has not flipped half of the clips."""
    return ratio_over_seeds(ours.within(queries), other.within(queries), "median")


def area_ratio(ours: Sequence[Curve], other: Sequence[Curve], queries: int) -> Estimate:
    """The MAP of ours over the other's, the geometric mean over clips, seeds and the first so many queries; below 1 is better."""
    apart = np.mean([a.areas(queries) - b.areas(queries) for a, b in zip(ours, other, strict=True)], 0)
    return estimate(lambda rows: np.exp(apart[rows].mean(1)), len(apart))


@dataclass
class Bench:
    """The options of a run, and the curves found so far, which are kept in a file as they come."""

    batch: Batch
    raw: Path | None = None
    agents: Path | None = None
    weights: Path = common.WEIGHTS
    budget: int = 1000
    patience: int = 6
    device: str = "cpu"
    seed: int = 0
    patch: int = PATCH
    mobilenet: str | None = None
    curves: dict[tuple[str, str, str, int], Curve] = field(default_factory=dict)

    def victims(self) -> Iterator[tuple[str, Victim]]:
        """Those whose weights are at hand, by name."""
        for name in CLIP_NETS:
            try:
                yield name, self.victim(name)
            except common.Absent as why:
                print(f"skipped {name}: {why}")

    def victim(self, name: str) -> Victim:
        if name == "demo":
            return rlab.demo_victim("clips")
        path = self.weights / f"{name}.safetensors"
        if not path.exists():
            raise common.Absent(
                f"{path.name} is not in {self.weights.name}: train it with python -m benchmarks.train_clips"
            )
        return clip_victim(path, self.device)

    def agent(self, name: str = "pair", **options: Any) -> Policy[Any]:
        """The agents trained under this name; without a folder those that come with the package."""
        said = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return parse_policy(f"{self.file(name)}({said})")

    def file(self, name: str) -> str:
        if self.agents is None and name == "pair":
            return "agents"
        path = None if self.agents is None else self.agents / name / "agent.safetensors"
        if path is None or not path.exists():
            raise common.Absent(f"there are no agents {name!r}: train them with --train FOLDER, then --agents FOLDER")
        return str(path)

    def reduced(self, policy: str) -> Policy[Any]:
        """Another policy whose flips are reduced as the agents' are: regions are given back before single patches."""
        made = parse_policy(policy)
        object.__setattr__(made, "regions", self.agent().regions)
        return made

    def run(self, section: str, victim: str, label: str, policy: str | Policy[Any], **options: Any) -> Curve:
        """One attack until its budget is spent or its cleanup ends, told on the way and kept."""
        patch = options.pop("patch", self.patch)
        patch = patch if isinstance(patch, tuple) else (1, patch, patch)
        chosen: dict[str, Any] = {
            "palette": PALETTE, "patch": patch, "budget": self.budget + 1, "policy": policy, "until": "budget",
            "distance": "map", "patience": self.patience, "seed": self.seed,
            "chunk": len(self.batch) if self.device != "cpu" else None,
        }  # fmt: skip
        began = time.monotonic()
        result = make_attack(self.batch, **(chosen | options))(self.victim(victim), self.batch)
        won = result.succeeded
        touched = (result.assignment != 0).view(len(result), result.setting.grid.shape[0], -1)
        pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
        reached = tuple(tuple((q, 255 * far) for q, far in clip) for clip, attacked in pairs if attacked)
        made = Curve(
            section, victim, label, self.seed, self.budget, self.about(patch), time.monotonic() - began,
            float(touched.any(2).sum(1)[won].float().median()) if won.any() else math.nan,
            float(touched.sum((1, 2))[won].float().median()) if won.any() else math.nan, reached,
        )  # fmt: skip
        print(f"{victim}, {label}: {made.success(self.budget).value:.1%}, {made.seconds:.0f} s", flush=True)
        self.curves[made.key] = made
        if self.raw is not None:
            keep(self.raw, list(self.curves.values()))
        return made

    def about(self, patch: tuple[int, ...]) -> str:
        frames, height, width = self.batch.size
        grid = PatchGrid.of(self.batch.size, patch)
        return (
            f"{len(self.batch)} clips of {frames} frames of {height} x {width}, budget {self.budget}, palette "
            f"`{' '.join(PALETTE)}`, {len(grid)} patches of {' x '.join(map(str, patch[1:]))} on {_frames(patch[0])}, "
            f"{common.circumstances(self.seed).split(';')[0]}"
        )


def _frames(count: int) -> str:
    return "single frames" if count == 1 else f"{count} frames"


def keep(path: Path, curves: Sequence[Curve]) -> None:
    """Writes the curves over what the file holds under the same section, victim, attack and seed."""
    held = {curve.key: curve for curve in (*recall(path), *curves)}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    lines = [json.dumps(curve.plain(), separators=(",", ":")) for curve in held.values()]
    beside.write_text("[" + ",\n".join(lines) + "]\n")
    beside.replace(path)


def recall(path: Path) -> list[Curve]:
    """The curves that a file holds; none where there is no file."""
    plain = json.loads(path.read_text()) if path.exists() else []
    return [Curve(**one | {"reached": tuple(tuple(map(tuple, clip)) for clip in one["reached"])}) for one in plain]


def curves_page(curves: Sequence[Curve]) -> str:
    """A victim's table: MAP within so many queries, of every attack, and how it stands to `square`'s."""
    by = {curve.attack: curve for curve in curves}
    shown = [q for q in SHOWN if q <= curves[0].budget]
    head = ("attack", "success", "first flip", *(f"MAP within {q}" for q in shown))
    rows = [
        (name, common.share(c.success(c.budget)), _cell(c.first()), *(_cell(c.median(q)) for q in shown))
        for name, c in by.items()
    ]
    told = [
        f"`{name}` over `square`: "
        + ", ".join(f"{common.interval(map_ratio(c, by['square'], q))} within {q}" for q in shown)
        for name, c in by.items()
        if "square" in by and name != "square"
    ]
    title = f"## {curves[0].victim.upper()}"
    return "\n\n".join(
        [
            title,
            f"{len(curves[0].reached)} attacked of {curves[0].about}.",
            common.table(head, rows),
            ". ".join(told) + ".",
        ]
    )


def parts_page(title: str, curves: Sequence[Curve], queries: int) -> str:
    """A table of ablations: each row's area under the curve over that of the first row, over all seeds."""
    by: dict[str, list[Curve]] = {}
    for curve in curves:
        by.setdefault(curve.attack, []).append(curve)
    whole = next(iter(by.values()))
    head = (
        "attack",
        "seeds",
        "success",
        "first flip",
        "MAP within 50",
        f"MAP within {queries}",
        "frames",
        "patches",
        "area over the first's",
    )
    rows = [
        (
            name, str(len(some)), f"{np.mean([c.success(c.budget).value for c in some]):.1%}", _cell(some[0].first()),
            _cell(some[0].median(50)), _cell(some[0].median(queries)),
            f"{np.mean([c.frames for c in some]):.4g}", f"{np.mean([c.patches for c in some]):.4g}",
            "1" if some is whole else common.interval(area_ratio(some[: len(whole)], whole[: len(some)], queries)),
        )
        for name, some in by.items()
    ]  # fmt: skip
    return "\n\n".join([f"## {title}, {curves[0].victim.upper()}", f"{curves[0].about}.", common.table(head, rows)])


def _cell(e: Estimate) -> str:
    return "no flip" if math.isinf(e.value) else f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}]"


def write_page(raw: Path, out: Path, rules: str, titles: Mapping[str, str], queries: int) -> None:
    """The page of all curves a file holds, section by section."""
    held, pages = recall(raw), []
    for section, title in titles.items():
        of_section = [curve for curve in held if curve.section == section]
        for victim in dict.fromkeys(curve.victim for curve in of_section):
            some = [curve for curve in of_section if curve.victim == victim]
            pages.append(curves_page(some) if section == "curves" else parts_page(title, some, queries))
    common.write_page(out, "Video", rules, held[0].seed if held else 0, pages)
