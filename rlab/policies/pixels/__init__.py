"""Free pixels: any perturbation of all values."""

from rlab.policies.pixels.policy import PixelPolicy

__all__ = ["PixelPolicy"]
