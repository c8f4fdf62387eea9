"""Serve a model over HTTP for `rlab.HttpVictim`. Needs the extra `serve`.

    python examples/http_server.py --model demo:digits --port 8000
    rlab attack http://127.0.0.1:8000/predict demo:digits

POST /predict accepts JSON {"inputs": [...]} or the bytes of a .npy file (application/x-npy), both (b, c, *size). It
answers in the same format: {"outputs": [[...]]} with null for NaN, or .npy. GET / returns the model's bounds and the number
of rows it predicted.
"""

from __future__ import annotations

import argparse
import io
import json
from threading import Lock
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from rlab.errors import InputError, MissingExtra, VictimError
from rlab.victims import Victim
from rlab.victims.resolve import load_victim

NPY = "application/x-npy"


def create_app(victim: Victim) -> FastAPI:
    """Make an app that returns the scores of the victim: log-probabilities, or log-odds for multi-label models."""
    app = FastAPI(title="rlab example server")
    one_at_a_time = Lock()

    def scores_of(x: torch.Tensor) -> np.ndarray[Any, Any]:
        with one_at_a_time:
            return victim(x).cpu().numpy()

    @app.get("/")
    def about() -> dict[str, Any]:
        bounds = [end if np.isfinite(end) else None for end in victim.bounds]
        return {"model": type(victim).__name__, "bounds": bounds, "rows": victim.rows["search"]}

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        kind = request.headers.get("content-type", "")
        try:
            scores = await run_in_threadpool(scores_of, decode(await request.body(), kind))
        except InputError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except VictimError as error:
            return JSONResponse({"error": str(error)}, status_code=500)
        return encode(scores, kind)

    return app


def decode(body: bytes, kind: str) -> torch.Tensor:
    """Request body -> (b, c, *size)."""
    try:
        if kind.startswith(NPY):
            array = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
        else:
            array = np.array(json.loads(body)["inputs"])
        return torch.from_numpy(array.astype(np.float32))
    except Exception as error:
        raise InputError(f"expected JSON with inputs or .npy, got {len(body)} bytes of {kind or 'no type'}") from error


def encode(scores: np.ndarray[Any, Any], kind: str) -> Response:
    """Scores (b, k) -> response."""
    if not kind.startswith(NPY):
        rows = [[value if np.isfinite(value) else None for value in row] for row in scores.tolist()]
        return JSONResponse({"outputs": rows})
    buffer = io.BytesIO()
    np.save(buffer, scores, allow_pickle=False)
    return Response(buffer.getvalue(), media_type=NPY)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a model over HTTP for rlab.HttpVictim.")
    parser.add_argument("--model", default="demo:digits", help="model name, as in `rlab attack MODEL`")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: only this machine)")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    try:
        victim = load_victim(given.model)
    except (InputError, MissingExtra) as error:
        parser.exit(2, f"{error}\n")
    uvicorn.run(create_app(victim), host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
