"""The page of explanations: a row for each method, paired differences, and scores within fewer queries."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.explain import masks, quantus
from benchmarks.explain.belief import FEWER
from benchmarks.explain.cases import CASES, OURS, methods
from benchmarks.raw import Numbers, Raw, Store, or_nan
from benchmarks.tables import section as section_of
from benchmarks.tables import table
from rlab.stats import mean_estimate

RULES = """
Masks are maps cut at Otsu's threshold. Queries are the rows that reached the model for a map; those for the scores are
not included. Deletion and insertion have 50 steps: the highest points are blurred, or shown in the blurred input;
'deletion, grey' replaces them with the sample's mean. Dice of the map: ours takes its mask from the spread map, so the
map itself, cut by the same rule, is scored as well. Differences are ours minus the other's over the same samples.
Brackets are 95% bootstrap intervals. Stability and sanity are over fewer samples, as each section says. The settings of
our methods were chosen on some of the first 40 pets, which are not among the samples, on the clips' train split, and on
beats of DS1. Pets are Oxford-IIIT Pets with EfficientNet-Lite0 at 224
pixels; the truth is object and border of the trimaps. Beats are MIT-BIH beats of test patients (DS2) with three
networks; the truth is R +- 50 ms. Clips are the demo's handwritten digits that move, of the test split, with the
demo's network; the truth is the digit's place.
"""
SENTENCES = "sentences"  # a case
COLUMNS = {
    "queries": "queries", "dice": "Dice", "iou": "IoU", "dice_map": "Dice of the map", "pointing": "pointing",
    "energy": "energy", "deletion": "deletion", "deletion_grey": "deletion, grey", "insertion": "insertion",
    "stability": "stability", "sanity": "sanity",
}  # fmt: skip
SCORED = frozenset(methods((224, 224)))  # names of rows, which are the same for every size
GAPS = ("dice", "dice_map", "deletion", "insertion")
QUANTUS = (
    "Pixel flipping: the mean of the class's probability as the highest points are set to the mean, 24 at a time (lower is "
    "better). Relevance rank: among as many of the highest points as the truth has, the share inside it. Complexity: entropy."
)


def read(store: Store, key: str) -> Raw | None:
    """The raw scores of a case, its parts joined; None until all parts are there."""
    names = CASES[key].files(key)
    return join([store.read(name) for name in names]) if all(name in store for name in names) else None


def join(parts: Sequence[Raw]) -> Raw:
    """Put lists together, weigh coverage by the regions, add up seconds."""
    if len(parts) == 1:
        return parts[0]
    numbers = [part.numbers for part in parts]
    regions = sum(n["regions"] for n in numbers)
    coverage = sum(n["coverage"] * n["regions"] for n in numbers) / regions
    whole = {name: _together([n[name] for n in numbers]) for name in ("methods", "within")}
    whole |= {"coverage": coverage, "regions": regions, "seconds": sum(n["seconds"] for n in numbers)}
    return Raw(whole, {**parts[0].facts, "ids": [one for part in parts for one in part.facts["ids"]]})


def _together(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return {name: _together([value[name] for value in values]) for name in values[0]}
    return [one for value in values for one in value]


def kept(by_method: Numbers, names: Container[str]) -> dict[str, Any]:
    """The methods that the benchmark still has: raw files may hold others."""
    return {name: scores for name, scores in by_method.items() if name in names}


def values(scores: Numbers, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(or_nan(scores.get(name, [])), dtype=np.float64)


def difference(methods: Numbers, other: str, score: str) -> str:
    e = mean_estimate(values(methods[OURS], score) - values(methods[other], score))
    return f"{e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}]"


def _cells(scores: Numbers, names: Sequence[str]) -> list[str]:
    means = {name: float(np.nanmean(values(scores, name))) for name in names}
    return [f"{mean:,.0f}" if name == "queries" else f"{mean:.3f}" for name, mean in means.items()]


def section(title: str, raw: Raw) -> str:
    methods, facts = kept(raw.numbers["methods"], SCORED), raw.facts
    names = [name for name in COLUMNS if name in methods[OURS]]
    rows = [
        (f"{name}, white box" if name in facts["white_box"] else name, *_cells(scores, names))
        for name, scores in methods.items()
    ]
    gaps = [(other, *(difference(methods, other, score) for score in GAPS)) for other in methods if other != OURS]
    checked = int(np.isfinite(values(methods[OURS], "stability")).sum())
    seconds = f"{raw.numbers['seconds']:.0f} s. {facts['circumstances']}"
    held, regions = raw.numbers["coverage"], raw.numbers["regions"]
    return section_of(
        title,
        f"{len(facts['ids'])} samples, {checked} for stability and sanity, {seconds}",
        table(("method", *(COLUMNS[name] for name in names)), rows),
        table((f"{OURS} minus", *(COLUMNS[name] for name in GAPS)), gaps),
        _within_table(raw.numbers["within"]),
        f"90% intervals of the mean effects of regions hold in {held:.0%} of {regions:,.0f} regions, by brute force.",
    )


def _within_table(within: Numbers) -> str:
    """Every score of every method within each number of queries."""
    first = next(iter(next(iter(within.values())).values()))
    names = [name for name in COLUMNS if name in first]
    rows = [
        (f"{name}, within {queries}", *_cells(scores, names))
        for name, by_queries in kept(within, FEWER).items()
        for queries, scores in by_queries.items()
    ]
    return table((f"first {len(first['dice'])} samples", *(COLUMNS[name] for name in names)), rows)


def quantus_section(raw: Raw) -> str:
    """Another library's scores on beats, by network."""
    rows = [
        (f"{net}: {method}", *(f"{np.mean(scores):.3f}" for scores in measures.values()))
        for net, methods in raw.numbers.items()
        for method, measures in kept(methods, quantus.METHODS).items()
    ]
    heads = next(iter(next(iter(raw.numbers.values())).values()))
    about = f"{raw.facts['samples']} samples for each network. {raw.facts['circumstances']}"
    return section_of("Quantus, beats", about, QUANTUS, table(("method", *heads), rows))


