"""Train the three demo victims on the embedded data and write rlab/assets/demo_*.safetensors.

python scripts/train_demo_victims.py            # all three, a few minutes on two cores
python scripts/train_demo_victims.py digits     # one of them
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from rlab.data.batch import Batch
from rlab.data.embedded import embedded
from rlab.victims.zoo import small_cnn

ASSETS = Path(__file__).resolve().parent.parent / "rlab" / "assets"


@dataclass(frozen=True)
class Recipe:
    """Training settings of one victim; `shift` is the maximum random shift of inputs along each axis."""

    epochs: int
    width: int = 16
    rate: float = 3e-3
    rows: int = 64
    shift: int = 0
    about: str = ""


RECIPES = {
    "digits": Recipe(40, shift=1, about="scikit-learn digits, 1,297 train images"),
    "ecg": Recipe(16, about="simulated beats, the train split of 2,000"),
    "clips": Recipe(6, width=8, rate=6e-3, about="clips of moving digits, the train split of 2,000"),
}


def train(name: str, recipe: Recipe) -> None:
    """Train, measure on the test split, and write the weights with everything needed to use them."""
    torch.manual_seed(0)
    batch, test = embedded(name, split="train"), embedded(name, split="test")
    axes = (0, *range(2, batch.x.dim()))
    mean, std = batch.x.mean(axes), batch.x.std(axes)
    each = (1, -1, *(1,) * batch.rank)
    inputs, held_out = ((one.x - mean.view(each)) / std.view(each) for one in (batch, test))
    model = small_cnn(batch.rank, batch.x.shape[1], len(batch.classes), recipe.width)
    fit(model, inputs, batch.y, recipe)
    accuracy = measure(model, held_out, test.y)
    about = {
        "rank": batch.rank,
        "channels": batch.x.shape[1],
        "classes": len(batch.classes),
        "width": recipe.width,
        "mean": [round(v, 6) for v in mean.tolist()],
        "std": [round(v, 6) for v in std.tolist()],
        "bounds": list(batch.bounds),
        "accuracy": accuracy,
        "trained_on": recipe.about,
    }
    write(ASSETS / f"demo_{name}.safetensors", model, about)
    print(f"{name}: test accuracy {accuracy:.4f}, {describe(model, held_out, test)}")


def fit(model: nn.Module, x: Tensor, y: Tensor, recipe: Recipe) -> None:
    """Train with AdamW and one cosine cycle."""
    steps = recipe.epochs * math.ceil(len(x) / recipe.rows)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=steps)
    for epoch in range(recipe.epochs):
        started = time.monotonic()
        for rows in torch.randperm(len(x)).split(recipe.rows):
            loss = cross_entropy(model(moved(x[rows], recipe.shift)), y[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(
            f"  epoch {epoch + 1}/{recipe.epochs}: loss {loss.item():.3f}, {time.monotonic() - started:.1f} s",
            flush=True,
        )


def moved(x: Tensor, shift: int) -> Tensor:
    """Shift a batch (b, c, *size) by one random step and repeat its border."""
    if not shift:
        return x
    rank = x.dim() - 2
    wide = pad(x, (shift,) * (2 * rank), mode="replicate")
    for axis, length in enumerate(x.shape[2:], 2):
        wide = wide.narrow(axis, int(torch.randint(0, 2 * shift + 1, ())), length)
    return wide


@torch.no_grad()
def measure(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float(torch.cat([model(rows).argmax(1) for rows in x.split(100)]).eq(y).float().mean())


@torch.no_grad()
def describe(model: nn.Module, x: Tensor, test: Batch) -> str:
    """Report the median confidence in the true class, which exposes an overconfident victim."""
    scores = torch.cat([model(rows) for rows in x.split(100)]).softmax(1)
    return f"median confidence {float(scores.gather(1, test.y[:, None]).median()):.3f}"


def write(path: Path, model: nn.Module, about: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_file(weights, path, metadata={key: json.dumps(value) for key, value in about.items()})
    path.chmod(0o644)  # safetensors writes files that only their owner can read


if __name__ == "__main__":
    torch.set_num_threads(1)  # the number of cores must not change the weights
    for chosen in sys.argv[1:] or RECIPES:
        train(chosen, RECIPES[chosen])
