"""ImageNet networks of other families than EfficientNet-Lite: SqueezeNet 1.1, and MobileNet-V1 as a TFLite file."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from benchmarks.data import real
from rlab.victims.callables import CallableVictim
from rlab.victims.runtimes import TfliteVictim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

CAFFE_MEAN = (123.0 / 255, 117.0 / 255, 104.0 / 255)  # of red, green and blue
MOBILENET_SIZE = 192


class Fire(nn.Module):
    """Squeeze by 1x1, expand by 1x1 and 3x3 (Iandola et al. 2016, https://arxiv.org/abs/1602.07360)."""

    def __init__(self, inner: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x).relu()
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1).relu()


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 with torchvision's names: (b, 3, h, w), blue first, 0 to 255 minus a mean -> (b, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool, Fire(64, 16, 64), Fire(128, 16, 64), pool, Fire(128, 32, 128),
            Fire(256, 32, 128), pool, Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(255 * x.flip(1)))
        return scores.mean((2, 3))


def squeezenet_victim(device: str = "cpu") -> TorchVictim:
    """Takes red first in [0, 1]; its 227 pixels may be 224, because it averages over whatever it gets."""
    net = load_weights(SqueezeNet(), real("classifiers/squeezenet_v1.1_fp16.safetensors"))
    return TorchVictim(net.float(), mean=CAFFE_MEAN, std=(1.0,) * 3, outputs="logits", device=device)


def mobilenet_victim() -> CallableVictim:
    """MobileNet-V1 0.75 in eight bits, which has no gradients; it resizes photos to 192 pixels itself."""
    net = TfliteVictim(real("classifiers/mobilenet_v1_0.75_192_quant.tflite"), outputs="probabilities")

    def predict(x: NDArray[np.float32]) -> Tensor:
        small = interpolate(torch.from_numpy(x), (MOBILENET_SIZE,) * 2, mode="bilinear", antialias=True)
        return net(small.clamp(0, 1)).exp()[:, 1:]  # the first of its 1,001 classes is background

    return CallableVictim(predict, outputs="probabilities")
