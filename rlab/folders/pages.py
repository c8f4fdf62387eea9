"""Pages and figures of finished runs, for the kinds in `rlab.folders.kinds` whose packages have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import DEFAULT, REPORT, read_report
from rlab.comparison.comparison import Comparison
from rlab.data.batch import Samples
from rlab.present.page import Page
from rlab.results.page import attack_page
from rlab.results.plots import choose, draw_overview, draw_sample
from rlab.results.plots.save import file_stem
from rlab.results.result import AttackResult
from rlab.results.stages import read_stages
from rlab.storage.names import CONFIG

MOST_FIGURES = 24


@dataclass(frozen=True)
class PageOptions:
    """How much a page shows."""

    samples: int = 24  # maximum to show
    data: Samples | None = None  # of an attack, to rebuild inputs that it did not store


def attack(folder: Path, options: PageOptions) -> Page:
    result = AttackResult.load(folder, options.data)
    stages = read_stages(folder)
    return attack_page(result, options.samples, folder / CONFIG, stages)


def attack_figures(folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
    result = AttackResult.load(folder, options.data)
    chosen = choose(result, min(options.samples, MOST_FIGURES))
    samples = {file_stem(result, i): partial(draw_sample, result, i) for i in chosen}
    return {"overview": partial(draw_overview, result), **samples}


def benchmark(folder: Path, options: PageOptions) -> Page:
    graded = folder / DEFAULT
    report = read_report(graded) if (graded / REPORT).is_file() else None
    return Benchmark.load(folder).make_page(report, options.samples)


def benchmark_run(folder: Path, options: PageOptions) -> Page:
    return read_report(folder).make_page(f"Models on a benchmark: {folder.name}")


def compare_figures(folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
    return {"curves": Comparison.load(folder).plot}
