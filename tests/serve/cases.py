"""A folder of small runs, and the server of it on a free port."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rlab.results.result import AttackResult, from_parts, to_arrays, to_rows
from rlab.serve.app import make_app
from tests.victims.makers import serving

FIXTURES = Path(__file__).parents[1] / "fixtures"


def copy_runs(root: Path) -> Path:
    for name in ("run_digits", "run_ecg"):
        shutil.copytree(FIXTURES / name, root / name)
    return root


@contextmanager
def served(root: Path, token: str | None = None, **options: Any) -> Iterator[httpx.Client]:
    """A client of a real server."""
    with serving(make_app(root, token, **options)) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def grown(times: int) -> AttackResult:
    """The digits' run many times over, its ids, queries, labels and distances told apart."""
    result = AttackResult.load(FIXTURES / "run_digits")
    rows, arrays = to_rows(result), to_arrays(result)
    many = [
        row | {"id": f"{row['id']}-{k}", "label": (row["label"] + k) % 10, "final_l2": row["final_l2"] + k % 7,
               "queries_search": row["queries_search"] + 3 * k % 40}
        for k in range(times) for row in rows
    ]  # fmt: skip
    return from_parts(
        result.setting, many, {name: array.repeat(times, *(1,) * (array.dim() - 1)) for name, array in arrays.items()}
    )
