"""The server and its pages, one function per address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal
from urllib.parse import quote

import h11
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlab.errors import InputError
from rlab.present.environment import make_environment
from rlab.serve.access import Gate
from rlab.serve.follow import progress_of
from rlab.serve.runs import NoSuchRun, find_run, is_running, list_runs, read_entry
from rlab.storage.config import check
from rlab.storage.names import CONFIG, inside
from rlab.storage.outside import MOST_DECLARED, read_text

MOST_COMPARED = 12
HEAD = 10.0  # maximum seconds until a client has sent the head of its first request
THREADS = 8  # that answer requests; each may keep some memory
KEPT = 4  # rendered pages of runs


@dataclass
class Site:
    """What all pages share: the folder, the templates, and the last rendered pages of runs."""

    root: Path
    rendered: dict[Any, str] = field(default_factory=dict)
    busy: Lock = field(default_factory=Lock)  # pages of runs are rendered one at a time: each may load a whole run

    def __post_init__(self) -> None:
        self.templates = make_environment()
        self.templates.filters["dict_with"] = lambda values, **changed: {**values, **changed}

    def show(self, template: str, title: str, code: int = 200, **values: Any) -> HTMLResponse:
        page = self.templates.get_template(f"serve/{template}.html")
        return HTMLResponse(page.render(title=title, **{"back": self.back(), **values}), code)

    def message(self, title: str, sentence: str, code: int, tone: str = "fail") -> HTMLResponse:
        return self.show("message", title, code, sentence=sentence.replace(f"{self.root}/", ""), tone=tone)

    def run(self, name: str) -> Path:
        return find_run(self.root, name)

    def back(self, *runs: str) -> dict[str, str]:
        """Where a page leads back to: the list, and the runs that it belongs to."""
        return {"All runs": "/", **{name: f"/run/{quote(name)}" for name in runs}}

    def page(self, *folders: Path) -> str:
        """The page of `rlab report` for one run, or for a comparison of several."""
        key = tuple((folder, _changed(folder)) for folder in folders)
        with self.busy:
            if key not in self.rendered:
                self.rendered = {**dict([*self.rendered.items()][1 - KEPT :]), key: self._render(*folders)}
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
            blocks = [Fetched(f"/samples/{quote(entry.attack)}", "Browse the samples")]
            sections = [replace(each, blocks=blocks) if each.id == "samples" else each for each in sections]
        return render(replace(page, sections=sections, back=self.back()))


def _changed(folder: Path) -> int:
    return max((path.stat().st_mtime_ns for path in (folder, *folder.iterdir())), default=0)


def make_app(root: Path, token: str | None = None) -> ASGIApp:
    """The server for the runs below `root`; without a token it answers only this machine."""
    site = Site(root.resolve())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        yield

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    app.exception_handler(InputError)(lambda _, error: site.message("This page cannot be shown", str(error), 422))
    app.exception_handler(NoSuchRun)(lambda _, error: site.message("Not found", "There is no such run.", 404, ""))
    app.exception_handler(HTTPException)(lambda _, e: site.message("Not possible", str(e.detail), e.status_code))
    _add_runs(app, site)
    _add_samples(app, site)
    return Gate(app, token)


def _add_runs(app: FastAPI, site: Site) -> None:
    @app.get("/")
    def runs() -> Response:
        listed = list_runs(site.root)
        return site.show("runs", f"{len(listed):,} run{'' if len(listed) == 1 else 's'}", runs=listed)

    @app.get("/serve.js")
    def script() -> Response:
        text = site.templates.get_template("serve/serve.js").render()
        return Response(text, media_type="text/javascript")

    @app.get("/run/{name:path}")
    def run(name: str) -> Response:
        folder = site.run(name)
        run = read_entry(site.root, folder)
        if run is None:
            raise NoSuchRun(name)  # it is gone since
        if run.state == "finished":
            return HTMLResponse(site.page(folder))
        config = inside(folder, CONFIG)  # it holds no secrets
        settings = read_text(config, most=MOST_DECLARED) if config.is_file() else ""
        return site.show("run", name, run=run, settings=settings)

    @app.get("/progress/{name:path}")
    def progress(name: str) -> Response:
        folder = site.run(name)
        running = is_running(folder)  # checked first, so that the last look sees everything
        return JSONResponse({"running": running, **progress_of(folder)})

    @app.get("/compare")
    def compare(request: Request) -> Response:
        folders = [site.run(name) for name in dict.fromkeys(request.query_params.getlist("run"))]
        if not 2 <= len(folders) <= MOST_COMPARED:
            raise InputError(f"expected 2 to {MOST_COMPARED} runs to compare: select them in the list")
        return HTMLResponse(site.page(*folders))


def _add_samples(app: FastAPI, site: Site) -> None:
    """The pages import torch when they are first read, so that the server starts at once."""

    @app.get("/samples/{name:path}")
    def samples(name: str, request: Request) -> Response:
        from rlab.serve.samples import ORDERS, SampleFilter, find_samples, load_attack

        folder, wanted = site.run(name), check(SampleFilter, request.query_params, "the address")
        found, title = find_samples(load_attack(folder), wanted), f"Samples of {name}"
        return site.show("samples", title, run=name, back=site.back(name), found=found, wanted=wanted, orders=ORDERS)

    @app.get("/sample/{row:int}/{name:path}")
    def sample(row: int, name: str) -> Response:
        from rlab.present.page import Page, Section, render
        from rlab.results.viewers import viewer_blocks
        from rlab.serve.samples import load_attack

        result = load_attack(site.run(name))
        if row >= len(result):
            raise InputError(f"{name} has {len(result):,} samples: there is none with the number {row:,}")
        shown = Section(f"Sample {row:,} of {name}", viewer_blocks(result, [row]))
        return HTMLResponse(render(Page(result.ids[row], [shown], back=site.back(name))))

    @app.get("/picture/{which}/{name:path}")
    def picture(which: Literal["original", "perturbed"], name: str, row: int | None = None) -> Response:
        from rlab.serve.samples import thumbnail

        content = thumbnail(site.run(name), row, which)
        return Response(content, 200 if content else 204, media_type="image/png")


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose client does not complete the head of its first request, for which uvicorn has no limit."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEAD, self._close_without_head)

    def _close_without_head(self) -> None:
        if self.conn.their_state is h11.IDLE and self.cycle is None:
            self.transport.close()


def server_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ImpatientProtocol,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        **{"log_level": "warning", **more},
    )
