"""Try the cells of the table 'same folder, something changed': each verb before and after a change, into the same folder."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import rlab
from rlab.errors import FolderError, InputError
from rlab.victims.account import Call
from rlab.victims.base import Victim
from tests.runs.changes import CHANGES, REPEATS, Change, Make, samples
from tests.runs.user_module import HELPER, MODULE


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the rows that reach any model inside the block."""
    sent, count = [0], Call.count

    def counting(self: Call, rows: torch.Tensor, times: int = 1) -> None:
        sent[0] += len(rows) if self.phase != "surrogate" else 0
        count(self, rows, times)

    with mock.patch.object(Call, "count", counting), warnings.catch_warnings(action="ignore"):
        yield sent


def imported(folder: Path, edited: Callable[[str], str] = str) -> Any:
    """The user's module, written into the folder and imported anew."""
    for name, source in (("my_helper", HELPER), ("my_mine", MODULE)):
        (folder / f"{name}.py").write_text(edited(source))
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    with mock.patch.object(sys, "path", [str(folder), *sys.path]), mock.patch.object(sys, "dont_write_bytecode", True):
        return importlib.import_module("my_mine")


def as_victim(made: Any) -> Any:
    return (
        made
        if isinstance(made, Victim)
        else rlab.TorchVictim(made)
        if isinstance(made, torch.nn.Module)
        else wrapped(made)
    )


def wrapped(made: Any) -> Victim:
    return rlab.SklearnVictim(made) if hasattr(made, "predict_proba") else rlab.CallableVictim(made)


_CHEAP: dict[str, Any] = {"palette": ["gaussian_noise@0.5"], "patch": 2, "budget": 6, "progress": False}


def attack(model: Any, data: rlab.Batch, out: Path, second: bool, **options: Any) -> None:
    usual = {"policy": "belief" if "surrogate" in options else "random"} | _CHEAP
    rlab.attack(model, data, out=out, **usual | options)


def explain(model: Any, data: rlab.Batch, out: Path, second: bool) -> None:
    rlab.explain(model, data, method="occlusion", out=out, progress=False)


def corrupt(model: Any, data: rlab.Batch, out: Path, second: bool) -> None:
    rlab.corrupt(model, data, kinds="gaussian_noise", levels="1", out=out, progress=False)


def compare(model: Any, data: rlab.Batch, out: Path, second: bool, **options: Any) -> None:
    policies = options.pop("policy", "belief" if "surrogate" in options else "random")
    rlab.compare(model, data, policies=policies, out=out, **_CHEAP | options)


def harden(model: Any, data: rlab.Batch, out: Path, second: bool) -> None:
    seen = replace(samples(seed=2), bounds=data.bounds)
    small: dict[str, Any] = {
        "epochs": 1,
        "gradient_steps": 0,
        "palettes": [["gaussian_noise@0.5"]],
        "patches": [2],
    }
    rlab.harden(model, data, validation=seen, out=out, progress=False, **small)


def benchmark(model: Any, data: rlab.Batch, out: Path, second: bool, **options: Any) -> None:
    flipping = {"palette": ["illuminate@0.8"], "patch": 4, "policy": "random", "ladder": "times:2", "budget": 8}
    rlab.benchmark(model, data, out, **_CHEAP | flipping | options)


def run(model: Any, data: rlab.Batch, out: Path, second: bool) -> None:
    if not second:
        rlab.benchmark(None, data, out, palette=["gaussian_noise@0.5"], patch=2, progress=False)
    rlab.run_benchmark([out], {"it": as_victim(model)}, progress=False)


VERBS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (attack, *(explain, corrupt, compare, harden), benchmark, run)
}
CELLS = [(change, verb) for change in CHANGES for verb in ("attack", *change.verbs)]


def stale(change: Change, verb: str, folder: Path) -> bool:
    """Whether the second call returned without a query: what it returned is of the first."""
    before = change.before(imported(folder))
    with counted() as sent:
        VERBS[verb](**{"data": samples()} | before, out=folder / "run", second=False)
        first, sent[0] = sent[0], 0
        assert first, "the first call sent no query"
        after = change.after(imported(folder, change.edited))
        try:
            VERBS[verb](**{"data": samples()} | after, out=folder / "run", second=True)
        except FolderError:
            return sent[0] > 0  # refused only after it was paid for
        except InputError:
            return False  # it ran anew, and the new model or data are refused
        return sent[0] == 0


def queries(make: Make, verb: str, folder: Path, edited: Callable[[str], str] = str) -> int | None:
    """The queries that a call sends; None if it is refused."""
    made = make(imported(folder, edited))
    with counted() as sent:
        try:
            VERBS[verb](**{"data": samples()} | made, out=folder / "run", second=False)
        except FolderError:
            return None
        return sent[0]


def repeats(folder: Path, change: str = "") -> dict[str, int | None]:
    """The queries of one attack by each kind of model, in a folder of its own; with a change, the user's modules differ."""
    edits = {"": ("", ""), "code": ("0.5)], 1)", "0.4)], 1)"), "model": ("x - 0.5", "x - 0.4")}
    sent = dict[str, int | None]()
    for name, make in REPEATS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        sent[name] = queries(make, "attack", folder / name, lambda source: source.replace(*edits[change]))
    return sent
