"""Built-in filters as objects: `Distortion("gaussian_noise", 0.1)` in a palette is the same as 'gaussian_noise@0.1'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlab.storage.config import named_keywords

Severity = float | str  # a number, or text with a unit such as '20dB' or '0.3mV'


@named_keywords
@dataclass(frozen=True)
class Distortion:
    """A built-in filter by its name in `rlab filters`, with its severity or severities (default: its usual one).

    A random filter may have several draws.
    """

    name: str
    severity: Severity | Sequence[Severity] | None = None
    draws: int = 1

    def __str__(self) -> str:
        """The same as text, for the command line and for files."""
        listed = [self.severity] if isinstance(self.severity, int | float | str) else self.severity
        severities = "" if listed is None else "@" + ",".join(map(str, listed))
        return f"{self.name}{severities}{f'*{self.draws}' if self.draws != 1 else ''}"


# What each filter imitates and what its severity means, by the filter's name.
ABOUT = {
    "gaussian_blur": "out-of-focus optics, a smoothed signal; severity is the standard deviation in pixels or samples",
    "motion_blur": "camera motion in a random direction; severity is the length of the motion in pixels",
    "pixelate": "low resolution; severity is the side of a block in pixels",
    "jpeg": "JPEG compression; severity is 100 minus the encoder's quality",
    "frozen_frame": "a stalled stream; severity is the number of frames for which the picture freezes",
    "flicker": (
        "light or exposure that varies from frame to frame; severity is the largest step as a share of the range"
    ),
    "baseline_wander": (
        "breathing, 0.05 to 0.2 Hz (0.5 to 2 cycles per window without a rate); "
        "severity is the amplitude, also in mV or dB of SNR"
    ),
    "muscle_noise": (
        "muscle activity, 5 to 150 Hz, mostly 20 to 50; severity is the standard deviation, also in mV or dB of SNR"
    ),
    "lead_dropout": (
        "electrodes that fell off, their leads flat at the mean; severity is the share of leads, at least one"
    ),
    "electrode_motion": (
        "electrode motion, jumps that fade in 0.05 to 2 s; severity is the largest jump, also in mV or dB of SNR"
    ),
    "smoothing": (
        "a smoothing recorder; severity is the standard deviation of a Gaussian in ms (8 ms halve the power at 17 Hz)"
    ),
    "gaussian_noise": "sensor noise; severity is its standard deviation as a share of the range",
    "salt_and_pepper": (
        "bit errors and glitches, pixels set to either end of the range; severity is the share of pixels"
    ),
    "dead_pixel": "pixels that read zero; severity is the share that is dead",
    "dropout": "values of a signal that read zero; severity is the share that is lost",
    "saturation": "an amplifier at its limit, peaks cut off; severity is the share of each lead's height that is lost",
    "resampling": "a recorder with a lower rate, values between drawn as lines; severity is how many times lower",
    "high_pass": (
        "a recorder's baseline filter, which bends ST segments; "
        "severity is its cut-off in Hz (diagnostic 0.05, monitor 0.5)"
    ),
    "background_noise": (
        "noise behind a sound, pink as in rooms and streets; severity is its standard deviation, also in dB of SNR"
    ),
    "reverberation": (
        "a room that echoes for half a second; severity is the loudness of the echoes, also in dB below the sound"
    ),
    "band_limit": (
        "a telephone or a small microphone, high tones lost; "
        "severity is how many top octaves (1.2 for a telephone, at 16 kHz)"
    ),
    "packet_loss": "packets of 20 ms of a sound that are lost, silent in all channels; severity is their share",
    "few_bits": (
        "a coder with few bits, with finer steps for soft sound (mu-law); severity is how many of 12 bits are lost"
    ),
    "fgsm": "one step against the gradient of the surrogates' margins; severity is the step as a share of the range",
    "pgd": "ten steps against the gradients of the surrogates' margins; severity is the largest change of any value",
    "powerline_hum": (
        "50 and 60 Hz mains hum, the same in all leads; severity is its amplitude, also in mV or dB of SNR"
    ),
    "amplitude_scaling": (
        "gain set too high or too low, leads scaled around their median; severity is the share of the change"
    ),
    "illuminate": "more and less light, an offset in a signal; severity is the step as a share of the range",
    "contrast": "harsh light and haze, gain too high or too low; severity is the share of the change",
    "channel_shift": (
        "tinted light, a lead with an offset; severity is the step of each channel as a share of the range"
    ),
}
