"""The stage of an image, or of a clip: the frame with the most distorted patches, or a strip of frames."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling

from rlab.present.colours import to_colours
from rlab.present.inline import SMOOTH_FROM, image_address
from rlab.present.viewer import Mark, Stage, Timeline, runs
from rlab.results.plots.clip import touched_by_frame
from rlab.results.plots.pixels import FATES, boxes_of, changed_points, magnification, to_unit
from rlab.results.plots.sample import OTHERS, Array, Sample

PIXELS = 30e6  # maximum of all pictures on a page, which keeps it below 20 MB
LOSSLESS = 3e6  # pixels on a page; above, pictures are compressed with losses
LONGEST = 16_000  # pixels of a side, as WebP allows
STILLS = 32  # frames of a strip, besides the one that changed most


def entry_mark(sample: Sample, entry: int, strength: float, path: str, first: int = 0, last: int = 0) -> Mark:
    """A path in the look of a palette entry, dashed if an earlier entry has the same colour."""
    look = sample.looks[entry]
    return Mark(look.colour, look.name, path, first, last, bool(look.hatch), strength=strength)


def picture_stage(sample: Sample, among: int, still: bool = False) -> Stage:
    """x: (c, h, w) or (c, t, h, w); only the frame that changed most if `still`."""
    height, width = sample.x0.shape[-2:]
    x0, x = (to_colours(values).reshape(-1, height, width, 3) for values in to_unit(sample))
    counts = touched_by_frame(sample) if len(sample.setting.size) > 2 else None
    best = 0 if counts is None else int(counts.sum(0).argmax())
    frames = [best] if counts is None or still else spread(len(x0), best)
    before, after = to_bytes(x0[frames]), to_bytes(x[frames])
    differs = (x0[frames] != x[frames]).any(-1, keepdims=True)
    layer = np.concatenate([np.where(differs, after, 0), 255 * differs], -1).astype(np.uint8)  # transparent
    timeline = None
    if counts is not None and not still:
        colours = [sample.looks[entry].colour if entry in sample.looks else OTHERS for entry in range(1, len(counts))]
        timeline = Timeline(frames, len(x0), bars(counts[1:], colours), frames.index(best))
    return Stage(
        width,
        height,
        [mark for mark in (*_marks(sample), *prediction_marks(sample)) if timeline or mark.first <= best <= mark.last],
        magnification(float(np.abs(x - x0).max())),
        strip_address(before, among),
        strip_address(layer, among),
        smooth=min(height, width) >= SMOOTH_FROM,
        timeline=timeline,
    )


def _marks(sample: Sample) -> tuple[Mark, ...]:
    """The patches of an image or clip in pixels, one path per entry, strength and range of frames."""
    paths: dict[tuple[int, float, int, int], list[str]] = defaultdict(list)
    for patch, entry in sample.touched:
        *when, rows, columns = sample.setting.grid.box(patch)
        first, stop = (when[0].start, when[0].stop) if when else (0, 1)
        wide, high = columns.stop - columns.start, rows.stop - rows.start
        at = (list(sample.looks).index(entry), sample.strengths[patch], first, stop - 1)
        paths[at].append(f"M{columns.start} {rows.start}h{wide}v{high}h-{wide}z")
    entries = list(sample.looks)
    return tuple(
        entry_mark(sample, entries[k], strength, "".join(parts), first, last)
        for (k, strength, first, last), parts in sorted(paths.items())
    )


def prediction_marks(sample: Sample) -> list[Mark]:
    """The boxes that are kept, lost and new, and the edges of where a map changes."""
    marks = []
    for box in boxes_of(sample):
        x1, y1, x2, y2 = box.xyxy
        path = f"M{x1:.1f} {y1:.1f}h{x2 - x1:.1f}v{y2 - y1:.1f}h-{x2 - x1:.1f}z"
        marks.append(Mark(FATES[box.fate], f"{box.fate}: {box.words}", path, frame=True))
    changed = changed_points(sample)
    if changed is not None and changed.ndim == 2 and changed.any():
        marks.append(Mark(FATES["lost"], "class changed", outline(changed), frame=True))
    return marks


def outline(mask: NDArray[np.bool_]) -> str:
    """(h, w) -> a path along the edges of the mask."""
    wide = np.pad(mask, 1)
    across, down = wide[1:, 1:-1] != wide[:-1, 1:-1], wide[1:-1, 1:] != wide[1:-1, :-1]
    path = "".join(f"M{a} {y}h{b - a}" for y, row in enumerate(across) for a, b in runs(row))
    return path + "".join(f"M{x} {a}v{b - a}" for x, column in enumerate(down.T) for a, b in runs(column))


def spread(length: int, best: int) -> list[int]:
    """Frames of a clip for a strip: the best one, and others at even distances."""
    return sorted({best, *np.linspace(0, length - 1, min(length, STILLS)).round().astype(int).tolist()})


def strip_address(frames: NDArray[np.uint8], among: int) -> str:
    """Frames (n, h, w, colours) one below the other, as a data: URL."""
    return small_address(Image.fromarray(frames.reshape(-1, *frames.shape[2:])), among)


def small_address(image: Image.Image, among: int) -> str:
    """A picture as a data: URL, reduced if there are `among` such pictures on the page."""
    pixels = among * image.width * image.height
    scale = min(math.sqrt(PIXELS / pixels), LONGEST / max(image.size))
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Resampling.LANCZOS)
    return image_address(image, lossy=pixels > LOSSLESS)


def to_bytes(values: Array) -> NDArray[np.uint8]:
    return (values * 255).round().astype(np.uint8)


def bars(layers: NDArray[Any], colours: Sequence[str]) -> list[tuple[str, str]]:
    """A bar per frame with the layers (k, t) stacked: the colour and the path of each layer."""
    heights = 100 * layers / (layers.sum(0).max() or 1)
    feet = 100 - heights.cumsum(0) + heights
    return [
        (colour, "".join(f"M{t + 0.05:g} {feet[k, t]:.4g}h.9v-{heights[k, t]:.4g}h-.9z" for t in layer.nonzero()[0]))
        for k, (colour, layer) in enumerate(zip(colours, layers, strict=True))
        if layer.any()
    ]
