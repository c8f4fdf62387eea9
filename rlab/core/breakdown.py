"""Moved."""

raise ImportError("rlab.core.breakdown is now rlab.results.breakdown")
