"""Pictures of attack results: single samples and the whole run, for signals, images and clips."""

from rlab.present.plots.moving import sheets
from rlab.present.plots.overview import draw_overview
from rlab.present.plots.save import choose, draw_sample, save_pictures

__all__ = ["choose", "draw_overview", "draw_sample", "save_pictures", "sheets"]
