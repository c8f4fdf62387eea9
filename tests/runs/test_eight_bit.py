"""Data that came as 8 bits are attacked as 8 bits, so a saved picture flips the model; values outside the bounds never count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import rlab
from benchmarks.peers.functions import simba_dct
from rlab.core.batched import NoMemory
from rlab.core.env import Accept, Proposal, State, Task
from rlab.data.batch import Batch
from rlab.data.eight_bit import EightBit, to_bytes
from rlab.filters import FAMILIES
from rlab.policies.base import MemorylessPolicy
from rlab.results.result import AttackResult, Status
from rlab.runs.understood import say_nothing
from tests.helpers import CHANNELS, RANKS, SIZES, filters_for, linear_surrogate, make_batch

BOUNDS = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
SHAPES = {"image": (6, 8, 8, 3), "video": (6, 5, 8, 8, 3)}  # of 8-bit arrays, channels last
QUIET: dict[str, Any] = {"announce": say_nothing}


class Linear(nn.Module):
    """Three classes by random sums of all values, so that the nearest flips lie just beyond the boundary."""

    def __init__(self, features: int, scale: float = 1.0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(features, 3, generator=draw) / scale)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight


class BetweenSteps(nn.Module):
    """Errs as soon as a value lies between two of 256 steps, which no file of 8 bits can hold."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        super().__init__()
        self.low, self.span = bounds[0], bounds[1] - bounds[0]

    def forward(self, x: Tensor) -> Tensor:
        steps = (x - self.low) / self.span * 255
        off = ((steps - steps.round()).abs() > 0.01).flatten(1).any(1).float()
        return torch.stack([5 - 10 * off, torch.zeros_like(off)], 1)


def bytes_of(kind: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, SHAPES[kind], np.uint8)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_rounding_gives_what_a_loader_gives_and_changes_it_no_more(bounds: tuple[float, float]) -> None:
    x = rlab.load((bytes_of("image"), np.zeros(6, int)), bounds=bounds).x
    rounded = EightBit(bounds)
    assert torch.equal(rounded(x), x)
    moved = (x + 0.4 / 255 * (bounds[1] - bounds[0])).clamp(*bounds)
    assert torch.equal(rounded(moved), x)


def pngs(x: np.ndarray[Any, Any], folder: Path) -> None:
    """uint8 (h, w, 3) or (t, h, w, 3) -> one PNG, or one of each frame."""
    folder.mkdir(parents=True)
    for number, frame in enumerate(x if x.ndim == 4 else x[None]):
        Image.fromarray(frame).save(folder / f"{number}.png")


def read_pngs(folder: Path) -> np.ndarray[Any, Any]:
    frames = [np.asarray(Image.open(file)) for file in sorted(folder.glob("*.png"))]
    return np.stack(frames) if len(frames) > 1 else frames[0]


