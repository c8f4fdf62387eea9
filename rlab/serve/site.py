"""State that all pages of the server share: its folder, templates, and rendered pages of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from starlette.responses import HTMLResponse

from rlab.present.environment import make_environment
from rlab.serve.access import Access
from rlab.serve.runs import find_run
from rlab.storage.names import SAMPLES

KEPT = 4  # rendered pages to keep


@dataclass
class Site:
    """Shared state; pages of runs are rendered one at a time, because each may load a whole run."""

    root: Path
    access: Access
    models: Sequence[str] = ()  # names of models that runs can be started with
    rendered: dict[Any, str] = field(default_factory=dict)
    busy: Lock = field(default_factory=Lock)

    @cached_property
    def templates(self) -> Environment:
        environment = make_environment()
        environment.filters["dict_with"] = lambda values, **changed: {**values, **changed}
        return environment

    def show(self, template: str, title: str, code: int = 200, **values: Any) -> HTMLResponse:
        page = self.templates.get_template(f"serve/{template}.html")
        return HTMLResponse(page.render(title=title, csrf=self.access.csrf, models=self.models, **values), code)

    @staticmethod
    def address(page: str, name: str) -> str:
        return f"/{page}/{quote(name)}"

    def run(self, name: str) -> Path:
        return find_run(self.root, name)

    def back(self, *folders: Path) -> dict[str, str]:
        """Where the pages of these runs lead back to."""
        alone = [folder.relative_to(self.root).as_posix() for folder in folders] if len(folders) == 1 else []
        links = {"All runs": "/"}
        for name in alone:
            links["Run"] = self.address("run", name)
            if (folders[0] / SAMPLES).is_file():
                links["All samples"] = self.address("samples", name)
        return links

    def page(self, *folders: Path) -> str:
        """The page of `rlab report` for one run, or for a comparison of several."""
        key = tuple((folder, _changed(folder)) for folder in folders)
        with self.busy:
            if key not in self.rendered:
                self.rendered[key] = _render(folders, self.back(*folders))
                while len(self.rendered) > KEPT:
                    del self.rendered[next(iter(self.rendered))]
            return self.rendered[key]


def _changed(folder: Path) -> int:
    return max((path.stat().st_mtime_ns for path in (folder, *folder.iterdir())), default=0)


def _render(folders: tuple[Path, ...], back: Mapping[str, str]) -> str:
    from rlab.folders.changes import changes_page, read_runs
    from rlab.folders.reports import page_of
    from rlab.present.page import render

    page = page_of(folders[0]) if len(folders) == 1 else changes_page(read_runs(folders))
    return render(replace(page, back=back))
