"""The commands whose runs leave a folder, in one table: what a finished folder holds, and the report that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rlab.errors import FolderError
from rlab.present.report import REPORT, read_verb
from rlab.storage.names import ARRAYS, SAMPLES, refuse_strange
from rlab.storage.run_file import RUN, stored_command

if TYPE_CHECKING:  # `rlab serve` lists runs without importing torch, so reports are named here and imported on use
    from matplotlib.figure import Figure

    from rlab.data.batch import Samples
    from rlab.present.page import Page
    from rlab.present.report import Report

_PAGES, _OLDER = "rlab.folders.reports", "rlab.folders.older"


@dataclass(frozen=True)
class PageOptions:
    """How much a page shows."""

    samples: int = 24  # maximum to show
    data: Samples | None = None  # of an attack, to rebuild inputs that it did not store


@dataclass(frozen=True)
class Verb:
    """A command whose runs leave a folder; `report` is its class, as module:name."""

    command: str
    marks: tuple[str, ...] = (REPORT,)  # file names or patterns; a finished folder has a file for each
    report: str = ""
    page: str = ""  # until the command has a report
    record: str = ""
    figures: str = ""

    def is_finished(self, folder: Path) -> bool:
        if self.report and REPORT in self.marks and read_verb(folder) != self.command:
            return False
        return all(any(folder.glob(mark)) for mark in self.marks)

    def load(self, folder: Path, data: Samples | None = None) -> Report:
        """The report of a finished folder; an attack rebuilds inputs that it did not store from `data`."""
        load: Callable[..., Report] = resolve_name(self.report).load
        return load(folder, data) if self.command == "attack" else load(folder)

    def make_page(self, folder: Path, options: PageOptions) -> Page:
        if self.report:
            return self.load(folder, options.data).view(options.samples, folder)
        make = resolve_name(self.page)
        return make(folder, options) if self.page.startswith(_PAGES) else make(folder)

    def draw_figures(self, folder: Path, options: PageOptions) -> Mapping[str, Callable[[], Figure]]:
        """The functions that draw the figures, by file name without ending."""
        if self.report:
            return self.load(folder, options.data).drawings(options.samples)
        if not self.figures:
            raise FolderError(f"{folder} holds no figures to write: expected a folder of rlab attack or compare")
        return resolve_name(self.figures)(folder, options)


VERBS = (
    Verb("audit", report="rlab.auditing.report:AuditResult"),
    Verb("detect", report="rlab.auditing.detection:Detection"),
    Verb("attack", (SAMPLES, ARRAYS), "rlab.results.result:AttackResult"),
    Verb("benchmark make", ("manifest.json", "metadata.parquet"), "rlab.benchmarking.folder:Benchmark"),
    Verb("compare", report="rlab.comparison.comparison:Comparison"),
    Verb("learn", ("simulator.safetensors",), "rlab.learning.report:Learned"),
    Verb("demo", tuple(f"{name}/{SAMPLES}" for name in ("ecg", "digits", "clips")), "rlab.folders.demo:Demo"),
    Verb("train", ("log.jsonl",), "rlab.training.page:Training"),
    Verb("harden --compare", report="rlab.hardening.comparison:HardeningComparison"),
    Verb("harden", report="rlab.hardening.report:Hardened"),
    Verb("corrupt", report="rlab.corruptions.report:CorruptionReport"),
    Verb("benchmark run", report="rlab.benchmarking.report:BenchmarkReport"),
    Verb("benchmark verify", report="rlab.benchmarking.verify:Verification"),
    Verb("doctor", report="rlab.diagnosis.report:Diagnosis"),
    Verb("explain", report="rlab.explanation.explanation:MethodComparison"),
)  # fmt: skip


def kind_of(folder: Path) -> Verb | None:
    """The kind by the command in `run.json`, or by the files of a finished run if the folder has no readable one."""
    command = stored_command(folder) or read_verb(folder)
    kinds = [kind for kind in VERBS if kind.command == command]
    finished = next((kind for kind in kinds or VERBS if kind.is_finished(folder)), None)
    return finished or (kinds[0] if kinds else None)


def finished_kind(folder: Path) -> Verb:
    """The kind of a finished run; FolderError if the folder is no run or the run is not finished."""
    if not folder.is_dir():
        raise FolderError(f"there is no folder {folder}: name a run folder of rlab")
    refuse_strange(folder)
    kind = kind_of(folder)
    if kind is not None and kind.is_finished(folder):
        return kind
    if (folder / RUN).exists():
        raise FolderError(f"{folder} is not finished: run its command again to resume it")
    commands = ", ".join(dict.fromkeys(kind.command for kind in VERBS))
    raise FolderError(f"{folder} holds no run of rlab: expected a folder of {commands}")
