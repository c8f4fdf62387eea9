"""Moved."""

raise ImportError("rlab.victims.zoo.clip_nets is now benchmarks.victims.clip_nets in the repository")
