"""A comparison: run its attacks, in memory or in a folder where it resumes; outcomes as tables, curves, files and a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from matplotlib.figure import Figure

from rlab.comparison.outcome import FREE_PIXELS, AttackOutcome, Contender, Figures, at_equal_l2, query_ratio
from rlab.core.distances import Measure
from rlab.core.trace import DISTANCE_NAMES
from rlab.data.batch import Batch
from rlab.errors import AttackError, FolderError, ModelError, OptionError, give_notice
from rlab.present.chart import Chart
from rlab.present.figures import draw_panels
from rlab.present.page import Block, Charts, Number, Page, Section, Text
from rlab.present.result import PathLike, Result
from rlab.present.style import WIDE, flow
from rlab.present.table import Share, Table, Value, as_text, number
from rlab.progress import bar
from rlab.results.charts import AnytimeCurve, anytime_charts
from rlab.results.plots.save import save_figure
from rlab.results.result import WITHIN
from rlab.results.tables import QUERIES
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.storage.contents import Contents
from rlab.storage.files import SAMPLES, SETTING, read_rows, write_csv, write_rows
from rlab.storage.names import CURVES as CURVES
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import why_unreadable
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
_COLUMNS = ("attacked", "succeeded", "queries", "l2")


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
        values = resume.step(
            f"attack {name}", Contents.of(about), lambda: run(name, None).plain(digits=None), stale="remake"
        )
        return AttackOutcome.from_plain(values)

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
            comparison.save(folder)
    return comparison


@dataclass(frozen=True)
class Comparison(Result):
    """Outcomes by name, in the order the attacks ran; the first is the reference of the others."""

    ids: tuple[str, ...]
    budget: int
    seed: int
    outcomes: Mapping[str, AttackOutcome]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks that raised an error, which have no outcome

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.outcomes)} on {len(self.ids)} samples, {self.budget} queries each)"

    def __str__(self) -> str:
        return "\n".join([*map(as_text, self.tables()), *self.lines()])

    @property
    def reference(self) -> str:
        """The name of the first attack."""
        return next(iter(self.outcomes))

    @property
    def distance(self) -> Measure:
        """The distance that the attacks minimised."""
        return self.outcomes[self.reference].distance

    @property
    def within(self) -> list[int]:
        """Numbers of queries below the budget for which tables show the best flips."""
        return [q for q in WITHIN if q < self.budget]

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """Figures by attack, with their intervals."""
        return {name: Figures.of(outcome, self.seed) for name, outcome in self.outcomes.items()}

    def settings(self) -> dict[str, list[str]]:
        """Attacks that ran at several strengths: from each attack's name to its 'name@strength' entries."""
        groups: dict[str, list[str]] = {}
        for name in self.outcomes:
            groups.setdefault(name.partition("@")[0], []).append(name)
        return {base: names for base, names in groups.items() if len(names) > 1}

    def lines(self) -> list[str]:
        """One sentence per attack that failed, and per attack with several strengths: its queries at the reference's median L2."""
        first, lines = self.reference, list(self.failed.values())
        l2 = number(self.figures[first].l2.value)
        for base, names in self.settings().items():
            queries, times = at_equal_l2(self.outcomes[first], [self.outcomes[name] for name in names], self.seed)
            if math.isnan(queries.value):
                lines.append(f"{base}: its strengths do not enclose the median L2 {l2} of {first}; add strengths")
            else:
                many = f"{number(times.value)} times as many [{number(times.low)}, {number(times.high)}]"
                lines.append(f"{base} at the median L2 {l2} of {first}: {number(queries.value)} queries, {many}")
        return lines

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
        distance = DISTANCE_NAMES[self.distance]
        heads = ["success", "queries\nto flip", "queries\nin all", "L2"]
        tables = [Table(["attack", *(f"{distance} within\n{q} queries" for q in shown)], anytime)] if shown else []
        ends = ["attack", "needs", f"in all ÷\n{first}", "rows\nin all"]
        return [*tables, Table(["attack", *heads], cost), Table(ends, whole, words=2)]

    def blocks(self) -> list[Block]:
        """The anytime curves, the tables, and the rules behind their figures."""
        lines = [Text(f"{line}.") for line in self.lines()]
        return [Charts(self._charts()), *self.tables(), *lines, Text(RULES, quiet=True)]

    def plot(self) -> Figure:
        """Draw the anytime curves of all attacks; notebooks show the figure, `savefig` stores it."""
        attacked = max(int(outcome.attacked.sum()) for outcome in self.outcomes.values())
        facts = [f"{attacked} correctly classified samples", f"budget {self.budget}", f"seed {self.seed}"]
        facts += ["queries are rows that reached the model", "a median is infinite while at most half are flipped"]
        charts = self._charts()
        return draw_panels(["attacks compared", *flow(facts, WIDE - 0.25)], [charts] if charts else [], height=4.4)

    def _charts(self) -> list[Chart]:
        curves = {
            name: AnytimeCurve.of(o.improvements, o.attacked, o.succeeded, self.budget)
            for name, o in self.outcomes.items()
        }
        return anytime_charts(curves, DISTANCE_NAMES[self.distance])

    def records(self) -> list[dict[str, Any]]:
        """One flat record per attack and sample."""
        return [
            {"attack": name, "id": self.ids[i]}
            | {column: getattr(outcome, column)[i].item() for column in _COLUMNS}
            | {f"within_{q}": best[i].item() for q, best in within.items()}
            | {"improved_at": [at for at, _ in flips], "improved_to": [distance for _, distance in flips]}
            for name, outcome in self.outcomes.items()
            for within in [{q: outcome.best_within(q) for q in WITHIN}]
            for i, flips in enumerate(outcome.improvements)
        ]

    def make_page(self, title: str = "Comparison") -> Page:
        """The numbers are the first attack's success, and which attack has the nearest flips within each number of queries."""
        figures, distance, first = self.figures, DISTANCE_NAMES[self.distance], self.reference
        numbers = [Number(f"success of {first}", Share(figures[first].success))]
        for q in self.within:
            best = min(figures, key=lambda attack: figures[attack].within[q].value)
            numbers.append(Number(f"nearest {distance} within {q}: {best}", figures[best].within[q]))
        return Page(title, [Section("Attacks", self.blocks())], numbers=numbers)

    def save(self, folder: PathLike) -> Path:
        """Write samples.parquet and samples.csv, with one row per attack and sample, and curves.png."""
        folder = Path(folder)
        records = self.records()
        setting: dict[str, Any] = {"budget": self.budget, "seed": self.seed, "distance": self.distance}
        setting |= {"rows": {name: outcome.rows for name, outcome in self.outcomes.items()}, "needs": dict(self.needs)}
        setting |= {"failed": dict(self.failed), "counted": COUNTED}
        flat = [{key: value for key, value in record.items() if not isinstance(value, list)} for record in records]
        with open_run(folder, _QUESTION) as resume:
            resume.create()
            write_csv((folder / SAMPLES).with_suffix(".csv"), flat)
            write_rows(folder / SAMPLES, records, json.dumps(setting))
            save_figure(self.plot(), folder / CURVES)
        return folder

    @classmethod
    def load(cls, folder: PathLike) -> Comparison:
        """Read what `save` wrote; how long each attack took is not stored."""
        folder = Path(folder)
        if not (folder / SAMPLES).exists():
            raise FolderError(f"{folder} {why_unreadable(folder, 'compare', 'a folder of a comparison')}")
        records: dict[str, list[dict[str, Any]]] = {}
        for record in read_rows(folder / SAMPLES):
            records.setdefault(record["attack"], []).append(record)
        setting = json.loads(pq.read_schema(folder / SAMPLES).metadata[SETTING.encode()])
        outcomes = {}
        for name, own in records.items():
            columns: dict[str, Any] = {column: [record[column] for record in own] for column in _COLUMNS}
            columns["improvements"] = [zip(r["improved_at"], r["improved_to"], strict=True) for r in own]
            shared = {"budget": setting["budget"], "distance": setting["distance"], "seconds": math.nan}
            outcomes[name] = AttackOutcome.from_plain(columns | shared | {"rows": setting["rows"][name]})
        ids = tuple(record["id"] for record in next(iter(records.values())))
        needs = {name: tuple(words) for name, words in setting["needs"].items()}
        if setting.get("counted") != COUNTED and any(FREE_PIXELS in words for words in needs.values()):
            old = "an older version wrote this comparison: attacks of papers and libraries do not count the clean query in it"
            give_notice(old)
        return cls(ids, setting["budget"], setting["seed"], outcomes, needs, setting.get("failed", {}))


def comparison_page(folder: Path) -> Page:
    """The page of a folder that `rlab compare` wrote."""
    return Comparison.load(folder).make_page(f"Attacks compared: {folder.name}")
