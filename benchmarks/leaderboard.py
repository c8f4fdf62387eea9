"""The leaderboard: every attack on every task at each number of queries, from the raw files.

python -m benchmarks --leaderboard                      # write build/leaderboard.html, docs/leaderboard.md and its picture
python -m benchmarks --submit my_module:thing --task "demo digits"    # measure a policy or an attack of yours on a task

`thing` is a policy (an object or its class), or a function `(recorder, rows)` as in examples/leaderboard_entries.py.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.anytime import run as anytime
from benchmarks.anytime.cases import BASELINES
from benchmarks.anytime.cases import CASES as TASKS
from benchmarks.anytime.cases import Case as Task
from benchmarks.attacks import attack, flips, within
from benchmarks.beyond import run as beyond
from benchmarks.ecg import twelve
from benchmarks.labels import run as labels
from benchmarks.papers import run as papers
from benchmarks.peers import run as peers
from benchmarks.raw import HERE, RAW, Curves, Store, to_curves
from benchmarks.tables import table as markdown
from benchmarks.video import curves as video
from rlab.comparison.recorder import QueryRecorder, run_recorded
from rlab.policies.base import Policy
from rlab.present.chart import Chart, Curve
from rlab.present.page import Charts, Code, Page, Section, Text, write_page
from rlab.present.table import Table, number
from rlab.stats import Floats

ROOT = HERE.parent
PAGE, DOCUMENT, PICTURE = (
    ROOT / "build" / "leaderboard.html", ROOT / "docs" / "leaderboard.md", ROOT / "docs" / "images" / "leaderboard.png"
)  # fmt: skip
EXAMPLE, SUBMITTED = ROOT / "examples" / "leaderboard_entries.py", "submitted"
QUERIES = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
SHORT, BEST = (5, 20, 100), 6  # queries and rows of the Markdown tables
ABOUT = (
    "Medians over the samples that the model classifies correctly, of the distance of the best flip within a number of queries; ∞ "
    "while at most half are flipped. A row stops at its budget. Within a task, all rows have the same model and way of counting, "
    "and policies the same palette. Rows are sorted by the distance within {} queries, or within the most that the task has."
)
HOW = (
    "Write a policy, which changes patches with the task's palette, or an attack, which may change anything. Measure it on a task, "
    "look at the page, and send the raw file in benchmarks/results/raw/submitted with your code. Tasks whose names begin with "
    '"demo" need no data.'
)
COMMANDS = """PYTHONPATH=examples python -m benchmarks --submit leaderboard_entries:Sweep --task "demo digits"
PYTHONPATH=examples python -m benchmarks --submit leaderboard_entries:growing_noise --task "demo digits"
python -m benchmarks --leaderboard
"""
Attack = Callable[[QueryRecorder, Tensor], None]


@dataclass(frozen=True)
class Row:
    """What one method reached on one task, with several seeds or one."""

    task: str
    method: str
    seeds: Sequence[Curves]
    budget: int
    distance: str = "L2"
    version: str = ""

    def median(self, queries: int) -> float:
        """NaN beyond the budget."""
        return float(np.median(within(self.seeds, queries))) if queries <= self.budget else math.nan

    def flipped(self, queries: int) -> float:
        return float(np.isfinite(within(self.seeds, queries)).mean())

    def first(self) -> float:
        """The median number of queries to the first flip."""
        return float(np.median([flips[0][0] if flips else math.inf for seed in self.seeds for flips in seed]))


def _policies(store: Store) -> Iterator[Row]:
    for case in TASKS:
        for policy in (case.policy, *BASELINES):
            for seeds in anytime.kept(store, case, policy).values():
                yield Row(case.raw.replace("_", " "), policy, seeds, case.budget)


def _peers(store: Store) -> Iterator[Row]:
    for victim, case in peers.CASES.items():
        for what, rows in peers.TABLES[victim].items():
            for row in rows:
                for seeds in peers.kept(store, [row], victim).values():
                    yield Row(f"{case.title}, {what}", row.name, seeds, row.budget)


def _labels(store: Store) -> Iterator[Row]:
    for victim, row in product(labels.VICTIMS, labels.ROWS):
        for curves in store.curves({row: labels.file(row, victim)}).values():
            yield Row(f"{peers.CASES[victim].title}, labels only", row, [curves], labels.QUERIES[-1])


def _clips(store: Store) -> Iterator[Row]:
    for case in (case for case in video.cases() if case.section == "curves"):
        if (curve := video.read(store, case)) is not None:
            yield Row(f"{case.victim} on clips", curve.attack, curve.seeds, curve.budget, "MAP")


def _beyond(store: Store) -> Iterator[Row]:
    for name, case in beyond.CASES.items():
        for policy, curves in beyond.kept(store, name).items():
            yield Row(case.title, policy, [curves], case.budget)


def _leads(store: Store) -> Iterator[Row]:
    for case, seeds in twelve.stored(store).items():
        yield Row(f"twelve leads, {case.net}, {case.palette} palette", case.policy, seeds, case.budget, "L2, mV")


def _agents(store: Store) -> Iterator[Row]:
    for kind, victim, held in papers.kept(store):
        for name, seeds in held.items():
            distance = "L2" if kind == "dual_action" else "MAP"
            yield Row(f"papers' agents: {kind} on {victim}", name, seeds, papers.BUDGETS[kind][-1], distance)


def _submitted(store: Store) -> Iterator[Row]:
    for name in store.names():
        settings = store.origin(name).settings
        yield Row(settings["task"], settings["method"], [to_curves(store.read(name).numbers)], settings["budget"])


SOURCES = {
    "anytime": _policies, "peers": _peers, "labels": _labels, "video": _clips, "beyond": _beyond, "ecg": _leads,
    "papers": _agents, SUBMITTED: _submitted,
}  # fmt: skip


def read_rows(raw: Path = RAW) -> dict[str, list[Row]]:
    """By task, each method once, with the versions of rlab that measured it; the nearest comes first."""
    tasks: dict[str, dict[str, Row]] = {}
    for name, source in SOURCES.items():
        store, files = Store(raw / name), list[str]()
        for row in source(store):
            files = list(store.used) or files  # some sources read all rows of a task at once
            store.used.clear()
            versions = sorted({store.origin(file).version for file in files})
            tasks.setdefault(row.task, {})[row.method] = replace(row, version=" and ".join(versions))
    return {task: sorted(held.values(), key=_rank) for task, held in tasks.items()}


def _rank(row: Row) -> tuple[float, float]:
    return row.median(min(row.budget, SHORT[-1])), row.median(min(row.budget, SHORT[1]))


def _lines(rows: Sequence[Row], of: Callable[[Row, int], float]) -> list[Curve]:
    shown = [(row, [q for q in QUERIES if q <= row.budget]) for row in rows]
    return [Curve(row.method, queries, [of(row, q) for q in queries]) for row, queries in shown]


def chart(rows: Sequence[Row]) -> Chart:
    lines = _lines(rows, Row.median)
    return Chart("Median distance", lines, "queries", rows[0].distance, log_x=True, log_y=True, steps=True)


def flips_chart(rows: Sequence[Row]) -> Chart:
    return Chart("Share of samples flipped", _lines(rows, Row.flipped), "queries", log_x=True, percent=True, steps=True)


def table_of(rows: Sequence[Row]) -> Table:
    columns = [q for q in QUERIES if q <= max(row.budget for row in rows) and q >= 5]
    head = ["method", "first flip", *(f"{rows[0].distance} within {q}" for q in columns), "samples", "seeds", "rlab"]
    return Table(
        head,
        [
            [r.method, r.first(), *(r.median(q) for q in columns), len(r.seeds[0]), len(r.seeds), r.version]
            for r in rows
        ],
    )


def page(tasks: dict[str, list[Row]]) -> Page:
    parts = [Section(task, [Charts([chart(rows), flips_chart(rows)]), table_of(rows)]) for task, rows in tasks.items()]
    how = Section("Submit yours", [Text(HOW), Code(EXAMPLE.read_text(encoding="utf-8")), Code(COMMANDS)])
    return Page("Leaderboard", [*parts, how], lead=ABOUT.format(SHORT[-1]))


def document(tasks: dict[str, list[Row]]) -> str:
    """The Markdown page: the best rows of each task."""
    parts = [
        "# Leaderboard",
        f"{ABOUT.format(SHORT[-1])} This page has the first {BEST} rows of each task; `python -m benchmarks --leaderboard` writes "
        "all of them into `build/leaderboard.html`, with tables that you can sort and one plot for each task.",
        "![Median distance by queries of the best rows of each task](images/leaderboard.png)",
    ]
    for task, rows in tasks.items():
        head = ("method", "first flip", *(f"{rows[0].distance} within {q}" for q in SHORT), "rlab")
        body = [(r.method, number(r.first()), *(number(r.median(q)) for q in SHORT), r.version) for r in rows[:BEST]]
        parts.append(f"## {task[0].upper()}{task[1:]}\n\n{markdown(head, body)}")
    code = f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```\n\n<!-- skip -->\n```bash\n{COMMANDS}```"
    return "\n\n".join([*parts, "## Submit yours", HOW, code]) + "\n"


def draw(tasks: dict[str, list[Row]], path: Path) -> None:
    """One small plot for each task."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure((12, 2.4 * math.ceil(len(tasks) / 4)), layout="constrained")
    for place, (task, rows) in enumerate(tasks.items(), 1):
        axes = figure.add_subplot(math.ceil(len(tasks) / 4), 4, place)
        for line in chart(rows[:BEST]).curves:
            y: Floats = np.asarray(line.y, dtype=np.float64)
            axes.loglog(
                line.x, np.where(np.isfinite(y), y, np.nan), label=line.name, drawstyle="steps-post", linewidth=1
            )
        axes.set_title(task if len(task) < 42 else f"{task[:40]}…", fontsize=7)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.tick_params(labelsize=6)
        axes.legend(fontsize=5, frameon=False)
    figure.savefig(path, dpi=90, metadata={"Software": None})


