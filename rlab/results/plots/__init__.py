"""Pictures of attack results: single samples and the whole run, for signals, images and clips."""

from rlab.results.plots.save import choose, draw_overview, draw_sample, save_pictures

__all__ = ["choose", "draw_overview", "draw_sample", "save_pictures"]
