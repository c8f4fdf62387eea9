"""A page is a title, perhaps a verdict, and sections of blocks; one HTML file holds everything and asks no network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import rlab
from rlab.present.table import Table, text
from rlab.redact import redact
from rlab.runs.files import write_atomically

if TYPE_CHECKING:
    from jinja2 import Template


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


@dataclass(frozen=True)
class Gallery:
    """Pictures line by line, so many columns each."""

    kind: ClassVar[str] = "gallery"
    pictures: Sequence[Picture]
    columns: int = 1


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


Block = Text | Table | Facts | Gallery | Code | Folded


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


def write_page(page: Page, path: Path) -> Path:
    """Writes the file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(page).encode("utf-8", "backslashreplace"))
    return path


def render(page: Page) -> str:
    made_by = f"rlab {rlab.__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return _template().render(page=page, made=made_by)


def _without_secrets(value: object) -> object:
    """Before it is escaped; pictures are not words."""
    return redact(value) if type(value) is str and not value.startswith("data:") else value


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlab.present"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )
    environment.filters["shown"] = text
    return environment.get_template("page.html")
