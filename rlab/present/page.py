"""A page is a title, perhaps a verdict, and sections of blocks; one HTML file holds everything and asks no network."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import rlab
from rlab.present.chart import Chart
from rlab.present.environment import make_environment, script_digest
from rlab.present.inline import size_of
from rlab.present.table import Cell, Share, Table, Value, text
from rlab.present.viewer import Viewer
from rlab.redact import redact
from rlab.stats import Estimate
from rlab.storage.files import write_atomically

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Text:
    kind: ClassVar[str] = "text"
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Facts:
    kind: ClassVar[str] = "facts"
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Picture:
    src: str  # a data: address
    about: str  # for those who cannot see it
    title: str = ""
    caption: str = ""
    drawn: bool = False  # dark lines on white, which the page turns round by night

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels: a page that knows them does not jump."""
        return size_of(self.src)


@dataclass(frozen=True)
class Gallery:
    """Pictures line by line, so many columns each."""

    kind: ClassVar[str] = "gallery"
    pictures: Sequence[Picture]
    columns: int = 1


@dataclass(frozen=True)
class Charts:
    """Beside each other where there is room."""

    kind: ClassVar[str] = "charts"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Bar:
    name: str
    share: float  # of the full length
    text: str
    colour: str = ""


@dataclass(frozen=True)
class Bars:
    kind: ClassVar[str] = "bars"
    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Viewers:
    """Samples to play with, so many columns of them; as many as there is room for if 0."""

    kind: ClassVar[str] = "viewers"
    viewers: Sequence[Viewer]
    columns: int = 0
    small: bool = False  # close together


@dataclass(frozen=True)
class Number:
    """One of the few figures that matter, for the first screen."""

    name: str
    value: Value | Share
    unit: str = ""


@dataclass(frozen=True)
class Code:
    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: Sequence[Block]


Block = Text | Table | Facts | Gallery | Charts | Bars | Viewers | Code | Folded


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]

    @property
    def id(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", redact(self.title).lower()).strip("-")


@dataclass(frozen=True)
class Banner:
    """Whether it passed, in one line at the top."""

    passed: bool
    sentence: str


@dataclass(frozen=True)
class Page:
    title: str
    sections: Sequence[Section]
    verdict: Banner | None = None
    lead: str = ""
    numbers: Sequence[Number] = ()


def write_page(page: Page, path: Path) -> Path:
    """Writes the file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(page).encode("utf-8", "backslashreplace"))
    return path


def render(page: Page) -> str:
    made_by = f"rlab {rlab.__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return templates().get_template("page.html").render(page=page, made=made_by, digest=script_digest())


def sort_key(cell: Cell) -> str:
    """What a column is sorted by in the browser: figures as they are, words as they are shown."""
    value = cell.value.value if isinstance(cell.value, Share) else cell.value
    value = value.value if isinstance(value, Estimate) else value
    if isinstance(value, str):
        return ""
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


@cache
def templates() -> Environment:
    """The templates of all pages."""
    environment = make_environment()
    environment.filters |= {"shown": text, "sort_key": sort_key}
    environment.tests["ranged"] = lambda cell: " [" in text(cell.value) and text(cell.value).endswith("]")
    return environment
