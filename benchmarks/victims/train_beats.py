"""Train the networks for beats on DS1 of MIT-BIH.

python -m benchmarks.victims.train_beats              # all three, minutes on one core
python -m benchmarks.ecg --only networks              # measure them on DS2
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.beats import beats, of_records, records
from benchmarks.data import DATA, WEIGHTS
from benchmarks.harness import command
from benchmarks.victims.beat_nets import BEAT_MEAN, BEAT_NETS, BEAT_STD, MERGED
from benchmarks.victims.compact import save as save
from benchmarks.victims.training import normalised, one_cycle, step_through
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim

BATCH = 96
COMMON = 3  # N, S and V: the classes with enough beats in DS1 and DS2
FOLDS = (  # patients of DS1, each third with S and V beats and a bundle branch block
    ("101", "106", "112", "115", "118", "203", "209"),
    ("108", "116", "119", "122", "207", "220", "223"),
    ("109", "114", "124", "201", "205", "208", "215", "230"),
)
OFFSETS = tuple(product((0.0, 0.5, 1.0, 1.5, 2.0, 2.5), (-1.0, -0.5, 0.0, 0.5, 1.0)))  # added to the scores of N and S
RARE = -1.0  # and to those of F and Q


def sampling_weights(batch: Batch) -> Tensor:
    """(n,) weight of each beat: a patient's N, S or V beats together weigh the square root of their number.

    F and Q beats weigh as much as the same patient's N: nearly all come from one patient, whose form a net would learn.
    """
    named = records(batch)
    sizes = Counter(zip(named, batch.y.tolist(), strict=True))
    like = [(record, y if y < COMMON else 0) for record, y in zip(named, batch.y.tolist(), strict=True)]
    return torch.tensor([sizes[one] ** -0.5 if sizes[one] else 0.0 for one in like], dtype=torch.float64)


def varied(
    x: Tensor,
    shift: float = 1.0,
    stretch: float = 0.12,
    lead: float = 0.15,
    upside_down: float = 0.3,
    noise: float = 0.02,
) -> Tensor:
    """x (b, 1, t): shift and stretch each window around its middle, simulate another lead, turn some upside down.

    Another lead is a filter of nine taps, 17 ms apart, near the identity: the shape of an R differs between patients more than
    how a beat differs from its neighbours.
    """
    n, _, length = x.shape
    middle = (length - 1) / 2
    moved, factor = (torch.randn(n, 1, 1, device=x.device) for _ in range(2))
    at = (torch.arange(length, device=x.device) - middle) * torch.exp(stretch * factor) + middle + shift * moved
    at = at.clamp(0, length - 1).expand_as(x)
    left = at.floor().clamp(max=length - 2).long()
    x = torch.lerp(x.gather(2, left), x.gather(2, left + 1), at - left)
    taps = lead * torch.randn(n, 1, 9, device=x.device) * torch.hann_window(11, device=x.device)[1:-1]
    taps[..., 4] += 1
    around = F.pad(x, (8, 8), mode="replicate").unfold(2, 17, 1)[..., ::2]
    x = torch.einsum("bctk,bck->bct", around, taps)
    sign = torch.where(torch.rand(n, 1, 1, device=x.device) < upside_down, -1.0, 1.0)
    return sign * x + noise * torch.randn_like(x)


def merged(x: Tensor) -> Tensor:
    """The output of every net's first layer."""
    return F.avg_pool1d(normalised(x, BEAT_MEAN, BEAT_STD), MERGED)


@dataclass(frozen=True)
class Quality:
    """Quality of predictions, from a confusion matrix (true, predicted)."""

    confusion: Tensor  # (k, k)

    @classmethod
    def of(cls, y: Tensor, predicted: Tensor, classes: int) -> Quality:
        return cls(torch.bincount(y * classes + predicted, minlength=classes**2).view(classes, classes))

    @property
    def accuracy(self) -> float:
        return float(self.confusion.diagonal().sum() / self.confusion.sum())

    @property
    def recall(self) -> Tensor:
        """(k,) NaN for classes without beats."""
        return self.confusion.diagonal() / self.confusion.sum(1)

    def balanced(self, classes: int) -> float:
        """Mean recall of the first `classes`."""
        return float(self.recall[:classes].mean())

    @property
    def f1(self) -> Tensor:
        """(k,) 0 for classes without a correct prediction."""
        both = self.confusion.sum(0) + self.confusion.sum(1)
        return 2 * self.confusion.diagonal() / both.clamp(min=1)

    def macro(self, classes: int | None = None) -> float:
        """Mean F1 of the first `classes`, or of all."""
        return float(self.f1[:classes].mean())


