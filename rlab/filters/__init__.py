"""Natural distortions: built-in ones by name, your own as a function."""

from rlab.filters import blur, image, light, noise, recorder, signal, video  # importing them registers their filters
from rlab.filters.base import FAMILIES, Filter, register
from rlab.filters.check import check_filter, check_palette
from rlab.filters.palette import Entry, Palette, find

__all__ = [
    "FAMILIES",
    "Entry",
    "Filter",
    "Palette",
    "blur",
    "check_filter",
    "check_palette",
    "find",
    "image",
    "light",
    "noise",
    "recorder",
    "register",
    "signal",
    "video",
]
