"""Several attacks on one victim, the same samples and the same budget."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pydantic import Field, ValidationInfo, field_validator

from rlab.comparison.libraries import ATTACKS, parse_library_attack, parse_strength
from rlab.comparison.outcome import (
    FREE_PIXELS,
    PALETTE,
    SURROGATES,
    AttackOutcome,
    Contender,
    Figures,
    queries_at_l2,
    ratio_at_equal_l2,
)
from rlab.comparison.peers import NAMES, SurrogateSet, parse_peer
from rlab.core.distances import Measure
from rlab.core.result import WITHIN, AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters.palette import PIXELS
from rlab.options import AttackOptions, RunOptions, guided
from rlab.policies import parse_policy
from rlab.policies.auto import is_auto
from rlab.policies.belief import BeliefPolicy
from rlab.present.plots.save import save_figure
from rlab.priors.base import NoPrior
from rlab.progress import bar
from rlab.runs.files import SAMPLES, SETTING, read_rows, write_csv, write_rows
from rlab.runs.fingerprint import data_fingerprint, digest, inputs_of
from rlab.runs.names import CURVES as CURVES
from rlab.runs.resume import Resume, open_run
from rlab.runs.sharing import WorkerOptions
from rlab.victims.base import Victim
from rlab.workers import Crew

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("attacked", "succeeded", "queries", "l2")


class CompareOptions(WorkerOptions, RunOptions):
    """Policies of ours and attacks of other libraries on the same model, samples and budget."""

    policies: tuple[str, ...] = Field(
        ("auto", "square", "random"), description="policies of rlab, with commas: auto,square,random,agent.safetensors"
    )
    attacks: tuple[str, ...] = Field(
        (),
        description="attacks of papers and other libraries, repeated or with spaces: gfcs square_min torchattacks:square@1.0",
    )
    reduce: bool = Field(
        False, description="attacks that end at their flip go on by bisection towards the original, counted as queries"
    )

    @field_validator("policies", "attacks", mode="before")
    @classmethod
    def _split(cls, value: Any, info: ValidationInfo) -> Any:
        """Several in one text: policies with commas outside of brackets, attacks with spaces."""
        between = r"\s+" if info.field_name == "attacks" else r",(?![^(]*\))"
        listed = [value] if isinstance(value, str) else value
        return [spec.strip() for text in listed for spec in re.split(between, str(text)) if spec.strip()]

    def attack_options(self) -> AttackOptions:
        """With attacks of others all keep L2 small, whatever the data."""
        return super().attack_options().model_copy(update={"distance": "l2"} if self.attacks else {})

    def contenders(self, crew: Crew | None = None) -> dict[str, Contender]:
        """By the names they were given, policies first; a crew is for those, attacks of others are one process's."""
        if self.attacks and str(self.goal) != "untargeted":
            raise InputError(
                f"attacks of papers and other libraries are untargeted, got the goal {self.goal}: compare policies only, "
                f"or leave the goal out"
            )
        if self.attacks and self.distance not in (None, "l2"):
            raise InputError(
                f"attacks of papers and other libraries are compared by L2, got the distance {self.distance}: compare policies only"
            )
        options = self.attack_options()
        surrogates, ours = SurrogateSet(options), dict[str, Contender]()
        free = tuple(self.palette or ()) == (PIXELS,) and "policies" not in self.model_fields_set
        for name in ("auto",) if free else self.policies:  # free values have one search
            policy = parse_policy(name)
            own = {"policy": policy} if guided(policy) else {"policy": policy, "surrogate": None}
            ours[name] = PolicyContender(options.model_copy(update=own), name, crew)
        others = {spec: self._other(spec, options, surrogates) for spec in self.attacks}
        return ours | others

    def _other(self, spec: str, options: AttackOptions, surrogates: SurrogateSet) -> Contender:
        name, _ = parse_strength(spec, NAMES | {name: attack.strength for name, attack in ATTACKS.items()})
        if name in NAMES:
            return parse_peer(spec, options, surrogates, self.reduce)
        return parse_library_attack(spec, self.reduce)

    def kept(self, resume: Resume, crew: Crew | None = None) -> dict[str, Contender]:
        """The same, each kept as it ends: a comparison that was stopped, or to which attacks are added, asks what is new."""
        shared = {key: value for key, value in self.plain().items() if key not in ("policies", "attacks", "policy")}
        named = self.contenders(crew).items()
        return {name: KeptContender(contender, resume, shared | {"name": name}) for name, contender in named}


@dataclass(frozen=True)
class PolicyContender(Contender):
    """A policy of ours in the attack loop, with cleanup and verification."""

    options: AttackOptions
    name: str = "attacking"  # beside the bar
    crew: Crew | None = None  # who attacks; None: this process

    @property
    def needs(self) -> tuple[str, ...]:
        policy, models = parse_policy(self.options.policy), (SURROGATES,) if self.options.surrogate else ()
        if not models and is_auto(policy):
            models = ("a trained prior where one ships",)
        elif isinstance(policy, BeliefPolicy) and not isinstance(policy.prior, NoPrior):
            models = ("a trained prior",)
        return ("scores", *models, FREE_PIXELS if self.options.palette == ("pixels",) else PALETTE)

    def check(self, batch: Batch, budget: int) -> None:
        self.options.model_copy(update={"budget": budget}).build(batch)

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        before = victim.rows.total()
        options = self.options.model_copy(update={"budget": budget, "seed": seed})
        attack = options.build(batch)
        with bar(len(batch), self.name) as progress:
            if self.crew is not None:
                return outcome_of(*self.crew.attack(options, attack, batch, progress))
            return outcome_of(attack(victim, batch, progress), victim.rows.total() - before)


