"""Pages: a title, an optional verdict, and sections of blocks, in one self-contained HTML file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import rlab
from rlab.present.chart import Chart
from rlab.present.environment import make_environment, script_digest
from rlab.present.inline import opened
from rlab.present.layers import Ramp
from rlab.present.table import Cell, Share, Table, Tone, Value, text
from rlab.present.viewer import Viewer
from rlab.redact import redact
from rlab.stats import Estimate
from rlab.storage.files import write_atomically

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Text:
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Facts:
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Picture:
    src: str  # a data: URL
    about: str  # alternative text
    title: str = ""
    caption: str = ""
    drawn: bool = False  # dark lines on white, inverted in dark mode
    ramp: Ramp | None = None

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, so that the page does not jump while loading."""
        return opened(self.src).size


@dataclass(frozen=True)
class Gallery:
    """Pictures in rows of `columns`."""

    pictures: Sequence[Picture]
    columns: int = 1


@dataclass(frozen=True)
class Triple:
    """One flip in three small pictures: original, difference, perturbed."""

    label: str
    read: str  # as which class
    far: str  # its distance
    pictures: tuple[Picture, Picture, Picture]
    link: str = ""  # id of the sample on the page
    smooth: bool = False


@dataclass(frozen=True)
class Strip:
    """Flips at a glance."""

    triples: Sequence[Triple]


@dataclass(frozen=True)
class Charts:
    """Charts side by side, if there is room."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Bar:
    name: str
    share: float  # of the full length
    text: str
    colour: str = ""


@dataclass(frozen=True)
class Bars:
    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Viewers:
    """Interactive samples in `columns`, or in as many as fit if 0."""

    viewers: Sequence[Viewer]
    columns: int = 0
    small: bool = False  # smaller gaps


@dataclass(frozen=True)
class Number:
    """A key figure at the top of the page."""

    name: str
    value: Value | Share
    unit: str = ""


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Folded:
    """Blocks that a click unfolds."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Blocks side by side, if there is room."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Fetched:
    """A part of a served page that its server's script fills in; without scripts, a link."""

    address: str
    name: str


Block = Text | Table | Facts | Gallery | Strip | Charts | Bars | Viewers | Code | Folded | Beside | Fetched


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]

    @property
    def id(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", redact(self.title).lower()).strip("-")


@dataclass(frozen=True)
class Banner:
    """The verdict at the top of the page."""

    passed: bool
    sentence: str
    undecided: bool = False  # not passed, but nothing failed either

    @property
    def word(self) -> str:
        return "passed" if self.passed else "undecided" if self.undecided else "failed"

    @property
    def tone(self) -> Tone:
        return "pass" if self.passed else "warn" if self.undecided else "fail"


@dataclass(frozen=True)
class Page:
    title: str
    sections: Sequence[Section]
    verdict: Banner | None = None
    lead: str = ""
    numbers: Sequence[Number] = ()
    back: Mapping[str, str] = field(default_factory=dict)  # addresses by name, where a server shows the page


def write_page(page: Page, path: Path) -> Path:
    """Write the page atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(page).encode("utf-8", "backslashreplace"))
    return path


def render(page: Page) -> str:
    made_by = f"rlab {rlab.__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return templates().get_template("page.html").render(page=page, made=made_by, digest=script_digest())


def sort_key(cell: Cell) -> str:
    """The unrounded value for sorting in the browser; empty for words."""
    value = cell.value.value if isinstance(cell.value, Share) else cell.value
    value = value.value if isinstance(value, Estimate) else value
    if isinstance(value, str):
        return ""
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


@cache
def templates() -> Environment:
    environment = make_environment()
    environment.filters |= {"shown": text, "sort_key": sort_key}
    environment.tests["ranged"] = lambda cell: " [" in text(cell.value) and text(cell.value).endswith("]")
    return environment
