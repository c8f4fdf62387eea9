"""Natural distortions: built-in filters by name or as objects, and your own as functions."""

from rlab.filters import image, signal, values  # noqa: F401  # the import registers the built-in filters
from rlab.filters.base import FAMILIES, Filter, register
from rlab.filters.check import check_filter, check_palette
from rlab.filters.named import (
    AmplitudeScaling,
    BaselineWander,
    ChannelShift,
    Contrast,
    DeadPixel,
    Distortion,
    DistortionFamily,
    ElectrodeMotion,
    Fgsm,
    Flicker,
    FrozenFrame,
    GaussianBlur,
    GaussianNoise,
    Illuminate,
    Jpeg,
    LeadDropout,
    MotionBlur,
    MuscleNoise,
    Pgd,
    Pixelate,
    PowerlineHum,
    SaltAndPepper,
    Smoothing,
)
from rlab.filters.palette import Entry, Palette, find

__all__ = [
    "FAMILIES",
    "AmplitudeScaling",
    "BaselineWander",
    "ChannelShift",
    "Contrast",
    "DeadPixel",
    "Distortion",
    "DistortionFamily",
    "ElectrodeMotion",
    "Entry",
    "Fgsm",
    "Filter",
    "Flicker",
    "FrozenFrame",
    "GaussianBlur",
    "GaussianNoise",
    "Illuminate",
    "Jpeg",
    "LeadDropout",
    "MotionBlur",
    "MuscleNoise",
    "Palette",
    "Pgd",
    "Pixelate",
    "PowerlineHum",
    "SaltAndPepper",
    "Smoothing",
    "check_filter",
    "check_palette",
    "find",
    "register",
]


def __dir__() -> list[str]:
    return __all__
