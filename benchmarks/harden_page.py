"""The page of `benchmarks.harden`, made from what its jobs found."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.harden_bench import METHODS, SECTIONS, held_out
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds

RAW = common.RAW / "harden.json"
Found = Sequence[Mapping[str, Any]]
TITLES = {"cifar": "CIFAR-10, ResNet-20", "ecg": "MIT-BIH beats, a CNN", "clips": "UCF-101 clips, C3D"}


def collect(folder: Path) -> int:
    """One file of all jobs without a tag; how many."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("harden-*.json"))]
    whole = [figures for figures in found if not figures["tag"]]
    RAW.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    return len(whole)


def write_page(rules: str) -> dict[str, float]:
    """results/harden.md; -> the figures that count."""
    found = json.loads(RAW.read_text())
    names = [name for name in SECTIONS if any(one["section"] == name for one in found)]
    sections = [part for name in names for part in section([one for one in found if one["section"] == name], name)]
    page = "\n\n".join(["# Hardening", rules, *sections]) + "\n"
    (common.RESULTS / "harden.md").write_text(page, encoding="utf-8")
    return {
        f"{name}_{method}_times": times(of_method(found, name, method), of_method(found, name, "unchanged")).value
        for name in names
        for method in METHODS[1:]
        if of_method(found, name, method)
    }


def of_method(found: Found, section: str, method: str) -> Found:
    return [one for one in found if one["section"] == section and one["method"] == method]


def distances(jobs: Found, budget: int, share: float | None = None) -> Floats:
    """(seeds, n) at the chosen point, or at another share of the way; NaN where a sample was not attacked."""
    points = [_point(job, share) for job in jobs]
    return np.array([[math.nan if v is None else v for v in point[f"l2_{budget}"]] for point in points])


def _point(job: Mapping[str, Any], share: float | None) -> Mapping[str, Any]:
    points: Sequence[Mapping[str, Any]] = job["points"]
    return points[0] if share is None else next(p for p in points if p["share"] == share)


def times(jobs: Found, unchanged: Found, share: float | None = None, budget: int = 200) -> Estimate:
    """How many times the unchanged net's median distance, on the seeds that both have."""
    pairs = [(a, b) for a in jobs for b in unchanged if a["seed"] == b["seed"]]
    if not pairs:
        return Estimate(math.nan)
    ours, other = ([pair[i] for pair in pairs] for i in (0, 1))
    return ratio_over_seeds(distances(ours, budget, share), distances(other, budget), "median")


def section(found: Found, name: str) -> list[str]:
    first, unchanged = found[0], [one for one in found if one["method"] == "unchanged"]
    about = (
        f"{first['train']:,} samples to train on, {first['validation']:,} to choose by, {first['test']:,} to report on, of which "
        f"{len(first['points'][0]['l2_200'])} are attacked; {first['epochs']} epochs; {first['device']}; "
        f"`{_config(found)}`."
    )
    main, curve = [], []
    shown = ("square", "pgd", "corruptions", "held_out")
    common_set = "common" in first["points"][0]
    for method in METHODS:
        jobs = [one for one in found if one["method"] == method]
        if not jobs:
            continue
        points = [job["points"][0] for job in jobs]
        cells = [
            f"{method} (collapsed)" if all(map(collapsed, jobs)) else method,
            jobs[0]["maker"] or "–",
            str(len(jobs)),
            _share([p["clean"] for p in points], first["test"]),
        ]
        cells += [common.interval(over_seeds(distances(jobs, budget), "median")) for budget in (50, 200)]
        cells.append(common.interval(times(jobs, unchanged)))
        cells += [f"{np.mean([p[one] for p in points]):.1%}" for one in shown]
        cells += [f"{np.mean([held_out(p) for p in points]):.1%}"] if common_set else []
        cells.append(f"{np.mean([job['seconds'] for job in jobs]):.0f}")
        main.append(cells)
        curve += (
            _curve(method, jobs[0], unchanged, common_set) if method != "unchanged" and not collapsed(jobs[0]) else []
        )
    heads = [
        "method",
        "samples by",
        "seeds",
        "clean",
        "distance, 50 queries",
        "distance, 200 queries",
        "times unchanged",
    ]
    heads += ["Square", "PGD", "corruptions", "held-out", *(["common"] if common_set else []), "training, s"]
    curve_heads = ["method", "of the way", "clean", "times, 50 queries", "times, 200 queries"]
    parts = [
        f"## {TITLES[name]}",
        about,
        common.table(heads, main),
        "The curve of the first seed: clean accuracy against distance.",
    ]
    return [*parts, common.table([*curve_heads, *(["common"] if common_set else [])], curve)]


def collapsed(job: Mapping[str, Any]) -> bool:
    """Whether training ended below four fifths of the clean accuracy that is reported: its row is not one of the method's."""
    history = job.get("history")
    return bool(history) and history[-1][1] < 0.8 * job["points"][0]["clean"]


def _curve(method: str, job: Mapping[str, Any], unchanged: Found, common_set: bool) -> list[list[str]]:
    rows = []
    for point in sorted(job["points"], key=lambda point: point["share"]):
        row = [method, f"{point['share']:.0%}", f"{point['clean']:.1%}"]
        row += [common.interval(times([job], unchanged, point["share"], budget)) for budget in (50, 200)]
        rows.append(row + ([f"{held_out(point):.1%}"] if common_set else []))
    return rows


def _share(values: Sequence[float], samples: int) -> str:
    """Over seeds, with a binomial interval of one test set."""
    mean = float(np.mean(values))
    half = 1.96 * math.sqrt(mean * (1 - mean) / samples)
    return f"{mean:.1%} [{mean - half:.1%}, {mean + half:.1%}]"


def _config(found: Found) -> str:
    ours = next((one for one in found if one["method"] == "ours"), found[0])
    names = (
        "palettes", "patches", "radius_range", "aimed_share", "gradient_steps", "consistency", "consistency_weight",
        "learning_rate", "batch_size", "ema_decay", "distillation_weight",
    )  # fmt: skip
    return ", ".join(f"{name}: {ours['config'][name]}" for name in names if name in ours["config"])