def measure(victim: TorchVictim, batch: Batch) -> Quality:
    """Predict every beat of the batch."""
    victim.chunk = 2048
    predicted = victim(batch.x.to(victim.device), "verify").argmax(1).cpu()
    return Quality.of(batch.y, predicted, len(batch.classes))


def fit(net: nn.Module, batch: Batch, steps: int, device: str) -> nn.Module:
    """Train for one cycle; x is the output of `merged`, so the net's first layer is skipped."""
    x, y = batch.x.to(device), batch.y.to(device)
    picks = torch.multinomial(sampling_weights(batch), BATCH * steps, replacement=True).view(steps, BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    losses = (F.cross_entropy(_rest(net)(varied(x[rows])), y[rows], label_smoothing=0.05) for rows in picks.to(device))
    step_through(net, optimizer, losses, one_cycle(optimizer, 3e-3, steps, rise=0.2))
    return net


def _rest(net: nn.Module) -> nn.Module:
    assert isinstance(net, nn.Sequential)
    return net[1:]


def scores(net: nn.Module, x: Tensor, device: str) -> Tensor:
    """Output of `merged` -> (n, 5)"""
    with torch.no_grad():
        return torch.cat([_rest(net)(part.to(device)).cpu() for part in x.split(1024)])


def offset(y: Tensor, z: Tensor) -> tuple[Tensor, float]:
    """The offset to the scores z (n, 5) with the highest macro-F1 over N, S, V, and that F1."""

    def reached(added: Tensor) -> float:
        return Quality.of(y, (z + added).argmax(1), z.shape[1]).macro(COMMON)

    found = [torch.tensor([n, s, 0.0, RARE, RARE]) for n, s in OFFSETS]
    best = max(found, key=reached)
    return best, reached(best)


def train(name: str, batch: Batch, steps: int, seed: int, device: str) -> tuple[nn.Module, float]:
    """Train on the whole batch (output of `merged`); returns also the macro-F1 on patients left out."""
    y, z = [], []
    for fold in FOLDS:
        torch.manual_seed(seed)
        net = fit(BEAT_NETS[name]().to(device), of_records(batch, fold, others=True), steps, device)
        held = of_records(batch, fold)[::2]
        y.append(held.y)
        z.append(scores(net, held.x, device))
    added, reached = offset(torch.cat(y), torch.cat(z))
    print(f"  {name}: macro-F1 {reached:.3f} on patients left out, offset {added.tolist()}", flush=True)
    torch.manual_seed(seed)
    net = fit(BEAT_NETS[name]().to(device), batch, steps, device)
    last = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.bias.add_(added.to(device))
    return net, reached


def main() -> None:
    parser = command(__doc__)
    parser.add_argument(
        "--only", choices=tuple(BEAT_NETS), nargs="+", default=list(BEAT_NETS), help="networks to train"
    )
    parser.add_argument("--steps", type=int, default=450, help=f"steps of {BATCH} beats, four times (default: 450)")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of packed beats (default: data, else the records)"
    )
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    whole = beats("train", o.data)
    batch = replace(whole, x=merged(whole.x), masks=None, r_peaks=None)
    for name in o.only:
        began = time.monotonic()
        net, reached = train(name, batch, o.steps, o.seed, o.device)
        about = {"steps": str(o.steps), "left_out_macro_f1": f"{reached:.3f}"}
        about |= {"trained_on": f"{len(batch)} beats of DS1"}
        save(net, o.weights / f"beats_{name}.safetensors", about, eight_bits=False)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