def write() -> int:
    tasks = read_rows()
    write_page(page(tasks), PAGE)
    DOCUMENT.write_text(document(tasks), encoding="utf-8")
    draw(tasks, PICTURE)
    print(f"{sum(map(len, tasks.values()))} rows of {len(tasks)} tasks: {PAGE.relative_to(ROOT)}")
    return 0


def measure(task: Task, thing: Policy[Any] | Attack, samples: int, device: str) -> Curves:
    """Every query counts, the clean one too, as in `benchmarks.anytime`."""
    victim, batch = task.load(samples, device)
    if isinstance(thing, Policy):
        options = {"palette": task.palette, "patch": task.patch, "budget": task.budget + 1, "until": "budget"}
        return flips(attack(victim, batch, policy=thing, seed=anytime.SEED, **options))
    torch.manual_seed(anytime.SEED)
    outcome = run_recorded(victim, batch, task.budget + 1, thing, "budget")
    held = zip(outcome.improvements, outcome.attacked.tolist(), strict=True)
    return tuple(flips for flips, attacked in held if attacked)


def submit(words: Sequence[str], raw: Path = RAW) -> int:
    parser = argparse.ArgumentParser(
        "benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = {case.raw.replace("_", " "): case for case in TASKS}
    parser.add_argument(
        "--submit", metavar="MODULE:NAME", required=True, help="a policy, or a function (recorder, rows)"
    )
    parser.add_argument("--task", choices=tasks, required=True)
    parser.add_argument("--samples", type=int, help="fewer samples, for a trial; writes nothing")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(words)
    module, _, name = options.submit.partition(":")
    try:
        thing = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as why:
        parser.error(f"expected a policy or a function as MODULE:NAME, got {options.submit!r}: {why}")
    thing, task = thing() if isinstance(thing, type) else thing, tasks[options.task]
    settings = {
        "task": options.task,
        "method": name,
        "samples": task.samples,
        "budget": task.budget,
        "seed": anytime.SEED,
    }

    def measured(device: str) -> Curves:
        curves = measure(task, thing, options.samples or task.samples, device)
        row = Row(options.task, name, [curves], task.budget)
        print(", ".join(f"{number(row.median(q))} within {q}" for q in QUERIES if 5 <= q <= row.budget))
        return curves

    piece = harness.Piece.of_curves(f"{task.raw}-{name}", options.task, settings, measured)
    if options.samples:
        piece.make(options.device)
    else:
        harness.make_piece(piece, Store(raw / SUBMITTED), options.device)
    return 0
