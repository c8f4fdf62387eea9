"""The server and its pages, one function per address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import h11
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlab.errors import InputError
from rlab.serve.access import Gate
from rlab.serve.follow import Follower, events
from rlab.serve.runs import NoSuchRun, RunEntry, is_running, list_runs, read_entry
from rlab.serve.site import Site
from rlab.storage.config import check
from rlab.storage.names import CONFIG, inside
from rlab.storage.outside import MOST_DECLARED, read_text

if TYPE_CHECKING:
    from rlab.serve.glance import AuditGlance, Glance

MOST_COMPARED = 12
HEAD = 10.0  # maximum seconds until a client has sent the head of a request
THREADS = 8  # that answer requests; each may keep some memory


def make_app(root: Path, token: str | None = None) -> ASGIApp:
    """The server for the runs below `root`; without a token it answers only this machine."""
    site = Site(root.resolve())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        yield

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    _add_error_pages(app, site)
    _add_pages(app, site)
    return Gate(app, token)


def _add_error_pages(app: FastAPI, site: Site) -> None:
    @app.exception_handler(InputError)
    def input_error(request: Request, error: InputError) -> Response:
        sentence = str(error).replace(f"{site.root}/", "")
        return site.show("message", "This page cannot be shown", 422, sentence=sentence, tone="fail")

    @app.exception_handler(NoSuchRun)
    def no_such_run(request: Request, error: NoSuchRun) -> Response:
        return site.show("message", "Not found", 404, sentence="There is no such run.", tone="")

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        return site.show("message", "Not possible", error.status_code, sentence=error.detail, tone="fail")


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/")
    def runs() -> Response:
        return HTMLResponse(_runs_page(site))

    @app.get("/picture/{which}/{row:int}/{name:path}")
    def picture(which: Literal["original", "perturbed"], row: int, name: str) -> Response:
        from rlab.serve.glance import thumbnail

        return Response(thumbnail(site.run(name), row, which), media_type="image/png")

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

    @app.get("/events/{name:path}")
    def follow(name: str) -> Response:
        folder = site.run(name)
        told = events(Follower(folder).look, lambda: is_running(folder))
        return StreamingResponse(told, media_type="text/event-stream")

    @app.get("/compare")
    def compare(request: Request) -> Response:
        folders = [site.run(name) for name in dict.fromkeys(request.query_params.getlist("run"))]
        if not 2 <= len(folders) <= MOST_COMPARED:
            raise InputError(f"expected 2 to {MOST_COMPARED} runs to compare: select them in the list")
        return HTMLResponse(site.page(*folders))

    @app.get("/samples/{name:path}")
    def samples(name: str, request: Request) -> Response:
        from rlab.serve.samples import ORDERS, SampleFilter, find_samples

        folder, wanted = site.run(name), check(SampleFilter, request.query_params, "the address")
        found, title = find_samples(folder, wanted), f"Samples of {name}"
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


def _runs_page(site: Site) -> bytes:
    listed = tuple((run, *_glance(site.root, run)) for run in list_runs(site.root))
    before, page = site.listed
    if before != listed:
        page = bytes(site.show("runs", f"{len(listed):,} run{'' if len(listed) == 1 else 's'}", runs=listed).body)
        site.listed = listed, page
    return page


def _glance(root: Path, run: RunEntry) -> tuple[Glance | None, AuditGlance | None]:
    """The figures of an attack, and those of the audit that it is a part of."""
    if run.command not in ("attack", "audit") or run.state != "finished":
        return None, None
    from rlab.serve.glance import audit_at, glance_at  # slow to import, and the list may hold no attack

    audit = audit_at(root / run.name) if run.command == "audit" else None
    return glance_at(root / run.attack) if run.attack else None, audit


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose client does not complete the head of a request, for which uvicorn has no limit."""

    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self.waiting is None:
            self.waiting = self.loop.call_later(HEAD, self.transport.close)

    def _stop(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


def server_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ImpatientProtocol,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        **{"log_level": "warning", **more},
    )
