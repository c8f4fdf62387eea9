"""What an attack returns: every sample's facts, with ways to read, plot, print, save and load them.

A run folder holds rows as Parquet and arrays as safetensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import torch
from torch import Tensor

from rlab.core.distances import measure
from rlab.core.outcome import SearchOutcome
from rlab.core.setting import Setting as Setting
from rlab.core.status import Status as Status
from rlab.data.batch import Samples
from rlab.errors import DataError, FolderError
from rlab.predictions.targets import check_targets
from rlab.present.report import Metric, PathLike, Report
from rlab.results.data import WITHIN as WITHIN
from rlab.results.data import ResultData, SampleData
from rlab.results.kept import HeldInputs, Remake, StoredInputs, palette_of
from rlab.results.rows import MARK, from_rows, to_records, to_table
from rlab.results.rows import to_rows as to_rows
from rlab.results.sentences import run_sentence, sample_sentence
from rlab.storage import files
from rlab.storage.index import read_index
from rlab.storage.names import CONFIG
from rlab.storage.run_file import check_files, reading, why_unreadable
from rlab.storage.tables import StoredTable, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlab.present.page import Page, Section


@dataclass(frozen=True, repr=False)
class AttackedSample(SampleData):
    """One sample of a result, which can say what happened to it."""

    @property
    def sentence(self) -> str:
        """What happened to the sample, in plain words."""
        return sample_sentence(self)

    def __str__(self) -> str:
        return f"{self.id}: {self.sentence}"


@dataclass(frozen=True, repr=False)
class AttackResult(ResultData, Report):
    """The result of an attack, one entry per sample in every field, in the order of the data."""

    verb: ClassVar[str] = "attack"

    @classmethod
    def of(cls, outcome: SearchOutcome) -> Self:
        """The result of a search."""
        batch, meter = outcome.batch, outcome.meter
        original, device = batch.x.contiguous(), meter.victim.device
        return cls(
            setting=outcome.setting,
            ids=batch.ids,
            labels=batch.y,
            status=outcome.status,
            queries=meter.counts,
            before=meter.victim.probabilities(outcome.clean),
            after=meter.victim.probabilities(outcome.scores),
            flip=outcome.trace.flip,
            improvements=tuple(map(tuple, outcome.trace.improvements)),
            final=_measured(
                original.to(device), outcome.stored.to(device), outcome.assignment.to(device), batch.bounds
            ),
            assignment=outcome.assignment,
            inputs=HeldInputs(original, outcome.perturbed),
            seeds=outcome.seeds,
            r_peaks=batch.r_peaks or (),
        )

    def __repr__(self) -> str:
        return f"AttackResult({len(self)} samples: {self.tally()}, {self.total_queries:,} queries in all)"

    @overload
    def __getitem__(self, at: int) -> AttackedSample: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: int | slice) -> AttackedSample | Self:
        """One sample, or the result of a slice of them."""
        if isinstance(at, slice):
            return self.where(torch.arange(len(self))[at])
        return AttackedSample(**vars(self.sample(at)))

    def __iter__(self) -> Iterator[AttackedSample]:
        return (self[i] for i in range(len(self)))

    def records(self) -> list[dict[str, Any]]:
        """One row per sample, with the names of classes and one number of queries."""
        return to_records(self)

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        from rlab.results.page import attack_page

        return attack_page(self, samples, folder)

    def title(self, folder: Path) -> str:
        from rlab.results.titles import title_of

        return title_of(folder / CONFIG, len(self), self.setting.size)

    def metrics(self) -> Mapping[str, Metric]:
        from rlab.results.metrics import attack_metrics

        return attack_metrics(self)

    def summary(self) -> dict[str, float]:
        """The figures of the tables by name; medians and means are over successes, but `median_within_N` is over all attacked
        samples and infinite unless more than half have a flip by then."""
        from rlab.results.metrics import attack_summary

        return attack_summary(self)

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        from rlab.results.metrics import anytime_series

        return anytime_series(self)

    def settings(self) -> Mapping[str, Any]:
        setting: dict[str, Any] = json.loads(self.setting.to_json())
        return setting

    def drawings(self, samples: int = 24) -> Mapping[str, Callable[[], Figure]]:
        from rlab.results.pictures import choose, draw_sample, file_stem

        each = {file_stem(self, i): partial(draw_sample, self, i) for i in choose(self, samples)}
        return {"overview": self.plot, **each}

    @classmethod
    def compared(cls, reports: Mapping[str, Self]) -> Sequence[Section]:
        from rlab.results.metrics import compared_sections

        return compared_sections(reports)

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the whole run, or one sample before and after; notebooks show the figure, `savefig` writes it."""
        from rlab.present.figures import draw_page
        from rlab.results.page import overview_page
        from rlab.results.pictures import draw_sample

        return draw_page(overview_page(self)) if sample is None else draw_sample(self, self.position(sample))

    def _repr_html_(self) -> str:
        from rlab.results.page import result_html

        return result_html(self)

    @property
    def sentence(self) -> str:
        """What happened in the run, in plain words."""
        return run_sentence(self)

    def __str__(self) -> str:
        from rlab.results.tables import run_facts

        return "\n".join(f"{name}: {value}" for name, value in run_facts(self).items())

    def save(self, folder: PathLike) -> Path:
        """Write a finished run folder; an existing folder must be empty."""
        path = Path(folder)
        files.refuse_filled(path)
        path.mkdir(parents=True, exist_ok=True)
        setting = self.setting.to_json()
        arrays = {"assignment": self.assignment, "original": self.original, "perturbed": self.perturbed}
        files.write_arrays(path / files.ARRAYS, {name: each.contiguous() for name, each in arrays.items()}, setting)
        write_tables(path / files.SAMPLES, [files.redact_table(to_table(self))], setting)
        self.write_glance(path)
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str], data: Samples | None = None) -> AttackResult:
        """Read a finished run folder; inputs stay on disk until first used.

        Inputs that the run did not store are rebuilt from `data`, the samples of the run.
        """
        path = Path(folder)
        if not (path / files.SAMPLES).exists():
            raise FolderError(f"{path} {why_unreadable(path, 'attack', 'a run folder of an attack')}")
        check_files(path, files.ARRAYS, files.SAMPLES)
        assignment, setting = files.read_assignment(path / files.ARRAYS)
        with files.opened_parquet(path / files.SAMPLES) as file, reading(path):
            table = StoredTable(file)
            index, made = read_index(path / files.ARRAYS), Setting.from_json(setting)
            columns = from_rows(table)
            marks = table[MARK].to_pylist() if MARK in table.column_names else [""] * len(assignment)
            facts = (columns["ids"], columns["seeds"], assignment, tuple(marks))
            remake = None if data is None else Remake(data, palette_of(path, data, made.palette), made.grid, *facts)
            inputs = StoredInputs(path, index, range(len(assignment)), remake)
            result = cls(setting=made, assignment=assignment, inputs=inputs, **columns)
            check_whole(result)
        return result


