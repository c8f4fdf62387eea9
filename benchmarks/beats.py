"""MIT-BIH beats for victims and priors, and small .npz files of them for machines without the WFDB records.

python -m benchmarks.beats       # data/beats_{train,test}.npz, data/mitdb_{agent,agent_validation}.npz, lead MLII, in mV

`train` and `test` hold the 2 s windows that victims take, of DS1 (22 records) and of 9 records of DS2. `agent` and
`agent_validation` hold beats of 0.72 s of DS1 with balanced classes, of different patients, for training a prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import DATA, real
from benchmarks.harness import command
from benchmarks.victims.beat_nets import WINDOW
from rlab.data.batch import Batch
from rlab.data.load import load

LEADS = ("MLII",)
LABELS = (0, 1, 2)  # N, S, V
VALIDATION = ("119", "201", "223")  # of DS1: N, S and V beats, and no form of N that only one patient has; for priors


def beats(split: str, folder: Path = DATA) -> Batch:
    """All beats of DS1 (train) or DS2 (test) as victims take them: from a packed file if there is one, else from the records."""
    packed = folder / f"beats_{split}.npz"
    if packed.exists():
        return replace(load(packed, rate=360.0), unit="mV")
    return load(real("mitdb"), split=split, leads=LEADS, window=WINDOW)


def records(batch: Batch) -> list[str]:
    """The record of each beat, from ids 'record:sample'."""
    return [name.partition(":")[0] for name in batch.ids]


def of_records(batch: Batch, chosen: Sequence[str], others: bool = False) -> Batch:
    """The beats of these records, or of all others."""
    return batch[[i for i, name in enumerate(records(batch)) if (name in chosen) != others]]


def balanced(y: Tensor, among: Tensor, total: int, labels: Sequence[int] = LABELS, seed: int = 0) -> list[int]:
    """At most `total` shuffled indices of rows `among` (n,) bool, balanced over the labels; others make up for a rare label."""
    chance = np.random.default_rng(seed)
    pools = {one: chance.permutation(torch.nonzero(among & (y == one)).flatten().numpy()) for one in labels}
    share, left = {}, total
    for place, one in enumerate(sorted(labels, key=lambda label: len(pools[label]))):
        share[one] = min(len(pools[one]), left // (len(labels) - place))
        left -= share[one]
    chosen = np.concatenate([pools[one][: share[one]] for one in labels])
    return [int(i) for i in chance.permutation(chosen)]


def balanced_test(count: int) -> Batch:
    """Beats of DS2 with balanced N, S and V."""
    batch = beats("test")
    return batch[balanced(batch.y, torch.ones(len(batch), dtype=torch.bool), count)]


def write(batch: Batch, path: Path) -> None:
    """x (n, c, t) float32, y, ids, classes, masks, compressed."""
    assert batch.masks is not None
    arrays = {"x": batch.x.numpy(), "y": batch.y.numpy(), "masks": batch.masks.numpy()}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, ids=np.array(batch.ids), classes=np.array(batch.classes), **arrays)  # type: ignore[arg-type]
    print(f"{path.name}: {len(batch)} beats, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--beats", type=int, default=6000, help="beats to train an agent on (default: %(default)s)")
    o = parser.parse_args()
    for split in ("train", "test"):
        write(load(real("mitdb"), split=split, leads=LEADS, window=WINDOW), o.out / f"beats_{split}.npz")
    train = load(real("mitdb"), split="train", leads=LEADS)
    for name, others, total in (("agent", True, o.beats), ("agent_validation", False, o.beats // 20)):
        part = of_records(train, VALIDATION, others)
        write(part[balanced(part.y, torch.ones(len(part), dtype=torch.bool), total)], o.out / f"mitdb_{name}.npz")


if __name__ == "__main__":
    main()
