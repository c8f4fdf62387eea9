"""What tests share: the lists contract tests cross with each other, and victims whose weak spots are known."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.filters import FAMILIES
from rlab.filters.corruptions import PREFIX
from rlab.results.result import AttackResult
from rlab.victims import CallableVictim, TorchVictim, Victim
from tests.victims.makers import ALL_VICTIMS as ALL_VICTIMS

RANKS = (1, 2, 3)
SIZES: dict[int, tuple[int, ...]] = {1: (24,), 2: (8, 8), 3: (4, 8, 8)}
PATCHES: dict[int, tuple[int, ...]] = {1: (4,), 2: (2, 2), 3: (2, 4, 4)}
CHANNELS = {1: 2, 2: 3, 3: 3}
CLASSES = 3
# By name, as they stand before any test registers its own; snow stands for the common corruptions, which differ inside alone.
ALL_FILTERS = tuple(name for name in FAMILIES if not name.startswith(PREFIX) or name == f"{PREFIX}snow")
PALETTE = ["gaussian_noise@0.3", "dead_pixel@0.5"]  # for every rank
_STEPS = 1024  # inputs are rounded to this many steps, so that sums are exact in whatever order they are taken


@dataclass(frozen=True)
class Search:
    """A way to search for flips, for the contract tests."""

    policy: str = "auto"
    pixels: bool = False  # free values in place of the palette
    labels: bool = False  # the model returns labels only
    surrogate: bool = False

    def options(self, features: int) -> dict[str, Any]:
        """Options of an attack on inputs with this number of values."""
        palette = "pixels" if self.pixels else PALETTE
        surrogate = linear_surrogate(features) if self.surrogate else None
        return {"policy": self.policy, "palette": palette, "surrogate": surrogate}


NAMED_POLICIES = ("random", "greedy", "square", "belief", "auto")
ALL_POLICIES = {
    **{name: Search(name) for name in NAMED_POLICIES},
    "belief by labels": Search("belief", labels=True),
    "belief with a surrogate": Search("belief", surrogate=True),
    "auto with a surrogate": Search(surrogate=True),
    "pixels": Search(pixels=True),
    "pixels by labels": Search(pixels=True, labels=True),
    "pixels with a surrogate": Search(pixels=True, surrogate=True),
    "pixels by labels with a surrogate": Search(pixels=True, labels=True, surrogate=True),
}


class LinearSurrogate(nn.Module):
    """Random logits of three classes; the same bits for a row in any batch."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, CLASSES, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1)[:, :, None] * self.weight).sum(1)


def linear_surrogate(features: int) -> TorchVictim:
    return TorchVictim(LinearSurrogate(features), outputs="logits")


def filters_for(rank: int) -> list[str]:
    return [name for name in ALL_FILTERS if rank in FAMILIES[name](CHANNELS[rank])[0].ranks]


def make_grid(rank: int) -> PatchGrid:
    return PatchGrid(SIZES[rank], PATCHES[rank])


def inside(box: tuple[slice | int, ...]) -> Any:
    """The index of a patch's or a point's values in (..., *size)."""
    return (..., *box)


def make_batch(rank: int, n: int, seed: int = 0) -> Batch:
    """Random inputs in [0.1, 0.9]; labels all 0."""
    draw = torch.Generator().manual_seed(seed)
    x = 0.1 + 0.8 * torch.rand(n, CHANNELS[rank], *SIZES[rank], generator=draw)
    return Batch(x=x, y=torch.zeros(n, dtype=torch.int64))


def labelled_by(victim: Victim, batch: Batch, wrong: tuple[int, ...] = ()) -> Batch:
    """The batch with the victim's own answers as labels, but for the samples `wrong`; its count starts anew."""
    scores = victim(batch.x)
    victim.rows.clear()
    y = scores.argmax(1)
    y[list(wrong)] = (y[list(wrong)] + 1) % scores.shape[1]
    return Batch(x=batch.x, y=y, ids=batch.ids, bounds=batch.bounds)


