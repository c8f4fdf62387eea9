"""One sample's picture, whatever its rank."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
from matplotlib.figure import Figure

from rlab.core.result import AttackResult
from rlab.present.plots.facts import Sample
from rlab.present.plots.image import draw_image
from rlab.present.plots.signal import draw_signal
from rlab.present.plots.style import STYLE
from rlab.present.plots.video import draw_video

BY_RANK: dict[int, Callable[[Sample], Figure]] = {1: draw_signal, 2: draw_image, 3: draw_video}


def draw_sample(result: AttackResult, index: int) -> Figure:
    """The sample before and after, where it was distorted and by what, and what the model said."""
    sample = Sample.of(result, index)
    with matplotlib.rc_context(STYLE):
        return BY_RANK[result.setting.grid.rank](sample)
