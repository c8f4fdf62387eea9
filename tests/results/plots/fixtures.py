"""Made-up attack results of any rank, for the tests of pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.core.distances import NAMES, measure
from rlab.core.grid import PatchGrid
from rlab.data.batch import UNBOUNDED
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Setting, Status
from rlab.victims.account import PHASES

PALETTE = ("gaussian_noise@0.1", "gaussian_noise@0.1#2", "gaussian_blur@0.5", "dead@1", "illuminate+@0.2")
CYCLE = (Status.SUCCEEDED,) * 6 + (Status.SPENT, Status.SKIPPED)


@dataclass
class Recipe:
    """The options of a made-up result."""

    size: tuple[int, ...]
    patch: tuple[int, ...]
    channels: int = 1
    n: int = 24
    classes: tuple[str, ...] = ("cat", "dog", "tench, Tinca tinca", "ship")
    k: int = 4
    share: float = 0.08  # of patches distorted
    bounds: tuple[float, float] = (0.0, 1.0)
    unit: str = ""
    rate: float | None = None
    multilabel: bool = False
    status: tuple[Status, ...] = CYCLE
    palette: tuple[str, ...] = PALETTE
    ids: tuple[str, ...] = ()
    seed: int = 0
    made: Tensor | None = field(default=None)  # (n, c, *size) instead of made-up inputs


def ecg(n: int, leads: int, samples: int, rate: float, generator: torch.Generator) -> Tensor:
    """Bumps that look like beats, in mV: (n, leads, samples)."""
    time = torch.arange(samples) / rate
    out = torch.zeros(n, leads, samples)
    waves = ((-0.2, 0.025, 0.12), (-0.03, 0.01, -0.12), (0.0, 0.012, 1.2), (0.03, 0.012, -0.25), (0.25, 0.05, 0.3))
    for i in range(n):
        beat = 0.35 + 0.1 * float(torch.rand(1, generator=generator))
        gains = 0.4 + torch.rand(leads, generator=generator)
        while beat < time[-1] + 0.3:
            shape = sum(h * torch.exp(-((time - beat - at) ** 2) / (2 * w**2)) for at, w, h in waves)
            out[i] += gains[:, None] * torch.as_tensor(shape)
            beat += 0.8 + 0.05 * float(torch.randn(1, generator=generator))
    return out + 0.01 * torch.randn(out.shape, generator=generator)


def scenes(n: int, channels: int, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A blob on a slope, which moves in clips: (n, c, *size)."""
    axes = torch.meshgrid(*(torch.linspace(0, 1, s) for s in size), indexing="ij")
    rows, columns = axes[-2:]
    drift = 0.4 * (axes[0] - 0.5) if len(size) == 3 else 0.0
    out = torch.empty(n, channels, *size)
    for i in range(n):
        at = 0.3 + 0.4 * torch.rand(2, generator=generator)
        blob = torch.exp(-((rows - at[0]) ** 2 + (columns - at[1] - drift) ** 2) / 0.03)
        tint = 0.3 + 0.6 * torch.rand(channels, generator=generator)
        for c in range(channels):
            out[i, c] = (0.25 * rows + tint[c] * blob + 0.1 * columns).clamp(0, 1)
    return out


def make_result(recipe: Recipe) -> AttackResult:
    generator = torch.Generator().manual_seed(recipe.seed)
    grid, n, k = PatchGrid(recipe.size, recipe.patch), recipe.n, recipe.k
    x0 = recipe.made if recipe.made is not None else _inputs(recipe, generator)
    status = tuple(recipe.status[i % len(recipe.status)] for i in range(n))
    labels = torch.arange(n) % k
    if recipe.multilabel:
        labels = (torch.rand(n, k, generator=generator) < 0.4).long()
    assignment = torch.randint(1, len(recipe.palette) + 1, (n, len(grid)), generator=generator)
    assignment *= torch.rand(n, len(grid), generator=generator) < recipe.share
    touched = torch.tensor([s in (Status.SUCCEEDED, Status.SPENT) for s in status])
    assignment[touched, 0] = 1
    assignment[~touched] = 0
    scale = 0.12 if math.isfinite(recipe.bounds[1]) else 0.25
    noise = scale * torch.randn(x0.shape, generator=generator) * grid.expand(assignment != 0)[:, None]
    x = (x0 + noise).clamp(*recipe.bounds)
    final = measure(x0, x, assignment, recipe.bounds)
    won = torch.tensor([s is Status.SUCCEEDED for s in status])
    flip = {name: torch.where(won, final[name] * 1.3, math.nan) for name in NAMES}
    before, after = _scores(recipe, labels, won, generator)
    queries = torch.zeros(n, len(PHASES), dtype=torch.int64)
    queries[:, 0] = torch.exp(1 + 4 * torch.rand(n, generator=generator)).long() * touched + 1
    queries[:, 1] = queries[:, 0] // 2 * won
    queries[:, 2] = won
    first, last = queries[:, 0].tolist(), (queries[:, 0] + queries[:, 1]).tolist()
    distances = zip(first, flip["l2"].tolist(), last, final["l2"].tolist(), won.tolist(), strict=True)
    return AttackResult(
        setting=Setting(
            size=recipe.size,
            patch=recipe.patch,
            palette=recipe.palette,
            goal="multilabel" if recipe.multilabel else "untargeted",
            policy="random",
            budget=1000,
            bounds=recipe.bounds,
            seed=recipe.seed,
            classes=recipe.classes,
            unit=recipe.unit,
            rate=recipe.rate,
        ),
        ids=recipe.ids or tuple(f"sample {i}" for i in range(n)),
        labels=labels,
        status=status,
        queries=queries,
        before=before,
        after=after,
        flip=flip,
        final=final,
        assignment=assignment.to(torch.uint8),
        inputs=HeldInputs(x0, x),
        seeds=torch.arange(n),
        improvements=tuple(((a, far), (b, near)) if flipped else () for a, far, b, near, flipped in distances),
    )


