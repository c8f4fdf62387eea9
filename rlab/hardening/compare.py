"""Does hardening help more than what one would do without an agent? The same model, data and epochs, several attacks."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rlab.comparison import Estimate
from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.hardening.baselines import AugmentMaker, fgsm, pgd
from rlab.hardening.config import HardenConfig
from rlab.hardening.estimates import over_seeds, ratio_over_seeds
from rlab.hardening.hardening import as_config, harden
from rlab.hardening.kept import measured_once, setting
from rlab.hardening.makers import Maker, PerturbationSpace
from rlab.hardening.measure import RADII, Floats, Measured, PolicyFor, Trial, measure
from rlab.hardening.sources import Augment
from rlab.hardening.trainable import trainable, twin
from rlab.hardening.training import goal_of, make_maker
from rlab.runs.files import write_atomically
from rlab.victims.base import Victim

UNCHANGED, OURS = "unchanged", "ours"
METHODS = (UNCHANGED, "augment", "fgsm", "pgd", OURS)
_STRENGTH = re.compile(r"(?P<name>fgsm|pgd)(_(?P<norm>l2|linf))?(@(?P<radius>[.0-9e-]+))?$")
Tell = Callable[[str, int, Measured], None]


@dataclass(frozen=True)
class HardeningComparison:
    """Every method's figures, (seeds, n) by name."""

    methods: Mapping[str, Mapping[str, Floats]]
    curves: Mapping[str, Mapping[str, Floats]]  # (seeds, levels, n)
    seeds: tuple[int, ...]

    def estimate(self, method: str, figure: str) -> Estimate:
        return over_seeds(figure, self.methods[method][figure])

    def l2_ratio(self, method: str) -> Estimate:
        """How many times the unchanged model's median distance the policy needs."""
        return ratio_over_seeds("agent_l2", self.methods[method]["agent_l2"], self.methods[UNCHANGED]["agent_l2"])

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a method and figure."""
        found = []
        for method, figures in self.methods.items():
            told = {name: self.estimate(method, name) for name in figures} | {"l2_ratio": self.l2_ratio(method)}
            for name, e in told.items():
                found.append({"method": method, "figure": name, "value": e.value, "low": e.low, "high": e.high})
        return found

    def save(self, folder: Path) -> Path:
        """comparison.csv and comparison.json; -> the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_atomically(folder / "comparison.csv", text.getvalue().encode())
        plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
        write_atomically(
            folder / "comparison.json", json.dumps({"seeds": self.seeds, "figures": plain}, indent=1).encode()
        )
        return folder


def _plain(value: object) -> object:
    """JSON knows neither NaN nor infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def parse_method(spec: str, config: HardenConfig, batch: Batch, goal: Goal) -> Maker | None:
    """'unchanged', 'augment', 'fgsm', 'pgd', 'pgd_l2@0.5' (a radius in the data's range), 'ours' -> who makes its samples."""
    if spec == UNCHANGED:
        return None
    if spec == OURS:
        return make_maker(config, batch, goal)
    if spec == "augment":
        assert config.palettes is not None
        assert config.patches is not None
        return AugmentMaker(PerturbationSpace(batch.bounds, config.palettes, config.patches, config.entries, goal))
    match = _STRENGTH.match(spec)
    if match is None:
        raise InputError(f"unknown method {spec!r}: expected {', '.join(METHODS)}, or a strength like pgd_l2@0.5")
    radius = float(match["radius"]) if match["radius"] else 2 * RADII[batch.kind]
    make = fgsm if match["name"] == "fgsm" else pgd
    return make(batch.bounds, goal, radius, "l2" if match["norm"] == "l2" else "linf")


def compare_hardening(
    model: nn.Module | Victim,
    batch: Batch,
    test: Batch,
    *,
    validation: Batch | None = None,
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = (0, 1, 2),
    trial: Trial | None = None,
    config: HardenConfig | Mapping[str, Any] | None = None,
    policy: PolicyFor | None = None,
    augment: Augment | None = None,
    out: Path | None = None,
    tell: Tell = lambda method, seed, measured: None,
    **options: Any,
) -> HardeningComparison:
    """Hardens the model by every method and seed, and measures each on `test`; `options` are `HardenConfig`'s fields.

    `policy(victim)` may train an agent against each hardened model. With `out` a stopped comparison goes on.
    """
    if UNCHANGED not in methods:
        raise InputError(f"expected {UNCHANGED!r} among the methods, which the others are measured against")
    if len(test) < 2 or not len(seeds):
        raise InputError(f"expected at least two test samples and one seed, got {len(test)} and {len(seeds)}")
    chosen, victim = as_config(config, options).filled(batch), trainable(model, batch)
    trial = trial or Trial(policy=chosen.policy if chosen.policy != "slope" else Trial().policy)
    made = {name: parse_method(name, chosen, batch, goal_of(victim)) for name in methods}
    measured: dict[str, list[Measured]] = {name: [] for name in methods}

    def one_seed(seed: int) -> None:
        own, given = replace(trial, seed=seed), chosen.model_copy(update={"seed": seed})
        base = functools.cache(lambda: measure(twin(victim), test, own, policy=policy))
        said = setting(dict(victim.model.state_dict()), own, given, batch, test)

        def judge(maker: Maker | None, place: Path | None) -> Measured:
            if maker is None:
                return base()
            one = harden(
                victim, batch, validation=validation, config=given, maker=maker, augment=augment,
                out=place, progress=lambda part: None,
            )  # fmt: skip
            found = measure(one.victim, test, own, base().attack, policy)
            if place is not None:
                one.save(place)
            return found

        for name, maker in made.items():
            place = None if out is None else out / f"{_safe(name)}-{seed}"
            known = place if policy is None else None  # what an agent trained anew would find is not known before
            found = measured_once(known, said, functools.partial(judge, maker, place))
            measured[name].append(replace(found, attack=None))
            tell(name, seed, found)

    for seed in seeds:
        one_seed(seed)
    return HardeningComparison(
        {name: _stacked([one.figures for one in found]) for name, found in measured.items()},
        {name: _stacked([one.curves for one in found]) for name, found in measured.items()},
        tuple(seeds),
    )


def _stacked(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
