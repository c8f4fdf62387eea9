"""One attack on clips as a curve of MAP over queries, and the figures and tables of curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.attacks import attack, flips, median, ratio, tails, within
from benchmarks.harness import machine
from benchmarks.raw import Curves, Raw, Store, from_curves, to_curves
from benchmarks.tables import interval, section, share, table
from benchmarks.victims import clip_victim
from benchmarks.video.cases import PALETTE, PATCH, Case, cases
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.results.result import AttackResult
from rlab.stats import Estimate, Floats, estimate, over_seeds, share_estimate
from rlab.victims.base import Victim

FAR = 64.0  # the MAP of no flip in an area under a curve: about that of a clip distorted everywhere
SHOWN = (5, 10, 20, 50, 100, 200, 300)  # queries


@dataclass(frozen=True)
class Curve:
    """What one attack reached on each clip that the victim classifies correctly."""

    attack: str
    budget: int
    seeds: Sequence[Curves]  # (queries, MAP) by seed and clip
    frames: float = math.nan  # touched at the end, the median over flipped clips
    patches: float = math.nan
    about: str = ""

    def first(self) -> Estimate:
        """The median number of queries to the first flip."""
        return over_seeds(
            np.array([[clip[0][0] if clip else math.inf for clip in seed] for seed in self.seeds]), "median"
        )

    def median(self, queries: int) -> Estimate:
        return median(self.seeds, queries)

    def success(self, queries: int) -> Estimate:
        hits = sum(bool(clip) and clip[0][0] <= queries for seed in self.seeds for clip in seed)
        return share_estimate(hits / len(self.seeds), len(self.seeds[0]))

    def areas(self, queries: int) -> Floats:
        """(n,): mean log MAP over the first queries, with the first seed."""
        rows = [within(self.seeds, q)[0] for q in range(1, queries + 1)]
        areas: Floats = np.log(np.minimum(rows, FAR)).mean(0)
        return areas


def map_ratio(ours: Curve, other: Curve, queries: int) -> Estimate:
    """Our median MAP over the other's: 0 where the other has flipped less than half of the clips."""
    return ratio(ours.seeds, other.seeds, queries)


def area_ratio(ours: Curve, other: Curve, queries: int) -> Estimate:
    """Our MAP over the other's, the geometric mean over clips and the first queries; below 1 is better."""
    apart = ours.areas(queries) - other.areas(queries)
    return estimate(lambda rows: np.exp(apart[rows].mean(1)), len(apart))


def measure(case: Case, victim: Victim, batch: Batch, patch: int = PATCH, seed: int = 0) -> Curve:
    """Attack until the budget is spent."""
    side = case.options.get("patch", patch)
    shape = (1, side, side)
    shared = {"palette": PALETTE, "until": "budget", "distance": "map", "seed": seed}
    shared |= {name: value for name, value in case.options.items() if name != "patch"}
    result = attack(
        victim, batch, policy=case.policy.replace("SEED", str(seed)), patch=shape, budget=case.budget + 1, **shared
    )
    frames, patches = _touched(result)
    reached = flips(result, factor=255)
    return Curve(case.attack, case.budget, [reached], frames, patches, about(case, batch, shape, victim))


def _touched(result: AttackResult) -> tuple[float, float]:
    """Median frames and patches changed in flipped clips."""
    won = result.succeeded
    touched = (result.assignment != 0).view(len(result), result.setting.grid.shape[0], -1)[won]
    counts = (touched.any(2).sum(1), touched.sum((1, 2)))
    frames, patches = (float(count.float().median()) if won.any() else math.nan for count in counts)
    return frames, patches


def about(case: Case, batch: Batch, patch: tuple[int, ...], victim: Victim) -> str:
    frames, height, width = batch.size
    return (
        f"{len(batch)} clips of {frames} frames of {height} x {width}, budget {case.budget}, palette "
        f"`{' '.join(PALETTE)}`, {len(PatchGrid.of(batch.size, patch))} patches of {' x '.join(map(str, patch[1:]))} on single "
        f"frames, {machine(str(victim.device))}"
    )


def make(case: Case, seed: int, batch: Batch, device: str) -> Raw:
    curve = measure(case, clip_victim(case.victim, device), batch, seed=seed)
    reached = [[(q, float(f"{far:.4g}")) for q, far in clip] for clip in curve.seeds[0]]
    numbers = from_curves([tuple(clip) for clip in reached], 12) | {"frames": curve.frames, "patches": curve.patches}
    return Raw(numbers, {"about": curve.about})


def read(store: Store, case: Case) -> Curve | None:
    """All seeds of a case that have a raw file; frames and patches are those of the first."""
    files = [case.file(seed) for seed in range(case.seeds) if case.file(seed) in store]
    if not files:
        return None
    raws = [store.read(file) for file in files]
    first, budget = raws[0], store.origin(files[0]).settings["budget"]
    seeds = [to_curves(raw.numbers) for raw in raws]
    return Curve(case.attack, budget, seeds, first.numbers["frames"], first.numbers["patches"], first.facts["about"])


def kept(store: Store, section: str, victim: str) -> list[Curve]:
    own = (read(store, case) for case in cases() if case.section == section and case.victim == victim)
    return [curve for curve in own if curve is not None]


def curves_section(victim: str, curves: Sequence[Curve]) -> str:
    """MAP at each number of queries for every attack on one victim, and ratios to `square`."""
    by = {curve.attack: curve for curve in curves}
    shown = [q for q in SHOWN if q <= curves[0].budget]
    head = ("attack", "success", "first flip", *(f"MAP within {q}" for q in shown))
    rows = [
        (c.attack, share(c.success(c.budget)), _cell(c.first()), *(_cell(c.median(q)) for q in shown)) for c in curves
    ]
    ratios = [
        f"`{c.attack}` over `square`: "
        + ", ".join(f"{interval(map_ratio(c, by['square'], q))} within {q}" for q in shown)
        for c in curves
        if "square" in by and c.attack != "square"
    ]
    note = f"{len(curves[0].seeds[0])} attacked of {curves[0].about}."
    ends = tails({c.attack: c.seeds for c in curves}, curves[0].budget)
    return section(victim.upper(), note, table(head, rows), ends, ". ".join(ratios) + ".")


def parts_section(title: str, victim: str, curves: Sequence[Curve], queries: int) -> str:
    """The area under each row's curve over that of the first row."""
    head = f"attack | seeds | success | first flip | MAP within 50 | MAP within {queries} | frames | patches"
    rows = []
    for c in curves:
        area = "1" if c is curves[0] else interval(area_ratio(c, curves[0], queries))
        cells = (_cell(c.first()), _cell(c.median(50)), _cell(c.median(queries)), f"{c.frames:.4g}", f"{c.patches:.4g}")
        rows.append((c.attack, "1", f"{c.success(c.budget).value:.1%}", *cells, area))
    return section(
        f"{title}, {victim.upper()}", f"{curves[0].about}.", table(f"{head} | area over the first row's", rows)
    )


def _cell(e: Estimate) -> str:
    return "no flip" if math.isinf(e.value) else interval(e, 3)
