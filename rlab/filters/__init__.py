"""Natural distortions: built-in filters by name, and your own as functions."""

from rlab.filters import image, signal, values  # noqa: F401  # the import registers the built-in filters
from rlab.filters.base import FAMILIES, Filter, register
from rlab.filters.check import check_filter, check_palette
from rlab.filters.palette import Entry, Palette, find

__all__ = ["FAMILIES", "Entry", "Filter", "Palette", "check_filter", "check_palette", "find", "register"]