def sentences_section(told: Mapping[str, Raw]) -> str:
    """How often the intervals of the sentences hold."""
    about = (
        "How often the 90% interval of a sentence of `belief` holds the effect of removing its region alone, as it is, and with "
        "its edges moved by up to a tenth of its sides, 20 times. All queries are new."
    )
    rows = [
        (
            CASES[key].title,
            f"{raw.numbers['alone']:.1%}",
            f"{raw.numbers['moved']:.1%}",
            f"{raw.numbers['regions']:,.0f}",
        )
        for key, raw in told.items()
    ]
    facts = next(iter(told.values())).facts["circumstances"]
    return section_of("Sentences", about, table(("", "alone", "edges moved", "regions"), rows), facts)


def sections(store: Store) -> Iterator[str]:
    raws = {key: raw for key in CASES if (raw := read(store, key))}
    for key, raw in raws.items():
        yield section(CASES[key].title, raw)
    if told := {key: store.read(name) for key in CASES if (name := f"{SENTENCES}-{key}") in store}:
        yield sentences_section(told)
    yield from masks.sections(store, raws)
    if "quantus" in store:
        yield quantus_section(store.read("quantus"))


def figures(store: Store) -> dict[str, float]:
    """For beats, those of the network where ours does worst; intervals over all regions."""
    found, raws = dict[str, float](), {key: raw.numbers for key in CASES if (raw := read(store, key))}

    def mean(key: str, score: str, method: str = OURS) -> float:
        return float(values(raws[key]["methods"][method], score).mean())

    if "pets" in raws:
        found["pets_insertion_minus_rise"] = mean("pets", "insertion") - mean("pets", "insertion", "rise")
        found |= {"pets_deletion": mean("pets", "deletion"), "pets_dice": mean("pets", "dice")}
    nets = [key for key in raws if key.startswith("beats_")]
    for score, worst in (("deletion", max), ("insertion", min)) if nets else ():
        found[f"ecg_{score}_minus_rise"] = worst(mean(key, score) - mean(key, score, "rise") for key in nets)
    if total := sum(raw["regions"] for raw in raws.values()):
        found["interval_coverage"] = sum(raw["coverage"] * raw["regions"] for raw in raws.values()) / total
    if told := [store.read(name).numbers for key in CASES if (name := f"{SENTENCES}-{key}") in store]:
        found["sentence_coverage"] = min(min(own["alone"], own["moved"]) for own in told)
    return found
