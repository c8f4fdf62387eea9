"""The page and the figure of a benchmark folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rlab.benchmarking.tables import benchmark_section
from rlab.present.notebook import thumbnails
from rlab.present.page import Beside, Block, Code, Facts, Gallery, Page, Section, Text
from rlab.present.style import HUES, STYLE, WIDE, headed_figure, tidy
from rlab.present.table import number
from rlab.storage.names import CONFIG

if TYPE_CHECKING:
    from rlab.benchmarking.folder import Benchmark
    from rlab.benchmarking.report import BenchmarkReport

SIDE = 224  # pixels along a picture


def benchmark_page(benchmark: Benchmark, report: BenchmarkReport | None, samples: int) -> Page:
    """Sets, the first `samples` from mild to severe, and how the folder was made."""
    m, folder = benchmark.manifest, benchmark.folder
    facts = {
        "palette": ", ".join(m.palette), "ladder": m.ladder, "goal": m.goal, "policy": m.policy, "seed": f"{m.seed}",
        "hash": m.hash, "versions": ", ".join(f"{name} {version}" for name, version in m.versions.items()),
    }  # fmt: skip
    again = Code(f"rlab benchmark make --config {folder / CONFIG} --out bench/again\nrlab benchmark verify {folder}")
    sections = [benchmark_section(benchmark, report), Section("How it was made", [Facts(facts), again])]
    if samples:
        sections.insert(1, _severities(benchmark, samples))
    return Page(f"Benchmark {benchmark.name}", sections)


def _severities(benchmark: Benchmark, samples: int) -> Section:
    """The first flipped samples of the first victim, from the original to their most severe level."""
    victim, shape = benchmark.victims[0], benchmark.manifest.shape
    told, shown = Text(f"The first samples of {victim}, as stored."), list[Block]()
    for flip in benchmark.stored(victim, benchmark.base_level)[:samples]:
        rows = [row for row in benchmark.rows if row["place"] == flip["place"] and row["victim"] in ("", victim)]
        rows = [row for row in rows if row["reached"]]
        names = []
        for row in rows:
            made, label = ("label", row["label"]) if row["predicted"] is None else ("predicted", row["predicted"])
            names.append(f"{row['id']}, {row['level']}: {made} {benchmark.class_name(label)}, L2 {number(row['l2'])}")
        drawn = thumbnails(benchmark.read(rows), names, shape.bounds, shape.rate, SIDE)
        shown += [replace(each, columns=len(rows)) if isinstance(each, Gallery) else each for each in drawn]
    galleries = all(isinstance(each, Gallery) for each in shown)
    return Section("From mild to severe", [told, *([Beside(shown)] if galleries else shown)])


def draw_distances(benchmark: Benchmark) -> Figure:
    """The share of samples that have no file within a distance, for every set and level."""
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(WIDE / 2, [f"benchmark {benchmark.name}"], [3.2], 0.3)
        ax = figure.add_subplot(body)
        for at, (victim, level, rows) in enumerate(benchmark.sets()):
            l2 = np.sort([row["l2"] for row in rows])
            left = 1 - np.arange(len(l2) + 1) / len(benchmark.of(victim, level))
            ax.step([0.0, *l2], left, where="post", label=f"{victim}, {level}", color=HUES[at % len(HUES)])
        ax.set(ylim=(-0.02, 1.03), xlabel="L2", ylabel="samples without a file up to this L2")
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.legend(frameon=False, fontsize=7)
        tidy(ax)
        return figure
