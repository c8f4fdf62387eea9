"""Reading a page without a browser: its text, its ids, and every address it would fetch."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_FETCHED = {"src", "href", "data", "poster", "srcset", "action"}


@dataclass
class Links(HTMLParser):
    external: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    pictures: int = 0
    stages: int = 0  # samples to play with
    charts: int = 0
    text: str = ""
    unnamed: int = 0  # pictures without words for those who cannot see them

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, path: Path) -> Links:
        found = cls()
        found.feed(path.read_text(encoding="utf-8"))
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        if held.get("id"):
            self.ids.add(str(held["id"]))
        self.pictures += tag == "img"
        self.unnamed += tag == "img" and not held.get("alt")
        self.stages += "viewer" in (held.get("class") or "").split()
        self.charts += held.get("class", "") == "chart"
        if tag == "iframe" or (tag == "script" and held):
            self.external.append(tag)
        self.external += [str(v) for k, v in held.items() if k in _FETCHED and not str(v).startswith(("data:", "#"))]

    def handle_data(self, data: str) -> None:
        self.text += data
