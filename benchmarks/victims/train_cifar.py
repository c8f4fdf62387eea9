"""Train the CIFAR-10 victims and write their weights in half precision.

python -m benchmarks.victims.train_cifar --data data/cifar10_train.npz --test data/cifar10_test.npz --out benchmarks/weights
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data import WEIGHTS
from benchmarks.victims.cifar_nets import MEAN, NETS, ROBUST, STD, TRANSFORMERS
from benchmarks.victims.training import half


def images(path: str, device: str) -> tuple[Tensor, Tensor]:
    with np.load(path, allow_pickle=False) as held:
        x = torch.from_numpy(held["x"]).permute(0, 3, 1, 2).contiguous().to(device)
        return x, torch.from_numpy(held["y"].astype("int64")).to(device)


def normal(x: Tensor) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (x.float() / 255 - mean) / std


def augmented(x: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels and mirror half of them."""
    n = len(x)
    wide = F.pad(x, (4, 4, 4, 4))
    at = torch.randint(0, 9, (2, n), device=x.device)
    rows = at[0][:, None] + torch.arange(32, device=x.device)
    cols = at[1][:, None] + torch.arange(32, device=x.device)
    cols = torch.where(torch.rand(n, 1, device=x.device) < 0.5, cols.flip(1), cols)
    which = torch.arange(n, device=x.device)[:, None, None]
    return wide.permute(0, 2, 3, 1)[which, rows[:, :, None], cols[:, None]].permute(0, 3, 1, 2)


def fit(net: nn.Module, x: Tensor, y: Tensor, epochs: int, device: str, batch: int = 256) -> None:
    steps = epochs * (len(x) // batch)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), device=device).split(batch):
            if len(rows) < batch:
                continue
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                loss = F.cross_entropy(net(augmented(normal(x[rows]))), y[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()


def fit_transformer(net: nn.Module, x: Tensor, y: Tensor, epochs: int, device: str, batch: int = 512) -> None:
    """AdamW on mixtures of two images (Zhang et al. 2018); attention overfits 50,000 images otherwise."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-3, total_steps=epochs * (len(x) // batch))
    share = torch.distributions.Beta(0.4, 0.4)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), device=device)[: len(x) // batch * batch].split(batch):
            other, mixed = rows[torch.randperm(batch, device=device)], float(share.sample())
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                inputs = mixed * augmented(normal(x[rows])) + (1 - mixed) * augmented(normal(x[other]))
                scores = net(inputs)
                losses = [F.cross_entropy(scores, y[each], label_smoothing=0.05) for each in (rows, other)]
                loss = mixed * losses[0] + (1 - mixed) * losses[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()


def fit_robust(net: nn.Module, x: Tensor, y: Tensor, epochs: int, device: str, reach: float = 0.5) -> None:
    """Train on inputs moved by two gradient steps within an L2 of `reach` (Madry et al. 2018, in few steps)."""
    batch = 256
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.15, total_steps=epochs * (len(x) // batch))
    std = torch.tensor(STD, device=device).view(1, 3, 1, 1)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), device=device)[: len(x) // batch * batch].split(batch):
            inputs, labels = augmented(normal(x[rows])), y[rows]
            moved = torch.zeros_like(inputs)
            net.eval()
            for _ in range(2):
                moved.requires_grad_()
                slope = torch.autograd.grad(F.cross_entropy(net(inputs + moved / std), labels), moved)[0]
                moved = moved.detach() + 0.6 * reach * slope / _length(slope).clamp(min=1e-9)
                moved = moved * (reach / _length(moved).clamp(min=reach))
            net.train()
            loss = F.cross_entropy(net(inputs + moved / std), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, 1, 1, 1)


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    right = [(net(normal(a)).argmax(1) == b).float().mean() for a, b in zip(x.split(1000), y.split(1000), strict=True)]
    return float(torch.stack(right).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="training images, .npz with x uint8 (n, 32, 32, 3) and y")
    parser.add_argument("--test", required=True, help="test images")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--only", default="", help="networks, separated by commas (default: all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    x, y = images(chosen.data, chosen.device)
    test_x, test_y = images(chosen.test, chosen.device)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, make in NETS.items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        torch.manual_seed(0)
        began = time.time()
        net = make().to(chosen.device)
        train = fit_robust if name in ROBUST else fit_transformer if name in TRANSFORMERS else fit
        train(net, x, y, chosen.epochs, chosen.device)
        right = accuracy(net, test_x, test_y)
        trained_on = f"{len(x)} CIFAR-10 training images"
        about = {"accuracy": f"{right:.4f}", "trained_on": trained_on, "epochs": str(chosen.epochs)}
        save_file(half(net.state_dict()), chosen.out / f"{name}.safetensors", metadata=about)
        print(f"{name}: {right:.2%} on {len(test_x)} test images, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
