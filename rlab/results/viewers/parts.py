"""What viewers of all ranks share: the model's answers and the distorted patches of a sample."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from rlab.present.style import HUES, hue
from rlab.present.viewer import Answer, Mark
from rlab.results.plots.sample import TOP, Sample, class_name, entry_name


def answers(sample: Sample) -> tuple[Answer, ...]:
    """The classes with the highest probabilities before or after, and the true classes."""
    before, after = np.nan_to_num(sample.before), np.nan_to_num(sample.after)
    order = np.argsort(-np.maximum(before, after), kind="stable").tolist()
    shown = [*order[:TOP], *(k for k in order[TOP:] if k in sample.true)]
    return tuple(
        Answer(class_name(sample.setting, k), k in sample.true, float(before[k]), float(after[k])) for k in shown
    )


def marks(sample: Sample) -> tuple[Mark, ...]:
    """The patches of an image or clip in pixels, one path per entry and range of frames."""
    paths: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for patch, entry in sample.touched:
        *when, rows, columns = sample.setting.grid.box(patch)
        first, stop = (when[0].start, when[0].stop) if when else (0, 1)
        wide, high = columns.stop - columns.start, rows.stop - rows.start
        paths[entry, first, stop - 1].append(f"M{columns.start} {rows.start}h{wide}v{high}h-{wide}z")
    return tuple(
        Mark(hue(entry), entry_name(sample.setting, entry), "".join(parts), first, last, dashed(entry))
        for (entry, first, last), parts in sorted(paths.items())
    )


def dashed(entry: int) -> bool:
    """Whether the entry shares its colour with an earlier one."""
    return entry > len(HUES)
