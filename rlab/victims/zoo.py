"""The small networks of the demo, for signals, images and clips."""

from __future__ import annotations

import json
from importlib.resources import as_file, files

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.victims.torch_module import TorchVictim

DEMOS = ("digits", "ecg", "clips")
# Features of signals are longer than those of images, and so are the kernels.
_CONVOLUTIONS: dict[int, tuple[type[nn.Conv1d | nn.Conv2d | nn.Conv3d], int]] = {
    1: (nn.Conv1d, 7),
    2: (nn.Conv2d, 3),
    3: (nn.Conv3d, 3),
}
_GROUPS = 4


class SmallCNN(nn.Module):
    """Four convolutions (three halve the size), global average, linear: (b, c, *size) -> (b, k)."""

    def __init__(self, rank: int, channels: int, classes: int, width: int) -> None:
        super().__init__()
        conv, kernel = _CONVOLUTIONS[rank]
        widths = (channels, width, 2 * width, 2 * width, 4 * width)
        layers: list[nn.Module] = []
        for inner, outer, stride in zip(widths, widths[1:], (1, 2, 2, 2), strict=False):
            layers += [conv(inner, outer, kernel, stride, kernel // 2), nn.GroupNorm(_GROUPS, outer), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.features(x).flatten(2).mean(2))
        return scores


def small_cnn(rank: int, channels: int, classes: int, width: int = 16) -> nn.Module:
    """A classifier of a few ten thousand parameters for signals (rank 1), images (2) or clips (3)."""
    if rank not in _CONVOLUTIONS:
        raise InputError(f"expected rank 1, 2 or 3 for signals, images or clips, got {rank}")
    if width < _GROUPS or width % _GROUPS:
        raise InputError(f"expected a width that is a multiple of {_GROUPS}, got {width}")
    return SmallCNN(rank, channels, classes, width)


def demo_victim(name: str, device: str | None = None) -> TorchVictim:
    """The victim that ships with the demo data `name`: digits, ecg or clips."""
    if name not in DEMOS:
        raise InputError(f"unknown demo model {name!r}: expected one of {', '.join(DEMOS)}")
    with as_file(files("rlab") / "assets" / f"demo_{name}.safetensors") as path:
        with safe_open(path, "pt") as file:  # the header holds the network's shape, mean, std and bounds as JSON
            about = {key: json.loads(text) for key, text in file.metadata().items()}
        model = small_cnn(about["rank"], about["channels"], about["classes"], about["width"])
        model.load_state_dict(load_file(path))
    low, high = about["bounds"]
    return TorchVictim(model, mean=about["mean"], std=about["std"], bounds=(low, high), device=device)