def check_whole(result: ResultData) -> None:
    """Refuse a result whose parts do not fit together."""
    n, grid, k = len(result), result.setting.grid, result.before.shape[-1]
    flips = zip(result.succeeded.tolist(), result.improvements, strict=True)
    facts = {
        f"{n} rows but {len(result.assignment)} arrays": n != len(result.assignment),
        "an id is not text": not all(isinstance(name, str) for name in result.ids),
        "scores differ in shape": not tuple(result.before.shape) == tuple(result.after.shape) == (n, k),
        "the assignment does not fit the grid": tuple(result.assignment.shape) != (n, len(grid)),
        "groups do not fit the channels": len(grid.channels) not in (0, result.inputs.shape[1]),
        "inputs do not fit the grid": result.inputs.shape[:1] + result.inputs.shape[2:] != (n, *grid.size),
        "the assignment names entries beyond the palette": int(result.assignment.max()) > len(result.setting.palette),
        "a label is beyond the classes": not _labels_fit(result, k),
        "a count is below 0": bool((result.queries < 0).any()),
        "a flip has no distance": any(won and not improved for won, improved in flips),
    }
    if wrong := [fact for fact, holds in facts.items() if holds]:
        raise FolderError(f"the run folder is damaged or was edited: {wrong[0]}")


def _labels_fit(result: ResultData, k: int) -> bool:
    if result.setting.target == "classes":
        return not bool((result.labels < 0).any()) and int(result.labels.max()) < k
    try:
        check_targets(result.setting.target, result.labels, result.setting.size, result.ids)
    except DataError:
        return False
    return True


def _measured(x0: Tensor, x: Tensor, assignment: Tensor, bounds: tuple[float, float]) -> dict[str, Tensor]:
    """Distances (n,) on the CPU; on a GPU a few samples at a time, because some distances need several times their memory."""
    if x.device.type == "cpu":
        return measure(x0, x, assignment, bounds)
    few = [slice(at, at + 64) for at in range(0, len(x), 64)]
    parts = [measure(x0[rows], x[rows], assignment[rows], bounds) for rows in few]
    return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
