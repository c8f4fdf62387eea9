"""The page and the figures of any finished run folder."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from rlab.data.batch import Samples
from rlab.data.load import DataOptions
from rlab.errors import give_notice
from rlab.folders.finished import load_report
from rlab.present.figures import save_drawings
from rlab.present.page import Page, write_page
from rlab.storage.config import check, read_config
from rlab.storage.files import refuse_existing
from rlab.storage.lock import hold, is_read_only
from rlab.storage.names import CONFIG
from rlab.storage.run_file import reading

PAGE = "report.html"


def report_run(
    folder: str | Path, out: str | Path | None = None, samples: int = 24, data: Samples | None = None
) -> Path:
    """Write `report.html` into the run folder, or write `out`; inputs that an attack did not store are rebuilt from `data`.

    The page of a run on a read-only medium goes to the current folder.
    """
    run = Path(folder)
    report = load_report(run, data)
    if out is None and is_read_only(run):
        out = Path(f"{run.resolve().name}.html")
        refuse_existing(out)
        give_notice(f"{run} is read-only, so the page goes to the current folder, as {out}")
    with nullcontext() if out else hold(run, "report"), reading(run):
        return write_page(report.view(samples, run), Path(out) if out else run / PAGE)


def data_of(run: Path, path: Path | None) -> Samples | None:
    """The data of an attack at `path`, opened with the data options in the run's configuration."""
    if path is None:
        return None
    stored = read_config(run / CONFIG).get("data")
    return check(DataOptions, {**(stored if isinstance(stored, dict) else {}), "path": str(path)}, "the data").open()


def save_figures(folder: Path, out: Path, samples: int, data: Samples | None = None) -> list[Path]:
    """Write the figures of a run, each as SVG and PDF with text that stays text."""
    drawings = load_report(folder, data).drawings(samples)
    return save_drawings(drawings, out, "svg", "pdf")


def page_of(folder: Path, samples: int = 24) -> Page:
    report = load_report(folder)
    with reading(folder):
        return report.view(samples, folder)
