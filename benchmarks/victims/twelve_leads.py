"""Networks for twelve-lead ECGs: two public ones, as their files run and as torch modules, and a residual network of ours.

Surrogates and CAMs need the gradients of modules. Both files are chains of convolutions, so their graphs translate node by node;
one begins by standardising each lead. `benchmarks.victims.train_twelve` trains ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.data import WEIGHTS, Absent, real, weights
from benchmarks.victims.beat_nets import BeatResidual
from benchmarks.victims.compact import expanding
from rlab.data.batch import UNBOUNDED
from rlab.victims.base import Victim
from rlab.victims.runtimes import OnnxVictim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

CLASSES = ("NORM", "MI", "STTC", "CD", "HYP")
PUBLIC = {"cnn7": ("CD", "HYP", "MI", "NORM", "STTC"), "cnn3": CLASSES}  # the order of each network's outputs
OURS = "twelve_resnet"
TWELVE_LEAD_NETS = {**PUBLIC, OURS: CLASSES}
EPSILON = 1e-8  # beside the standard deviation


class Standardised(nn.Module):
    """Each lead minus its mean, over its standard deviation."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(2, keepdim=True)) / (x.std(2, keepdim=True, correction=0) + EPSILON)


class Ordered(nn.Module):
    """A network whose outputs are brought into the order of CLASSES."""

    def __init__(self, net: nn.Module, order: tuple[str, ...]) -> None:
        super().__init__()
        self.net, self.columns = net, [order.index(name) for name in CLASSES]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(x)[:, self.columns]
        return scores


@expanding
def twelve_resnet() -> nn.Module:
    """A strided convolution and four residual blocks, 380,000 parameters; the mean over time decides."""
    stem = [nn.BatchNorm1d(12), nn.Conv1d(12, 32, 15, 2, 7, bias=False), nn.BatchNorm1d(32), nn.ReLU()]
    blocks = [BeatResidual(*size) for size in ((32, 32, 1), (32, 64, 2), (64, 96, 2), (96, 128, 2))]
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, len(CLASSES))]
    return nn.Sequential(*stem, *blocks, *head)


def twelve_lead_victim(name: str, device: str = "cpu", folder: Path = WEIGHTS) -> TorchVictim:
    """A network for records (12, 1000) in mV at 100 Hz; logits of several labels, in the order of CLASSES."""
    if name == OURS:
        net = load_weights(twelve_resnet(), weights(OURS, folder))
    else:
        net = Ordered(translate(real(f"ecg12/{name}_ptbxl5_100hz.onnx")), PUBLIC[name])
    return TorchVictim(net.eval(), outputs="logits", multilabel=True, bounds=UNBOUNDED, device=device)


def twelve_lead_file(name: str) -> Victim:
    """A public network run by ONNX Runtime, faster than its module and in the order of its own outputs; ours as it is."""
    if name == OURS:
        return twelve_lead_victim(name)
    path = real(f"ecg12/{name}_ptbxl5_100hz.onnx")
    return OnnxVictim(path, output="logits", outputs="logits", multilabel=True, bounds=UNBOUNDED)


def translate(path: Path) -> nn.Sequential:
    """The chain of an ONNX file up to its logits."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise Absent("the package onnx is not installed: pip install onnx") from error
    graph = onnx.load(path).graph
    held = {each.name: torch.tensor(numpy_helper.to_array(each)) for each in graph.initializer}

    def weights(node: onnx.NodeProto) -> tuple[Tensor, Tensor]:
        weight, bias = (held[name] for name in node.input if name in held)
        return weight, bias

    layers: list[nn.Module] = [Standardised()] if graph.node[0].op_type == "ReduceMean" else []
    make: dict[str, Callable[[onnx.NodeProto], nn.Module]] = {
        "Conv": lambda node: _conv(*weights(node)),
        "Relu": lambda node: nn.ReLU(),
        "MaxPool": lambda node: nn.MaxPool1d(2),
        "GlobalAveragePool": lambda node: nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        "Gemm": lambda node: _linear(*weights(node)),
    }
    layers += [make[node.op_type](node) for node in graph.node if node.op_type in make]
    return nn.Sequential(*layers)


def _conv(weight: Tensor, bias: Tensor) -> nn.Module:
    after, before, length = weight.shape
    layer = nn.Conv1d(before, after, length, padding=length // 2)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _linear(weight: Tensor, bias: Tensor) -> nn.Module:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
