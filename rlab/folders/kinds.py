"""The kinds of run folders, in one table: which command makes them, when they are finished, and how to read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rlab.errors import FolderError
from rlab.storage.names import ARRAYS, CURVES, SAMPLES, refuse_strange
from rlab.storage.run_file import RUN, reading, stored_command

if TYPE_CHECKING:  # `rlab serve` lists runs without importing torch, so functions are named here and imported on use
    from matplotlib.figure import Figure

    from rlab.folders.records import RunRecord
    from rlab.folders.reports import PageOptions
    from rlab.present.page import Page

_PAGES, _RECORDS = "rlab.folders.reports", "rlab.folders.records"


@dataclass(frozen=True)
class RunKind:
    """One kind of run folder; functions are given as module:name, and an empty name means that the kind has none."""

    command: str  # as `run.json` stores it
    marks: tuple[str, ...]  # file names or patterns; a finished folder has a file for each
    page: str  # in `rlab.folders.reports` it also takes the options
    record: str = ""
    figures: str = ""

    def is_finished(self, folder: Path) -> bool:
        return all(any(folder.glob(mark)) for mark in self.marks)

    def make_page(self, folder: Path, options: PageOptions) -> Page:
        make = resolve_name(self.page)
        return make(folder, options) if self.page.startswith(_PAGES) else make(folder)

    def draw_figures(self, folder: Path, options: PageOptions) -> dict[str, Callable[[], Figure]]:
        """The functions that draw the figures, by file name without ending."""
        if not self.figures:
            raise FolderError(f"{folder} holds no figures to write: expected a folder of rlab attack or compare")
        return resolve_name(self.figures)(folder, options)


KINDS = (
    RunKind("audit", ("audit.json",), "rlab.auditing.page:stored_audit_page", f"{_RECORDS}:audit"),
    RunKind("attack", (SAMPLES, ARRAYS), f"{_PAGES}:attack", f"{_RECORDS}:attack", f"{_PAGES}:attack_figures"),
    RunKind("benchmark make", ("manifest.json", "metadata.parquet"), f"{_PAGES}:benchmark"),
    RunKind(
        "compare", (SAMPLES, CURVES), "rlab.comparison.comparison:comparison_page", f"{_RECORDS}:compare",
        f"{_PAGES}:compare_figures",
    ),
    RunKind("learn", ("simulator.safetensors",), f"{_PAGES}:simulator"),
    RunKind("demo", tuple(f"{name}/{SAMPLES}" for name in ("ecg", "digits", "clips")), f"{_PAGES}:demo"),
    RunKind("train", ("log.jsonl",), "rlab.training.page:training_page", f"{_RECORDS}:train"),
    RunKind(
        "harden --compare", ("comparison.json",), "rlab.hardening.comparison:stored_comparison_page",
        f"{_RECORDS}:harden_compare",
    ),
    RunKind("harden", ("log.json",), "rlab.hardening.pages:hardening_page", f"{_RECORDS}:harden"),
    RunKind(
        "corrupt", ("results.json", "corruptions.png"), "rlab.corruptions.report:corruption_page", f"{_RECORDS}:corrupt"
    ),
    RunKind("benchmark run", ("report.json",), f"{_PAGES}:benchmark_run"),
    RunKind("benchmark verify", ("verification.json",), "rlab.benchmarking.verify:verification_page"),
    RunKind("doctor", ("doctor.json",), "rlab.diagnosis.report:diagnosis_page"),
    RunKind("explain", ("scores.csv",), "rlab.explanation.page:explanation_page"),
    RunKind("explain", ("*.npz", "pictures"), "rlab.explanation.page:maps_page"),
)  # fmt: skip


def kind_of(folder: Path) -> RunKind | None:
    """The kind by the command in `run.json`, or by the files of a finished run if the folder has no readable one."""
    command = stored_command(folder)
    kinds = [kind for kind in KINDS if kind.command == command]
    finished = next((kind for kind in kinds or KINDS if kind.is_finished(folder)), None)
    return finished or (kinds[0] if kinds else None)


def finished_kind(folder: Path) -> RunKind:
    """The kind of a finished run; FolderError if the folder is no run or the run is not finished."""
    if not folder.is_dir():
        raise FolderError(f"there is no folder {folder}: name a run folder of rlab")
    refuse_strange(folder)
    kind = kind_of(folder)
    if kind is not None and kind.is_finished(folder):
        return kind
    if (folder / RUN).exists():
        raise FolderError(f"{folder} is not finished: run its command again to resume it")
    commands = ", ".join(dict.fromkeys(kind.command for kind in KINDS))
    raise FolderError(f"{folder} holds no run of rlab: expected a folder of {commands}")


def read_record(folder: str | Path) -> RunRecord:
    run = Path(folder)
    kind = finished_kind(run)
    if not kind.record:
        raise FolderError(f"{run} is a run of rlab {kind.command}, which has no figures to compare or track")
    with reading(run):
        return resolve_name(kind.record)(run)
