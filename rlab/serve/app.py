"""The pages of the server: every address is one function here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from rlab.errors import InputError
from rlab.present.environment import make_environment
from rlab.serve.access import Access, Gate
from rlab.serve.runs import NoSuchRun, find_run, list_runs, read_entry

KEPT = 4  # pages of runs that are kept as they were rendered


@dataclass
class Site:
    """What the pages share; pages of runs are rendered one at a time, as each may hold a whole run."""

    root: Path
    access: Access
    rendered: dict[Any, str] = field(default_factory=dict)
    busy: Lock = field(default_factory=Lock)

    @cached_property
    def templates(self) -> Environment:
        environment = make_environment()
        environment.filters["dict_with"] = lambda values, **changed: {**values, **changed}
        return environment

    def show(self, template: str, title: str, code: int = 200, **values: Any) -> HTMLResponse:
        page = self.templates.get_template(f"serve/{template}.html")
        return HTMLResponse(page.render(title=title, csrf=self.access.csrf, models=(), **values), code)

    def run(self, name: str) -> Path:
        return find_run(self.root, name)

    def page(self, *folders: Path) -> str:
        """As `rlab report` renders it; one run, or what changed between several."""
        key = tuple((folder, _changed(folder)) for folder in folders)
        with self.busy:
            if key not in self.rendered:
                self.rendered[key] = _render(folders)
                while len(self.rendered) > KEPT:
                    del self.rendered[next(iter(self.rendered))]
            return self.rendered[key]


def _changed(folder: Path) -> int:
    return max((path.stat().st_mtime_ns for path in (folder, *folder.iterdir())), default=0)


def _render(folders: tuple[Path, ...]) -> str:
    from rlab.changes import changes_page, read_runs
    from rlab.present.page import render
    from rlab.reports import page_of

    return render(page_of(folders[0]) if len(folders) == 1 else changes_page(read_runs(folders)))


def make_app(root: Path, token: str | None = None) -> ASGIApp:
    """The server of the runs below `root`; without a token it answers this machine alone."""
    site = Site(root.resolve(), Access(token))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _tell_errors(app, site)
    _add_pages(app, site)
    return Gate(app, site.access)


def _tell_errors(app: FastAPI, site: Site) -> None:
    @app.exception_handler(InputError)
    def input_error(request: Request, error: InputError) -> Response:
        sentence = str(error).replace(f"{site.root}/", "")
        return site.show("message", "That cannot be shown", 422, sentence=sentence, tone="fail")

    @app.exception_handler(NoSuchRun)
    def no_such_run(request: Request, error: NoSuchRun) -> Response:
        return site.show("message", "Not found", 404, sentence="There is no such run.", tone="")

    @app.exception_handler(HTTPException)
    def told(request: Request, error: HTTPException) -> Response:
        return site.show("message", "Not possible", error.status_code, sentence=error.detail, tone="fail")


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/")
    def runs() -> Response:
        return site.show("runs", f"Runs in {site.root.name}", runs=list_runs(site.root))

    @app.get("/serve.js")
    def script() -> Response:
        text = site.templates.get_template("serve/serve.js").render()
        return Response(text, media_type="text/javascript")

    @app.get("/run/{name:path}")
    def run(name: str) -> Response:
        folder = site.run(name)
        return site.show("run", name, run=read_entry(site.root, folder), settings=_settings(folder))

    @app.get("/report/{name:path}")
    def report(name: str) -> Response:
        return HTMLResponse(site.page(site.run(name)))

    @app.get("/compare")
    def compare(request: Request) -> Response:
        folders = [site.run(name) for name in dict.fromkeys(request.query_params.getlist("run"))]
        if len(folders) < 2:
            raise InputError("expected two or more runs to compare: choose them in the list")
        return HTMLResponse(site.page(*folders))

    @app.get("/samples/{name:path}")
    def samples(name: str, request: Request) -> Response:
        return site.show("samples", f"Samples of {name}", run=name, **_samples(site.run(name), request.query_params))

    @app.get("/sample/{row:int}/{name:path}")
    def sample(row: int, name: str) -> Response:
        return HTMLResponse(_sample_page(site.run(name), row, name))


def _settings(folder: Path) -> str:
    """The configuration beside the results, which was written without secrets."""
    from rlab.runs.names import inside
    from rlab.runs.outside import MOST_DECLARED, read_text

    path = inside(folder, "config.yaml")
    return read_text(path, most=MOST_DECLARED) if path.is_file() else ""


def _samples(folder: Path, asked: Mapping[str, str]) -> dict[str, Any]:
    from rlab.core.status import Status
    from rlab.runs.config import check
    from rlab.serve.samples import KEYS, SampleFilter, find_samples

    wanted = check(SampleFilter, asked, "the address")
    states = {status.name.lower(): status.told for status in Status}
    return {"found": find_samples(folder, wanted), "wanted": wanted, "states": states, "keys": KEYS}


def _sample_page(folder: Path, row: int, name: str) -> str:
    from rlab.present.page import Page, Section, render
    from rlab.present.viewers import viewer_blocks
    from rlab.serve.samples import read_sample

    result = read_sample(folder, row)
    shown = Section(f"Sample {row:,} of {name}", viewer_blocks(result, [0]))
    return render(Page(result.ids[0], [shown]))
