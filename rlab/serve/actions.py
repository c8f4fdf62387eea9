"""Start, follow and stop runs, and attack or explain an uploaded file, which is checked before it is decoded.

The progress of a run is read from its ledger and sent as server-sent events.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import sqlite3
import statistics
import warnings
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from rlab.core.status import Status
from rlab.errors import DataError, InputError
from rlab.serve.access import Access, read_body
from rlab.serve.jobs import Job, Jobs, PolicyName, StartForm
from rlab.serve.runs import is_running
from rlab.serve.site import Site
from rlab.storage.config import check
from rlab.storage.ledger import LEDGER, THREADS, connect, from_stored

LEAST, EVERY, BEAT = 5, 0.5, 15.0  # distances shown; seconds between reads; seconds between keep-alive comments
_CHUNK = "chunk-"  # prefix of the keys of an attack's steps


@dataclass
class Follower:
    """The results of a run so far; each look reads only new chunks."""

    folder: Path
    seen: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    best: list[float] = field(default_factory=list)
    queries: int = 0

    def look(self) -> dict[str, Any]:
        with suppress(InputError, OSError, ValueError, TypeError, LookupError, AttributeError, sqlite3.Error):
            self._read()  # missing or being written: the next look reads it
        return {
            "steps": len(self.seen - {THREADS}),
            "samples": sum(self.counts.values()),
            "ended": self.counts,
            "queries": self.queries,
            "median": statistics.median(self.best) if self.best else None,
            "best": sorted(self.best)[:LEAST],
        }

    def _read(self) -> None:
        if not (self.folder / LEDGER).is_file():
            return
        with closing(connect(self.folder)) as db:
            keys = [str(key) for (key,) in db.execute("select key from steps where finished = 1 order by key")]
            for key in (key for key in keys if key not in self.seen):
                self.seen.add(key)
                if key.startswith(_CHUNK):
                    ((text,),) = db.execute("select value from steps where key = ?", (key,)).fetchall()
                    self._count(from_stored(text))

    def _count(self, rows: Any) -> None:
        """Count the rows of a table or of a list of records."""
        for row in rows if isinstance(rows, list) else rows.to_pylist():
            status = Status(row["status"])
            word = status.label.split(" because")[0]
            self.counts[word] = self.counts.get(word, 0) + 1
            self.queries += sum(int(value) for name, value in row.items() if name.startswith("queries_"))
            nearest = min(row.get("improved_to") or [math.inf])
            if status is Status.SUCCEEDED and math.isfinite(nearest):
                self.best.append(float(nearest))


async def events(look: Callable[[], dict[str, Any]], running: Callable[[], bool]) -> AsyncIterator[str]:
    """Send each change as an event until the run ends; regular comments detect closed connections."""
    sent, quiet = "", 0.0
    while True:
        more = await asyncio.to_thread(running)  # checked first, so that the last look sees everything
        now = json.dumps(await asyncio.to_thread(look))
        if now != sent:
            sent, quiet = now, 0.0
            yield f"data: {now}\n\n"
        if not more:
            yield "event: end\ndata: {}\n\n"
            return
        quiet += EVERY
        if quiet >= BEAT:
            quiet = 0.0
            yield ": keep-alive\n\n"
        await asyncio.sleep(EVERY)


MOST_UPLOAD = 2**26  # bytes of the file
MOST_UNPACKED = 2**28  # bytes after unpacking
MOST_MEMBERS = 100  # arrays in an .npz
MOST_PIXELS = 2**26
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
SIGNALS = (".csv", ".tsv", ".txt", ".npy", ".npz")
CLIPS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v")
ENDINGS = (*IMAGES, *SIGNALS, *CLIPS)
DO = ("attack", "explain")
_FIELDS = {name: field.description for name, field in StartForm.model_fields.items() if field.description}


def add_actions(app: FastAPI, site: Site, jobs: Jobs) -> None:
    access: Access = site.access

    @app.get("/events/{name:path}")
    def follow(name: str) -> Response:
        job = jobs.started.get(name)
        folder = site.root / job.name if job else site.run(name)
        follower = Follower(folder)

        def look() -> dict[str, Any]:
            return follower.look() | ({"said": job.said()} if job else {})

        return StreamingResponse(
            events(look, lambda: job.running if job else is_running(folder)), media_type="text/event-stream"
        )

    @app.post("/stop/{name:path}")
    async def stop(name: str, request: Request) -> Response:
        await access.read_form(request)
        jobs.stop(name)
        return RedirectResponse(site.address("run", name), 303)

    if jobs.models:
        _add_starts(app, site, jobs)


def _add_starts(app: FastAPI, site: Site, jobs: Jobs) -> None:
    access = site.access

    def show(values: Mapping[str, str], plan: Mapping[str, str] | None = None, sentence: str = "") -> Response:
        """The form with these values, and with a plan or what is wrong with them."""
        choices = {"policies": get_args(PolicyName), "fields": _FIELDS}
        code = 422 if sentence else 200
        return site.show("start", "Start a run", code, values=values, plan=plan, sentence=sentence, **choices)

    @app.get("/start")
    def start_page() -> Response:
        return show({"chunk": "16"})

    @app.post("/preview")
    async def preview(request: Request) -> Response:
        values = await access.read_form(request)
        try:
            plan = await run_in_threadpool(jobs.preview, check(StartForm, values, "the form"))
        except InputError as error:
            return show(values, sentence=str(error))
        return show(values, _plan_text(plan))

    @app.post("/start")
    async def start(request: Request) -> Response:
        values = await access.read_form(request)
        try:
            job = jobs.start(check(StartForm, values, "the form"))
        except InputError as error:
            return show(values, sentence=str(error))
        return RedirectResponse(site.address("run", job.name), 303)

    @app.get("/own")
    def own_page() -> Response:
        return site.show("own", "Your own file", endings=",".join(ENDINGS), most=MOST_UPLOAD // 2**20)

    @app.post("/own")
    async def own(request: Request) -> Response:
        """The body is the file; the address holds its name, the model and the action, and a header holds the form's token."""
        access.check_csrf(request.headers.get("x-csrf", ""))
        content = await read_body(request, MOST_UPLOAD)
        try:
            job = await run_in_threadpool(_examine, jobs, dict(request.query_params), content)
        except TooLarge as error:
            raise HTTPException(413, str(error)) from error
        return JSONResponse({"location": site.address("run", job.name)})


