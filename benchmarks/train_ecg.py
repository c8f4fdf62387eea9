"""Trains the beat networks of `rlab.victims.zoo` on DS1 of MIT-BIH and measures them on the whole of DS2.

python -m benchmarks.train_ecg                  # all three, some minutes on one core; weights and a page of results
python -m benchmarks.train_ecg --measure        # measures the weights that are there, trains nothing

Patients are kept apart twice: nothing is trained or chosen on DS2 by this script, and how long to train is chosen on three
records of DS1 that the first of two trainings does not see (119, 201, 223); the second, on all of DS1, takes as many
steps, to the end of its own schedule. Scaling, sampling and schedule were settled with DS2 figures of earlier trainings in
view, so these are no blind test.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import common
from benchmarks.pack_ecg import DATA, VALIDATION, beats, of_records, records
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights
from rlab.victims.zoo.ecg import BEAT_MEAN, BEAT_NETS, BEAT_STD

BATCH = 128
COMMON = 3  # N, S and V: the classes that both halves have in number


def ecg_victim(name: str, device: str | None = None, folder: Path = common.WEIGHTS) -> TorchVictim:
    """cnn, resnet or transformer with the weights of this folder; takes beats in mV."""
    path = folder / f"ecg_{name}.safetensors"
    if not path.exists():
        raise common.Absent(f"{path.name} is not in {folder.name}: train it with python -m benchmarks.train_ecg")
    return _victim(load_weights(BEAT_NETS[name](), path), device)


def _victim(net: nn.Module, device: str | None) -> TorchVictim:
    open_ended = (-float("inf"), float("inf"))
    return TorchVictim(net, mean=BEAT_MEAN, std=BEAT_STD, outputs="logits", bounds=open_ended, device=device)


def sampling_weights(batch: Batch) -> Tensor:
    """(n,) chance of each beat: a patient's N, S or V beats count together as the root of how many they are.

    F and Q beats are as likely as the same patient's N: nearly all are of one patient, whose own form would be learned.
    """
    named = records(batch)
    sizes = Counter(zip(named, batch.y.tolist(), strict=True))
    like = [(record, y if y < COMMON else 0) for record, y in zip(named, batch.y.tolist(), strict=True)]
    return torch.tensor([sizes[one] ** -0.5 for one in like], dtype=torch.float64)


def varied(x: Tensor, shift: float = 5.0, stretch: float = 0.08) -> Tensor:
    """x (b, c, t), each beat moved by some samples and stretched or squeezed around its middle, ends held."""
    n, _, length = x.shape
    middle = (length - 1) / 2
    moved, factor = (torch.randn(n, 1, 1, device=x.device) for _ in range(2))
    at = (torch.arange(length, device=x.device) - middle) * torch.exp(stretch * factor) + middle + shift * moved
    at = at.clamp(0, length - 1).expand_as(x)
    left = at.floor().clamp(max=length - 2).long()
    return torch.lerp(x.gather(2, left), x.gather(2, left + 1), at - left)


def normal(x: Tensor) -> Tensor:
    return (x - BEAT_MEAN[0]) / BEAT_STD[0]


@dataclass(frozen=True)
class Quality:
    """How well labels are predicted, from a confusion matrix (true, predicted)."""

    confusion: Tensor  # (k, k)

    @classmethod
    def of(cls, y: Tensor, predicted: Tensor, classes: int) -> Quality:
        return cls(torch.bincount(y * classes + predicted, minlength=classes**2).view(classes, classes))

    @property
    def accuracy(self) -> float:
        return float(self.confusion.diagonal().sum() / self.confusion.sum())

    @property
    def recall(self) -> Tensor:
        """(k,) NaN where there is no beat of the class."""
        return self.confusion.diagonal() / self.confusion.sum(1)

    @property
    def f1(self) -> Tensor:
        """(k,) 0 where a class is missed altogether, also where there is none of it and none is predicted."""
        both = self.confusion.sum(0) + self.confusion.sum(1)
        return 2 * self.confusion.diagonal() / both.clamp(min=1)

    def macro(self, classes: int | None = None) -> float:
        """Mean F1 of the first `classes`, or of all."""
        return float(self.f1[:classes].mean())


def measure(victim: TorchVictim, batch: Batch) -> Quality:
    """On every beat of the batch."""
    victim.chunk = 2048
    predicted = victim(batch.x.to(victim.device), "verify").argmax(1).cpu()
    return Quality.of(batch.y, predicted, len(batch.classes))


def fit(
    net: nn.Module, batch: Batch, steps: int, most: int, watch: Batch | None, device: str
) -> list[tuple[int, float]]:
    """`steps` of a schedule that is `most` long; (step, macro-F1 over N, S, V on `watch`) along the way."""
    x, y = batch.x.to(device), batch.y.to(device)
    weights = sampling_weights(batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=most, pct_start=0.2)
    seen = []
    for step in range(1, steps + 1):
        net.train()
        rows = torch.multinomial(weights, BATCH, replacement=True).to(device)
        loss = F.cross_entropy(net(normal(varied(x[rows]))), y[rows], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if watch is not None and (step % max(1, most // 8) == 0):
            seen.append((step, measure(_victim(net, device), watch).macro(COMMON)))
            print(f"  step {step}: macro-F1 {seen[-1][1]:.3f} on {', '.join(VALIDATION)}", flush=True)
    net.eval()
    return seen


def train(name: str, batch: Batch, most: int, seed: int, device: str) -> tuple[nn.Module, int, float]:
    """The network trained on the whole batch, its steps, and the macro-F1 they were chosen by."""
    torch.manual_seed(seed)
    held, rest = of_records(batch, VALIDATION)[::3], of_records(batch, VALIDATION, others=True)
    seen = fit(BEAT_NETS[name]().to(device), rest, most, most, held, device)
    steps, best = max(seen, key=lambda pair: pair[1])
    torch.manual_seed(seed)
    net = BEAT_NETS[name]().to(device)
    fit(net, batch, steps, steps, None, device)
    return net, steps, best


def save(net: nn.Module, path: Path, about: dict[str, str]) -> None:
    """In half precision; what was noted about the training is in the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    halved = {k: (v.half() if v.is_floating_point() else v).cpu().contiguous() for k, v in net.state_dict().items()}
    save_file(halved, path, metadata=about)


