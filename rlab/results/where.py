"""Where flips are distorted: a map over the mean of the inputs, with a legend."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from PIL import Image
from PIL.Image import Resampling

from rlab.data.kinds import kind_of
from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.inline import image_address
from rlab.present.page import Picture
from rlab.present.table import number
from rlab.present.viewer import Ramp
from rlab.results.data import ResultData
from rlab.results.plots.pixels import SMOOTH_FROM
from rlab.stats import Floats

COLOURS, STEPS = "magma", 6
OPAQUE = 0.65  # of the map; the mean input shines through
MOST = 64  # inputs in the mean
SIDE = 384  # pixels


def where_picture(result: ResultData, share: Floats) -> Picture:
    """`share` has the shape of the grid's cells: the share of flipped samples that distort each place."""
    setting = result.setting
    flat = share.reshape(-1, *share.shape[-2:]).sum(0)
    most = float(flat.max())
    image = kind_of(setting.size) == "image"
    often = f"{most:.0%} of flipped samples" if image else f"{number(most)} patches of a flipped sample"
    high, wide = setting.size[-2:]
    spread = (flat / most).repeat(setting.patch[-2], 0).repeat(setting.patch[-1], 1)[:high, :wide]
    colours = matplotlib.colormaps[COLOURS]
    mean, under = _mean(result)
    mixed = colours(spread)[..., :3] if mean is None else (1 - OPAQUE) * mean + OPAQUE * colours(spread)[..., :3]
    ramp = Ramp([to_hex(colours(k / (STEPS - 1))) for k in range(STEPS)], "never", often)
    return Picture(_enlarged(mixed), f"how often each place is distorted, at most {often}", "Where", under, ramp=ramp)


def _mean(result: ResultData) -> tuple[Floats | None, str]:
    """(h, w, 3): the mean of flipped inputs, and of the frames of clips, with a caption; none if inputs were not kept."""
    rows = [i for i in result.succeeded.nonzero().flatten().tolist() if result.inputs.has(i)][:MOST]
    if not rows:
        return None, ""
    x = result.inputs.read(rows)[0].float().mean(0).cpu().numpy()
    x = x.mean(1) if x.ndim > 3 else x
    mean: Floats = to_colours(scaled(x, value_range(result.setting.bounds, x))).astype(np.float64)
    return mean, f"Over the mean of {len(rows):,} flipped input{'s' if len(rows) > 1 else ''}."


def _enlarged(colours: Floats) -> str:
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    times = max(1, SIDE // max(picture.size))
    how = Resampling.LANCZOS if min(picture.size) >= SMOOTH_FROM else Resampling.NEAREST
    return image_address(picture.resize((picture.width * times, picture.height * times), how))
