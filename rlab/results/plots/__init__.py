"""Pictures of attack results: one sample, the whole run, and the files of both. This is where rank is told apart."""

from rlab.results.plots.moving import sheets
from rlab.results.plots.overview import draw_overview
from rlab.results.plots.save import choose, draw_sample, save_pictures

__all__ = ["choose", "draw_overview", "draw_sample", "save_pictures", "sheets"]
