"""How many functions of ours lie between a call and the model: at most eight, for every kind of prediction and policy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab

MOST = 8
ROOT = Path(rlab.__file__).parent


class Net(nn.Module):
    """Two layers, whose outputs `read` turns into an answer; notes the most frames of ours above its forward pass."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.read, self.frames = nn.Conv2d(3, 4, 3, padding=1), read, 0

    def forward(self, x: Tensor) -> Tensor:
        frame, own = sys._getframe(), 0
        while (frame := frame.f_back) is not None:  # type: ignore[assignment]
            own += Path(frame.f_code.co_filename).is_relative_to(ROOT)
        self.frames = max(self.frames, own)
        return self.read(self.net(x))


KINDS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {  # outputs, and labels from answers
    "classes": (lambda x: x.mean((2, 3)), lambda answer: answer.argmax(1)),
    "map": (lambda x: x, lambda answer: answer.argmax(1)),
    "numbers": (lambda x: x.mean((2, 3))[:, :2], lambda answer: answer),
}


def most_frames(kind: str = "classes", **options: Any) -> int:
    read, label = KINDS[kind]
    net, x = Net(read), torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    victim = rlab.TorchVictim(net, outputs="auto" if kind == "classes" else kind)  # type: ignore[arg-type]
    with torch.no_grad():
        y = label(net(x))
    data = (x, y) if kind == "classes" else rlab.load((x, y), target=kind)
    net.frames = 0
    rlab.attack(net if kind == "classes" else victim, data, patch=2, budget=40, progress=False, **options)
    return net.frames


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_reaches_the_model_through_few_functions(kind: str) -> None:
    assert 0 < most_frames(kind) <= MOST


@pytest.mark.parametrize("options", [{"policy": "square"}, {"policy": "random", "until": "flip"}, {"noisy": True}])
def test_so_it_does_with_other_options(options: dict[str, Any]) -> None:
    assert 0 < most_frames(**options) <= MOST


def test_so_it_does_in_a_run_folder(tmp_path: Path) -> None:
    assert 0 < most_frames(out=tmp_path / "run") <= MOST