def exact_victim(rank: int, seed: int = 0, **options: Any) -> CallableVictim:
    """A linear model computed in whole numbers: a row's scores are the same bits whatever else is in the batch."""
    draw = np.random.default_rng(seed)
    features = CHANNELS[rank] * math.prod(SIZES[rank])
    weight = draw.integers(-8, 9, (features, CLASSES))

    def function(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        steps = np.rint(x.astype(np.float64) * _STEPS).astype(np.int64).reshape(len(x), -1)
        scores: np.ndarray[Any, Any] = (steps @ weight) / (_STEPS * math.sqrt(features))
        return scores

    return CallableVictim(function, **{"outputs": "logits", **options})


class PlantedVictim(Victim):
    """Looks at the mean of one patch alone: class 0 while it is near one half, class 1 once it is not."""

    def __init__(self, grid: PatchGrid, patch: int, reach: float = 0.01) -> None:
        super().__init__(outputs="logits")
        self.box, self.reach = grid.box(patch), reach

    def _predict(self, x: Tensor) -> Tensor:
        steps = (x[inside(self.box)].double() * _STEPS).round().flatten(1)
        away = (steps.sum(1) / steps.shape[1] / _STEPS - 0.5).abs()
        return torch.stack([torch.ones_like(away), away / self.reach, torch.zeros_like(away)], 1)


@dataclass(frozen=True)
class Planted:
    victim: PlantedVictim
    batch: Batch
    grid: PatchGrid
    patch: int


def planted(rank: int, n: int = 5, seed: int = 0, patch: int | None = None) -> Planted:
    """A planted victim, and inputs whose planted patch is one half everywhere."""
    grid, batch = make_grid(rank), make_batch(rank, n, seed)
    chosen = len(grid) // 2 if patch is None else patch
    batch.x[inside(grid.box(chosen))] = 0.5
    return Planted(PlantedVictim(grid, chosen), batch, grid, chosen)


class FlakyVictim(Victim):
    """Asks `inner`, but first calls `before` with the number of the call, which may raise."""

    def __init__(self, inner: Victim, before: Callable[[int], None]) -> None:
        super().__init__(bounds=inner.bounds, outputs="logits")
        self.inner, self.before, self.calls = inner, before, 0

    def _predict(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.before(self.calls)
        return self.inner._predict(x)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Records with their text as it was given: without the apostrophes that stop spreadsheets from executing it."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: re.sub(r"^'(?=[=+\-@\t\r\n])", "", cell) for key, cell in row.items()} for row in csv.DictReader(file)
        ]


def fields_of(result: AttackResult) -> dict[str, Any]:
    """Everything two runs of the same thing must agree on."""
    return {
        "setting": result.setting,
        "ids": result.ids,
        "labels": result.labels,
        "status": result.status,
        "queries": result.queries,
        "before": result.before,
        "after": result.after,
        **{f"flip {name}": values for name, values in result.flip.items()},
        **{f"final {name}": values for name, values in result.final.items()},
        "assignment": result.assignment,
        "original": result.original,
        "perturbed": result.perturbed,
        "seeds": result.seeds,
        "r_peaks": result.r_peaks,
    }


def assert_same(one: AttackResult, other: AttackResult) -> None:
    """Bit by bit; NaN equals NaN."""
    mine, theirs = fields_of(one), fields_of(other)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if isinstance(value, Tensor):
            assert value.dtype == theirs[name].dtype, name
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=0, equal_nan=True, msg=f"{name} differs")
        else:
            assert value == theirs[name], name


def real_package(name: str, *parts: str) -> Any:
    """A package that some users have; the test is skipped without it, or where `parts` of it fail with what is installed beside."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    _declare_torchvision()
    try:
        package = importlib.import_module(name)
        for part in parts:  # of transformers, which imports a part when it is named
            getattr(package, part)
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit torch
        pytest.skip(f"{name} cannot be imported: {error}")
    return package


@cache
def _declare_torchvision() -> torch.library.Library | None:
    """torchvision built for another torch than this one fails at import, unless its operators are declared before."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    try:
        for library in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
        return None
    except OSError:
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared
