"""The models: YOLOX-nano and DeepLab as published, a small segmenter and a regressor that are trained here in seconds."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data import Absent, real
from rlab.data.batch import Batch
from rlab.victims.callables import CallableVictim
from rlab.victims.runtimes import TfliteVictim
from rlab.victims.torch_module import TorchVictim

Floats = NDArray[np.float32]
YOLOX_SIDE, STRIDES = 416, (8, 16, 32)
EPOCHS, RATE = 14, 4e-3  # of the segmenter
AGE_EPOCHS = 12
DEEPLAB_SIDE = 513


def yolox() -> CallableVictim:
    """YOLOX-nano on images (n, 3, 416, 416) in [0, 1]: boxes of the 80 classes of COCO."""
    try:
        import onnxruntime
    except ImportError as error:
        raise Absent("onnxruntime is not installed (extra 'onnx')") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(real("detectors/yolox_nano.onnx")), options)
    name = session.get_inputs()[0].name

    def detect(x: Floats) -> Floats:
        images = np.ascontiguousarray(255 * x[:, ::-1])
        return decoded(np.concatenate([session.run(None, {name: image[None]})[0] for image in images]))

    return CallableVictim(detect, outputs="boxes", box_format="xywh", box_columns="objectness")


def decoded(outputs: Floats) -> Floats:
    """Undecoded outputs (n, 3549, 85) of YOLOX -> centre and size in pixels, objectness and scores."""
    cells, strides = _cells()
    middle, size = (outputs[..., :2] + cells) * strides, np.exp(outputs[..., 2:4]) * strides
    return np.concatenate([middle, size, outputs[..., 4:]], -1).astype(np.float32)


@cache
def _cells() -> tuple[Floats, Floats]:
    cells, strides = [], []
    for stride in STRIDES:
        n = YOLOX_SIDE // stride
        down, across = np.mgrid[:n, :n]
        cells.append(np.stack([across, down], -1).reshape(-1, 2))
        strides.append(np.full((n * n, 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def deeplab() -> TfliteVictim:
    """DeepLabv3 on images (n, 3, 513, 513) in [0, 1]: the class of each pixel, of Pascal VOC, without scores."""
    return TfliteVictim(real("segmentation/deeplabv3_mnv2_pascal_quant.tflite"), outputs="map")


class Segmenter(nn.Module):
    """A small U-Net: images (n, 3, h, w) -> scores (n, 2, h, w) of background and pet."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(_block(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(_block(widths[i] + widths[i - 1], widths[i - 1]) for i in (3, 2, 1))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for number, block in enumerate(self.up):
            other = kept[2 - number]
            x = block(torch.cat([F.interpolate(x, other.shape[2:], mode="bilinear"), other], 1))
        scores: Tensor = self.last(x)
        return scores


def _block(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
    )  # fmt: skip


def segmenter(train: Batch) -> TorchVictim:
    """Train a segmenter on images with maps of the same size (at most 128 pixels), with mirrored copies."""
    torch.manual_seed(0)
    net, side = Segmenter(), train.size[0]
    truth = train.y.view(len(train), side, side)
    steps = EPOCHS * -(-len(train) // 16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train)).split(16):
            x, y = train.x[rows], truth[rows]
            if torch.rand(()) < 0.5:
                x, y = x.flip(-1), y.flip(-1)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y, ignore_index=-1).backward()
            optimizer.step()
            schedule.step()
    return TorchVictim(net.eval(), outputs="map")


def regressor(train: Batch) -> TorchVictim:
    """Train a network that predicts a number, such as the age, from records (n, 12, 1000)."""
    torch.manual_seed(0)
    mean, spread = train.y.mean(0), train.y.std(0)
    net = nn.Sequential(
        *_layer(train.shape[0], 32, 4), *_layer(32, 48, 4), *_layer(48, 64, 4), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    for _ in range(AGE_EPOCHS):
        for rows in torch.randperm(len(train)).split(32):
            optimizer.zero_grad()
            F.smooth_l1_loss(net(train.x[rows]), (train.y[rows] - mean) / spread).backward()
            optimizer.step()
    return TorchVictim(Scaled(net, mean, spread).eval(), outputs="numbers", bounds=train.bounds)


def _layer(inside: int, outside: int, stride: int) -> list[nn.Module]:
    return [nn.Conv1d(inside, outside, 9, stride, 4), nn.BatchNorm1d(outside), nn.ReLU()]


class Scaled(nn.Module):
    """A network's answer in the unit of the targets."""

    def __init__(self, net: nn.Module, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.net(x) * self.get_buffer("spread") + self.get_buffer("mean")
        return answer
