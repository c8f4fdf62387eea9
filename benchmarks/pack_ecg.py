"""MIT-BIH beats as small .npz files, for machines without the WFDB records or the package that reads them.

python -m benchmarks.pack_ecg                   # data/beats_{train,test}.npz, data/mitdb_{agent,agent_validation}.npz, MLII, in mV

train and test are the windows of 2 s that victims get, of DS1 (22 records) and of what is there of DS2 (9 of 22). agent and
agent_validation are beats of 0.72 s of DS1 with the classes evened out, of different patients, for training a prior.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import common
from benchmarks.beat_nets import WINDOW
from rlab.data.batch import Batch
from rlab.data.load import load

LEADS = ("MLII",)
DATA = common.HERE.parent / "data"
VALIDATION = ("119", "201", "223")  # of DS1: N, S and V beats, and no form of N that only one patient has; for priors


def beats(split: str, folder: Path = DATA) -> Batch:
    """All beats of DS1 (train) or DS2 (test) as victims take them: packed where there is a file, else from the records."""
    packed = folder / f"beats_{split}.npz"
    if packed.exists():
        return replace(load(packed, rate=360.0), unit="mV")
    return load(common.real("mitdb"), split=split, leads=LEADS, window=WINDOW)


def records(batch: Batch) -> list[str]:
    """The record of each beat, of ids 'record:sample'."""
    return [name.partition(":")[0] for name in batch.ids]


def of_records(batch: Batch, chosen: Sequence[str], others: bool = False) -> Batch:
    """The beats of these records, or of all others."""
    return batch[[i for i, name in enumerate(records(batch)) if (name in chosen) != others]]


def evened(y: Tensor, among: Tensor, total: int, labels: Sequence[int], seed: int) -> list[int]:
    """Indices (at most `total`) of rows `among` (n,) bool, as many of each label as there are, drawn at random and mixed.

    Where a label has too few, the others make up for it.
    """
    chance = np.random.default_rng(seed)
    pools = {one: chance.permutation(torch.nonzero(among & (y == one)).flatten().numpy()) for one in labels}
    share, left = {}, total
    for place, one in enumerate(sorted(labels, key=lambda label: len(pools[label]))):
        share[one] = min(len(pools[one]), left // (len(labels) - place))
        left -= share[one]
    chosen = np.concatenate([pools[one][: share[one]] for one in labels])
    return [int(i) for i in chance.permutation(chosen)]


def write(batch: Batch, path: Path) -> None:
    """x (n, c, t) float32, y, ids, classes, masks, compressed."""
    assert batch.masks is not None
    arrays = {"x": batch.x.numpy(), "y": batch.y.numpy(), "masks": batch.masks.numpy()}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, ids=np.array(batch.ids), classes=np.array(batch.classes), **arrays)  # type: ignore[arg-type]
    print(f"{path.name}: {len(batch)} beats, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--beats", type=int, default=6000, help="beats to train an agent on")
    o = parser.parse_args()
    for split in ("train", "test"):
        write(load(common.real("mitdb"), split=split, leads=LEADS, window=WINDOW), o.out / f"beats_{split}.npz")
    train = load(common.real("mitdb"), split="train", leads=LEADS)
    for name, others, total in (("agent", True, o.beats), ("agent_validation", False, o.beats // 20)):
        part = of_records(train, VALIDATION, others)
        rows = evened(part.y, torch.ones(len(part), dtype=torch.bool), total, (0, 1, 2), seed=0)
        write(part[rows], o.out / f"mitdb_{name}.npz")


if __name__ == "__main__":
    main()