def _inputs(recipe: Recipe, generator: torch.Generator) -> Tensor:
    if len(recipe.size) == 1:
        made = ecg(recipe.n, recipe.channels, recipe.size[0], recipe.rate or 100.0, generator)
        return made if math.isinf(recipe.bounds[1]) else made.clamp(*recipe.bounds)
    return scenes(recipe.n, recipe.channels, recipe.size, generator)


def _scores(recipe: Recipe, labels: Tensor, won: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    noise = torch.randn(2, recipe.n, recipe.k, generator=generator)
    if recipe.multilabel:
        before = torch.sigmoid(2 * (2 * labels - 1) + 0.5 * noise[0])
        return before, torch.where(won[:, None], 1 - before, before)
    there = torch.nn.functional.one_hot(labels, recipe.k)
    other = torch.nn.functional.one_hot((labels + 1) % recipe.k, recipe.k)
    before = ((3 + math.log(recipe.k)) * there + noise[0] * 0.5).softmax(1)
    flipped = (1.5 + math.log(recipe.k)) * other + (1 + math.log(recipe.k)) * there
    held = (2 + math.log(recipe.k)) * there
    after = (torch.where(won[:, None], flipped, held) + 0.1 * noise[1]).softmax(1)
    return before, after


MV = {"bounds": UNBOUNDED, "unit": "mV"}
CASES = {
    "signal beat": Recipe((360,), (18,), 2, rate=360.0, share=0.15, **MV),  # type: ignore[arg-type]
    "signal one lead": Recipe((3600,), (72,), 1, rate=360.0, **MV),  # type: ignore[arg-type]
    "signal twelve leads": Recipe((1000,), (25,), 12, n=1, rate=100.0, **MV),  # type: ignore[arg-type]
    "signal long": Recipe((6000,), (20,), 1, n=1, rate=100.0, **MV),  # type: ignore[arg-type]
    "signal without rate": Recipe((200,), (16,), 3, bounds=UNBOUNDED, classes=()),
    "signal bounded": Recipe((200,), (16,), 2, bounds=(-1.0, 1.0), rate=50.0),
    "signal many channels": Recipe((250,), (25,), 40, n=1, rate=250.0, bounds=UNBOUNDED, unit="µV"),
    "signal multilabel": Recipe((1000,), (50,), 3, rate=250.0, multilabel=True, k=4, **MV),  # type: ignore[arg-type]
    "image digits": Recipe((8, 8), (2, 2), 1, share=0.2, k=10, classes=tuple("0123456789")),
    "image photo": Recipe((224, 224), (16, 16), 3, n=1, k=1000, classes=()),
    "image wide": Recipe((40, 150), (7, 11), 3),
    "image tall": Recipe((150, 40), (7, 11), 3),
    "image two channels": Recipe((32, 32), (4, 4), 2, bounds=UNBOUNDED),
    "image fine": Recipe((32, 32), (1, 1), 3, share=0.3),
    "image multilabel": Recipe((32, 32), (4, 4), 3, multilabel=True),
    "image long palette": Recipe((32, 32), (4, 4), 3, share=0.5, palette=tuple(f"noise@0.{i:02d}" for i in range(24))),
    "video": Recipe((16, 32, 32), (4, 8, 8), 3, rate=25.0),
    "video short": Recipe((3, 24, 40), (1, 8, 8), 1, share=0.2),
    "video long": Recipe((40, 64, 48), (3, 16, 16), 3, n=1, share=0.03),
    "nothing flipped": Recipe((16, 16), (4, 4), 3, n=5, status=(Status.SPENT,)),
    "nothing attacked": Recipe((16, 16), (4, 4), 3, n=2, status=(Status.SKIPPED,)),
    "one sample": Recipe((16, 16), (4, 4), 3, n=1, status=(Status.SUCCEEDED,)),
    "every way to end": Recipe((100,), (10,), 1, n=10, status=tuple(Status), rate=100.0, **MV),  # type: ignore[arg-type]
}
