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
from benchmarks.harden_trials import EPOCHS, SAMPLES, SETTINGS
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
    main, curve, ours = [], [], [one for one in found if one["method"] == "ours"]
    shown = ("square", "pgd", "corruptions", "held_out")
    common_set = "common" in first["points"][0]
    for method in METHODS:
        jobs = [one for one in found if one["method"] == method]
        if not jobs:
            continue
        points = [job["points"][0] for job in jobs]
        same = 0 if method == "unchanged" else sum(as_it_was(job, unchanged) for job in jobs)
        cells = [
            f"{method} ({same} of {len(jobs)} kept the unchanged net)" if same else method,
            jobs[0]["maker"] or "–",
            str(len(jobs)),
            _share([p["clean"] for p in points], first["test"]),
        ]
        cells += [common.interval(over_seeds(distances(jobs, budget), "median")) for budget in (50, 200)]
        cells += [
            common.interval(times(jobs, unchanged)),
            "" if method == "ours" else common.interval(times(ours, jobs)),
        ]
        cells += [f"{np.mean([p[one] for p in points]):.1%}" for one in shown]
        cells += [f"{np.mean([held_out(p) for p in points]):.1%}"] if common_set else []
        cells.append(f"{np.mean([job['seconds'] for job in jobs]):.0f}")
        main.append(cells)
        curve += (
            _curve(method, jobs[0], unchanged, common_set)
            if method != "unchanged" and not as_it_was(jobs[0], unchanged)
            else []
        )
    heads = [
        "method",
        "samples by",
        "seeds",
        "clean",
        "distance, 50 queries",
        "distance, 200 queries",
        "times unchanged",
        "ours over it",
    ]
    heads += ["Square", "PGD", "corruptions", "held-out", *(["common"] if common_set else []), "training, s"]
    curve_heads = ["method", "of the way", "clean", "times, 50 queries", "times, 200 queries"]
    parts = [
        f"## {TITLES[name]}",
        about,
        common.table(heads, main),
        "The curve of the first seed: clean accuracy against distance.",
    ]
    parts.append(common.table([*curve_heads, *(["common"] if common_set else [])], curve))
    return [*parts, *tried(name)]


def tried(name: str) -> list[str]:
    """The settings of each method that were tried, and what they reached on the data to choose by."""
    settings = json.loads(SETTINGS.read_text()).get(name, {}) if SETTINGS.exists() else {}
    if not settings:
        return []
    unchanged = settings["unchanged"]["trials"][0]["distance"]
    rows = []
    for method in METHODS[1:]:
        about = settings.get(method)
        if about is None:
            continue
        for row in sorted(about["trials"], key=lambda row: row["number"]):
            values = {key: value for key, value in row["values"].items() if key != "epochs"}
            words = ", ".join([row["spec"], *(f"{key} {value}" for key, value in values.items())])
            times_unchanged = f"{row['distance'] / unchanged:.3f}"
            cells = [words, times_unchanged, f"{row['clean']:.1%}", f"{row['share']:.0%}"]
            rows.append([f"**{cell}**" for cell in cells] if row["number"] == about["chosen"] else cells)
    few = f", {SAMPLES[name]:,} samples" if name in SAMPLES else ""
    about_trials = (
        "Settings tried, the chosen ones in bold: times unchanged within 50 queries and clean accuracy on the data to choose by, "
        f"one seed, {EPOCHS[name]} epochs{few}. Times 1 at 100% of the way: no epoch was kept."
    )
    return [about_trials, common.table(["settings", "times unchanged", "clean", "of the way"], rows)]


def as_it_was(job: Mapping[str, Any], unchanged: Found) -> bool:
    """Whether no epoch was kept, so that what is measured is the unchanged net; of older files, by what was measured."""
    if "kept_epoch" in job:
        return bool(job["kept_epoch"] == 0)
    before = [one["points"][0] for one in unchanged if one["seed"] == job["seed"]]
    names = ("clean", "square", "pgd", "corruptions", "held_out")
    return bool(before) and all(job["points"][0][name] == before[0][name] for name in names)


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
