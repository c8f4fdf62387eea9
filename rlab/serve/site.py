"""State that all pages of the server share: its folder, templates, and rendered pages of runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from starlette.responses import HTMLResponse

from rlab.present.environment import make_environment
from rlab.serve.runs import find_run, read_entry

KEPT = 4  # rendered pages to keep


@dataclass
class Site:
    """Shared state; pages of runs are rendered one at a time, because each may load a whole run."""

    root: Path
    rendered: dict[Any, str] = field(default_factory=dict)
    busy: Lock = field(default_factory=Lock)
    listed: tuple[Any, bytes] = (None, b"")  # what the list of runs showed last, and its page

    @cached_property
    def templates(self) -> Environment:
        environment = make_environment()
        environment.filters["dict_with"] = lambda values, **changed: {**values, **changed}
        return environment

    def show(self, template: str, title: str, code: int = 200, **values: Any) -> HTMLResponse:
        page = self.templates.get_template(f"serve/{template}.html")
        return HTMLResponse(page.render(title=title, **{"back": self.back(), **values}), code)

    @staticmethod
    def address(page: str, name: str) -> str:
        return f"/{page}/{quote(name)}"

    def run(self, name: str) -> Path:
        return find_run(self.root, name)

    def back(self, *runs: str) -> dict[str, str]:
        """Where a page leads back to: the list, and the runs that it belongs to."""
        return {"All runs": "/", **{name: self.address("run", name) for name in runs}}

    def page(self, *folders: Path) -> str:
        """The page of `rlab report` for one run, or for a comparison of several."""
        key = tuple((folder, _changed(folder)) for folder in folders)
        with self.busy:
            if key not in self.rendered:
                self.rendered[key] = self._render(*folders)
                while len(self.rendered) > KEPT:
                    del self.rendered[next(iter(self.rendered))]
            return self.rendered[key]

    def _render(self, *folders: Path) -> str:
        from rlab.folders.records import changes_page, read_runs  # imports torch
        from rlab.folders.reports import page_of
        from rlab.present.page import Fetched, render

        if len(folders) > 1:
            return render(replace(changes_page(read_runs(folders)), back=self.back()))
        page, entry = page_of(folders[0]), read_entry(self.root, folders[0])
        sections = list(page.sections)
        if entry and entry.attack:  # its samples are browsed instead of shown in the page's table
            blocks = [Fetched(self.address("samples", entry.attack), "Browse the samples")]
            sections = [replace(each, blocks=blocks) if each.id == "samples" else each for each in sections]
        return render(replace(page, sections=sections, back=self.back()))


def _changed(folder: Path) -> int:
    return max((path.stat().st_mtime_ns for path in (folder, *folder.iterdir())), default=0)
