"""Moved."""

raise ImportError("rlab.victims.zoo.clips is now benchmarks.victims.clips in the repository")
