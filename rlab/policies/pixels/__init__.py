"""Free pixels: any perturbation of all values."""

from rlab.policies.pixels.policy import PixelPolicy
from rlab.policies.pixels.query import Values

__all__ = ["PixelPolicy", "Values"]
