"""The common corruptions of CIFAR-10-C (Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261), as tensor code.

`corrupt(x, "fog", 3, seed)`: fifteen kinds, severities 1 to 5 with the parameters of the paper's script for images of 32 pixels.
It shares no code with rlab's filters, so a model is not measured with what it was hardened with. Unlike in the paper,
frost is a generated texture instead of a photograph, and glass swaps the pixels of all images in the same order.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F

LEVELS = 5


def corrupt(x: Tensor, kind: str, level: int, seed: int = 0) -> Tensor:
    """x (n, 3, h, w) in [0, 1] -> the same; level 1 to 5."""
    rng = Generator(x.device).manual_seed(seed * 1009 + 31 * list(KINDS).index(kind) + level)
    return KINDS[kind](x, level - 1, rng).clamp(0, 1)


def _normal(x: Tensor, rng: Generator, *shape: int) -> Tensor:
    return torch.randn(shape or x.shape, generator=rng, device=x.device)


def _uniform(x: Tensor, rng: Generator, *shape: int) -> Tensor:
    return torch.rand(shape or x.shape, generator=rng, device=x.device)


def gaussian_noise(x: Tensor, level: int, rng: Generator) -> Tensor:
    return x + (0.04, 0.06, 0.08, 0.09, 0.10)[level] * _normal(x, rng)


def shot_noise(x: Tensor, level: int, rng: Generator) -> Tensor:
    photons = (500, 250, 100, 75, 50)[level]
    return torch.poisson(x * photons, generator=rng) / photons


def impulse_noise(x: Tensor, level: int, rng: Generator) -> Tensor:
    hit, salt = _uniform(x, rng) < (0.01, 0.02, 0.03, 0.05, 0.07)[level], _uniform(x, rng) < 0.5
    return torch.where(hit, salt.float(), x)


def _convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Every channel by a kernel (k, k) of odd side, edges mirrored."""
    side = kernel.shape[-1] // 2
    wide = F.pad(x, (side,) * 4, mode="reflect")
    return F.conv2d(wide, kernel.to(x).expand(x.shape[1], 1, *kernel.shape[-2:]), groups=x.shape[1])


def _gaussian(sigma: float, side: int) -> Tensor:
    at = torch.arange(-side, side + 1, dtype=torch.float32)
    line = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = line[:, None] * line
    return kernel / kernel.sum()


def defocus_blur(x: Tensor, level: int, rng: Generator) -> Tensor:
    radius, alias = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[level]
    at = torch.arange(-8.0, 9.0)
    disk = (at[:, None] ** 2 + at**2 <= radius**2).float()
    disk = F.conv2d(F.pad((disk / disk.sum())[None, None], (1,) * 4), _gaussian(alias, 1)[None, None])
    return _convolved(x, disk[0, 0])


def glass_blur(x: Tensor, level: int, rng: Generator) -> Tensor:
    sigma, delta, times = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))[level]
    out, (height, width) = _convolved(x, _gaussian(sigma, 2)).clone(), x.shape[2:]
    steps = torch.randint(-delta, delta, (times, height, width, 2), generator=rng, device=x.device).tolist()
    for step in steps:
        for h in range(height - delta - 1, delta, -1):
            for w in range(width - delta - 1, delta, -1):
                dh, dw = step[h][w]
                here = out[:, :, h, w].clone()
                out[:, :, h, w] = out[:, :, h + dh, w + dw]
                out[:, :, h + dh, w + dw] = here
    return _convolved(out, _gaussian(sigma, 2))


def _smeared(x: Tensor, radius: int, sigma: float, angle: Tensor) -> Tensor:
    """Smear each image along its direction (n,), with the weights of a Gaussian."""
    side = 2 * radius + 1
    weights = torch.exp(-0.5 * (torch.arange(side, device=x.device) / sigma) ** 2)
    out = torch.zeros_like(x)
    identity = torch.eye(2, 3, device=x.device).expand(len(x), 2, 3)
    for at, weight in enumerate((weights / weights.sum()).tolist()):
        theta = identity.clone()
        theta[:, 0, 2], theta[:, 1, 2] = (2 * at * wave / x.shape[-1] for wave in (angle.cos(), angle.sin()))
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        out += weight * F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    return out


def motion_blur(x: Tensor, level: int, rng: Generator) -> Tensor:
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[level]
    return _smeared(x, radius, sigma, (_uniform(x, rng, len(x)) - 0.5) * math.pi / 2)


