"""The page and the figures of any finished run folder; packages whose runs have a page of their own make it themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import DEFAULT, REPORT, read_report
from rlab.comparison.comparison import Comparison
from rlab.data.batch import Samples
from rlab.data.kinds import kind_of
from rlab.data.load import DataOptions
from rlab.errors import give_notice
from rlab.folders.kinds import finished_kind
from rlab.learning.simulator import read_simulator
from rlab.present.page import Block, Facts, Number, Page, Section, Text, write_page
from rlab.present.table import Cells, Share, Table
from rlab.results.page import easiest, summary_blocks
from rlab.results.plots.sample import Sample
from rlab.results.plots.save import save_vector
from rlab.results.result import AttackResult
from rlab.results.tables import MEDIANS, summary_table
from rlab.results.viewers import make_viewer, shelf
from rlab.storage.config import check, read_config
from rlab.storage.files import refuse_existing
from rlab.storage.ledger import reading
from rlab.storage.lock import hold, is_read_only
from rlab.storage.names import CONFIG

PAGE = "report.html"
MOST_FIGURES = 24
SCENES = {
    "ecg": ("signal: ECG beats, two leads", "simulated"),
    "digits": ("image: handwritten digits", "real, from scikit-learn"),
    "clips": ("video: moving digits", "real digits, simulated motion"),
}  # title and origin of the data, by the name of the run's folder
_SHOWN = 3  # samples of each run of the demo


@dataclass(frozen=True)
class PageOptions:
    """How much a page shows."""

    samples: int = 24  # maximum to show
    data: Samples | None = None  # of an attack, to rebuild inputs that it did not store


def report_run(
    folder: str | Path, out: str | Path | None = None, samples: int = 24, data: Samples | None = None
) -> Path:
    """Write `report.html` into the run folder, or write `out`; inputs that an attack did not store are rebuilt from `data`.

    The page of a run on a read-only medium goes to the current folder.
    """
    run = Path(folder)
    kind = finished_kind(run)
    if out is None and is_read_only(run):
        out = Path(f"{run.resolve().name}.html")
        refuse_existing(out)
        give_notice(f"{run} is read-only, so the page goes to the current folder, as {out}")
    with nullcontext() if out else hold(run, "report"), reading(run):
        return write_page(kind.make_page(run, PageOptions(samples, data)), Path(out) if out else run / PAGE)


def data_of(run: Path, path: Path | None) -> Samples | None:
    """The data of an attack at `path`, opened with the data options in the run's configuration."""
    if path is None:
        return None
    stored = read_config(run / CONFIG).get("data")
    return check(DataOptions, {**(stored if isinstance(stored, dict) else {}), "path": str(path)}, "the data").open()


def save_figures(folder: Path, out: Path, samples: int, data: Samples | None = None) -> list[Path]:
    """Write the figures of an attack or a comparison, each as SVG and PDF with text that stays text."""
    figures = finished_kind(folder).draw_figures(folder, PageOptions(samples, data))
    return [path for name, draw in figures.items() for path in save_vector(draw(), out / name)]


def page_of(folder: Path, samples: int = 24) -> Page:
    kind = finished_kind(folder)
    with reading(folder):
        return kind.make_page(folder, PageOptions(samples))


# Pages and figures, for the table in `rlab.folders.kinds`.


def benchmark(folder: Path, options: PageOptions) -> Page:
    graded = folder / DEFAULT
    report = read_report(graded) if (graded / REPORT).is_file() else None
    return Benchmark.load(folder).make_page(report, options.samples)


def benchmark_run(folder: Path, options: PageOptions) -> Page:
    return read_report(folder).make_page(f"Models on a benchmark: {folder.name}")


def compare_figures(folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
    return {"curves": Comparison.load(folder).plot}


def simulator(folder: Path, options: PageOptions) -> Page:
    """The page of `rlab learn`: how well the students agree with the model, and what they learned from."""
    card = read_simulator(folder).card
    pairs = zip(card.students, card.agreements, strict=True)
    rows: list[Cells] = [[about.architecture, about.width, Share(share, 1)] for about, share in pairs]
    students = Table(["student", "width", "agreement"], rows)
    facts = {
        "inputs": " × ".join(map(str, card.shape)),
        "classes": f"{card.classes}{', several per sample' if card.multilabel else ''}",
        "answers": f"{card.clean:,} about clean inputs, {card.distorted:,} about distorted ones",
        "from": ", ".join(card.origins),
        "kept aside": f"{card.aside:,} answers",
        "seed": str(card.seed),
        "made by": f"rlab {card.version}",
    }
    numbers = [Number("agreement of the mean", Share(card.agreement, 1)), Number("queries", card.queries)]
    lead = f"{len(card.students)} students of a model agree with it on {card.agreement:.1%} of inputs kept aside."
    return Page(f"Simulator {folder.name}", [Section("Students", [students, Facts(facts)])], lead=lead, numbers=numbers)


def demo(folder: Path, options: PageOptions) -> Page:
    """The page of `rlab demo`: its three runs, one below the other."""
    results = {name: AttackResult.load(folder / name) for name in SCENES}
    titles = {SCENES[name][0]: result for name, result in results.items()}
    first = Section("All three", [summary_table(titles), Text(MEDIANS, quiet=True)])
    sections = [Section(SCENES[name][0], _scene(name, result)) for name, result in results.items()]
    flipped = sum(int(result.succeeded.sum()) for result in results.values())
    attacked = sum(int(result.attacked.sum()) for result in results.values())
    lead = f"{flipped} of {attacked} samples were flipped, and every flip was verified from its stored file."
    return Page("The smallest changes that make three models wrong", [first, *sections], lead=lead)


def _scene(name: str, result: AttackResult) -> list[Block]:
    rows = easiest(result, _SHOWN)
    viewers = [make_viewer(Sample.of(result, i), f"{name}-{i}", len(rows)) for i in rows]
    told = f"{result.sentence}. The data are {SCENES[name][1]}."
    return [Text(told), *shelf(viewers, kind_of(result.setting.size)), *summary_blocks(result)]
