"""Whether patches that overlap pay: windows of twice the stride against patches side by side, at the same budget.

python -m benchmarks.overlap                # two CIFAR-10 models; writes its section of results/transfer.md
python -m benchmarks.overlap --quick        # few images, writes nothing

A point that several windows cover takes the entry with the highest number among them; all else, the policies and how they are
judged, is as in any attack. Distances are of the best flip that was verified; a sample without one counts as the farthest of all.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import common
from rlab.core.grid import PatchGrid
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.stats import estimate, median

PALETTE = ("illuminate@0.2,0.4", "gaussian_noise@0.1,0.2")
MODELS, POLICIES = ("resnet20", "vgg"), ("auto",)


@dataclass(frozen=True)
class Overlapping(PatchGrid):
    """A window at every box of `patch`, reaching over the next one along each axis as well."""

    def expand(self, values: Tensor) -> Tensor:
        return super().expand(self._shifted(values, 1, torch.maximum))

    def total(self, values: Tensor) -> Tensor:
        return self._shifted(super().total(values), -1, torch.add)

    def box(self, index: int) -> tuple[slice, ...]:
        near = super().box(index)
        ends = (min(s.stop + side, length) for s, side, length in zip(near, self.patch, self.size, strict=True))
        return tuple(slice(s.start, end) for s, end in zip(near, ends, strict=True))

    def _shifted(self, values: Tensor, by: int, join) -> Tensor:  # type: ignore[no-untyped-def]
        """(..., p): every window joined with its neighbour before (1) or after (-1) it, along each axis."""
        whole = values.reshape(*values.shape[:-1], *self.shape)
        for axis in range(-self.rank, 0):
            moved = whole.roll(by, axis)
            moved.index_fill_(axis, torch.tensor([0 if by > 0 else whole.shape[axis] - 1], device=moved.device), 0)
            whole = join(whole, moved)
        return whole.reshape(values.shape)


GRIDS = {
    "4, side by side": PatchGrid((32, 32), (4, 4)),
    "4, every 2": Overlapping((32, 32), (2, 2)),
    "2, side by side": PatchGrid((32, 32), (2, 2)),
}


def distances(result: AttackResult) -> Tensor:
    """(n,) of the samples the model had right; infinite where it was not flipped."""
    far = torch.where(result.succeeded, result.final["l2"].double(), torch.inf)
    return far[result.attacked]


def _verdict(figures: dict[str, float]) -> str:
    """Whether windows of 4 beat patches of 4 side by side for every model and policy."""
    pairs = [
        (value, figures[name.replace("every 2", "side by side")]) for name, value in figures.items() if "every" in name
    ]
    pays = all(overlapping < apart for overlapping, apart in pairs)
    return "Overlap pays." if pays else "Overlap does not pay, so that it is no option of an attack."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", type=Path, default=common.RESULTS / "transfer.md")
    o = parser.parse_args()
    o.images, o.budget = (4, 20) if o.quick else (o.images, o.budget)
    began, rows, figures = time.monotonic(), list[tuple[str, ...]](), dict[str, float]()
    try:
        batch, victims = common.cifar_test(o.images), {name: common.cifar_victim(name) for name in MODELS}
    except common.Absent as why:
        print(f"skipped: {why}")
        common.finish({})
        return
    for name, grid in GRIDS.items():
        cells = []
        for model, victim in victims.items():
            for policy in POLICIES:
                attack = make_attack(
                    batch, palette=PALETTE, patch=grid.patch, policy=policy, budget=o.budget, seed=o.seed
                )
                far = distances(run_attack(replace(attack, grid=grid), victim, batch)).numpy()
                e = estimate(partial(median, far), len(far), o.seed)
                cells.append(common.interval(e))
                figures[f"{name}, {model}, {policy}"] = e.value
        rows.append((name, str(len(grid)), *cells))
        print(rows[-1], f"{time.monotonic() - began:.0f} s", flush=True)
    head = ("patch", "windows", *(f"{model}, {policy}" for model in MODELS for policy in POLICIES))
    about = (
        f"Median L2 of the best flip within {o.budget} queries, {o.images} CIFAR-10 test images, palette "
        f"`{' '.join(PALETTE)}`; brackets are 95% bootstrap intervals. A point that two windows cover takes the entry with the "
        f"higher number. {_verdict(figures)}"
    )
    if not o.quick:
        parts = ["## Overlapping patches", about, common.table(head, rows), common.circumstances(o.seed)]
        common.replace_section(o.page, "\n\n".join(parts))
    common.finish(figures | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
