"""Train our network for twelve-lead ECGs on PTB-XL: python -m benchmarks.victims.train_twelve, minutes on one core.

python -m benchmarks.victims.train_twelve --measure     # measure the existing weights

The records of folds 1 to 8 that are here train it, a twentieth of all; fold 8 and a tenth of the records with one superclass are
left out to choose settings by. Fold 9 is reported and chose nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data import WEIGHTS, real
from benchmarks.harness import Figures, command, finish
from benchmarks.victims.compact import save
from benchmarks.victims.training import one_cycle, step_through
from benchmarks.victims.twelve_leads import CLASSES, OURS, twelve_lead_victim, twelve_resnet
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.victims.base import Victim

BATCH, EPOCHS, PEAK, SEED = 32, 30, 3e-3, 0
MICROVOLT = 1e-3  # in mV


@cache
def records(folds: str) -> Batch:
    return load(real("ptbxl"), folds=folds, classes=CLASSES)


def training_records() -> tuple[Batch, Batch]:
    """Records to train on, and to choose settings by."""
    with np.load(real("ecg12/ptbxl_500_folds1_8.npz"), allow_pickle=False) as held:  # each has exactly one superclass
        x = torch.from_numpy(held["x"]).transpose(1, 2).float() * MICROVOLT
        y = F.one_hot(torch.from_numpy(held["y"].astype("int64")), len(CLASSES))
    chosen = torch.arange(len(x)) % 10 == 0
    return joined(records("1-7"), x[~chosen], y[~chosen]), joined(records("8"), x[chosen], y[chosen])


def joined(batch: Batch, x: Tensor, y: Tensor) -> Batch:
    """The batch with further records (n, 12, 1000) in mV and their labels (n, 5)."""
    more = tuple(f"more:{number}" for number in range(len(x)))
    return replace(batch, x=torch.cat([batch.x, x]), y=torch.cat([batch.y, y]), ids=(*batch.ids, *more))


def varied(x: Tensor, scale: float = 0.15, wander: float = 0.1, noise: float = 0.03, dropped: float = 0.05) -> Tensor:
    """x (b, 12, t): shift in time, scale each lead, add slow and fast noise, and silence some leads."""
    n, leads, length = x.shape
    shift = torch.randint(0, length, (n, 1, 1)).expand(n, leads, 1)
    x = x.gather(2, (torch.arange(length) + shift) % length)
    x = x * torch.exp(scale * torch.randn(n, 1, 1) + 0.5 * scale * torch.randn(n, leads, 1))
    slow = F.interpolate(torch.randn(n, leads, 8), length, mode="linear", align_corners=True)
    x = x + wander * torch.rand(n, 1, 1) * slow + noise * torch.rand(n, 1, 1) * torch.randn_like(x)
    return x * (torch.rand(n, leads, 1) >= dropped)


def mixed(x: Tensor, y: Tensor, strength: float = 0.4) -> tuple[Tensor, Tensor]:
    """Mixtures of each record with another, and of their labels (mixup, https://arxiv.org/abs/1710.09412)."""
    share = float(torch.distributions.Beta(strength, strength).sample())
    other = torch.randperm(len(x))
    return share * x + (1 - share) * x[other], share * y + (1 - share) * y[other]


def fit(batch: Batch, epochs: int, seed: int) -> nn.Module:
    """Train for one cycle."""
    torch.manual_seed(seed)
    net, x, y = twelve_resnet(), batch.x, batch.y.float()
    optimizer = torch.optim.AdamW(net.parameters(), lr=PEAK, weight_decay=0.05)
    picks = [rows for _ in range(epochs) for rows in torch.randperm(len(x)).split(BATCH) if len(rows) == BATCH]

    def loss(rows: Tensor) -> Tensor:
        inputs, labels = mixed(varied(x[rows]), y[rows])
        return F.binary_cross_entropy_with_logits(net(inputs), labels)

    step_through(net, optimizer, map(loss, picks), one_cycle(optimizer, PEAK, len(picks)))
    return net


def area(scores: Tensor, labels: Tensor) -> float:
    """The chance (n,), (n,) that a record with the label scores higher than one without it; ties count half."""
    inside, outside = scores[labels > 0], scores[labels == 0]
    above = (inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside)
    return float(above.mean())


def macro_auc(scores: Tensor, labels: Tensor) -> float:
    """The mean area under the ROC curve over the classes: scores (n, k), labels (n, k)."""
    return float(np.mean([area(s, y) for s, y in zip(scores.T, labels.T, strict=True)]))


def measured(victim: Victim, batch: Batch) -> Figures:
    """Macro AUC, and the shares of labels and of whole records that are right."""
    scores = torch.cat([victim(part, "verify") for part in batch.x.split(128)])
    right = (scores > 0) == (batch.y > 0)
    shares = {"labels_right": float(right.double().mean()), "records_right": float(right.all(1).double().mean())}
    return {"macro_auc": macro_auc(scores, batch.y), **shares}


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the records (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--measure", action="store_true", help="only measure the existing weights")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    o = parser.parse_args()
    began, (train, left_out) = time.monotonic(), training_records()
    if not o.measure:
        about = {"epochs": str(o.epochs), "trained_on": f"{len(train)} records of folds 1 to 8 of PTB-XL"}
        save(fit(train, o.epochs, o.seed), o.weights / f"{OURS}.safetensors", about)
    victim, parts = twelve_lead_victim(OURS, folder=o.weights), {"left_out": left_out, "fold_9": records("9")}
    found = {
        f"{part}_{name}": value for part, batch in parts.items() for name, value in measured(victim, batch).items()
    }
    finish({**found, "seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
