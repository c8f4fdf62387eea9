"""A comparison: run its attacks, in memory or in a folder where it resumes; outcomes as tables, curves, files and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rlab.comparison.outcome import COLUMNS, AttackOutcome, Contender, Figures, query_ratio
from rlab.core.trace import DISTANCE_NAMES
from rlab.data.batch import Batch
from rlab.errors import AttackError, ModelError, OptionError, give_notice
from rlab.present.page import Block, Charts, Number, Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Share, Table, Value, as_text
from rlab.progress import bar
from rlab.results.charts import AnytimeCurve, anytime_charts
from rlab.results.result import WITHIN
from rlab.results.tables import QUERIES
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.storage.contents import Contents
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim

RULES = (
    "Success is the share of flips among samples that the model classified correctly. 'Within q queries' is the median "
    "distance of the best flip found by then over all of these samples: ∞ if at most half flipped. 'To flip' ends at the "
    "first flip, 'in all' also counts what reduced the distance afterwards; in both, a sample without a flip counts as the whole "
    f"budget. {QUERIES} L2 is over flipped samples, with bounded values scaled to [0, 1]. "
    "Brackets: 95% intervals, Wilson's for success, and bootstrap elsewhere."
)
COUNTED = "clean"  # the first query of every attack
_QUESTION = {"command": "compare"}  # the same for all, so a later comparison replaces an earlier one


def run_comparison(
    victim: Victim,
    batch: Batch,
    contenders: Mapping[str, Contender],
    budget: int,
    seed: int = 0,
    folder: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    tell: Callable[[str, AttackOutcome], None] = lambda name, outcome: None,
) -> Comparison:
    """Run every attack on the same victim, samples and budget; call `tell` after each.

    With a `folder`, each finished attack is stored there, and a later call reads it back instead of running it again if its
    name, `settings` (the options as plain values), model, data, budget and seed are the same, and the attack itself is.
    """
    if not contenders:
        raise OptionError("expected at least one attack to compare, got none")
    if victim.multilabel:
        raise ModelError("expected a model with one label per sample to compare attacks on, got a multi-label model")
    for contender in contenders.values():
        contender.check(batch, budget)

    data = "" if folder is None else data_fingerprint(batch)

    def run(name: str, resume: Resume | None) -> AttackOutcome:
        if resume is None:
            with bar(len(batch), name) as progress:
                return contenders[name](victim, batch, budget, seed, progress)
        config = {**(settings or {}), "name": name, "budget": budget, "seed": seed, "counted": COUNTED}
        named = {key: contents.mark() for key, contents in named_in(config).items()}
        about = {"config": config, "named": named, "data": data, "model": victim, "attack": contenders[name]}
        values = resume.step(f"attack {name}", Contents(about), lambda: dict(vars(run(name, None))), stale="remake")
        return AttackOutcome.stored(values)

    outcomes, failed = dict[str, AttackOutcome](), dict[str, str]()
    needs = {name: contender.needs for name, contender in contenders.items()}
    with nullcontext() if folder is None else open_run(folder, _QUESTION) as resume:
        for name in contenders:
            before = victim.rows.total()
            try:
                outcomes[name] = run(name, resume)
            except AttackError as error:
                if len(failed) + 1 == len(contenders):
                    raise
                failed[name] = f"{error} (after {victim.rows.total() - before:,} queries)"
                give_notice(f"{failed[name]}; the comparison goes on without it")
            else:
                tell(name, outcomes[name])
        if not next(iter(outcomes.values())).attacked.any():
            raise ModelError("the model classifies no sample correctly, so nothing was attacked: try `rlab doctor`")
        comparison = Comparison(batch.ids, budget, seed, outcomes, needs, failed)
        if folder is not None:
            comparison.write(folder)
    return comparison


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """Outcomes by name, in the order the attacks ran; the first is the reference of the others."""

    verb: ClassVar[str] = "compare"

    ids: tuple[str, ...]
    budget: int
    seed: int
    outcomes: Mapping[str, AttackOutcome]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks that raised an error, which have no outcome

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.outcomes)} on {len(self.ids)} samples, {self.budget} queries each)"

    def __str__(self) -> str:
        return "\n".join([*map(as_text, self.tables()), *self.failed.values()])

    @property
    def reference(self) -> str:
        """The name of the first attack."""
        return next(iter(self.outcomes))

    @property
    def distance(self) -> str:
        """The distance that the attacks minimised."""
        return DISTANCE_NAMES[self.outcomes[self.reference].distance]

    @property
    def within(self) -> list[int]:
        """Numbers of queries below the budget for which tables show the best flips."""
        return [q for q in WITHIN if q < self.budget]

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """Figures by attack, with their intervals."""
        return {name: Figures.of(outcome, self.seed) for name, outcome in self.outcomes.items()}

    def tables(self) -> list[Table]:
        """One row per attack: best flips by number of queries; success and cost; what the attack needs and costs in all.

        The ratio is between median queries (in all) and the reference's, with the same bootstrap draws.
        """
        first, shown = self.reference, self.within
        anytime, cost, whole = (list[list[Value | Share]]() for _ in range(3))
        for attack, f in self.figures.items():
            times = query_ratio(self.outcomes[first], self.outcomes[attack], self.seed)
            anytime.append([attack, *(f.within[q] for q in shown)])
            ratio = 1 if attack == first else times
            cost.append([attack, Share(f.success), f.first, f.queries, f.l2])
            whole.append([attack, ", ".join(self.needs.get(attack, ())) or None, ratio, f.rows])
        heads = ["success", "queries\nto flip", "queries\nin all", "L2"]
        tables = [Table(["attack", *(f"{self.distance} within\n{q} queries" for q in shown)], anytime)] if shown else []
        ends = ["attack", "needs", f"in all ÷\n{first}", "rows\nin all"]
        return [*tables, Table(["attack", *heads], cost), Table(ends, whole, words=2)]

    def records(self) -> list[dict[str, Any]]:
        """One flat record per attack and sample."""
        return [
            {"attack": name, "id": self.ids[i]}
            | {column: getattr(outcome, column)[i].item() for column in COLUMNS}
            | {f"within_{q}": best[i].item() for q, best in within.items()}
            | {"improved_at": [at for at, _ in flips], "improved_to": [distance for _, distance in flips]}
            for name, outcome in self.outcomes.items()
            for within in [{q: outcome.best_within(q) for q in WITHIN}]
            for i, flips in enumerate(outcome.improvements)
        ]

    def metrics(self) -> Mapping[str, Metric]:
        found: dict[str, Metric] = {}
        for name, f in self.figures.items():
            found |= {f"{name}: success": Share(f.success), f"{name}: L2": f.l2, f"{name}: queries": f.queries}
            found |= {f"{name}: within {q}": f.within[q] for q in self.within}
        return found

    def settings(self) -> Mapping[str, Any]:
        return {"budget": self.budget, "seed": self.seed, "attacks": list(self.outcomes)}

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """The numbers are the first attack's success, and which attack has the nearest flips within each number of queries."""
        figures, first = self.figures, self.reference
        numbers = [Number(f"success of {first}", Share(figures[first].success))]
        for q in self.within:
            best = min(figures, key=lambda attack: figures[attack].within[q].value)
            numbers.append(Number(f"nearest {self.distance} within {q}: {best}", figures[best].within[q]))
        attacked = max(int(outcome.attacked.sum()) for outcome in self.outcomes.values())
        lead = f"{attacked} correctly classified samples, budget {self.budget}, seed {self.seed}."
        curves = {
            name: AnytimeCurve.of(o.improvements, o.attacked, o.succeeded, self.budget)
            for name, o in self.outcomes.items()
        }
        failed = [Text(f"{line}.") for line in self.failed.values()]
        blocks: list[Block] = [Charts(anytime_charts(curves, self.distance)), *self.tables(), *failed]
        title = f"Attacks compared{'' if folder is None else f': {folder.name}'}"
        return Page(title, [Section("Attacks", [*blocks, Text(RULES, quiet=True)])], lead=lead, numbers=numbers)
