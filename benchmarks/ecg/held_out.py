"""The network for beats before and after hardening, under faults that no training saw, on patients that no training saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from benchmarks.harden.cases import Section
from benchmarks.harden.cases import ecg as beats_section
from benchmarks.harness import Figures, Piece
from benchmarks.raw import Raw, Store
from benchmarks.tables import interval, section, table
from rlab.data.batch import Batch
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette
from rlab.hardening.comparison import parse_method
from rlab.hardening.evaluation import LEVELS, all_filters, distort
from rlab.hardening.options import HardenOptions
from rlab.hardening.run import harden
from rlab.hardening.trainable import correct, goal_of
from rlab.progress import quiet
from rlab.stats import Estimate, Floats, over_seeds
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

KIND, BEFORE = "held_out", "before"
ALL, LAST = "all", "last"  # levels
METHODS, SEEDS = ("ours", "augment"), (0, 1, 2)
BEATS, CHOSEN = 15_000, 2000  # beats to train on, drawn from those of DS1, and beats of the patients to choose by
LOST = 0.05  # a fault matters if the network loses this share at the strongest level, on the patients to choose by
# Chosen on those patients among nine settings: patches of the whole beat besides short ones help most.
OPTIONS: dict[str, Any] = {
    "rounds": 1, "epochs": 8, "max_clean_drop": 1.0, "validation_attacked": 60, "patches": [8, 45, 720], "aimed_share": 0.5,
}  # fmt: skip
TRAINED = ("gaussian_noise", "baseline_wander", "powerline_hum", "muscle_noise", "gaussian_blur", "dead_pixel")
SIMILAR = ("dropout", "smoothing")  # other names for a trained filter on signals


@dataclass(frozen=True)
class HeldOutCase:
    """The network as it was trained, or hardened with a method and a seed."""

    method: str = BEFORE
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{KIND}-{self.method}-{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        own = {} if self.method == BEFORE else {**OPTIONS, "beats": BEATS, "seed": self.seed}
        return {**own, "method": self.method, "filters": [one.name for one in held_out()]}


FULL = (HeldOutCase(), *(HeldOutCase(method, seed) for method in METHODS for seed in SEEDS))


def held_out() -> list[Filter]:
    """All filters for signals but those that the network is hardened with."""
    return [one for one in all_filters(1, 1) if not one.name.startswith(TRAINED) and one.name not in SIMILAR]


@cache
def data() -> Section:
    return beats_section("cpu")


def network(case: HeldOutCase) -> TorchVictim:
    own = data()
    own.victim.chunk = 256
    if case.method == BEFORE:
        return own.victim
    order = torch.randperm(len(own.data.train), generator=torch.Generator().manual_seed(0))
    train = own.data.train[order[:BEATS].tolist()]
    base = check(HardenOptions, {**own.config, **OPTIONS, "seed": case.seed})
    options = parse_method(case.method, base.filled(train), train, goal_of(own.victim))
    assert options is not None
    return harden(own.victim, train, options, validation=own.data.validation, progress=quiet).victim


def under(victim: TorchVictim, batch: Batch) -> dict[str, Floats]:
    """By filter, whether the network is right on each beat at each level: (levels, n)."""

    def right(one: Filter, level: int) -> Floats:
        severity = one.severities[round(level * (len(one.severities) - 1) / (LEVELS - 1))]
        x = distort(Palette((Entry(one, severity),)), batch, 0, victim.device)
        return correct(victim, x, batch.y).double().numpy()

    return {one.name: np.stack([right(one, level) for level in range(LEVELS)]) for one in held_out()}


def measure(case: HeldOutCase, device: str) -> Raw:
    """Of the patients to choose by only the shares are kept, which say what matters."""
    victim, own = network(case), data().data
    assert own.validation is not None
    parts = {
        name: {ALL: rows.sum(0).astype(int).tolist(), LAST: rows[-1].astype(int).tolist()}
        for name, rows in under(victim, own.test).items()
    }
    chosen = {name: rows.mean(1).tolist() for name, rows in under(victim, own.validation[:CHOSEN]).items()}
    return Raw({"clean": correct(victim, own.test.x, own.test.y).int().tolist(), "chosen": chosen, "reported": parts})


def pieces() -> Iterator[Piece]:
    for case in FULL:
        yield Piece(case.name, KIND, case.settings, partial(measure, case))


Found = Mapping[HeldOutCase, Raw]


def stored(store: Store) -> dict[HeldOutCase, Raw]:
    """All stored cases; none until they are complete."""
    if any(case.name not in store for case in FULL):
        return {}
    return {case: store.read(case.name) for case in FULL}


def matters(found: Found) -> list[str]:
    """The filters that cost the network before hardening more than `LOST`, on the patients to choose by."""
    return [name for name, shares in found[FULL[0]].numbers["chosen"].items() if shares[-1] < max(shares) - LOST]


def shares(raws: list[Raw], names: list[str], levels: str = ALL) -> Floats:
    """(seeds, n): the share of these filters and levels under which each beat is right."""
    counts = np.array([[raw.numbers["reported"][name][levels] for name in names] for raw in raws])
    return counts.mean(1) / (LEVELS if levels == ALL else 1)


def of(found: Found, method: str) -> list[Raw]:
    """The raw results of a method; those before hardening once for each seed."""
    if method == BEFORE:
        return [found[FULL[0]]] * len(SEEDS)
    return [raw for case, raw in found.items() if case.method == method]


def gain(found: Found, method: str, names: list[str]) -> Estimate:
    """The mean difference to before, on the same beats."""
    return over_seeds(shares(of(found, method), names) - shares(of(found, BEFORE), names), "mean")


def held_out_figures(found: Found) -> Figures:
    if not found:
        return {}
    names = matters(found)
    return {f"held_out_{method}_gain": gain(found, method, names).value for method in METHODS}


def held_out_section(found: Found) -> str:
    names, every = matters(found), list(found[FULL[0]].numbers["reported"])
    rows, each = [], []
    for method in (BEFORE, *METHODS):
        raws = of(found, method)
        cells = [f"{np.mean([raw.numbers['clean'] for raw in raws]):.1%}"]
        for chosen, levels in ((names, ALL), (names, LAST), (every, ALL)):
            cells.append(f"{shares(raws, chosen, levels).mean():.1%}")
        points = "" if method == BEFORE else interval(_points(gain(found, method, names)), 2)
        rows.append((method, str(1 if method == BEFORE else len(raws)), *cells, points))
    for name in names:
        each.append((name, *(f"{shares(of(found, method), [name]).mean():.1%}" for method in (BEFORE, *METHODS))))
    about = (
        f"The CNN for beats before and after hardening with {', '.join(TRAINED)} ({BEATS:,} beats of DS1, {OPTIONS['epochs']} "
        f"epochs, patches {OPTIONS['patches']}), under all other filters for signals over whole beats, at five severities. Six "
        "patients of DS2 are reported, three others chose the epoch and the settings, and none of them is in DS1. A fault matters "
        f"if it costs the network more than {LOST:.0%} at its strongest level, on the patients to choose by; many cost nothing, as "
        "the network normalises each beat. Brackets: 95%, over seeds and beats."
    )
    head = "network | seeds | clean | faults that matter | at the strongest level | all filters | gain where it matters, points"
    return section(
        "Beats under other faults",
        about,
        table(head, rows),
        table(f"fault | {BEFORE} | {' | '.join(METHODS)}", each),
    )


def _points(e: Estimate) -> Estimate:
    return Estimate(100 * e.value, 100 * e.low, 100 * e.high)
