"""The page of explanations from raw scores: a row a method, differences with paired intervals, scores within fewer queries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from rlab.explanation.compared import MethodComparison
from rlab.stats import mean_estimate

OURS = "belief (ours)"
Raw = Mapping[str, Any]
RULES = (
    "Masks are maps cut at Otsu's threshold. Queries are rows that reached the model for a map; those of the scores are not "
    "among them. Deletion and insertion have 50 steps: the highest points are blurred, or shown in the blurred input; "
    "'deletion, grey' puts the sample's mean in their place. Dice of the map: ours takes its mask from the spread "
    "map, so the map itself, cut by the same rule, is scored as well. Differences are ours minus "
    "the other's over the same samples. Brackets are 95% bootstrap intervals. Stability and sanity are over few of the "
    "samples, as told. Settings of our methods were chosen on some of the first 40 pets, which are not "
    "among the samples, on the clips' train split, and on beats of DS1; those of `credit` also on 30 beats of DS2."
)
COLUMNS = (
    ("queries", "queries"),
    ("dice", "Dice"),
    ("iou", "IoU"),
    ("dice_map", "Dice of the map"),
    ("pointing", "pointing"),
    ("energy", "energy"),
    ("deletion", "deletion"),
    ("deletion_grey", "deletion, grey"),
    ("insertion", "insertion"),
    ("stability", "stability"),
    ("sanity", "sanity"),
)
GAPS = (("dice", "Dice"), ("dice_map", "Dice of the map"), ("deletion", "deletion"), ("insertion", "insertion"))
KEYS = ("pets", "beats_cnn", "beats_resnet", "beats_transformer", "clips")


def plain_scores(comparison: MethodComparison) -> dict[str, Any]:
    """Every method's scores of every sample, as JSON takes them; None where a sample has none."""
    found = {}
    for name, method in comparison.judged.items():
        scores = {
            score: [round(v, 5) if v == v else None for v in values.tolist()] for score, values in method.scores.items()
        }
        found[name] = {"white_box": method.explanation.gradients, "scores": scores}
    return found


def read_raw(folder: Path) -> dict[str, Raw]:
    """By section; parts of one are joined."""
    found = {}
    for key in KEYS:
        paths = [*folder.glob(f"explain-{key}.json")] or sorted(folder.glob(f"explain-{key}.*of*.json"))
        if paths:
            found[key] = _join([json.loads(path.read_text()) for path in paths])
    return found


def join_parts(folder: Path) -> dict[str, Raw]:
    """By section, each as one file from now on."""
    raws = read_raw(folder)
    for key, raw in raws.items():
        parts = [*folder.glob(f"explain-{key}.*of*.json")]
        if parts:
            (folder / f"explain-{key}.json").write_text(json.dumps(raw, separators=(",", ":")) + "\n")
        for path in parts:
            path.unlink()
    return raws


def _join(parts: Sequence[Raw]) -> Raw:
    """Lists are put together, coverages weighed by their regions, times added; the rest is the first part's."""
    first = dict(parts[0])
    if len(parts) == 1:
        return first
    for name in ("ids", "methods", "within"):
        if all(name in part for part in parts):
            first[name] = _together([part[name] for part in parts])
    if all("coverage" in part for part in parts):
        regions = sum(part["coverage"][1] for part in parts)
        first["coverage"] = [sum(held * count for held, count in (p["coverage"] for p in parts)) / regions, regions]
    first["seconds"] = sum(part["seconds"] for part in parts)
    return first


def _together(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return {name: _together([value[name] for value in values]) for name in values[0]}
    return [one for value in values for one in value] if isinstance(values[0], list) else values[0]


def _values(scores: Mapping[str, list[float | None]], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if v is None else v for v in scores.get(name, [])], dtype=np.float64)


def difference(raw: Raw, other: str, score: str) -> str:
    ours, theirs = (_values(raw["methods"][name]["scores"], score) for name in (OURS, other))
    e = mean_estimate(ours - theirs)
    return f"{e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}]"


