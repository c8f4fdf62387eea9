"""Resize an image, and know where each of its points goes, so that boxes and masks move with it."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from rlab.data.fields import Resizing, Size, check_room

GREY = 114  # of the bars that `pad` adds, as detectors are trained with


@dataclass(frozen=True)
class Placement:
    """Scale an image to `scaled` pixels and put its corner at `corner` of a picture of `size`; all are (rows, columns)."""

    original: tuple[int, int]
    scaled: tuple[int, int]
    corner: tuple[int, int]  # negative where the image is cropped
    size: tuple[int, int]

    def box(self, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Where the box x1, y1, x2, y2 of the original image lies in the picture, perhaps beyond its edges."""
        across, down = (self.scaled[axis] / self.original[axis] for axis in (1, 0))
        (top, left), (x1, y1, x2, y2) = self.corner, box
        return x1 * across + left, y1 * down + top, x2 * across + left, y2 * down + top

    def apply(self, image: Image.Image, resampling: Image.Resampling, fill: int) -> Image.Image:
        (high, wide), (top, left), (height, width) = self.scaled, self.corner, self.size
        if self.scaled == self.size == (image.height, image.width):
            return image
        scaled = image.resize((wide, high), resampling)
        if top <= 0 and left <= 0:
            return scaled.crop((-left, -top, width - left, height - top))
        bands = len(image.getbands())
        picture = Image.new(image.mode, (width, height), fill if bands == 1 else (fill,) * bands)
        picture.paste(scaled, (left, top))
        return picture


def sides(size: Size | None) -> tuple[int, int]:
    """Height and width; (0, 0) if `size` is None."""
    return (size, size) if isinstance(size, int) else size or (0, 0)


def place(original: tuple[int, int], size: Size | None, resizing: Resizing = "crop") -> Placement:
    """Fit an image (height, width) to `size`: cover it and crop the centre, stretch, or show all of it between grey bars."""
    if size is None:
        return Placement(original, original, (0, 0), original)
    height, width = sides(size)
    if resizing == "stretch":
        return Placement(original, (height, width), (0, 0), (height, width))
    ratios = height / original[0], width / original[1]
    scale, limit = (max(ratios), max) if resizing == "crop" else (min(ratios), min)
    high, wide = limit(height, round(original[0] * scale)), limit(width, round(original[1] * scale))
    high, wide = max(1, high), max(1, wide)
    check_room(1, (3, high, wide))
    corner = ((height - high) // 2, (width - wide) // 2)
    if resizing == "crop":
        corner = (-((high - height) // 2), -((wide - width) // 2))
    return Placement(original, (high, wide), corner, (height, width))


def fit(image: Image.Image, size: Size | None, resizing: Resizing = "crop") -> Image.Image:
    """The image in `size`, as `place` says."""
    return place((image.height, image.width), size, resizing).apply(image, Image.Resampling.BILINEAR, GREY)
