"""A folder of small runs, and the server of it on a free port."""

from __future__ import annotations

import atexit
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx
import torch

from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.serve.app import make_app, server_config
from rlab.storage.config import check
from rlab.storage.lock import LOCK
from rlab.storage.run_file import RunFile
from rlab.victims import demo_victim
from tests.victims.makers import serving


@cache
def _runs() -> Path:
    """Two small attacks that this process makes once."""
    root = Path(mkdtemp(prefix="rlab-runs-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, samples in (("digits", 3), ("ecg", 2)):
        values: dict[str, Any] = {
            "model": f"demo:{name}",
            "data": {"path": f"demo:{name}", "limit": samples, "order": "first"},
        }
        options = check(RunOptions, values | {"policy": "random", "budget": 60, "seed": 3, "chunk": 2})
        batch = options.data.load()
        run_attack(options.build(batch), demo_victim(name), batch, root / f"run_{name}", options.plain())
    return root


def copy_runs(root: Path) -> Path:
    """Copies run_digits (three samples) and run_ecg (two) into a folder."""
    shutil.copytree(_runs(), root, dirs_exist_ok=True)
    return root


def live_run(folder: Path) -> Path:
    """Makes the folder of an attack that this process has just begun; returns its lock."""
    folder.mkdir()
    RunFile(configuration={"command": "attack"}, versions={"rlab": "0"}).write(folder)
    (folder / LOCK).write_text(json.dumps({"command": "attack", "pid": os.getpid(), "host": platform.node()}))
    return folder / LOCK


@contextmanager
def served(root: Path, token: str | None = None) -> Iterator[httpx.Client]:
    """A client of a real server."""
    with (
        serving(make_app(root, token), server_config) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        yield client


def grown(times: int) -> AttackResult:
    """The run of digits many times over, with other ids, queries, labels and distances."""
    once = AttackResult.load(_runs() / "run_digits")
    result, k = AttackResult.join([once] * times), torch.arange(times).repeat_interleave(len(once))
    queries = result.queries.clone()
    queries[:, 0] += 3 * k % 40
    return replace(
        result,
        ids=tuple(f"{name}-{copy}" for name, copy in zip(result.ids, k.tolist(), strict=True)),
        labels=(result.labels + k) % 10,
        queries=queries,
        final=dict(result.final) | {"l2": result.final["l2"] + k % 7},
    )
