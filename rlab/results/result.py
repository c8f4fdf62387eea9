"""What an attack found, sample by sample, and how it is kept on disk: Parquet for rows, safetensors for arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.setting import Setting as Setting
from rlab.core.setting import Status as Status
from rlab.core.trace import DISTANCE_NAMES, Improvements, best_within, tally_of
from rlab.data.batch import Samples
from rlab.errors import InputError
from rlab.progress import Tally
from rlab.results.kept import HeldInputs, Inputs, Pair, Remake, StoredInputs, palette_of
from rlab.results.rows import MARK, from_rows, to_table
from rlab.results.rows import to_rows as to_rows
from rlab.results.sample import AttackedSample
from rlab.results.sentences import run_sentence
from rlab.results.stored import check_whole
from rlab.stats import mean_of, median_of
from rlab.storage import files
from rlab.storage.ledger import LEDGER, check_files, reading
from rlab.storage.tables import StoredTable, redact_table, write_tables
from rlab.victims.base import PHASES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHIN = (5, 20, 50, 200)  # queries at which the anytime curve is told in figures


@dataclass(frozen=True)
class AttackResult:
    """One entry a sample in every field, in the order of the data."""

    setting: Setting
    ids: tuple[str, ...]
    labels: Tensor  # (n,) or (n, k)
    status: tuple[Status, ...]
    queries: Tensor  # (n, phases) rows that reached the model, by rlab.victims.base.PHASES
    before: Tensor  # (n, k) probabilities of the untouched input
    after: Tensor  # (n, k) probabilities of the perturbed input
    flip: Mapping[str, Tensor]  # distances (n,) by name when the goal was first reached; NaN where it was not
    final: Mapping[str, Tensor]  # distances (n,) by name of what is stored, in the end
    assignment: Tensor  # (n, p) uint8
    inputs: Inputs  # before and after; `original` and `perturbed` read all of them
    seconds: Tensor  # (n,) the sample's share of the wall time, by queries
    seeds: Tensor  # (n,)
    improvements: tuple[Improvements, ...] = ()  # (n) every nearer flip as (queries so far, distance)
    r_peaks: tuple[tuple[int, ...], ...] = ()  # (n) annotated events of signals, as `Batch.r_peaks`; none where unknown

    def __post_init__(self) -> None:
        none: tuple[tuple[Any, ...], ...] = ((),) * len(self)
        improvements = [flips or self._two_flips(i) for i, flips in enumerate(self.improvements or none)]
        object.__setattr__(self, "improvements", tuple(improvements))
        object.__setattr__(self, "r_peaks", self.r_peaks or none)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"AttackResult({len(self)} samples: {self.tally()}, {int(self.queries.sum()):,} queries in all)"

    @overload
    def __getitem__(self, at: int) -> AttackedSample: ...

    @overload
    def __getitem__(self, at: slice) -> AttackResult: ...

    def __getitem__(self, at: int | slice) -> AttackedSample | AttackResult:
        """One sample, or the result of a slice of them."""
        if isinstance(at, slice):
            return self.where(torch.arange(len(self))[at])
        i = range(len(self))[at]
        label = self.labels[i]
        return AttackedSample(
            id=self.ids[i],
            label=tuple(label.nonzero().flatten().tolist()) if label.dim() else int(label),
            status=self.status[i],
            queries=int(self.effort[i]),
            distance=self.improvements[i][-1][1] if self.status[i] is Status.SUCCEEDED else math.inf,
            before=self.before[i],
            after=self.after[i],
            inputs=self.inputs.where([i]),
            entries=self.assignment[i],
            setting=self.setting,
            r_peaks=self.r_peaks[i],
        )

    def __iter__(self) -> Iterator[AttackedSample]:
        return (self[i] for i in range(len(self)))

    def to_pandas(self) -> Any:
        """A pandas.DataFrame, one row a sample: the columns of `samples.parquet`."""
        try:
            return to_table(self).to_pandas()
        except ImportError as error:
            raise ImportError("this needs the package 'pandas', which is not installed: pip install pandas") from error

    def plot(self, sample: int | None = None) -> Figure:
        """The whole run, or one sample before and after and where it was distorted; notebooks show it, `savefig` keeps it."""
        from rlab.results.plots import draw_overview, draw_sample

        return draw_overview(self) if sample is None else draw_sample(self, range(len(self))[sample])

    def _repr_html_(self) -> str:
        from rlab.results.notebook import result_html

        return result_html(self)

    @property
    def sentence(self) -> str:
        """What became of the run, in plain words."""
        return run_sentence(self)

    @cached_property
    def _both(self) -> Pair:
        return self.inputs.all()

    @property
    def original(self) -> Tensor:
        """(n, c, *size): all untouched inputs, in memory from now on; `result[i]` and `result[a:b]` read theirs alone."""
        return self._both[0]

    @property
    def perturbed(self) -> Tensor:
        """(n, c, *size): all inputs as they were left, in memory from now on."""
        return self._both[1]

    @cached_property
    def succeeded(self) -> Tensor:
        """(n,) bool."""
        return self._is(Status.SUCCEEDED)

    @cached_property
    def attacked(self) -> Tensor:
        """(n,) bool: samples the model had right to begin with."""
        return ~self._is(Status.SKIPPED)

    def _is(self, status: Status) -> Tensor:
        return torch.from_numpy(np.fromiter((each is status for each in self.status), bool, len(self)))

    @property
    def effort(self) -> Tensor:
        """(n,) what 'queries' of a sample are in every table: rows from its clean prediction to the end of cleanup."""
        return self.queries[:, PHASES.index("search")] + self.queries[:, PHASES.index("cleanup")]

    @property
    def masks(self) -> Tensor:
        """(n, *size) bool: where the input is distorted."""
        return self.setting.grid.expand(self.assignment != 0)

    def best_within(self, queries: int) -> Tensor:
        """(n,): the distance of the best flip within so many queries, the clean one included; infinity without a verified one."""
        return best_within(self.improvements, queries).masked_fill(~self.succeeded, math.inf)

    def _two_flips(self, i: int) -> Improvements:
        """What a run that kept no improvements knows of them: the first flip, and what cleanup left of it."""
        if self.status[i] is not Status.SUCCEEDED:
            return ()
        first = (int(self.queries[i, PHASES.index("search")]), float(self.flip["l2"][i]))
        return first, (int(self.effort[i]), float(self.final["l2"][i]))

    def summary(self) -> dict[str, float]:
        """The figures of the table by plain names; medians and means are over successes, medians within so many queries over
        all attacked samples: infinite where more than half have no flip by then."""
        won, attacked = self.succeeded, int(self.attacked.sum())
        each = (flips[0][0] if flips else math.nan for flips in self.improvements)
        first = torch.from_numpy(np.fromiter(each, np.float32, len(self)))
        within = {f"median_within_{q}": median_of(self.best_within(q), self.attacked) for q in WITHIN}
        return {
            "samples": len(self),
            "attacked": attacked,
            "succeeded": int(won.sum()),
            "success": float(won.sum()) / attacked if attacked else math.nan,
            "median_queries": median_of(self.effort, won),
            "median_search": median_of(self.queries[:, PHASES.index("search")], won),
            "median_queries_flip": median_of(first, won),
            "median_l2_flip": median_of(self.flip["l2"], won),
            "median_l2": median_of(self.final["l2"], won),
            "median_patches": median_of(self.final["l0_patches"], won),
            "mean_queries": mean_of(self.effort, won),
            "mean_l2": mean_of(self.final["l2"], won),
            "queries": int(self.queries.sum()),
        } | within

    def tally(self) -> Tally:
        """For the progress bar."""
        best = self.best_within(self.setting.budget)[self.succeeded].tolist()
        return tally_of(self.status, best, int(self.queries.sum()), self.setting.distance)

    def __str__(self) -> str:
        s, setting, unit = self.summary(), self.setting, self.setting.l2_unit
        snr = math.nan if setting.bounded else median_of(self.final["snr_db"], self.succeeded)
        within = {q: setting.told(s[f"median_within_{q}"]) for q in WITHIN if q < setting.budget}
        anytime = f"median {DISTANCE_NAMES[setting.distance]} within {' / '.join(map(str, within))} queries: "
        lines = [
            f"{int(s['succeeded'])} of {int(s['attacked'])} samples flipped ({s['success']:.1%}), "
            f"{len(self) - int(s['attacked'])} skipped because already wrong",
            f"median queries {s['median_queries']:g} (first flip at {s['median_queries_flip']:g}), {int(s['queries'])} in all",
            f"median L2 {s['median_l2']:.3g}{unit} ({s['median_l2_flip']:.3g}{unit} at the first flip), "
            f"{s['median_patches']:g} of {len(setting.grid)} patches{'' if math.isnan(snr) else f', median SNR {snr:.1f} dB'}",
            *([anytime + " / ".join(within.values())] if within else []),
        ]
        return "\n".join(lines)

    @classmethod
    def join(cls, parts: Sequence[AttackResult]) -> AttackResult:
        """Results of consecutive samples as one; one alone is not copied."""
        if len(parts) == 1:
            return parts[0]
        merged: dict[str, Any] = {}
        for f in fields(cls):
            values = [getattr(part, f.name) for part in parts]
            if f.name == "setting":
                merged[f.name] = values[0]
            elif f.name == "inputs":
                merged[f.name] = HeldInputs(*(torch.cat(side) for side in zip(*(v.all() for v in values), strict=True)))
            elif isinstance(values[0], Tensor):
                merged[f.name] = torch.cat(values)
            elif isinstance(values[0], tuple):
                merged[f.name] = tuple(item for value in values for item in value)
            else:
                merged[f.name] = {key: torch.cat([value[key] for value in values]) for key in values[0]}
        return cls(**merged)

    def where(self, rows: Tensor) -> AttackResult:
        """The samples `rows` (indices)."""
        chosen: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Inputs):
                chosen[f.name] = value.where(rows.tolist())
            elif isinstance(value, Tensor):
                chosen[f.name] = value[rows]
            elif isinstance(value, tuple):
                chosen[f.name] = tuple(value[i] for i in rows.tolist())
            elif isinstance(value, Mapping):
                chosen[f.name] = {key: column[rows] for key, column in value.items()}
        return replace(self, **chosen)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes a finished run folder; refuses one that exists and is not empty."""
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} exists already: name a new folder")
        path.mkdir(parents=True, exist_ok=True)
        files.write_arrays(path / files.ARRAYS, to_arrays(self), self.setting.to_json())
        write_tables(path / files.SAMPLES, [redact_table(to_table(self))], self.setting.to_json())
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str], data: Samples | None = None) -> AttackResult:
        """Reads a finished run folder; inputs stay there until they are asked for. Of `data`, those of the run, inputs are made
        again that were not kept."""
        path = Path(folder)
        if not (path / files.SAMPLES).exists():
            unfinished = (path / LEDGER).exists()
            why = "is not finished: run its command again to resume it" if unfinished else "is not a run folder"
            raise InputError(f"{path} {why}")
        check_files(path, files.ARRAYS, files.SAMPLES)
        assignment, setting = files.read_assignment(path / files.ARRAYS)
        with files.opened_parquet(path / files.SAMPLES) as file, reading(path):
            table = StoredTable(file)
            index, made, columns = files.read_index(path / files.ARRAYS), Setting.from_json(setting), from_rows(table)
            marks = table[MARK].to_pylist() if MARK in table.column_names else [""] * len(assignment)
            facts = (columns["ids"], columns["seeds"], assignment, tuple(marks))
            remake = None if data is None else Remake(data, palette_of(path, data, made.palette), made.grid, *facts)
            inputs = StoredInputs(path, index, range(len(assignment)), remake)
            result = cls(setting=made, assignment=assignment, inputs=inputs, **columns)
            check_whole(result)
        return result


def to_arrays(result: AttackResult) -> dict[str, Tensor]:
    """What is too large for a table."""
    return {name: getattr(result, name).contiguous() for name in ("assignment", "original", "perturbed")}


def from_parts(setting: Setting, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, Tensor]) -> AttackResult:
    """The inverse of `to_rows` and `to_arrays`."""
    inputs = HeldInputs(arrays["original"], arrays["perturbed"])
    return AttackResult(
        setting=setting, assignment=arrays["assignment"], inputs=inputs, **from_rows(pa.Table.from_pylist(list(rows)))
    )
