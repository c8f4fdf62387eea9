"""Compare `rlab.corruptions` with the published code, given the same random numbers.

The published code is the package imagecorruptions 1.1.2 (pip install --no-deps imagecorruptions==1.1.2); a few lines here let it
run with today's numpy and scikit-image. Frost is left out: ours is a generated texture, theirs are photographs.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.data import Absent
from rlab.corruptions import KINDS, LEVELS, corrupt
from rlab.filters.base import FAMILIES

EXACT = tuple(kind for kind in KINDS if kind != "frost")
SIDE = 224


def pictures(n: int = 2, side: int = SIDE) -> Tensor:
    """(n, 3, side, side): what photographs have, smooth parts, edges and grain, in whole 255ths."""
    rng = Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 8, 8, generator=rng)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    at = torch.linspace(-1, 1, side)
    disk = (at[:, None] ** 2 + at**2 < 0.3).float()
    return (
        255 * (0.7 * smooth + 0.2 * disk + 0.05 * torch.rand(n, 3, side, side, generator=rng)).clamp(0, 1)
    ).round() / 255


class SameNumbers:
    """Stands in for numpy's random numbers: gives the published code those that ours draws."""

    def __init__(self, seed: int, shape: tuple[int, int]) -> None:
        self.rng, self.shape = Generator().manual_seed(seed), shape
        self.moves: Iterator[tuple[int, int]] = iter(())

    def _array(self, sampler: Callable[..., Tensor], size: tuple[int, ...]) -> Any:
        drawn = sampler((1, *size[2:], *size[:2]), generator=self.rng)
        return drawn[0].movedim(0, -1).double().numpy() if size[2:] else drawn[0].double().numpy()

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: tuple[int, ...] = ()) -> Any:
        return loc + scale * self._array(torch.randn, size)

    def uniform(self, low: float, high: float, size: tuple[int, ...] = ()) -> Any:
        drawn = self._array(torch.rand, size) if size else float(torch.rand(1, generator=self.rng))
        return low + (high - low) * drawn

    def poisson(self, light: Any) -> Any:
        return torch.poisson(torch.from_numpy(light).float().movedim(-1, 0), generator=self.rng).movedim(0, -1).numpy()

    def randint(self, low: int, high: int, size: tuple[int, ...]) -> tuple[int, int]:
        """The steps of glass, from the last pixel to the first: across, then down."""
        try:
            return next(self.moves)
        except StopIteration:
            height, width = self.shape
            steps = ((high - low) * torch.rand(1, 2, height, width, generator=self.rng)).floor().long()[0] + low
            down, across = steps.tolist()
            rows, columns = range(height - high, high, -1), range(width - high, high, -1)
            self.moves = iter([(across[h][w], down[h][w]) for h in rows for w in columns])
            return next(self.moves)

    def salt_and_pepper(self, image: Any, mode: str, amount: float) -> Any:
        hit, salt = (self._array(torch.rand, image.shape) for _ in range(2))
        return np.where(hit <= amount, salt <= 0.5, image)


def published() -> types.ModuleType:
    """The module imagecorruptions.corruptions, able to run today."""
    import scipy.ndimage
    import skimage.filters

    sys.modules.setdefault("scipy.ndimage.interpolation", scipy.ndimage)
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda package, path: path  # type: ignore[attr-defined]
    sys.modules.setdefault("pkg_resources", resources)
    try:
        import imagecorruptions.corruptions as module  # type: ignore[import-not-found]
    except ImportError as error:
        raise Absent("imagecorruptions is not installed: pip install --no-deps imagecorruptions==1.1.2") from error

    def gaussian(image: Any, sigma: Any, multichannel: bool = False, **more: Any) -> Any:
        return skimage.filters.gaussian(image, sigma, channel_axis=-1 if multichannel else None, **more)

    module.gaussian = gaussian
    return module


def differences(side: int = SIDE) -> dict[str, list[float]]:
    """Mean absolute difference by kind, one figure per level, as a share of the range."""
    from PIL import Image

    module, x, table = published(), pictures(side=side), dict[str, list[float]]()
    for kind in EXACT:
        table[kind] = []
        for level in LEVELS:
            far = 0.0
            for row in x.split(1):
                numbers = SameNumbers(level, (side, side))
                module.np = types.SimpleNamespace(**{**vars(np), "random": numbers, "float_": np.float64})
                module.sk = types.SimpleNamespace(
                    color=__import__("skimage.color").color,
                    util=types.SimpleNamespace(random_noise=numbers.salt_and_pepper),
                )
                image = Image.fromarray((row[0].movedim(0, -1) * 255).round().byte().numpy())
                theirs = np.asarray(getattr(module, kind)(image, level), dtype=np.float64) / 255
                ours = FAMILIES[f"c_{kind}"](3)[0](row, level, Generator().manual_seed(level)).clamp(0, 1)
                far += float(np.abs(ours[0].movedim(0, -1).double().numpy() - theirs).mean()) / len(x)
            table[kind].append(far)
    return table


def images_per_second(n: int = 64, side: int = 32) -> float:
    """How many small images `corrupt` makes in a second, over the fifteen kinds at level 3."""
    x = pictures(n, side)
    start = time.perf_counter()
    for kind in KINDS:
        corrupt(x, kind, 3)
    return n * len(KINDS) / (time.perf_counter() - start)
