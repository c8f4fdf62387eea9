"""Trains small ECG beat classifiers (AAMI classes) on patient-disjoint MIT-BIH beats and writes their weights.

    python -m benchmarks.train_ecg_victims --data data/mitdb_ds1.npz --test data/mitdb_ds2.npz --out benchmarks/weights
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.nets import ECG_NETS


def beats(path: str, device: str) -> tuple[Tensor, Tensor]:
    with np.load(path, allow_pickle=False) as held:
        return torch.from_numpy(held["x"]).float().to(device), torch.from_numpy(held["y"].astype("int64")).to(device)


def varied(x: Tensor) -> Tensor:
    """Amplitude, offset and a little noise differ from one recording to the next."""
    n = len(x)
    gain = 1 + 0.2 * torch.randn(n, 1, 1, device=x.device)
    shift = 0.1 * torch.randn(n, x.shape[1], 1, device=x.device)
    return torch.roll(x, int(torch.randint(-8, 9, ())), 2) * gain + shift + 0.02 * torch.randn_like(x)


def fit(net: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int = 256) -> None:
    weight = 1 / torch.bincount(y, minlength=5).clamp(min=20).float().sqrt()
    steps = epochs * (len(x) // batch + 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), device=x.device).split(batch):
            loss = F.cross_entropy(net(varied(x[rows])), y[rows], weight=weight, label_smoothing=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()


@torch.no_grad()
def judge(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, and the mean F1 over the classes that occur."""
    said = torch.cat([net(part).argmax(1) for part in x.split(1024)])
    scores = []
    for k in y.unique().tolist():
        hit = ((said == k) & (y == k)).sum()
        scores.append(float(2 * hit / ((said == k).sum() + (y == k).sum()).clamp(min=1)))
    return {"accuracy": float((said == y).float().mean()), "macro_f1": sum(scores) / len(scores)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    x, y = beats(chosen.data, chosen.device)
    test = beats(chosen.test, chosen.device)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, make in ECG_NETS.items():
        torch.manual_seed(0)
        net = make().to(chosen.device)
        fit(net, x, y, chosen.epochs)
        figures = judge(net, *test)
        about = {key: f"{value:.4f}" for key, value in figures.items()} | {"trained_on": f"{len(x)} MIT-BIH DS1 beats"}
        weights = {k: v.cpu().contiguous() for k, v in net.state_dict().items()}
        save_file(weights, chosen.out / f"{name}.safetensors", metadata=about)
        print(name, {key: round(value, 4) for key, value in figures.items()}, flush=True)


if __name__ == "__main__":
    main()
