"""Natural distortions: built-in filters by name or as objects, and your own as functions."""

from rlab.filters import audio, clinical, clips, corruptions, image, signal, values, weather  # noqa: F401
from rlab.filters.base import FAMILIES, Filter, register
from rlab.filters.check import check_filter, check_palette
from rlab.filters.named import Distortion
from rlab.filters.palette import Entry, Palette, find

__all__ = ["FAMILIES", "Distortion", "Entry", "Filter", "Palette", "check_filter", "check_palette", "find", "register"]


def __dir__() -> list[str]:
    return __all__