@pytest.mark.parametrize("palette", [["gaussian_noise@0.4", "illuminate@0.5"], "pixels", ["fgsm@0.08"]], ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_a_saved_picture_or_clip_flips_the_model(kind: str, palette: Any, tmp_path: Path) -> None:
    x = bytes_of(kind)
    net = Linear(x[0].size)
    first = rlab.load((x, np.zeros(6, int)))
    labels = rlab.TorchVictim(net)(first.x).argmax(1)
    options: dict[str, Any] = {"palette": palette, "budget": 24, "patch": (2,) * (x.ndim - 2), "distance": "l2"}
    options |= {"policy": "auto" if palette == "pixels" else "belief"}
    options |= {} if len(palette) == 2 else {"surrogate": rlab.TorchVictim(net)}
    result = rlab.attack(net, (x, labels), **options, **QUIET)
    won = result.succeeded.nonzero().flatten().tolist()
    assert won
    for row in won:
        pixels = to_bytes(result.perturbed[row], (0.0, 1.0)).movedim(0, -1).numpy()
        pngs(pixels, tmp_path / str(row))
        again = rlab.load((read_pngs(tmp_path / str(row))[None], labels[row : row + 1]), kind=kind)
        assert torch.equal(again.x[0], result.perturbed[row])
        assert net(again.x).argmax() != labels[row]
    assert torch.allclose(result.final["l2"], (result.perturbed - result.original).flatten(1).norm(dim=1), atol=1e-5)


def test_a_folder_of_pngs_is_attacked_as_pngs(tmp_path: Path) -> None:
    for number, picture in enumerate(bytes_of("image")):
        pngs(picture, tmp_path / str(number % 3) / str(number))
    folder = rlab.load(tmp_path)
    result = rlab.attack(BetweenSteps((0.0, 1.0)), Batch(folder.x, folder.y * 0, eight_bit=True), budget=8, **QUIET)
    assert folder.eight_bit
    assert not result.succeeded.any()


@pytest.mark.parametrize("bounds", BOUNDS[:2])
@pytest.mark.parametrize("palette", ["pixels", ["gaussian_noise"]], ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_no_query_lies_between_two_steps_unless_asked_to(kind: str, palette: Any, bounds: tuple[float, float]) -> None:
    data = rlab.load((bytes_of(kind), np.zeros(6, int)), bounds=bounds)
    assert data.eight_bit
    policy = "auto" if palette == "pixels" else "random"
    net, options = BetweenSteps(bounds), {"palette": palette, "budget": 5, "distance": "l2", "policy": policy, **QUIET}
    assert not rlab.attack(net, data, **options).succeeded.any()
    assert rlab.attack(net, data, quantize=False, **options).succeeded.all()
    plain = Batch(data.x, data.y, bounds=bounds)  # the same values, but they did not come as 8 bits
    assert rlab.attack(net, plain, **options).succeeded.all()


def test_attacks_of_others_are_rounded_too() -> None:
    data, net = rlab.load((bytes_of("image"), np.zeros(6, int))), BetweenSteps((0.0, 1.0))
    for quantize, flips in ((True, 0), (False, 6)):
        found = rlab.compare(
            net, data, policies="random", attacks=simba_dct, budget=8, quantize=quantize, palette=["gaussian_noise"], **QUIET
        )  # fmt: skip
        assert [int(outcome.succeeded.sum()) for outcome in found.outcomes.values()] == [flips, flips]


def test_inputs_are_rebuilt_as_they_were_rounded(tmp_path: Path) -> None:
    x = bytes_of("image")
    net = Linear(x[0].size)
    data = rlab.load((x, np.zeros(6, int)))
    data = rlab.load((x, rlab.TorchVictim(net)(data.x).argmax(1)))
    options: dict[str, Any] = {"palette": ["gaussian_noise"], "budget": 20, "patch": (2, 2), **QUIET}
    kept = rlab.attack(net, data, out=tmp_path / "all", **options)
    rlab.attack(net, data, out=tmp_path / "few", keep="assignments", **options)
    rebuilt = AttackResult.load(tmp_path / "few", data)
    assert torch.equal(rebuilt.perturbed, kept.perturbed)
    assert torch.equal(EightBit((0.0, 1.0))(kept.perturbed), kept.perturbed)


class Outside(nn.Module):
    """Errs as soon as a value lies outside the bounds."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        super().__init__()
        self.bounds = bounds

    def forward(self, x: Tensor) -> Tensor:
        out = ((x < self.bounds[0]) | (x > self.bounds[1])).flatten(1).any(1).float()
        return torch.stack([5 - 10 * out, torch.zeros_like(out)], 1)


def strongest(name: str, rank: int) -> str:
    return f"{name}@{FAMILIES[name](CHANNELS[rank])[0].severities[-1]:g}"


@pytest.mark.parametrize(
    ("name", "rank"), [(name, rank) for rank in RANKS for name in (*filters_for(rank), "fgsm", "pgd", "pixels")]
)
def test_no_filter_leaves_the_bounds(name: str, rank: int) -> None:
    bounds = low, high = -1.25, 1.75
    plain = make_batch(rank, 3)
    unit = (plain.x - plain.x.min()) / (plain.x.max() - plain.x.min())  # some values lie at either end
    batch = Batch((low + unit * (high - low)).clamp(low, high), plain.y, bounds=bounds, rate=360.0)
    victim = rlab.TorchVictim(Outside(bounds), bounds=(-1e9, 1e9))
    gradients = name in ("fgsm", "pgd")
    palette = name if name == "pixels" else [f"{name}@0.08" if gradients else strongest(name, rank)]
    net = linear_surrogate(CHANNELS[rank] * int(np.prod(SIZES[rank]))).model
    surrogate = rlab.TorchVictim(net, outputs="logits", bounds=bounds) if gradients else None
    policy = "auto" if name == "pixels" else "random"
    result = rlab.attack(victim, batch, palette=palette, surrogate=surrogate, policy=policy, budget=4, **QUIET)
    assert not result.succeeded.any()
    assert bool(((result.perturbed >= low) & (result.perturbed <= high)).all())


class Beyond(MemorylessPolicy):
    """Proposes values outside the bounds."""

    def propose(self, state: State, memory: NoMemory, task: Task) -> Proposal[NoMemory]:
        changed = torch.ones_like(state.assignment)
        return Proposal(changed, torch.full_like(state.sample, Accept.IF_BETTER), memory, state.x0 + 0.5)


@pytest.mark.parametrize("rank", RANKS)
def test_a_proposal_outside_the_bounds_is_no_success(rank: int) -> None:
    victim, batch = rlab.TorchVictim(Outside((0.0, 1.0)), bounds=(-1e9, 1e9)), make_batch(rank, 3)
    result = rlab.attack(victim, batch, policy=Beyond(), palette=["dead_pixel"], budget=5, cleanup=False, **QUIET)
    assert not result.succeeded.any()
    assert set(result.status) == {Status.UNVERIFIED}
