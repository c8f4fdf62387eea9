"""Train the CIFAR-10 victims and write their weights in eight bits (vgg and wide_resnet: in half precision).

python -m benchmarks.victims.train_cifar --data data/cifar10_train.npz --test data/cifar10_test.npz --out benchmarks/weights
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data import WEIGHTS
from benchmarks.harness import command
from benchmarks.victims.cifar_nets import MEAN, NETS, STD
from benchmarks.victims.compact import save
from benchmarks.victims.training import accuracy, normalised, one_cycle, step_through

EXACT = ("vgg", "wide_resnet")  # in half precision, so that recorded figures stay as they are
REACH = 0.5  # L2 of the perturbations to train against
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # network, images, labels, rows of a batch


def images(path: str, device: str) -> tuple[Tensor, Tensor]:
    with np.load(path, allow_pickle=False) as held:
        x = torch.from_numpy(held["x"]).permute(0, 3, 1, 2).contiguous().to(device)
        return x, torch.from_numpy(held["y"].astype("int64")).to(device)


def normal(x: Tensor) -> Tensor:
    return normalised(x.float() / 255, MEAN, STD)


def augmented(x: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels and mirror half of them."""
    n = len(x)
    wide = F.pad(x, (4, 4, 4, 4))
    at = torch.randint(0, 9, (2, n), device=x.device)
    rows, cols = (each[:, None] + torch.arange(32, device=x.device) for each in at)
    cols = torch.where(torch.rand(n, 1, device=x.device) < 0.5, cols.flip(1), cols)
    which = torch.arange(n, device=x.device)[:, None, None]
    return wide.permute(0, 2, 3, 1)[which, rows[:, :, None], cols[:, None]].permute(0, 3, 1, 2)


def plain(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return F.cross_entropy(net(augmented(normal(x[rows]))), y[rows], label_smoothing=0.05)


def mixed(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """Mixtures of two images (Zhang et al. 2018); attention overfits 50,000 images otherwise."""
    other = rows[torch.randperm(len(rows), device=x.device)]
    shares = (share := float(torch.distributions.Beta(0.4, 0.4).sample()), 1 - share)
    with torch.autocast(x.device.type, torch.bfloat16):
        pairs = list(zip(shares, (rows, other), strict=True))
        scores = net(sum(part * augmented(normal(x[each])) for part, each in pairs))
        return torch.stack(
            [part * F.cross_entropy(scores, y[each], label_smoothing=0.05) for part, each in pairs]
        ).sum()


def robust(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """Inputs moved by two gradient steps within an L2 (Madry et al. 2018, in few steps)."""
    inputs, labels, std = augmented(normal(x[rows])), y[rows], torch.tensor(STD, device=x.device).view(1, 3, 1, 1)
    moved = torch.zeros_like(inputs)
    net.eval()
    for _ in range(2):
        moved.requires_grad_()
        slope = torch.autograd.grad(F.cross_entropy(net(inputs + moved / std), labels), moved)[0]
        moved = moved.detach() + 0.6 * REACH * slope / _length(slope).clamp(min=1e-9)
        moved = moved * (REACH / _length(moved).clamp(min=REACH))
    net.train()
    return F.cross_entropy(net(inputs + moved / std), labels)


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, 1, 1, 1)


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    loss: Loss = plain
    peak: float = 0.2  # of the learning rate
    batch: int = 256
    adam: bool = False

    def fit(self, net: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
        steps, own = len(x) // self.batch, net.parameters()
        optimizer: torch.optim.Optimizer = torch.optim.SGD(own, 0.1, 0.9, weight_decay=5e-4, nesterov=True)
        if self.adam:
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
        orders = (torch.randperm(len(x), device=x.device)[: steps * self.batch] for _ in range(epochs))
        losses = (self.loss(net, x, y, rows) for order in orders for rows in order.split(self.batch))
        step_through(net, optimizer, losses, one_cycle(optimizer, self.peak, epochs * steps))


RECIPES = {"vit": Recipe(mixed, 1.5e-3, 512, adam=True), "robust_all_conv": Recipe(robust, 0.15)}


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--data", required=True, help="training images, .npz with x uint8 (n, 32, 32, 3) and y")
    parser.add_argument("--test", required=True, help="test images")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--only", default="", help="networks, separated by commas (default: all)")
    chosen = parser.parse_args()
    (x, y), test = images(chosen.data, chosen.device), images(chosen.test, chosen.device)
    for name in [name for name in chosen.only.split(",") if name] or NETS:
        torch.manual_seed(0)
        began, net = time.time(), NETS[name]().to(chosen.device)
        RECIPES.get(name, Recipe()).fit(net, x, y, chosen.epochs)
        right, trained_on = accuracy(net, *test, normal, 1000), f"{len(x)} CIFAR-10 training images"
        about = {"accuracy": f"{right:.4f}", "trained_on": trained_on, "epochs": str(chosen.epochs)}
        save(net, chosen.out / f"{name}.safetensors", about, name not in EXACT)
        print(f"{name}: {right:.2%} on {len(test[1])} test images, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
