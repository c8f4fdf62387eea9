"""Sets of CIFAR-10 images, ImageNet photos, MIT-BIH beats and UCF-101 clips, and what every model does on all of them.

python -m benchmarks.sets                         # all sets, then write results/sets.md
python -m benchmarks.sets --only cifar            # or photos, beats, clips; run what has no raw file
python -m benchmarks.sets --only beats --quick    # few samples (default: cifar)

It makes two folders: `each` (the smallest flips found, for every model) and `free` (severities 1 to 5, which query no model). They
are written to runs/sets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Raw, Store
from benchmarks.sets.cases import CASES, QUICK, SEED, Case
from benchmarks.tables import section, table
from rlab.benchmarking import Benchmark, BenchmarkReport, make_benchmark, run_benchmark, verify_benchmark

FOLDER = Path("runs", "sets")


Made = tuple[list[Benchmark], BenchmarkReport, dict[str, float]]


def make(case: Case, folder: Path, samples: int, budget: int) -> Made:
    """The two folders, every file verified by its models, and what all models do on them."""
    models, batch = dict(case.models()), case.data(samples)
    options: dict[str, Any] = {"palette": case.palette, "patch": case.patch, "format": case.format}
    options |= {"budget": budget, "seed": SEED}
    made = [
        make_benchmark(models, batch, folder / "each", ladder="flip", **options),
        make_benchmark({}, batch, folder / "free", sets="free", ladder="severity:1..5", **options),
    ]
    checked = [verify_benchmark(each, {} if each.free else models) for each in made]
    report = run_benchmark(made, models, seed=SEED)
    wrong = sum(len(each.mismatches) for each in checked)
    return made, report, {"files": sum(each.files for each in checked), "verified_mismatches": wrong}


def transfer(made: list[Benchmark], report: BenchmarkReport) -> str:
    """Accuracy on the files of each set, at the flip, and of the set without a model at each severity."""
    cells = {(row["set"], row["level"], row["model"]): row for row in report.levels}
    rows = []
    for benchmark in made:
        for victim, level, stored in benchmark.sets():
            name = f"{benchmark.name}/{victim}"
            against = "no model" if benchmark.free else victim
            far = sorted(row["l2"] for row in stored)[len(stored) // 2]
            shares = (f"{cells[name, level, model]['accuracy_stored']:.0%}" for model in report.models)
            rows.append((against, level, f"{len(stored)} of {len(benchmark.of(victim, level))}", f"{far:.2f}", *shares))
    return table(("made against", "level", "files", "median L2", *report.models), rows)


def measure(name: str, folder: Path, samples: int, budget: int) -> Raw:
    case = CASES[name]
    made, report, figures = make(case, folder, samples, budget)
    about = (
        f"{samples} samples, palette `{' '.join(case.palette)}`, patch {case.patch}, budget {budget}, format "
        f"`{case.format}`; severities sixths of the reach. Accuracy on the files of each set; {figures['files']} files, "
        f"{figures['verified_mismatches']} of which do not hold. Made against (down), tested on (across)."
    )
    return Raw(figures, {"section": section(case.title, about, transfer(made, report))})


def pieces(options: Options) -> Iterator[Piece]:
    for name, case in CASES.items():
        settings = {"data": name, "samples": case.samples, "budget": case.budget, "palette": case.palette}

        def run(name: str, case: Case, device: str) -> Raw:
            return measure(name, FOLDER / name, case.samples, case.budget)

        yield Piece(name, name, settings, partial(run, name, case))


def sections(store: Store) -> Iterator[str]:
    for name in store.names():
        yield store.facts(name)["section"]


def quick(options: Options) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        raw = measure((options.only or ["cifar"])[0], Path(folder), *QUICK)
    print(raw.facts["section"])
    return raw.numbers


RULES = """
Accuracy of three models on sets made against each of them, and on distortions that no model chose. The rows of three models (files
that flip all of them), severities calibrated on a model and the formats `webdataset`, `wfdb` and `frames` are from rlab 0.3.0,
which could make them.
"""
CLAIM = Claim("sets", "Sets of four kinds of data", __doc__, RULES, quick, pieces, sections, cases=tuple(CASES))
