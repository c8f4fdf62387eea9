"""A page of any folder that a command of rlab left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from rlab.auditing.page import stored_audit_page
from rlab.auditing.results import AUDIT
from rlab.benchmarking.folder import MANIFEST, METADATA, Benchmark
from rlab.benchmarking.report import DEFAULT, REPORT, read_report
from rlab.benchmarking.tables import benchmark_section, report_blocks
from rlab.comparison.comparison import CURVES, Comparison
from rlab.comparison.page import comparison_page
from rlab.data.batch import Samples
from rlab.data.load import DataOptions
from rlab.errors import InputError
from rlab.explanation.page import PICTURES, explanation_page, maps_page
from rlab.explanation.pictures import picture
from rlab.hardening.comparison import COMPARISON
from rlab.hardening.sections import hardening_page, stored_comparison_section
from rlab.present.inline import image_address
from rlab.present.page import Block, Code, Facts, Gallery, Page, Picture, Section, Text, write_page
from rlab.present.table import number
from rlab.results.page import attack_sections, key_numbers
from rlab.results.plots import choose, draw_overview, draw_sample
from rlab.results.plots.save import file_stem, save_vector
from rlab.results.result import AttackResult
from rlab.storage import files
from rlab.storage.config import check, read_config
from rlab.storage.ledger import LEDGER, reading
from rlab.storage.lock import hold
from rlab.storage.names import CONFIG, refuse_links
from rlab.storage.outside import read_text
from rlab.training.page import LOG, training_page

PAGE = "report.html"
MOST_FIGURES = 24


def report_run(
    folder: str | Path, out: str | Path | None = None, samples: int = 24, data: Samples | None = None
) -> Path:
    """Writes `report.html` into the folder, or to `out`; of any command that leaves a folder. Of `data` an attack's inputs are made
    again that it did not keep."""
    run = Path(folder)
    make = _maker(run)
    if make is _attack:
        make = partial(_attack, data=data)
    with nullcontext() if out else hold(run, "report"), reading(run):
        return write_page(make(run, samples), Path(out) if out else run / PAGE)


def data_of(run: Path, path: Path | None) -> Samples | None:
    """The data of an attack at the path a user names; how they are read is in the run's configuration."""
    if path is None:
        return None
    asked = read_config(run / CONFIG).get("data")
    return check(DataOptions, {**(asked if isinstance(asked, dict) else {}), "path": str(path)}, "the data").open()


def save_figures(folder: Path, out: Path, samples: int, data: Samples | None = None) -> list[Path]:
    """The figures of an attack or a comparison, each as SVG and PDF with letters that stay letters."""
    if (folder / files.SAMPLES).exists() and (folder / files.ARRAYS).exists():
        result = AttackResult.load(folder, data)
        drawn: dict[str, Callable[[], Figure]] = {"overview": lambda: draw_overview(result)}
        drawn |= {
            file_stem(result, i): partial(draw_sample, result, i) for i in choose(result, min(samples, MOST_FIGURES))
        }
    elif (folder / CURVES).exists():
        comparison = Comparison.load(folder)
        drawn = {"curves": comparison.plot}
    else:
        raise InputError(f"{folder} holds no figures to write: expected a folder of rlab attack or compare")
    return [path for name, draw in drawn.items() for path in save_vector(draw(), out / name)]


def page_of(folder: Path, samples: int = 24) -> Page:
    """What there is to tell of a finished run."""
    make = _maker(folder)
    with reading(folder):
        return make(folder, samples)


def _maker(run: Path) -> Callable[[Path, int], Page]:
    if not run.is_dir():
        raise InputError(f"there is no folder {run}: name a run folder of rlab")
    refuse_links(run)
    for names, make in _KINDS.items():
        if all((run / name).exists() for name in names):
            return make
    if any(run.glob("*.npz")) and (run / PICTURES).is_dir():
        return lambda folder, samples: maps_page(folder)
    if (run / LEDGER).exists():
        raise InputError(f"{run} is not finished: run its command again to resume it, then report it")
    raise InputError(
        f"{run} holds no run that can be reported: expected a folder of rlab attack, benchmark make or run, compare, explain, "
        f"harden, train or audit"
    )