def _examine(jobs: Jobs, asked: dict[str, str], content: bytes) -> Job:
    name = PurePosixPath(asked.get("file", "").replace("\\", "/")).name[:200]
    ending, do = check_upload(name, content), asked.get("do")
    if do not in DO:
        raise InputError(f"expected {' or '.join(DO)} as the action")
    config = StartForm(model=asked.get("model", "")).config(jobs.models)
    now = f"{datetime.now():%Y%m%d-%H%M%S%f}"
    file = jobs.file(f"own-{now}{ending}")
    file.write_bytes(content)
    spec = {"do": do, "config": config, "file": str(file), "name": name}
    return jobs.examine(f"own-{PurePosixPath(name).stem[:40]}-{do}-{now[:-6]}", spec)


def _plan_text(plan: dict[str, Any]) -> dict[str, str]:
    """The figures of a dry run as text."""
    left_out = ("dry_run", "rows", "out")
    figures = {name: value for name, value in plan.items() if name not in left_out and value is not None}
    figures |= {"seconds_at_most": round(plan["seconds_at_most"])} if plan.get("seconds_at_most") is not None else {}
    return {
        name.replace("_", " "): ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        for name, value in figures.items()
    }


class TooLarge(DataError):
    """The file is larger than the server accepts."""


def check_upload(name: str, content: bytes) -> str:
    """The file's ending; refuse unknown types and files that unpack to too much."""
    ending = PurePosixPath(name).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"expected an image, a signal or a clip with one of the endings {', '.join(ENDINGS)}")
    if not content:
        raise DataError("the file is empty: choose another")
    if ending == ".npz":
        _check_zip(content)
    elif ending in IMAGES:
        _check_image(content)
    return ending


def _check_zip(content: bytes) -> None:
    """Check the sizes in the archive's directory, which readers enforce."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise DataError(f"cannot read the .npz file: {error}") from error
    if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > MOST_UNPACKED:
        raise TooLarge(
            f"the .npz file unpacks to more than {MOST_MEMBERS} arrays or {MOST_UNPACKED:,} bytes: save fewer samples"
        )


def _check_image(content: bytes) -> None:
    """Check the size in the image's header."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images, which are refused below
            with Image.open(io.BytesIO(content)) as image:
                size = image.size
    except Image.DecompressionBombError as error:
        raise TooLarge(str(error)) from error
    except (
        Exception
    ) as error:  # what a broken file raises depends on Pillow's plug-in, and may show addresses of objects
        raise DataError("cannot read the image: it is damaged, or not of the kind that its name says") from error
    if math.prod(size) > MOST_PIXELS:
        raise TooLarge(f"expected an image of at most {MOST_PIXELS:,} pixels, got {size[0]} × {size[1]}: shrink it")
