"""Boxes and maps over a picture: what the model predicts before and after an attack."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rlab.predictions.maps import decode_map
from rlab.results.plots.sample import Sample
from rlab.results.predicted import BoxChange, box_changes

FATES = {"kept": "#1B9E77", "lost": "#E7298A", "new": "#7570B3"}  # colours of boxes


def boxes_of(sample: Sample) -> list[BoxChange]:
    """The boxes that are kept, lost and new; empty for other predictions."""
    if sample.setting.target != "boxes":
        return []
    return box_changes(sample.setting, sample.before, sample.after)


def changed_points(sample: Sample) -> NDArray[np.bool_] | None:
    """(*size) bool: where the class of a map changes; None for other predictions."""
    size = sample.setting.size
    if sample.setting.target != "map":
        return None
    before, after = (decode_map(rows[None], size)[0] for rows in (sample.before, sample.after))
    changed = before != after
    for axis, length in enumerate(size):
        changed = changed.index_select(axis, torch.arange(length) * changed.shape[axis] // length)
    found: NDArray[np.bool_] = changed.numpy()
    return found


def draw_predictions(ax: Axes, sample: Sample, after: bool) -> None:
    """Draw the boxes of one side of the attack, or where a map changes, over a picture."""
    for box in boxes_of(sample):
        if box.fate != ("lost" if after else "new"):
            x1, y1, x2, y2 = box.xyxy
            colour = FATES[box.fate]
            ax.add_patch(Rectangle((x1 - 0.5, y1 - 0.5), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=1.8))
            words = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}
            ax.text(
                x1, y1, f"{box.words} ({box.fate})", color="white", fontsize=6.5, va="top", bbox=words, clip_on=True
            )
    changed = changed_points(sample)
    if changed is not None and after and changed.ndim == 2:
        layer = np.zeros((*changed.shape, 4), dtype=np.float32)
        layer[changed] = (0.91, 0.16, 0.54, 0.55)
        ax.imshow(layer, interpolation="nearest")
