"""Pages and figures of finished runs, for the kinds in `rlab.folders.kinds` whose packages have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import DEFAULT, REPORT, read_report
from rlab.benchmarking.tables import benchmark_section, report_blocks
from rlab.comparison.comparison import Comparison
from rlab.data.batch import Samples
from rlab.explanation.pictures import picture
from rlab.hardening.sections import stored_comparison_section
from rlab.present.inline import image_address
from rlab.present.page import Block, Code, Facts, Gallery, Page, Picture, Section, Text
from rlab.present.table import number
from rlab.results.page import attack_sections, key_numbers, stages_section
from rlab.results.plots import choose, draw_overview, draw_sample
from rlab.results.plots.save import file_stem
from rlab.results.result import AttackResult
from rlab.results.stages import read_stages
from rlab.storage.names import CONFIG
from rlab.storage.outside import read_text

MOST_FIGURES = 24
WORDS = (
    "A palette entry is a distortion and, after the @, its severity; `rlab filters` explains each of them. A patch is the smallest "
    "region that is distorted as a whole. A query is one input that reaches the model."
)


@dataclass(frozen=True)
class PageOptions:
    """How much a page shows."""

    samples: int = 24  # maximum to show
    data: Samples | None = None  # of an attack, to rebuild inputs that it did not store


def attack(folder: Path, options: PageOptions) -> Page:
    result = AttackResult.load(folder, options.data)
    stages = read_stages(folder)
    learning = [stages_section(result, stages)] if stages else []
    sections = [*attack_sections(result, options.samples), *learning, _settings(result, folder / CONFIG)]
    return Page(f"Attack {folder.name}", sections, lead=f"{result.sentence}.", numbers=key_numbers(result))


def _settings(result: AttackResult, config: Path) -> Section:
    s = result.setting
    facts = {
        "samples": f"{len(result)} of size {' × '.join(map(str, s.size))}",
        "palette": ", ".join(s.palette),
        "patches": f"{' × '.join(map(str, s.patch))}, {len(s.grid)} in total",
        "goal": s.goal,
        "policy": s.policy,
        "budget": f"{s.budget} queries per sample",
        "seed": f"{s.seed}",
    }
    blocks: list[Block] = [Facts(facts), Text(WORDS, quiet=True)]
    if config.is_file():
        blocks.append(Code(f"rlab attack --config {config} --out runs/again\n\n{read_text(config)}"))
    return Section("Settings", blocks)


def attack_figures(folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
    result = AttackResult.load(folder, options.data)
    chosen = choose(result, min(options.samples, MOST_FIGURES))
    samples = {file_stem(result, i): partial(draw_sample, result, i) for i in chosen}
    return {"overview": partial(draw_overview, result), **samples}


def benchmark(folder: Path, options: PageOptions) -> Page:
    stored, results = Benchmark.load(folder), folder / DEFAULT
    report = read_report(results) if (results / REPORT).is_file() else None
    m = stored.manifest
    facts = {
        "palette": ", ".join(m.palette), "ladder": m.ladder, "goal": m.goal, "policy": m.policy, "seed": f"{m.seed}",
        "hash": m.hash, "versions": ", ".join(f"{name} {version}" for name, version in m.versions.items()),
    }  # fmt: skip
    again = Code(f"rlab benchmark make --config {folder / CONFIG} --out bench/again\nrlab benchmark verify {folder}")
    sections = [benchmark_section(stored, report), Section("How it was made", [Facts(facts), again])]
    if options.samples:
        sections.insert(1, _severities(stored, options.samples))
    return Page(f"Benchmark {stored.name}", sections)


def _severities(benchmark: Benchmark, samples: int) -> Section:
    """The first flipped samples of the first victim, from the original to their most severe level."""
    victim, shape, names = benchmark.victims[0], benchmark.manifest.shape, benchmark.manifest.classes
    blocks: list[Block] = [Text(f"The first samples of {victim}, as stored.")]
    for flip in benchmark.stored(victim, benchmark.base_level)[:samples]:
        rows = [row for row in benchmark.rows if row["place"] == flip["place"] and row["victim"] in ("", victim)]
        rows = [row for row in rows if row["reached"]]
        shots = []
        for row, x in zip(rows, benchmark.read(rows), strict=True):
            label = row["label"] if row["predicted"] is None else row["predicted"]
            name = names[label] if names else f"class {label}"
            caption = f"{'label' if row['predicted'] is None else 'predicted'} {name}, L2 {number(row['l2'])}"
            shot = image_address(picture(x.numpy(), shape.bounds))
            shots.append(Picture(shot, f"{row['id']} at {row['level']}", f"{row['id']}, {row['level']}", caption))
        blocks.append(Gallery(shots, len(shots)))
    return Section("From mild to severe", blocks)


def benchmark_run(folder: Path, options: PageOptions) -> Page:
    report = read_report(folder)
    queries = {model: f"{rows:,} queries in the last run" for model, rows in report.asked.items()}
    sections = [Section("Benchmark", report_blocks(report)), Section("Queries", [Facts(queries)])]
    return Page(f"Models on a benchmark: {folder.name}", sections)


def compare_figures(folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
    return {"curves": Comparison.load(folder).plot}


def harden_compare(folder: Path, options: PageOptions) -> Page:
    return Page(f"Hardening {folder.name}", [stored_comparison_section(folder)])
