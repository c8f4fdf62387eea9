"""What `rlab.verify_benchmark` returns: how many files were checked, and everything that does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rlab.present.page import Banner, Block, Number, Page, Section, Text
from rlab.present.result import PathLike, Result
from rlab.present.style import HUES, STYLE, WIDE, headed_figure, plain, tidy
from rlab.present.table import Table
from rlab.storage.files import read_result, write_json
from rlab.storage.resume import open_run

VERIFICATION = "verification.json"
_SHOWN = 100  # mismatches on a page
_HOLD, _FAIL = HUES[2], HUES[3]


@dataclass(frozen=True)
class Mismatch:
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class CheckedLevel:
    """The files of one level of a set."""

    set: str  # empty for the originals
    level: str
    files: int
    queries: int
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def wrong(self) -> int:
        """Files that do not hold; one file can have several mismatches."""
        return len({mismatch.file for mismatch in self.mismatches})


@dataclass(frozen=True)
class Verification(Result):
    """The number of files checked, and everything that does not hold."""

    levels: tuple[CheckedLevel, ...]  # the originals first
    unasked: tuple[str, ...] = ()  # victims that you did not pass

    @property
    def files(self) -> int:
        return sum(level.files for level in self.levels)

    @property
    def asked(self) -> int:
        """Queries sent to models."""
        return sum(level.queries for level in self.levels)

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        return tuple(mismatch for level in self.levels for mismatch in level.mismatches)

    @property
    def holds(self) -> bool:
        return not self.mismatches

    def __repr__(self) -> str:
        return f"Verification({self})"

    def __str__(self) -> str:
        queries = f", {self.asked} queries to their victims" if self.asked else ""
        without = f"; not queried: {', '.join(self.unasked)}" if self.unasked else ""
        outcome = "all hold" if self.holds else f"{len(self.mismatches)} do not hold"
        return f"{self.files} files{queries}{without}: {outcome}"

    def records(self) -> list[dict[str, Any]]:
        """One row per set and level: the number of files, of those that do not hold, and of queries."""
        return [
            {"set": each.set, "level": each.level, "files": each.files, "wrong": each.wrong, "queries": each.queries}
            for each in self.levels
        ]

    def plot(self) -> Figure:
        """Draw the files of every set and level that hold, and those that do not."""
        files, wrong = (np.array([row[name] for row in self.records()]) for name in ("files", "wrong"))
        names = [plain(f"{each.set}, {each.level}" if each.set else each.level, 40) for each in self.levels]
        with matplotlib.rc_context(STYLE):
            figure, (body,) = headed_figure(WIDE / 2, ["files of a benchmark"], [0.5 + 0.3 * len(names)], 0.5)
            ax = figure.add_subplot(body)
            ax.barh(names, files - wrong, color=_HOLD, label="hold")
            ax.barh(names, wrong, left=files - wrong, color=_FAIL, hatch="////", label="do not hold")
            ax.invert_yaxis()
            ax.set(xlabel="files")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            figure.legend(loc="outside lower left", ncols=2)
            tidy(ax)
            return figure

    def make_page(self, title: str = "Benchmark verified") -> Page:
        rows = [[row["set"] or "–", *(row[name] for name in list(row)[1:])] for row in self.records()]
        blocks: list[Block] = [Table(["set", "level", "files", "do not hold", "queries"], rows, words=2)]
        if self.mismatches:
            wrong = [[each.file, each.what] for each in self.mismatches]
            blocks.append(Table(["file", "what does not hold"], wrong, "Mismatches", words=2).first(_SHOWN))
        if self.unasked:
            blocks.append(
                Text(f"Not queried: {', '.join(self.unasked)}. Pass these models to check that they still err.")
            )
        numbers = [Number("files", self.files), Number("queries", self.asked)]
        return Page(title, [Section("Files", blocks)], Banner(self.holds, str(self)), numbers=numbers)

    def save(self, folder: PathLike) -> Path:
        """Write verification.json, replacing an earlier one, and return the folder."""
        path = Path(folder)
        with open_run(path, {"command": "benchmark verify"}) as resume:
            resume.create()
            write_json(path / VERIFICATION, asdict(self))
        return path

    @classmethod
    def load(cls, folder: Path) -> Verification:
        """Read what `save` wrote."""
        return read_result(
            folder / VERIFICATION, lambda stored: cls(tuple(map(_level, stored["levels"])), tuple(stored["unasked"]))
        )


def _level(stored: Mapping[str, Any]) -> CheckedLevel:
    return CheckedLevel(**{**stored, "mismatches": tuple(Mismatch(**each) for each in stored["mismatches"])})


def verification_page(folder: Path) -> Page:
    """The page of a folder that `Verification.save` wrote."""
    return Verification.load(folder).make_page(f"Benchmark verified: {folder.name}")