def zoom_blur(x: Tensor, level: int, rng: Generator) -> Tensor:
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[level], 0.01)
    total = x.clone()
    for factor in factors.tolist():
        theta = torch.eye(2, 3, device=x.device).expand(len(x), 2, 3) / factor
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        total += F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    return total / (len(factors) + 1)


def snow(x: Tensor, level: int, rng: Generator) -> Tensor:
    mean, std, zoom, threshold, radius, sigma, kept = (
        (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95), (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )[level]  # fmt: skip
    n, _, height, width = x.shape
    flakes = mean + std * _normal(x, rng, n, 1, math.ceil(height / zoom), math.ceil(width / zoom))
    flakes = F.interpolate(flakes, (height, width), mode="bilinear", align_corners=False)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    flakes = _smeared(flakes, radius, sigma, -math.pi * (0.75 - 0.5 * _uniform(x, rng, n)))
    grey = (x * torch.tensor([0.299, 0.587, 0.114], device=x.device).view(1, 3, 1, 1)).sum(1, keepdim=True)
    whiter = kept * x + (1 - kept) * torch.maximum(x, grey * 1.5 + 0.5)
    return whiter + flakes + flakes.flip((2, 3))


def _fractal(x: Tensor, rng: Generator, decay: float) -> Tensor:
    """(n, 1, h, w) in [0, 1]: noise at every scale, each `decay` times as strong as the next coarser one."""
    n, _, height, width = x.shape
    total, strength, side = torch.zeros(n, 1, height, width, device=x.device), 1.0, 2
    while side <= height:
        noise = _uniform(x, rng, n, 1, side + 1, side + 1) - 0.5
        total += strength * F.interpolate(noise, (height, width), mode="bicubic", align_corners=True)
        strength, side = strength / decay, 2 * side
    low, high = total.amin((2, 3), keepdim=True), total.amax((2, 3), keepdim=True)
    return (total - low) / (high - low)


def frost(x: Tensor, level: int, rng: Generator) -> Tensor:
    kept, added = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[level]
    ice = (_fractal(x, rng, 1.3) * 1.6 - 0.3).clamp(0, 1)
    tint = torch.tensor([0.85, 0.95, 1.0], device=x.device).view(1, 3, 1, 1)
    return kept * x + added * ice * tint


def fog(x: Tensor, level: int, rng: Generator) -> Tensor:
    thick, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[level]
    brightest = x.flatten(1).amax(1).view(-1, 1, 1, 1)
    return (x + thick * _fractal(x, rng, decay)) * brightest / (brightest + thick)


def brightness(x: Tensor, level: int, rng: Generator) -> Tensor:
    """The V of HSV grows; hue and saturation stay, so all channels are scaled alike."""
    value = x.amax(1, keepdim=True)
    brighter = (value + (0.05, 0.1, 0.15, 0.2, 0.3)[level]).clamp(max=1)
    return torch.where(value > 0, x * brighter / value.clamp(min=1e-6), brighter)


def contrast(x: Tensor, level: int, rng: Generator) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * (0.75, 0.5, 0.4, 0.3, 0.15)[level] + mean


def elastic_transform(x: Tensor, level: int, rng: Generator) -> Tensor:
    strengths = ((0, 1, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
    alpha, sigma, affine = strengths[level]
    n, _, height, width = x.shape
    theta = torch.eye(2, 3, device=x.device) + affine * (2 * _uniform(x, rng, n, 2, 3) - 1)
    moves = 2 * _uniform(x, rng, n, 2, height, width) - 1
    smooth = _convolved(moves, _gaussian(max(sigma * height, 0.3), 3)) * alpha * height
    grid = F.affine_grid(theta, list(x.shape), align_corners=False) + 2 * smooth.movedim(1, 3) / height
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, level: int, rng: Generator) -> Tensor:
    side = round(x.shape[-1] * (0.95, 0.9, 0.85, 0.75, 0.65)[level])
    return F.interpolate(F.interpolate(x, (side, side), mode="area"), tuple(x.shape[2:]), mode="nearest-exact")


def jpeg_compression(x: Tensor, level: int, rng: Generator) -> Tensor:
    def coded(pixels: np.ndarray) -> np.ndarray:
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=(80, 65, 58, 50, 40)[level])
        return np.asarray(Image.open(stream))

    frames = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return torch.from_numpy(np.stack([coded(frame) for frame in frames])).permute(0, 3, 1, 2).to(x) / 255


KINDS: dict[str, Callable[[Tensor, int, Generator], Tensor]] = {
    one.__name__: one
    for one in (
        gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur, snow, frost, fog,
        brightness, contrast, elastic_transform, pixelate, jpeg_compression,
    )
}  # fmt: skip