def _attack(folder: Path, samples: int, data: Samples | None = None) -> Page:
    result = AttackResult.load(folder, data)
    sections = [*attack_sections(result, samples), _asked(result, folder / CONFIG)]
    return Page(f"Attack {folder.name}", sections, lead=f"{result.sentence}.", numbers=key_numbers(result))


def _asked(result: AttackResult, config: Path) -> Section:
    s = result.setting
    facts = {
        "samples": f"{len(result)} of size {' × '.join(map(str, s.size))}",
        "palette": ", ".join(s.palette),
        "patches": f"{' × '.join(map(str, s.patch))}, {len(s.grid)} in all",
        "goal": s.goal,
        "policy": s.policy,
        "budget": f"{s.budget} queries a sample",
        "seed": f"{s.seed}",
    }
    words = (
        "A palette entry is a distortion and, after the @, its severity, which `rlab filters` explains for each. A patch is the "
        "smallest part that is distorted as a whole. A query is one input that reaches the model."
    )
    blocks: list[Block] = [Facts(facts), Text(words, quiet=True)]
    if config.is_file():
        blocks.append(Code(f"rlab attack --config {config} --out runs/again\n\n{read_text(config)}"))
    return Section("What was asked", blocks)


def _benchmark(folder: Path, samples: int) -> Page:
    benchmark, stored = Benchmark.load(folder), folder / DEFAULT
    report = read_report(stored) if (stored / REPORT).is_file() else None
    m = benchmark.manifest
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
    """The first flipped samples of the first victim, from the original to the severest level they have."""
    victim, shape, names = benchmark.victims[0], benchmark.manifest.shape, benchmark.manifest.classes
    blocks: list[Block] = [Text(f"The first samples against {victim}, as they are stored.")]
    for flip in benchmark.stored(victim, benchmark.base_level)[:samples]:
        rows = [row for row in benchmark.rows if row["place"] == flip["place"] and row["victim"] in ("", victim)]
        rows = [row for row in rows if row["reached"]]
        shots = []
        for row, x in zip(rows, benchmark.read(rows), strict=True):
            label = row["label"] if row["predicted"] is None else row["predicted"]
            read = names[label] if names else f"class {label}"
            told = f"{'is' if row['predicted'] is None else 'read as'} {read}, L2 {number(row['l2'])}"
            shot = image_address(picture(x.numpy(), None, None, shape.bounds))
            shots.append(Picture(shot, f"{row['id']} at {row['level']}", f"{row['id']}, {row['level']}", told))
        blocks.append(Gallery(shots, len(shots)))
    return Section("From mild to severe", blocks)


def _graded(folder: Path, samples: int) -> Page:
    """A folder of `rlab benchmark run --out`."""
    report = read_report(folder)
    asked = {model: f"{rows:,} rows asked this time" for model, rows in report.asked.items()}
    return Page(
        f"Models on a benchmark: {folder.name}",
        [Section("Benchmark", report_blocks(report)), Section("What was asked", [Facts(asked)])],
    )


_KINDS: dict[tuple[str, ...], Callable[[Path, int], Page]] = {
    (AUDIT,): lambda folder, samples: stored_audit_page(folder),
    (files.SAMPLES, files.ARRAYS): _attack,
    (MANIFEST, METADATA): _benchmark,
    (files.SAMPLES, "curves.png"): lambda folder, samples: comparison_page(folder),
    (LOG,): lambda folder, samples: training_page(folder),
    (COMPARISON,): lambda folder, samples: Page(f"Hardening {folder.name}", [stored_comparison_section(folder)]),
    ("log.json",): lambda folder, samples: hardening_page(folder),
    (REPORT,): _graded,
    ("scores.csv",): lambda folder, samples: explanation_page(folder),
}