def _cells(scores: Mapping[str, list[float | None]], names: Sequence[str]) -> list[str]:
    means = [float(np.nanmean(_values(scores, name))) for name in names]
    return [f"{mean:,.0f}" if name == "queries" else f"{mean:.3f}" for name, mean in zip(names, means, strict=True)]


def section(raw: Raw) -> list[str]:
    """What is said of one section."""
    names = [(name, head) for name, head in COLUMNS if name in raw["methods"][OURS]["scores"]]
    rows = [
        (f"{name}, white box" if method["white_box"] else name, *_cells(method["scores"], [n for n, _ in names]))
        for name, method in raw["methods"].items()
    ]
    gaps = [(other, *(difference(raw, other, score) for score, _ in GAPS)) for other in raw["methods"] if other != OURS]
    checked = int(np.isfinite(_values(raw["methods"][OURS]["scores"], "stability")).sum())
    told = (
        f"{len(raw['ids'])} samples, {checked} for stability and sanity, {raw['seconds']:.0f} s. {raw['circumstances']}"
    )
    found = [
        f"## {raw['name']}\n\n{told}",
        common.table(("method", *(head for _, head in names)), rows),
        common.table((f"{OURS} minus", *(head for _, head in GAPS)), gaps),
    ]
    if "within" in raw:
        found.append(_within_table(raw["within"]))
    if "coverage" in raw:
        held, regions = raw["coverage"]
        found.append(f"90% intervals of regions hold in {held:.0%} of {regions:,} regions, by brute force.")
    return found


def _within_table(within: Raw) -> str:
    """Every score of every method within so many queries."""
    first = next(iter(next(iter(within.values())).values()))
    names = [(name, head) for name, head in COLUMNS if name in first]
    rows = [
        (f"{name}, within {queries}", *_cells(scores, [n for n, _ in names]))
        for name, by_queries in within.items()
        for queries, scores in by_queries.items()
    ]
    return common.table((f"first {len(first['dice'])} samples", *(head for _, head in names)), rows)


def figures(raws: Mapping[str, Raw]) -> dict[str, float]:
    """What the last line tells: of the networks of beats, the one where we are least good; intervals over all regions."""
    found: dict[str, float] = {}

    def mean(key: str, score: str, method: str = OURS) -> float:
        return float(_values(raws[key]["methods"][method]["scores"], score).mean())

    if "pets" in raws:
        found["pets_insertion_minus_rise"] = mean("pets", "insertion") - mean("pets", "insertion", "rise")
        found["pets_deletion"] = mean("pets", "deletion")
        found["pets_dice"] = mean("pets", "dice")
    nets = [key for key in raws if key.startswith("beats_")]
    for score, worst in (("deletion", max), ("insertion", min)) if nets else ():
        found[f"ecg_{score}_minus_rise"] = worst(mean(key, score) - mean(key, score, "rise") for key in nets)
    coverages = [raw["coverage"] for raw in raws.values() if "coverage" in raw]
    if coverages:
        total = sum(count for _, count in coverages)
        found["interval_coverage"] = sum(held * count for held, count in coverages) / total
    return found


def quantus_section(raw: Raw) -> list[str]:
    """An outside judge's means on beats, by network (`benchmarks.explain_quantus`)."""
    rows = []
    for net, methods in raw["nets"].items():
        for method, measures in methods.items():
            rows.append((f"{net}: {method}", *(f"{np.mean(values):.3f}" for values in measures.values())))
    measures = next(iter(next(iter(raw["nets"].values())).values()))
    told = f"## Quantus, beats\n\n{raw['samples']} samples a network. {raw['circumstances']}"
    rules = (
        "Pixel flipping: the mean of the class's probability as the highest points are set to the mean, 24 at a time (lower is "
        "better). Relevance rank: of as many of the highest points as the truth has, the share inside. Complexity: entropy."
    )
    return [told, rules, common.table(("method", *measures), rows)]


def write(raws: Mapping[str, Raw], path: Path, quantus: Path = common.RAW / "explain-quantus.json") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = [block for raw in raws.values() for block in section(raw)]
    if quantus.exists():
        said += quantus_section(json.loads(quantus.read_text()))
    path.write_text("\n\n".join(["# Explanations", RULES, *said]) + "\n", encoding="utf-8")