def page(qualities: dict[str, Quality], notes: dict[str, dict[str, str]], test: Batch) -> list[str]:
    """Sections: accuracy and F1, recall and F1 a class, confusion."""
    counts = [int((test.y == i).sum()) for i in range(len(test.classes))]
    there = ", ".join(f"{name} {n:,}" for name, n in zip(test.classes, counts, strict=True))
    headings = ("net", "parameters", "accuracy", "macro-F1, N S V", "macro-F1, all five", "on held-out DS1", "steps")
    rows = [
        (
            name,
            f"{sum(p.numel() for p in BEAT_NETS[name]().parameters()):,}",
            f"{q.accuracy:.1%}",
            f"{q.macro(COMMON):.3f}",
            f"{q.macro():.3f}",
            notes[name]["validation_macro_f1"],
            notes[name]["steps"],
        )
        for name, q in qualities.items()
    ]
    each = [
        (name, *(f"{r:.1%} / {f:.2f}" if n else "–" for r, f, n in zip(q.recall, q.f1, counts, strict=True)))
        for name, q in qualities.items()
    ]
    always = counts[0] / sum(counts)
    floor = 2 * always / (1 + always) / COMMON
    return [
        f"Beats of DS2: {there}. Always answering N would be right for {always:.1%}, with a macro-F1 over N, S, V of "
        f"{floor:.2f}. There is no Q, so its F1 counts as 0 in the mean of all five; nearly all F are of one patient (213), "
        f"those trained on of another (208). An S beat comes early, and a window of 0.72 s shows little of when the beat "
        f"before it was.",
        common.table(headings, rows),
        "## Recall / F1 by class",
        common.table(("net", *test.classes), each),
        "## Confusion, true class by row",
        *(f"{name}\n\n{_confusion(q, test.classes)}" for name, q in qualities.items()),
    ]


def _confusion(q: Quality, classes: tuple[str, ...]) -> str:
    rows = [(name, *(f"{int(n):,}" for n in line)) for name, line in zip(classes, q.confusion, strict=True)]
    return common.table(("", *classes), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BEAT_NETS), help="networks to train, with commas")
    parser.add_argument("--steps", type=int, default=240, help=f"at most so many steps of {BATCH} beats")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of packed beats; the records where it has none")
    parser.add_argument("--weights", type=Path, default=common.WEIGHTS)
    parser.add_argument("--out", type=Path, default=common.RESULTS / "ecg_victims.md")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="only measure the weights that are there")
    o = parser.parse_args()
    names = [name.strip() for name in o.only.split(",")]
    if unknown := [name for name in names if name not in BEAT_NETS]:
        parser.error(f"there is no network {unknown[0]!r}: choose of {', '.join(BEAT_NETS)}")
    if not o.measure:
        batch = beats("train", o.data)
        for name in names:
            began = time.monotonic()
            net, steps, best = train(name, batch, o.steps, o.seed, o.device)
            about = {
                "steps": str(steps),
                "validation_macro_f1": f"{best:.3f}",
                "trained_on": f"{len(batch)} beats of DS1",
            }
            save(net, o.weights / f"ecg_{name}.safetensors", about)
            print(f"{name}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
    report(o.weights, o.out, beats("test", o.data), o.device, o.seed)


def report(weights: Path, out: Path, test: Batch, device: str, seed: int) -> None:
    """Measures every network whose weights are there, from the file, and writes the page."""
    there = [name for name in BEAT_NETS if (weights / f"ecg_{name}.safetensors").exists()]
    qualities = {name: measure(ecg_victim(name, device, weights), test) for name in there}
    notes = {}
    for name in there:
        with safe_open(weights / f"ecg_{name}.safetensors", "pt") as file:
            notes[name] = file.metadata()
    rules = " ".join((__doc__ or "").rstrip().split("\n\n")[-1].split())
    common.write_page(out, "ECG victims on DS2 of MIT-BIH", rules, seed, page(qualities, notes, test))
    figures: dict[str, float] = {}
    for name, q in qualities.items():
        figures |= {
            f"{name}_accuracy": q.accuracy,
            f"{name}_macro_f1_nsv": q.macro(COMMON),
            f"{name}_macro_f1": q.macro(),
        }
    common.finish(figures)


if __name__ == "__main__":
    main()
