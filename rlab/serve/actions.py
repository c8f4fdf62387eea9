"""Start, follow and stop runs, and attack or explain an uploaded file."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from rlab.errors import InputError
from rlab.serve.access import Access, read_body
from rlab.serve.jobs import POLICIES, Job, Jobs, StartForm
from rlab.serve.progress import Follower, events
from rlab.serve.runs import is_running
from rlab.serve.site import Site
from rlab.serve.uploads import ENDINGS, MOST_UPLOAD, TooLarge, check_upload
from rlab.storage.config import check

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

    def show(code: int = 200, **values: Any) -> Response:
        shown = {"values": {}, "plan": None, "sentence": "", "policies": POLICIES, "fields": _FIELDS, **values}
        return site.show("start", "Start a run", code, **shown)

    @app.get("/start")
    def start_page() -> Response:
        return show(values={"chunk": "16"})

    @app.post("/preview")
    async def preview(request: Request) -> Response:
        values = await access.read_form(request)
        try:
            plan = await run_in_threadpool(jobs.preview, check(StartForm, values, "the form"))
        except InputError as error:
            return show(422, values=values, sentence=str(error))
        return show(values=values, plan=_plan_text(plan))

    @app.post("/start")
    async def start(request: Request) -> Response:
        values = await access.read_form(request)
        try:
            job = jobs.start(check(StartForm, values, "the form"))
        except InputError as error:
            return show(422, values=values, sentence=str(error))
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
