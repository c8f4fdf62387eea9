"""A benchmark on disk: a manifest, a Parquet table with one row per sample and level, and the samples.

manifest.json  metadata.parquet  README.md  originals/...  VICTIM/LEVEL/...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlab.benchmarking.chunk import COUNTS
from rlab.benchmarking.config import FLIP, ORIGINAL, Ladder, parse_ladder
from rlab.benchmarking.formats import Format, Row, make_format
from rlab.benchmarking.manifest import FREE, Edited, Manifest, read_manifest
from rlab.benchmarking.report import DEFAULT, BenchmarkReport
from rlab.core.goals import Goal, parse_goal
from rlab.data.fields import check_room
from rlab.errors import DataError, InputError, OptionError
from rlab.present.chart import Chart, Curve
from rlab.present.figures import draw_page
from rlab.present.notebook import thumbnails
from rlab.present.page import Beside, Block, Charts, Code, Facts, Gallery, Page, Section, Text
from rlab.present.report import REPORT, Metric, PathLike, Report
from rlab.present.table import Table, number
from rlab.results.tables import QUERIES
from rlab.stats import median_of
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.names import CONFIG, inside

SIDE = 224  # pixels along a picture


@dataclass(frozen=True)
class Benchmark(Report):
    """A finished benchmark folder."""

    verb: ClassVar[str] = "benchmark make"
    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]

    def __repr__(self) -> str:
        names, levels = ", ".join(name for name, _ in self.manifest.victims), len({row["level"] for row in self.rows})
        return f"Benchmark({self.folder}: {len(self.rows)} rows in {levels} levels against {names})"

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Read the manifest and the rows; samples are read on demand."""
        return cls(Path(folder), *read_manifest(Path(folder)))

    def save(self, folder: PathLike) -> Path:
        """Copy the benchmark's folder."""
        return files.copy_folder(self.folder, Path(folder))

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def class_name(self, label: int) -> str:
        return self.manifest.classes[label] if self.manifest.classes else f"class {label}"

    @property
    def format(self) -> Format:
        return make_format(self.manifest.storage, self.manifest.shape)

    @property
    def ladder(self) -> Ladder:
        return replace(parse_ladder(self.manifest.ladder), distances=self.manifest.distances)

    @property
    def free(self) -> bool:
        """Whether no model was queried, so that there is no flip."""
        return self.manifest.sets == FREE

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(name for name in self.ladder.names if name != FLIP) if self.free else self.ladder.names

    @property
    def base_level(self) -> str:
        """The flip, or the mildest level if there is no flip."""
        return self.levels[0] if self.free else FLIP

    @property
    def victims(self) -> tuple[str, ...]:
        """The names of the sets."""
        return tuple(name for name, _ in self.manifest.victims)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that the sets were made against."""
        return () if self.free else self.victims

    @property
    def named_models(self) -> dict[str, Any]:
        """How to load the models that the folder was made with; loading them may run code that the folder names."""
        models = self.manifest.config.get("models")
        return dict(models) if isinstance(models, Mapping) else {}

    @property
    def goal(self) -> Goal:
        return parse_goal(self.manifest.goal)

    @property
    def reach(self) -> float:
        """Largest L2 on the distance axis."""
        return self.manifest.reach

    @property
    def queries(self) -> int:
        """The number of queries that grade a model: one per file."""
        return sum(bool(row["reached"]) for row in self.rows)

    @property
    def points(self) -> tuple[str, ...]:
        """The originals, then the levels at which models are graded; a flip has no place among equal distances."""
        return (ORIGINAL, *(level for level in self.levels if not (self.ladder.absolute and level == FLIP)))

    @property
    def scale(self) -> str:
        """What two benchmarks must have in common before you can compare their distances."""
        m = self.manifest
        facts = (m.shape.kind, m.shape.channels, m.shape.size, m.shape.unit, m.entries, m.patch, m.channels)
        return digest(repr(facts))

    def originals(self) -> list[Row]:
        return [row for row in self.rows if row["level"] == ORIGINAL]

    def of(self, victim: str, level: str = FLIP) -> list[Row]:
        """All rows of a set in the order of the samples, including samples that did not reach the level."""
        if victim not in self.victims:
            raise OptionError(f"{self.folder} has no set against {victim!r}: it has {', '.join(self.victims)}")
        if level not in self.levels:
            raise OptionError(f"{self.folder} has no level {level!r}: it has {', '.join(self.levels)}")
        return [row for row in self.rows if row["victim"] == victim and row["level"] == level]

    def stored(self, victim: str, level: str = FLIP) -> list[Row]:
        """The rows of a set that have a file."""
        return [row for row in self.of(victim, level) if row["reached"]]

    def sets(self) -> Iterator[tuple[str, str, list[Row]]]:
        """Victim, level and rows of every set that has files."""
        for victim in self.victims:
            for level in self.levels:
                if rows := self.stored(victim, level):
                    yield victim, level, rows

    def read(self, rows: Sequence[Row]) -> Tensor:
        """The samples of these rows (n, c, *size); raises `Edited` if a file differs."""
        shape = (self.manifest.shape.channels, *self.manifest.shape.size)
        check_room(len(rows), shape)
        x = torch.empty(len(rows), *shape)
        for at, (row, values) in enumerate(self.each(rows)):
            if isinstance(values, str):
                path = self.folder / str(row["file"])
                raise Edited(f"{path} was edited ({values}): restore it, or delete it and make the benchmark again")
            x[at] = values
        return x

    def each(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Tensor | str]]:
        """Yield each row with its values (c, *size), or with a description of what is wrong with its file."""
        form, opened = self.format, dict[Path, Mapping[str, Any]]()
        for row in rows:
            try:
                path = inside(self.folder, row["file"])
                if path not in opened:
                    opened = {path: form.read(path)}
                yield row, self._checked(row, path, opened[path])
            except InputError as error:
                yield row, str(error)

    def _checked(self, row: Row, path: Path, held: Mapping[str, Any]) -> Tensor:
        """The values (c, *size) of a row in its file, if they are those of the metadata."""
        single, at = row["row"] is None, row["row"] or 0
        if any(len(held.get(key, ())) <= at for key in (("x",) if single else ("x", "y", "ids"))):
            raise DataError(f"it has no row {at}")
        if not single and (str(held["ids"][at]) != row["id"] or int(held["y"][at]) != row["label"]):
            raise DataError(f"the id or label of row {at} differs")
        values, expected = torch.as_tensor(held["x"][at]), (self.manifest.shape.channels, *self.manifest.shape.size)
        if tuple(values.shape) != expected:
            raise DataError(f"its shape is {tuple(values.shape)}, not {expected}")
        if row["sha256"] != self.format.digest(path, values):
            raise DataError("its sha256 is not the one in the metadata")
        return values

    def records(self) -> list[dict[str, Any]]:
        """One row per sample and level: with class names, and the queries without the one that verifies the stored file."""
        records = []
        for row in self.rows:
            record = {name: value for name, value in row.items() if name not in COUNTS}
            record["label_name"] = self.class_name(row["label"])
            record["predicted_name"] = None if row["predicted"] is None else self.class_name(row["predicted"])
            records.append(record | {"queries": queries_of(row, COUNTS[:2])})
        return records

    def metrics(self) -> Mapping[str, Metric]:
        """The cost, and how many files each set has at which distance."""
        figures: dict[str, Metric] = {"samples": len(self.originals()), "files": self.queries}
        for victim, level, rows in self.sets():
            figures |= {f"{victim} {level}: files": len(rows), f"{victim} {level}: median L2": _medians(rows)[0]}
        return figures | {"queries": sum(map(queries_of, self.rows))}

    def table(self) -> Table:
        """One row per set; queries are those per attacked sample, without the final one that verifies the stored file."""
        rows: list[list[str | float]] = []
        for victim in self.victims:
            for level in self.levels:
                stored, every = self.stored(victim, level), self.of(victim, level)
                queries = torch.tensor([queries_of(row, COUNTS[:2]) for row in every]).double()
                tried = queries[queries > (1 if level == FLIP else 0)]
                mean = float(torch.tensor([row["l2"] for row in stored]).double().mean())
                figures = (mean, *_medians(stored), float(tried.mean()))
                rows.append([victim, level, f"{len(stored)} of {len(every)}", *figures])
        head = ["made against", "level", "samples", "mean L2", "median L2", "median patches", "mean queries"]
        return Table(head, rows, f"Benchmark {self.name}", words=2)

    def facts(self) -> dict[str, str]:
        """What the sets are and how they were made."""
        m, size = self.manifest, "×".join(map(str, self.manifest.shape.size))
        how = f"{m.policy}, up to {m.budget} queries per sample for the flip and {m.steps} for each level beyond it"
        direction = f"{m.goal}: the model predicts {'any wrong' if m.goal == 'untargeted' else 'that'} class"
        none = "none: no model was queried; patches and their distortions are random"
        return {
            "samples": f"{len(self.originals())} {m.shape.kind}s, {m.shape.channels} × {size}, in originals",
            "victims": none if self.free else ", ".join(self.models),
            "direction": "none" if self.free else direction,
            "distortions": " ".join(m.entries),
            **({"surrogates": ", ".join(named)} if (named := m.config.get("surrogate")) else {}),
            "patch": " × ".join(map(str, m.patch)),
            "policy": m.policy if self.free else how,
            "ladder": m.ladder,
            "reach": f"L2 {m.reach:.4g}: distances are scored from 0 to this value, for every model",
            "seed": str(m.seed),
            "classes": ", ".join(f"{i} {name}" for i, name in enumerate(m.classes)) or f"{m.outputs}, unnamed",
            "files": self.format.about,
            "versions": ", ".join(f"{name} {number}" for name, number in m.versions.items()),
            "queries": f"{sum(map(queries_of, self.rows)):,}; those of interrupted chunks are not counted",
            "hash": m.hash,
        }

    def plot(self) -> Figure:
        """Draw the share of samples that have no file within a distance, for every set and level."""
        return draw_page(self.view(samples=0))

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """The sets and the report on them, the first samples from mild to severe, and how the folder was made."""
        config, where, graded = quote(str(self.folder / CONFIG)), quote(str(self.folder)), self.folder / DEFAULT
        report = BenchmarkReport.load(graded) if (graded / REPORT).is_file() else None
        again = Code(f"rlab benchmark make --config {config} --out bench/again\nrlab benchmark verify {where}")
        left = [
            Curve(
                f"{v}, {level}",
                [0.0, *sorted(row["l2"] for row in rows)],
                1 - np.arange(len(rows) + 1) / len(self.of(v, level)),
            )
            for v, level, rows in self.sets()
        ]
        chart = Chart("samples without a file up to an L2", left, "L2", percent=True, steps=True)
        sections = [
            Section("Benchmark", [self.table(), Text(QUERIES, quiet=True), Charts([chart])]),
            *([Section("Models", report.blocks())] if report is not None else []),
            *([self._severities(samples)] if samples else []),
            Section("How it was made", [Facts(self.facts()), again]),
        ]
        return Page(f"Benchmark {self.name}", sections)

    def _severities(self, samples: int) -> Section:
        """The first flipped samples of the first victim, from the original to their most severe level."""
        victim, shape = self.victims[0], self.manifest.shape
        told, shown = Text(f"The first samples of {victim}, as stored."), list[Block]()
        for flip in self.stored(victim, self.base_level)[:samples]:
            rows = [row for row in self.rows if row["place"] == flip["place"] and row["victim"] in ("", victim)]
            rows = [row for row in rows if row["reached"]]
            names = []
            for row in rows:
                made, label = ("label", row["label"]) if row["predicted"] is None else ("predicted", row["predicted"])
                names.append(f"{row['id']}, {row['level']}: {made} {self.class_name(label)}, L2 {number(row['l2'])}")
            drawn = thumbnails(self.read(rows), names, shape.bounds, shape.rate, SIDE)
            shown += [replace(each, columns=len(rows)) if isinstance(each, Gallery) else each for each in drawn]
        galleries = all(isinstance(each, Gallery) for each in shown)
        return Section("From mild to severe", [told, *([Beside(shown)] if galleries else shown)])


def queries_of(row: Row, phases: Sequence[str] = COUNTS) -> int:
    """The queries for this sample and level: all, or those of some phases."""
    return sum(row[name] for name in phases)


def _medians(rows: Sequence[Row]) -> tuple[float, ...]:
    """The median L2 and number of patches."""
    return tuple(median_of(torch.tensor([row[name] for row in rows]).double()) for name in ("l2", "l0_patches"))
