"""What a frame looks like as a vector: a small convolutional network that learns with the agents, or MobileNet-V2.

Either way a frame is looked at once a clip. The small network keeps the frame at 16 x 16 and learns from there; MobileNet-V2
(https://arxiv.org/abs/1801.04381) is frozen, its weights are a file of the user's, and only a linear layer learns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.errors import InputError
from rlab.policies.video.view import in_channels

Encoder = Literal["small", "mobilenet"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
SIDE, MOBILE_SIDE, MOBILE_DEPTH = 16, 160, 1280
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# expansion, channels, blocks, stride of each stage
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def depth_of(encoder: Encoder, channels: int) -> int:
    """Numbers a frame that `look` gives."""
    return MOBILE_DEPTH if encoder == "mobilenet" else channels * SIDE * SIDE


@torch.no_grad()
def look(x: Tensor, frames: int, channels: int, mobilenet: MobileNet | None = None) -> Tensor:
    """Clips (n, c, t, h, w) in 0..1 -> (n, frames, k): each frame as the agents' encoders take it."""
    side = SIDE if mobilenet is None else MOBILE_SIDE
    x = in_channels(x, channels if mobilenet is None else 3)
    flat = F.adaptive_avg_pool3d(x, (frames, *x.shape[3:])).transpose(1, 2)
    if mobilenet is None:
        return F.adaptive_avg_pool2d(flat.flatten(0, 1), side).unflatten(0, (len(x), frames)).flatten(2)
    pictures = F.interpolate(flat.flatten(0, 1), size=(side, side), mode="bilinear", align_corners=False)
    return torch.cat([mobilenet(part) for part in pictures.split(128)]).unflatten(0, (len(x), frames))


class Trunk(nn.Module):
    """What `look` gives (n, t, k) -> features (n, t, width), learned with an agent."""

    def __init__(self, encoder: Encoder, channels: int, width: int) -> None:
        super().__init__()
        self.channels, self.small = channels, encoder == "small"
        if self.small:
            steps = ((channels, width // 2), (width // 2, width), (width, width))
            layers: list[nn.Module] = []
            for before, after in steps:
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.SiLU()]
            self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        else:
            self.net = nn.Sequential(nn.LayerNorm(MOBILE_DEPTH), nn.Linear(MOBILE_DEPTH, width), nn.SiLU())

    def forward(self, frames: Tensor) -> Tensor:
        n, t, _ = frames.shape
        flat = frames.flatten(0, 1)
        if self.small:
            flat = flat.view(-1, self.channels, SIDE, SIDE) - 0.5
        made: Tensor = self.net(flat)
        return made.view(n, t, -1)


class MobileNet(nn.Module):
    """MobileNet-V2 up to its pooled features: (n, 3, h, w) in 0..1 -> (n, 1280); parameters named as torchvision names them."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        before = 32
        for expansion, after, blocks, stride in _STAGES:
            for i in range(blocks):
                layers.append(_Inverted(before, after, stride if i == 0 else 1, expansion))
                before = after
        self.features = nn.Sequential(*layers, _conv(before, MOBILE_DEPTH, 1, 1))
        self.register_buffer("mean", torch.tensor(_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.features((x - self.get_buffer("mean")) / self.get_buffer("std"))
        return found.mean((2, 3))


class _Inverted(nn.Module):
    """Widen, filter each channel, narrow; added to its input where the shapes allow."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        widen = [_conv(before, wide, 1, 1)] if expansion != 1 else []
        narrow = [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
        self.conv = nn.Sequential(*widen, _conv(wide, wide, 3, stride, groups=wide), *narrow)
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.adds else out


def _conv(before: int, after: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, after, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())


def read_mobilenet(path: str | Path) -> MobileNet:
    """MobileNet-V2 with the weights of a file, .safetensors or a plain torch state dict, as torchvision publishes them."""
    place = Path(path)
    if not place.is_file():
        raise InputError(f"there is no file {str(place)!r} with MobileNet-V2 weights: check the path")
    try:
        held = load_file(place) if place.suffix == ".safetensors" else torch.load(place, weights_only=True)
    except (SafetensorError, RuntimeError, OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {str(place)!r} as weights: {str(error).splitlines()[0]}") from error
    except Exception as error:  # torch refuses pickled code with an error class of its own
        raise InputError(f"{str(place)!r} is no plain state dict: save the weights as .safetensors") from error
    net = MobileNet()
    try:
        net.load_state_dict({name: value for name, value in held.items() if name.startswith("features.")})
    except (RuntimeError, AttributeError) as error:
        raise InputError(f"the weights in {str(place)!r} are not those of torchvision's MobileNet-V2") from error
    return net.eval().requires_grad_(False)
