"""The settings that each method of `benchmarks.harden` is tried with, the same number for each method, and the best of them.

The raw file `settings` lists the trials and what they reached. A trial trains for few epochs on part of the data with one seed. The
best has the largest median distance within 50 queries on the data to choose by, at the point on the line to the unchanged weights
where clean accuracy there is within 0.8 points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harden.cases import METHODS
from benchmarks.harden.jobs import TRIAL_QUERIES, TRIAL_SAMPLES, Job
from benchmarks.raw import Raw, Store
from benchmarks.tables import table

SETTINGS = "settings"
EPOCHS = {"cifar": 5, "ecg": 6, "clips": 12}  # of a trial


def listed(store: Store) -> Mapping[str, Mapping[str, Any]]:
    """By section and method: the number of the chosen trial, and all trials with spec, values and results."""
    return store.facts(SETTINGS) if SETTINGS in store else {}


def jobs(store: Store) -> Iterator[Job]:
    for section, methods in listed(store).items():
        for method, about in methods.items():
            for row in about["trials"]:
                yield Job(section, method, 0, tuple(row["values"].items()), row["spec"], row["number"])


def choose(store: Store) -> Raw:
    """The list with what each trial in the store reached, and the best of each method chosen."""
    best: dict[str, dict[str, Any]] = {}
    for job in (job for job in jobs(store) if job.name in store):
        raw = store.read(job.name)
        point = raw.numbers["points"]["0"]
        row = {"number": job.trial, "spec": job.spec, "values": dict(job.values), "share": point["share"]}
        row |= {"clean": point["clean"], "distance": _median(point[f"l2_{TRIAL_QUERIES}"])}
        best.setdefault(job.section, {}).setdefault(job.method, {"trials": []})["trials"].append(row)
    for about in (about for methods in best.values() for about in methods.values()):
        about["chosen"] = max(about["trials"], key=lambda row: row["distance"])["number"]
    return Raw({}, best)


def chosen(store: Store, section: str, method: str, seed: int) -> Job:
    """The job that reports a method: with the chosen settings, or the default ones if none were tried."""
    about = listed(store).get(section, {}).get(method)
    if about is None:
        return Job(section, method, seed)
    row = next(row for row in about["trials"] if row["number"] == about["chosen"])
    return Job(section, method, seed, tuple(_own(row)), row["spec"])


def _own(trial: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a trial without its number of epochs."""
    return ((key, value) for key, value in trial["values"].items() if key != "epochs")


def section(store: Store, name: str) -> list[str]:
    """The settings tried for each method and what they reached."""
    tried = listed(store).get(name, {})
    if not tried:
        return []
    unchanged, rows = tried["unchanged"]["trials"][0]["distance"], []
    for method in (method for method in METHODS[1:] if method in tried):
        for row in sorted(tried[method]["trials"], key=lambda row: row["number"]):
            words = ", ".join([row["spec"], *(f"{key} {value}" for key, value in _own(row))])
            cells = [words, f"{row['distance'] / unchanged:.3f}", f"{row['clean']:.1%}", f"{row['share']:.0%}"]
            rows.append([f"**{cell}**" for cell in cells] if row["number"] == tried[method]["chosen"] else cells)
    samples = f", {TRIAL_SAMPLES[name]:,} samples" if name in TRIAL_SAMPLES else ""
    about = (
        "Settings tried, the chosen ones in bold: times unchanged within 50 queries and clean accuracy on the data to choose by, "
        f"one seed, {EPOCHS[name]} epochs{samples}. Times 1 at 100% of the way: no epoch was kept."
    )
    return [about, table("settings | times unchanged | clean | of the way", rows)]


def _median(distances: Sequence[float | None]) -> float:
    known = sorted(distance for distance in distances if distance is not None)
    return known[len(known) // 2]
