"""Several attacks on one victim, the same samples and the same budget."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlab.comparison.figures import Figures, queries_at_l2, ratio_at_equal_l2
from rlab.comparison.libraries import parse_library_attack
from rlab.comparison.outcome import Contender, Outcome
from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters.palette import Spec
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.runs.files import write_atomically, write_rows
from rlab.victims.base import Victim

SAMPLES = "samples.parquet"


@dataclass(frozen=True)
class PolicyContender(Contender):
    """A policy of ours in the attack loop, with cleanup and verification. `options` are those of `rlab.attack`."""

    policy: str | Policy
    palette: Sequence[Spec] | None = None
    patch: int | Sequence[int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> Outcome:
        before = sum(victim.rows.values())
        attack = make_attack(
            batch, policy=self.policy, palette=self.palette, patch=self.patch, budget=budget, **self.options
        )
        result = attack(victim, batch, seed)
        return outcome_of(result, sum(victim.rows.values()) - before)


def outcome_of(result: AttackResult, rows: int) -> Outcome:
    """An attack of ours in the terms of a comparison; `rows` is what reached the model in all."""
    won = result.succeeded
    return Outcome(
        attacked=result.attacked,
        succeeded=won,
        queries=result.effort,
        l2=result.final["l2"].double().masked_fill(~won, math.nan),
        budget=result.setting.budget,
        rows=rows,
        seconds=float(result.seconds.sum()),
    )


@dataclass(frozen=True)
class Comparison:
    """Outcomes by name, in the order they were run."""

    ids: tuple[str, ...]
    budget: int
    seed: int
    outcomes: Mapping[str, Outcome]

    def figures(self) -> dict[str, Figures]:
        return {name: Figures.of(outcome, self.seed) for name, outcome in self.outcomes.items()}

    def settings(self) -> dict[str, list[str]]:
        """Attacks that were run at several strengths, 'name@strength': their names by the attack's."""
        groups: dict[str, list[str]] = {}
        for name in self.outcomes:
            groups.setdefault(name.partition("@")[0], []).append(name)
        return {base: names for base, names in groups.items() if len(names) > 1}

    def at_equal_l2(self, reference: str, base: str) -> dict[str, float]:
        """What the attack `base` would need at the reference's median L2, and how many times the reference's queries."""
        ours = self.outcomes[reference]
        runs = [self.outcomes[name] for name in self.settings()[base]]
        l2 = Figures.of(ours, self.seed).l2.value
        queries, times = queries_at_l2(runs, l2, self.seed), ratio_at_equal_l2(ours, runs, self.seed)
        return {"l2": l2, "queries": queries.value, "ratio": times.value, "low": times.low, "high": times.high}

    def rows(self) -> list[dict[str, Any]]:
        """One flat record an attack and sample."""
        return [
            {
                "attack": name,
                "id": self.ids[i],
                "attacked": bool(one.attacked[i]),
                "succeeded": bool(one.succeeded[i]),
                "queries": int(one.queries[i]),
                "l2": float(one.l2[i]),
            }
            for name, one in self.outcomes.items()
            for i in range(len(one))
        ]

    def save(self, folder: Path) -> Path:
        """samples.parquet and samples.csv, one row an attack and sample, and the curves as a picture."""
        from rlab.comparison.curves import draw_curves

        folder.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        write_rows(folder / SAMPLES, rows, f'{{"budget": {self.budget}, "seed": {self.seed}}}')
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_atomically((folder / SAMPLES).with_suffix(".csv"), text.getvalue().encode())
        draw_curves(self).savefig(folder / "curves.png")
        return folder


def compare(
    victim: Victim,
    batch: Batch,
    contenders: Mapping[str, Contender],
    budget: int,
    seed: int = 0,
    tell: Callable[[str, Outcome], None] = lambda name, outcome: None,
) -> Comparison:
    """Runs every contender on the same victim, samples and budget; `tell` hears of each as it ends."""
    if not contenders:
        raise InputError("expected at least one attack to compare, got none")
    if victim.multilabel:
        raise InputError("attacks are compared on models with one label a sample, got a multi-label model")
    outcomes = {}
    for name, contender in contenders.items():
        outcomes[name] = contender(victim, batch, budget, seed)
        tell(name, outcomes[name])
    if not next(iter(outcomes.values())).attacked.any():
        raise InputError("the model has none of the samples right, so nothing was attacked: try `rlab doctor`")
    return Comparison(batch.ids, budget, seed, outcomes)


def parse_contenders(
    policies: str,
    attacks: Sequence[str],
    palette: Sequence[Spec] | None = None,
    patch: int | Sequence[int] | None = None,
    **options: Any,
) -> dict[str, Contender]:
    """'random,square(share=0.2)' and ['torchattacks:square@1.0', ...] -> contenders by those names."""
    named = [word.strip() for word in re.split(r",(?![^(]*\))", policies) if word.strip()]
    ours: dict[str, Contender] = {name: PolicyContender(parse_policy(name), palette, patch, options) for name in named}
    return ours | {spec: parse_library_attack(spec) for word in attacks for spec in word.split()}
