"""Imagine before you ask: try candidates on other networks, which costs no query, and query the most promising one."""

from rlab.policies.imagine.policy import ImaginePolicy

__all__ = ["ImaginePolicy"]
