"""The settings that each method of `benchmarks.harden` is tried with, as many for one as for another, and which did best.

A trial trains for few epochs on part of the data with one seed. The best has the largest median distance within 50 queries on the
data to choose by, at the point of its line to the unchanged weights where clean accuracy there is within 0.8 points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import common

SETTINGS = common.RAW / "harden-settings.json"
QUERIES = 50  # that trials are judged by


class Trial(NamedTuple):
    """`spec`: the method as `rlab.hardening` reads it, a radius behind '@'; `values` go before the section's configuration."""

    spec: str
    values: Mapping[str, Any] = {}


def _over(spec: str, *values: Mapping[str, Any]) -> tuple[Trial, ...]:
    return tuple(Trial(spec, one) for one in values)


def _rates(spec: str, rates: Sequence[float], other: str, choices: Sequence[float]) -> tuple[Trial, ...]:
    return tuple(Trial(spec, {"learning_rate": rate, other: choice}) for rate in rates for choice in choices)


def _radii(*radii: str, slower: Sequence[str] = ()) -> dict[str, tuple[Trial, ...]]:
    """PGD and FGSM within each radius, and within some again at a smaller learning rate."""
    slow = {"learning_rate": 1e-3}
    return {
        name: (*(Trial(f"{name}{radius}") for radius in radii), *(Trial(f"{name}{radius}", slow) for radius in slower))
        for name in ("pgd", "fgsm")
    }


def _range(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"radius_range": (low, high), **more}


TRIALS: dict[str, dict[str, tuple[Trial, ...]]] = {
    "cifar": {
        **_radii(
            "@0.004", "@0.008", "@0.016", "_l2@0.25", "_l2@0.5", "_l2@1.0", slower=("@0.004", "@0.008", "_l2@0.25")
        ),
        "trades": _over(
            "trades", _range(0.005, 0.03, consistency_weight=6.0), _range(0.005, 0.05, consistency_weight=6.0),
            _range(0.005, 0.05, consistency_weight=2.0), _range(0.01, 0.08, consistency_weight=6.0),
            _range(0.01, 0.08, consistency_weight=2.0), _range(0.02, 0.16, consistency_weight=2.0),
            _range(0.005, 0.05, consistency_weight=2.0, learning_rate=1e-3),
            _range(0.02, 0.16, consistency_weight=2.0, learning_rate=1e-3),
            _range(0.01, 0.08, consistency_weight=1.0, learning_rate=1e-3),
        ),
        "ours": _over(
            "ours", _range(0.005, 0.05), _range(0.01, 0.08), _range(0.005, 0.05, aimed_share=0.9),
            _range(0.01, 0.08, aimed_share=0.8, learning_rate=1e-2), _range(0.01, 0.12, learning_rate=1e-2),
            _range(0.02, 0.16, learning_rate=1e-2, consistency_weight=2.0),
            _range(0.01, 0.08, learning_rate=1e-3), _range(0.01, 0.08, learning_rate=1e-3, distillation_weight=0.6),
            _range(0.01, 0.08, learning_rate=1e-3, gradient_steps=3),
        ),
        "augmix": (
            *_rates("augmix", (1e-3, 3e-3, 1e-2), "consistency_weight", (12.0, 4.0)),
            *_rates("augmix", (1e-3, 3e-3), "consistency_weight", (24.0,)),
            *_rates("augmix", (2e-3,), "consistency_weight", (12.0,)),
        ),
        "augment": (
            *_rates("augment", (1e-3, 3e-3, 1e-2), "distillation_weight", (0.3, 0.0)),
            *_rates("augment", (5e-4, 2e-3), "distillation_weight", (0.3,)),
            *_rates("augment", (2e-3,), "distillation_weight", (0.6,)),
        ),
    },
    "clips": {
        **_radii("@0.004", "@0.008", "@0.016", "@0.032"),
        "trades": _over(
            "trades", _range(0.005, 0.03, consistency_weight=6.0), _range(0.005, 0.05, consistency_weight=6.0),
            _range(0.005, 0.05, consistency_weight=2.0), _range(0.01, 0.12, consistency_weight=2.0),
        ),
        "ours": _over(
            "ours", _range(0.005, 0.05), _range(0.005, 0.05, learning_rate=3e-4), _range(0.005, 0.05, aimed_share=0.9),
            _range(0.01, 0.12, learning_rate=3e-4),
        ),
        "augmix": _rates("augmix", (3e-4, 1e-3), "consistency_weight", (12.0, 4.0)),
        "augment": _rates("augment", (3e-4, 1e-3), "distillation_weight", (0.3, 0.0)),
    },
    "ecg": {
        **_radii("@0.02", "@0.04", "@0.08", "@0.12", "_l2@1.0", "_l2@2.0"),
        "trades": _over(
            "trades", _range(0.01, 0.05, consistency_weight=6.0), _range(0.02, 0.1, consistency_weight=6.0),
            _range(0.02, 0.1, consistency_weight=2.0), _range(0.02, 0.25, consistency_weight=2.0),
            _range(0.02, 0.25, consistency_weight=1.0), _range(0.02, 0.5, consistency_weight=1.0),
        ),
        "ours": _over(
            "ours", _range(0.02, 0.5), _range(0.02, 0.5, distillation_weight=0.0), _range(0.02, 0.25),
            _range(0.01, 0.15, aimed_share=0.9), _range(0.02, 0.5, learning_rate=5e-3),
            _range(0.02, 0.5, distillation_weight=0.0, consistency_weight=1.0),
        ),
        "augmix": _rates("augmix", (1e-3, 2e-3, 5e-3), "consistency_weight", (12.0, 4.0)),
        "augment": _rates("augment", (1e-3, 2e-3, 5e-3), "distillation_weight", (0.3, 0.0)),
    },
}  # fmt: skip
EPOCHS = {"cifar": 5, "ecg": 6, "clips": 12}  # of a trial
SAMPLES = {"cifar": 18_000}  # to train on in a trial, where not all


def trials(section: str) -> Iterator[tuple[str, int, Trial]]:
    """(method, number, trial)."""
    for method, each in TRIALS[section].items():
        for number, trial in enumerate(each):
            yield method, number, Trial(trial.spec, {**trial.values, "epochs": EPOCHS[section]})


def choose(folder: Path) -> dict[str, dict[str, Any]]:
    """What each trial in the folder reached, and the best of each method: settings.json there."""
    settings: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("harden-*-trial*-0.json")):
        found = json.loads(path.read_text())
        point = found["points"][0]
        row = {
            "number": found["trial"], "spec": found["spec"], "values": found["values"], "share": point["share"],
            "clean": point["clean"], "distance": _median(point[f"l2_{QUERIES}"]),
        }  # fmt: skip
        settings.setdefault(found["section"], {}).setdefault(found["method"], []).append(row)
    best = {
        section: {
            method: {"chosen": max(rows, key=lambda row: row["distance"])["number"], "trials": rows}
            for method, rows in methods.items()
        }
        for section, methods in settings.items()
    }
    (folder / "settings.json").write_text(json.dumps(best, indent=1) + "\n")
    return best


def chosen(settings: Mapping[str, Mapping[str, Any]], section: str, method: str) -> Trial:
    """With which a method is reported; as it is where nothing was tried."""
    about = settings.get(section, {}).get(method)
    if about is None:
        return Trial(method)
    row = next(row for row in about["trials"] if row["number"] == about["chosen"])
    return Trial(row["spec"], {name: value for name, value in row["values"].items() if name != "epochs"})


def _median(distances: Sequence[float | None]) -> float:
    known = sorted(distance for distance in distances if distance is not None)
    return known[len(known) // 2]
