"""Check that a result read from files is consistent."""

from __future__ import annotations

from rlab.errors import FolderError
from rlab.results.data import ResultData


def check_whole(result: ResultData) -> None:
    """Refuse a result whose parts do not fit together."""
    n, grid, k = len(result), result.setting.grid, result.before.shape[-1]
    facts = {
        f"{n} rows but {len(result.assignment)} arrays": n != len(result.assignment),
        "an id is not text": not all(isinstance(name, str) for name in result.ids),
        "scores differ in shape": not tuple(result.before.shape) == tuple(result.after.shape) == (n, k),
        "the assignment does not fit the grid": tuple(result.assignment.shape) != (n, len(grid)),
        "inputs do not fit the grid": result.inputs.shape[:1] + result.inputs.shape[2:] != (n, *grid.size),
        "the assignment names entries beyond the palette": int(result.assignment.max()) > len(result.setting.palette),
        "a label is beyond the classes": bool((result.labels < 0).any()) or int(result.labels.max()) >= k,
        "a count is below 0": bool((result.queries < 0).any()),
    }
    if wrong := [fact for fact, holds in facts.items() if holds]:
        raise FolderError(f"the run folder is damaged or was edited: {wrong[0]}")
