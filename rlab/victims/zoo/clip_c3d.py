"""C3D: a plain stack of 3x3x3 convolutions and poolings (Tran et al. 2015, https://arxiv.org/abs/1412.0767)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

# Convolutions as multiples of the width, "pool" between them; the first pooling leaves time alone.
_LAYERS = (
    ("1a", 1),
    "pool",
    ("2a", 2),
    "pool",
    ("3a", 4),
    ("3b", 4),
    "pool",
    ("4a", 8),
    ("4b", 8),
    "pool",
    ("5a", 8),
    ("5b", 8),
)
_PUBLISHED = 8192  # values before fc6 for 16 x 112 x 112 at width 64


class C3D(nn.Module):
    """(b, 3, t, h, w) -> (b, classes). As published, `width` 64 and `hidden` 4096, it takes 16 x 112 x 112 alone.

    `compact` puts batch norm behind every convolution and a global average before the first linear layer: it trains from
    few clips, and takes any size.
    """

    def __init__(self, classes: int, width: int = 64, hidden: int = 4096, compact: bool = False) -> None:
        super().__init__()
        self.compact = compact
        sizes = [3, *(width * layer[1] for layer in _LAYERS if not isinstance(layer, str))]
        names = [layer[0] for layer in _LAYERS if not isinstance(layer, str)]
        for name, (inner, outer) in zip(names, pairwise(sizes), strict=True):
            self.add_module(f"conv{name}", nn.Conv3d(inner, outer, 3, padding=1, bias=not compact))
            if compact:
                self.add_module(f"bn{name}", nn.BatchNorm3d(outer))
        self.fc6 = nn.Linear(sizes[-1] if compact else _PUBLISHED * width // 64, hidden)
        self.fc7 = nn.Linear(hidden, hidden)
        self.fc8 = nn.Linear(hidden, classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self._features(x)
        for layer in (self.fc6, self.fc7):
            h = self.drop(layer(h).relu())
        scores: Tensor = self.fc8(h)
        return scores

    def _features(self, x: Tensor) -> Tensor:
        pools = 0
        for layer in _LAYERS:
            if isinstance(layer, str):
                depth = 1 if pools == 0 else 2
                x, pools = nn.functional.max_pool3d(x, (depth, 2, 2)), pools + 1
            else:
                x = self.get_submodule(f"conv{layer[0]}")(x)
                x = self.get_submodule(f"bn{layer[0]}")(x).relu() if self.compact else x.relu()
        return x.mean((2, 3, 4)) if self.compact else nn.functional.max_pool3d(x, 2, padding=(0, 1, 1)).flatten(1)


def c3d(classes: int = 487) -> nn.Module:
    """As published, 78 million parameters: (b, 3, 16, 112, 112) -> (b, classes)."""
    return C3D(classes)