@dataclass(frozen=True)
class KeptContender(Contender):
    """What `inner` does, kept in the folder of a comparison as soon as it ends; `asked` is all that its outcome follows from."""

    inner: Contender
    resume: Resume
    asked: Mapping[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        return self.inner.needs

    def check(self, batch: Batch, budget: int) -> None:
        self.inner.check(batch, budget)

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        fingerprint = digest(self.asked, budget, seed, data_fingerprint(batch), inputs_of(victim, self.asked))
        key = f"attack {self.asked['name']}"
        values = self.resume.step(
            key, fingerprint, lambda: self.inner(victim, batch, budget, seed).exact(), stale="remake"
        )
        return AttackOutcome.from_plain(values)


def outcome_of(result: AttackResult, rows: int) -> AttackOutcome:
    """An attack of ours in the terms of a comparison; `rows` is what reached the model in all."""
    return AttackOutcome(
        attacked=result.attacked,
        succeeded=result.succeeded,
        queries=result.effort,
        l2=result.final["l2"].double().masked_fill(~result.succeeded, math.nan),
        budget=result.setting.budget,
        rows=rows,
        seconds=float(result.seconds.sum()),
        improvements=result.improvements,
        distance=result.setting.distance,
    )


@dataclass(frozen=True)
class Comparison:
    """Outcomes by name, in the order they were run."""

    ids: tuple[str, ...]
    budget: int
    seed: int
    outcomes: Mapping[str, AttackOutcome]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name, where it is known

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.outcomes)} on {len(self.ids)} samples, {self.budget} queries each)"

    @property
    def distance(self) -> Measure:
        """Which distance the attacks kept small."""
        return next(iter(self.outcomes.values())).distance

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

    def _repr_html_(self) -> str:
        from rlab.comparison.page import comparison_blocks
        from rlab.present.notebook import blocks_html

        return blocks_html(comparison_blocks(self))

    def plot(self) -> Figure:
        """The anytime curves of all attacks; notebooks show it, `savefig` keeps it."""
        from rlab.comparison.page import draw_curves

        return draw_curves(self)

    def records(self) -> list[dict[str, Any]]:
        """One flat record an attack and sample."""
        return [
            {"attack": name, "id": self.ids[i]}
            | {column: getattr(outcome, column)[i].item() for column in _COLUMNS}
            | {f"within_{q}": best[i].item() for q, best in within.items()}
            | {"improved_at": [at for at, _ in flips], "improved_to": [distance for _, distance in flips]}
            for name, outcome in self.outcomes.items()
            for within in [{q: outcome.best_within(q) for q in WITHIN}]
            for i, flips in enumerate(outcome.improvements)
        ]

    def save(self, folder: Path) -> Path:
        """samples.parquet and samples.csv, one row an attack and sample, and the curves as a picture."""
        rows, records = {name: outcome.rows for name, outcome in self.outcomes.items()}, self.records()
        flat = [{key: value for key, value in record.items() if not isinstance(value, list)} for record in records]
        setting = {
            "budget": self.budget,
            "seed": self.seed,
            "rows": rows,
            "distance": self.distance,
            "needs": dict(self.needs),
        }
        with open_comparison(folder) as resume:
            resume.create()
            write_csv((folder / SAMPLES).with_suffix(".csv"), flat)
            write_rows(folder / SAMPLES, records, json.dumps(setting))
            save_figure(self.plot(), folder / CURVES)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Comparison:
        """What `save` wrote; older folders lack the rows that reached the model (0 then), improvements, and what attacks need."""
        records: dict[str, list[dict[str, Any]]] = {}
        for record in read_rows(folder / SAMPLES):
            records.setdefault(record["attack"], []).append(record)
        setting = json.loads(pq.read_schema(folder / SAMPLES).metadata[SETTING.encode()])
        budget, rows = setting["budget"], setting.get("rows", {})
        outcomes = {}
        for name, own in records.items():
            columns = {column: [record[column] for record in own] for column in _COLUMNS}
            flips = [zip(r.get("improved_at") or (), r.get("improved_to") or (), strict=True) for r in own]
            totals = {"budget": budget, "rows": rows.get(name, 0), "seconds": math.nan, "improvements": flips}
            outcomes[name] = AttackOutcome.from_plain(columns | totals | {"distance": setting.get("distance", "l2")})
        ids = tuple(record["id"] for record in next(iter(records.values())))
        needs = {name: tuple(words) for name, words in setting.get("needs", {}).items()}
        return cls(ids, budget, setting["seed"], outcomes, needs)


def open_comparison(folder: Path) -> AbstractContextManager[Resume]:
    """A folder for comparisons, a later one in place of an earlier; folders of other commands are refused."""
    return open_run(folder, {"command": "compare"}, known=(CURVES,))


def compare(
    victim: Victim,
    batch: Batch,
    contenders: Mapping[str, Contender],
    budget: int,
    seed: int = 0,
    tell: Callable[[str, AttackOutcome], None] = lambda name, outcome: None,
) -> Comparison:
    """Runs every contender on the same victim, samples and budget; `tell` hears of each as it ends."""
    if not contenders:
        raise InputError("expected at least one attack to compare, got none")
    if victim.multilabel:
        raise InputError("attacks are compared on models with one label a sample, got a multi-label model")
    for contender in contenders.values():
        contender.check(batch, budget)
    outcomes = {}
    for name, contender in contenders.items():
        outcomes[name] = contender(victim, batch, budget, seed)
        tell(name, outcomes[name])
    if not next(iter(outcomes.values())).attacked.any():
        raise InputError("the model has none of the samples right, so nothing was attacked: try `rlab doctor`")
    needs = {name: contender.needs for name, contender in contenders.items()}
    return Comparison(batch.ids, budget, seed, outcomes, needs)
