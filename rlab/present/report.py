"""What every command returns and every run folder holds.

A report is a frozen dataclass. Its fields are saved and loaded here: tensors as arrays, everything else as JSON. A command only
says what it measured: rows, metrics, a figure and a page. Folders, notebooks, trackers, the server, audits and comparisons of runs
need nothing else.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter

from rlab import __version__
from rlab.errors import FolderError
from rlab.present.table import Share, text
from rlab.stats import Estimate

if TYPE_CHECKING:  # imported on use: a command that prints a table needs none of them
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from torch import Tensor

    from rlab.present.page import Page, Section

PathLike = str | os.PathLike[str]
Metric = float | Estimate | Share
REPORT, RESULTS, ARRAYS = "report.json", "results.csv", "arrays.safetensors"
UNSAVED = {"saved": False}  # metadata of a field that only the live object has, such as a model
LISTED = 5  # figures that lists of runs show
_FIELDS, _ARRAY = "fields", "array"  # keys of REPORT


@dataclass(frozen=True)
class Report(ABC):
    """The base of every result of rlab."""

    verb: ClassVar[str]  # the command that makes it, such as "benchmark run"

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows of the table that `to_pandas` returns and `save` writes as CSV."""

    @abstractmethod
    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """The page; `folder` is where the report lies, if it is stored, and `samples` limits how many of them are shown."""

    def plot(self) -> Figure:
        """Draw the charts and pictures of the page; notebooks show the figure, `savefig` writes it."""
        from rlab.present.figures import draw_page

        return draw_page(self.view())

    def metrics(self) -> Mapping[str, Metric]:
        """Named figures, for trackers, comparisons of runs and the requirements of audits."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """The figures that `--json` prints."""
        return {name: plain_value(metric) for name, metric in self.metrics().items()}

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        """Figures by number of queries or by step, for trackers."""
        return ()

    def title(self, folder: Path) -> str:
        """What lists of runs call the report in this folder; by default they name its command."""
        return ""

    def key_figures(self) -> Mapping[str, str]:
        """What lists of runs show: the verdict, if there is one, and the first figures."""
        metrics = dict(self.metrics())
        passed = metrics.pop("passed", None)
        verdict = {} if passed is None else {"verdict": "passed" if plain_value(passed) else "failed"}
        return verdict | {name: text(metric) for name, metric in [*metrics.items()][:LISTED]}

    def settings(self) -> Mapping[str, Any]:
        """The settings, if the folder has no configuration file."""
        return {}

    def drawings(self, samples: int = 24) -> Mapping[str, Callable[[], Figure]]:
        """Functions that draw the figures for a paper, by file name without ending."""
        return {self.verb.replace(" ", "-"): self.plot}

    @classmethod
    def compared(cls, reports: Mapping[str, Self]) -> Sequence[Section]:
        """Further sections of the page that compares several runs, given by name."""
        return ()

    def save(self, folder: PathLike) -> Path:
        """Write a run folder, which `rlab show`, `rlab report` and `rlab serve` can read."""
        from rlab.storage.resume import open_run

        path = Path(folder)
        with open_run(path, {"command": self.verb}) as resume:
            resume.create()
            self.write(path)
        return path

    def write(self, folder: Path) -> None:
        """Write the files into a run's folder that is already open."""
        from rlab.storage.files import write_arrays, write_csv

        arrays: dict[str, Tensor] = {}

        def stored(tensor: Tensor) -> dict[str, str]:
            name = f"{len(arrays):05d}"
            arrays[name] = tensor.contiguous()
            return {_ARRAY: name}

        plain = {
            name: json.loads(adapter.dump_json(getattr(self, name), fallback=stored))
            for name, adapter in _adapters(type(self)).items()
        }
        if arrays:
            write_arrays(folder / ARRAYS, arrays, self.verb)
        write_csv(folder / RESULTS, self.records())
        self.write_glance(folder, plain)

    def write_glance(self, folder: Path, stored: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write the command, the title and the figures, with the fields that are `stored` as JSON."""
        from rlab.storage.files import write_json

        figures = {name: plain_value(metric) for name, metric in self.metrics().items()}
        glance = {"verb": self.verb, "title": self.title(folder), "key": self.key_figures()}
        write_json(folder / REPORT, {**glance, "rlab": __version__, "metrics": figures, _FIELDS: stored})

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Read what `save` wrote."""
        from rlab.storage.files import read_arrays, read_result
        from rlab.storage.run_file import why_unreadable

        path = Path(folder)
        if read_verb(path) not in (cls.verb, None) or not (path / REPORT).is_file():
            raise FolderError(f"{path} {why_unreadable(path, cls.verb, f'a folder of rlab {cls.verb}')}")
        arrays = read_arrays(path / ARRAYS)[0] if (path / ARRAYS).exists() else {}

        def parse(stored: Any) -> dict[str, Any]:
            adapters, values = _adapters(cls), _filled(stored[_FIELDS], arrays)
            return {name: adapters[name].validate_python(value) for name, value in values.items()}

        return cls(**read_result(path / REPORT, parse))

    def to_pandas(self) -> DataFrame:
        """The result as a pandas.DataFrame."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ImportError("this needs the package 'pandas', which is not installed: pip install pandas") from error
        return DataFrame(self.records())

    def report(self, path: PathLike) -> Path:
        """Write the result as one self-contained HTML page."""
        from rlab.present.page import write_page

        return write_page(self.view(), Path(path))

    def _repr_html_(self) -> str:
        """The page's verdict, figures and first section, without anything interactive."""
        from rlab.present.notebook import blocks_html
        from rlab.present.page import Text

        page = self.view()
        words = [page.verdict.sentence + "." if page.verdict else "", page.lead]
        return blocks_html([*(Text(each) for each in words if each), *page.sections[0].blocks], page.numbers)


@dataclass(frozen=True)
class Glance:
    """What lists of runs show of a stored report."""

    verb: str
    title: str = ""
    key: Mapping[str, str] = field(default_factory=dict)  # figures as text


def read_glance(folder: Path) -> Glance | None:
    """The glance at the report in a folder; None without a readable report."""
    from rlab.storage.stored import read_stored

    try:
        return TypeAdapter(Glance).validate_json(read_stored(folder / REPORT))
    except (OSError, ValueError):  # a FolderError is a ValueError
        return None


def read_verb(folder: Path) -> str | None:
    """The command whose report lies in the folder; None without a readable report."""
    glance = read_glance(folder)
    return None if glance is None else glance.verb


def plain_value(metric: Metric) -> float:
    """A metric without its interval."""
    value = metric.value if isinstance(metric, Share) else metric
    return value.value if isinstance(value, Estimate) else float(value)


@cache
def _adapters(cls: type[Report]) -> Mapping[str, TypeAdapter[Any]]:
    """What reads and writes each field."""
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: _adapter(hints[each.name]) for each in fields(cls) if each.metadata != UNSAVED}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        # tensors, also those of dataclasses within; NaN and infinities become text that a float reads back
        return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True, ser_json_inf_nan="strings"))
    except PydanticUserError:  # options have a configuration of their own
        return TypeAdapter(kind)


def _filled(value: Any, arrays: Mapping[str, Tensor]) -> Any:
    """JSON with the tensors that it names."""
    if isinstance(value, Mapping):
        named = value.get(_ARRAY)
        return {key: _filled(inner, arrays) for key, inner in value.items()} if named is None else arrays[named]
    return [_filled(inner, arrays) for inner in value] if isinstance(value, list) else value
