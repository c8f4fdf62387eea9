"""Natural distortions: built-in filters by name or as objects, and your own as functions."""

from rlab.filters import clinical, clips, corruptions, elastic, image, signal, values, weather  # noqa: F401
from rlab.filters.base import FAMILIES, Filter, register
from rlab.filters.check import check_filter, check_palette
from rlab.filters.named import (
    AmplitudeScaling,
    BaselineWander,
    ChannelShift,
    Contrast,
    Corruption,
    DeadPixel,
    Distortion,
    DistortionFamily,
    Dropout,
    ElectrodeMotion,
    Fgsm,
    Flicker,
    FrozenFrame,
    GaussianBlur,
    GaussianNoise,
    HighPass,
    Illuminate,
    Jpeg,
    LeadDropout,
    MotionBlur,
    MuscleNoise,
    Pgd,
    Pixelate,
    PowerlineHum,
    Resampling,
    SaltAndPepper,
    Saturation,
    Smoothing,
)
from rlab.filters.palette import Entry, Palette, find

__all__ = [
    "FAMILIES",
    "AmplitudeScaling",
    "BaselineWander",
    "ChannelShift",
    "Contrast",
    "Corruption",
    "DeadPixel",
    "Distortion",
    "DistortionFamily",
    "Dropout",
    "ElectrodeMotion",
    "Entry",
    "Fgsm",
    "Filter",
    "Flicker",
    "FrozenFrame",
    "GaussianBlur",
    "GaussianNoise",
    "HighPass",
    "Illuminate",
    "Jpeg",
    "LeadDropout",
    "MotionBlur",
    "MuscleNoise",
    "Palette",
    "Pgd",
    "Pixelate",
    "PowerlineHum",
    "Resampling",
    "SaltAndPepper",
    "Saturation",
    "Smoothing",
    "check_filter",
    "check_palette",
    "find",
    "register",
]


def __dir__() -> list[str]:
    return __all__
