"""Every built-in filter as an object: `GaussianNoise(0.1)` in a palette is the same as 'gaussian_noise@0.1'.

`rlab filters` shows the first sentence of each docstring.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlab.storage.config import named_keywords

__all__ = [
    "AmplitudeScaling",
    "BackgroundNoise",
    "BandLimit",
    "BaselineWander",
    "ChannelShift",
    "Contrast",
    "Corruption",
    "DeadPixel",
    "Distortion",
    "DistortionFamily",
    "Dropout",
    "ElectrodeMotion",
    "FewBits",
    "Fgsm",
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
    "PacketLoss",
    "Pgd",
    "Pixelate",
    "PowerlineHum",
    "Resampling",
    "Reverberation",
    "SaltAndPepper",
    "Saturation",
    "Smoothing",
]
Severity = float | str  # a number, or text with a unit such as '20dB' or '0.3mV'


@named_keywords
@dataclass(frozen=True)
class Distortion:
    """A built-in filter with its severity or severities (default: its usual one); a random filter may have several draws."""

    severity: Severity | Sequence[Severity] | None = None
    draws: int = 1

    def __str__(self) -> str:
        """The same as text, for the command line and for files."""
        listed = [self.severity] if isinstance(self.severity, int | float | str) else self.severity
        severities = "" if listed is None else "@" + ",".join(map(str, listed))
        return f"{self._name}{severities}{f'*{self.draws}' if self.draws != 1 else ''}"

    @property
    def _name(self) -> str:
        """GaussianNoise -> gaussian_noise."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()


@named_keywords
@dataclass(frozen=True)
class DistortionFamily(Distortion):
    """Filters with one name; `only` selects one of them: '+' or '-', '50' or '60' Hz, '+-+' for three channels."""

    only: str = ""

    @property
    def _name(self) -> str:
        return f"{super()._name}{self.only}"


@named_keywords
@dataclass(frozen=True)
class Corruption(Distortion):
    """A common corruption, such as kind="fog"; its severity is the published level, 1 to 5."""

    kind: str = "fog"

    @property
    def _name(self) -> str:
        return f"c_{self.kind}"


class GaussianBlur(Distortion):
    """Out-of-focus optics, a smoothed signal; severity is the standard deviation in pixels or samples."""


class MotionBlur(Distortion):
    """Camera motion in a random direction; severity is the length of the motion in pixels."""


class Pixelate(Distortion):
    """Low resolution; severity is the side of a block in pixels."""


class Jpeg(Distortion):
    """JPEG compression; severity is 100 minus the encoder's quality."""


class FrozenFrame(Distortion):
    """A stalled stream; severity is the number of frames for which the picture freezes."""


class Flicker(Distortion):
    """Light or exposure that varies from frame to frame; severity is the largest step as a share of the range."""


class BaselineWander(Distortion):
    """Breathing, 0.05 to 0.2 Hz (0.5 to 2 cycles per window without a rate); severity is the amplitude, also in mV or dB of SNR."""


class MuscleNoise(Distortion):
    """Muscle activity, 5 to 150 Hz, mostly 20 to 50; severity is the standard deviation, also in mV or dB of SNR."""


class LeadDropout(Distortion):
    """Electrodes that fell off, their leads flat at the mean; severity is the share of leads, at least one."""


class PowerlineHum(DistortionFamily):
    """50 and 60 Hz mains hum, the same in all leads; severity is its amplitude, also in mV or dB of SNR."""


class ElectrodeMotion(Distortion):
    """Electrode motion, jumps that fade in 0.05 to 2 s; severity is the largest jump, also in mV or dB of SNR."""


class AmplitudeScaling(DistortionFamily):
    """Gain set too high or too low, leads scaled around their median; severity is the share of the change."""


class Smoothing(Distortion):
    """A smoothing recorder; severity is the standard deviation of a Gaussian in ms (8 ms halve the power at 17 Hz)."""


class Illuminate(DistortionFamily):
    """More and less light, an offset in a signal; severity is the step as a share of the range."""


class Contrast(DistortionFamily):
    """Harsh light and haze, gain too high or too low; severity is the share of the change."""


class ChannelShift(DistortionFamily):
    """Tinted light, a lead with an offset; severity is the step of each channel as a share of the range."""


class GaussianNoise(Distortion):
    """Sensor noise; severity is its standard deviation as a share of the range."""


class SaltAndPepper(Distortion):
    """Bit errors and glitches, pixels set to either end of the range; severity is the share of pixels."""


class DeadPixel(Distortion):
    """Pixels that read zero; severity is the share that is dead. On signals it is called `Dropout`."""


class Dropout(Distortion):
    """Values of a signal that read zero; severity is the share that is lost."""


class Saturation(Distortion):
    """An amplifier at its limit, peaks cut off; severity is the share of each lead's height that is lost."""


class Resampling(Distortion):
    """A recorder with a lower rate, values between drawn as lines; severity is how many times lower."""


class HighPass(Distortion):
    """A recorder's baseline filter, which bends ST segments; severity is its cut-off in Hz (diagnostic 0.05, monitor 0.5)."""


class BackgroundNoise(Distortion):
    """Noise behind a sound, pink as in rooms and streets; severity is its standard deviation, also in dB of SNR."""


class Reverberation(Distortion):
    """A room that echoes for half a second; severity is the loudness of the echoes, also in dB below the sound."""


class BandLimit(Distortion):
    """A telephone or a small microphone, high tones lost; severity is how many top octaves (1.2 for a telephone, at 16 kHz)."""


class PacketLoss(Distortion):
    """Packets of 20 ms of a sound that are lost, silent in all channels; severity is their share."""


class FewBits(Distortion):
    """A coder with few bits, with finer steps for soft sound (mu-law); severity is how many of 12 bits are lost."""


class Fgsm(Distortion):
    """One step against the gradient of the surrogates' margins; severity is the step as a share of the range.

    It needs `surrogate`.
    """


class Pgd(Distortion):
    """Ten steps against the gradients of the surrogates' margins; severity is the largest change of any value.

    It needs `surrogate`.
    """


def _about(kind: type[Distortion]) -> str:
    """The first sentence of a docstring without its full stop, which starts with a small letter as words in a table do."""
    first = re.split(r"\.(?:\s|$)", kind.__doc__ or "")[0]
    word = re.split(r"\W", first)[0]
    return first[0].lower() + first[1:] if word.istitle() else first  # JPEG stays as it is


# What each filter imitates and what its severity means, by the filter's name.
ABOUT = {str(kind()): _about(kind) for kind in (*Distortion.__subclasses__(), *DistortionFamily.__subclasses__())}
