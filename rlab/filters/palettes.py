"""Palettes with a name: for an ECG, for whole records of it, for sound, and the papers' four distortions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from rlab.errors import OptionError
from rlab.filters.base import GRADIENTS
from rlab.filters.clinical import REVERSAL
from rlab.filters.corruptions import LEVELS, PREFIX

Spec = TypeVar("Spec")
VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6}
# Amplitudes in mV: baseline wander, electrode motion and muscle noise as in the recordings of the Noise Stress Test Database
# (docs/ecg.md has the figures); hum well below the half of the ECG's height that Friesen et al. 1990 name as the most
# (https://doi.org/10.1109/10.43620); a gain that is wrong by half, as between 5, 10 and 20 mm/mV.
CLINICAL = (
    *("baseline_wander@0.3,1mV", "muscle_noise@0.05,0.1mV", "powerline_hum50@0.1mV", "powerline_hum60@0.1mV"),
    *("electrode_motion@0.5,1.5mV", "lead_dropout@1", "saturation@0.5", "amplitude_scaling@0.5"),
)
# Recommended: 0.05 to 150 Hz; monitors: 0.5 to 40 Hz (Kligfield et al. 2007, https://doi.org/10.1161/CIRCULATIONAHA.106.180200).
# A Gaussian of 3.3 ms halves the power at 40 Hz.
RECORDER = (
    *(REVERSAL, f"{REVERSAL}_ra_ll", f"{REVERSAL}_la_ll"),
    *("resampling@2,4", "high_pass@0.5,1Hz", "smoothing@3.3ms"),
)
# Street and office noise, a reverberant room, an overdriven microphone, a telephone line, lost packets, and a coder.
AUDIO = (
    *("background_noise@20,10dB", "reverberation@10,3dB", "saturation@0.75", "band_limit@1.2,2.5", "packet_loss@1"),
    "few_bits@8",
)
# The fifteen kinds of ImageNet-C in the papers' order, and their counterparts
# for signals: the ratios of signal to noise of the Noise Stress Test Database, and faults of recorders, from weak to strong.
COMMON = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
CLIPS = ("frame_drop", "freeze", "jumble", "rolling_shutter", "h264")  # for clips alone
_NOISE = ("24dB", "18dB", "12dB", "6dB", "0dB")
_SIGNALS = {
    **dict.fromkeys(
        ("gaussian_noise", "baseline_wander", "muscle_noise", "electrode_motion", "powerline_hum50"), _NOISE
    ),
    "lead_dropout": ("0.1", "0.25", "0.5", "0.75", "0.9"),
    "saturation": ("0.1", "0.25", "0.5", "0.75", "0.9"),
    "resampling": ("2", "3", "4", "6", "8"),
    "high_pass": ("0.1", "0.25", "0.5", "1", "2"),
}
_RECORDS = ("resampling", "high_pass")  # happen to a whole record, so a palette for patches has no use for them
PAPER = ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate")
PALETTES = {"clinical": CLINICAL, "recorder": RECORDER, "audio": AUDIO, "paper": PAPER}
CORRUPTIONS = "corruptions"  # the palette of the common corruptions at level 3
_HUM = "powerline_hum"
_SOUND = 4000.0  # Hz; signals with such a rate, in no other unit, are sound


def is_ecg(rank: int, rate: float | None, unit: str) -> bool:
    """Whether the clinical palette applies: signals in volts with a known rate."""
    return rank == 1 and rate is not None and unit in VOLTS


def corruptions(rank: int, rate: float | None = None) -> dict[str, tuple[str, ...]]:
    """The corruptions for data of this rank and rate, by kind: what a palette calls levels 1 to 5."""
    if rank == 1:
        listed = {kind: tuple(f"{kind}@{severity}" for severity in by_level) for kind, by_level in _SIGNALS.items()}
        return {kind: specs for kind, specs in listed.items() if _possible(kind, rate, ())}
    kinds = (*COMMON, *(CLIPS if rank == 3 else ()))
    return {kind: tuple(f"{PREFIX}{kind}@{level}" for level in LEVELS) for kind in kinds}


def is_audio(rank: int, rate: float | None, unit: str) -> bool:
    """Whether the audio palette applies: signals without a unit, with a rate that only sound has."""
    return rank == 1 and rate is not None and rate >= _SOUND and not unit


def named_palette(name: str, rank: int, rate: float | None, unit: str, own: Collection[str] = ()) -> tuple[str, ...]:
    """The filters of the palette `name` that the data can have: no hum at a low rate, no swapped cables without limb leads."""
    if name == "clinical" and not is_ecg(rank, rate, unit):
        have = f"rate {'unknown' if rate is None else f'{rate:g} Hz'}, unit {unit or 'unknown'}"
        advice = "pass rate and unit (-D rate=500 -D unit=mV)" if rank == 1 else "name other filters"
        raise OptionError(f"the palette 'clinical' is for signals in mV with a rate, got rank {rank}, {have}: {advice}")
    if name == CORRUPTIONS:
        return tuple(specs[2] for kind, specs in corruptions(rank, rate).items() if kind not in _RECORDS)
    return tuple(spec for spec in PALETTES[name] if _possible(spec, rate, own))


def members(spec: Spec, rank: int, rate: float | None, unit: str, own: Collection[str]) -> tuple[Spec | str, ...]:
    """The filters of a named palette, or the one filter that `spec` is."""
    known = isinstance(spec, str) and spec in (*PALETTES, CORRUPTIONS)
    return named_palette(str(spec), rank, rate, unit, own) if known else (spec,)


def _possible(spec: str, rate: float | None, own: Collection[str]) -> bool:
    if spec.startswith(_HUM):
        mains = float(spec.removeprefix(_HUM).partition("@")[0])
        return rate is None or rate > 2 * mains
    return not spec.startswith(REVERSAL) or spec in own


def needs_more(name: str) -> str | None:
    """What a filter needs that is not there, and how to get it; None for other names."""
    if name in GRADIENTS:
        example = "--surrogate timm:resnet18, my_module:net or another torch model"
        return f"the filter {name!r} needs the gradients of a surrogate, but there is none: pass {example}"
    if name.startswith(REVERSAL):
        return f"the filter {name!r} needs the limb leads I, II and III, but the data name none: load WFDB records"
    if name.startswith("nstdb:"):
        return f"recorded noise ({name!r}) works in attacks, comparisons, hardening and gradings: name built-in filters here"
    return None
