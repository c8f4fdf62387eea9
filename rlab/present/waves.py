"""The named waves of a heartbeat."""

from __future__ import annotations

from collections.abc import Sequence

WAVES = {"P": (-0.20, -0.06), "QRS": (-0.06, 0.06), "T": (0.10, 0.40)}  # seconds around the R peak, by convention


def waves(r_peaks: Sequence[int], rate: float | None, length: int) -> list[tuple[str, slice]]:
    """Each wave of each beat as a slice of time; empty if the rate or the peaks are unknown."""
    found: list[tuple[str, slice]] = []
    if not rate:
        return found
    for peak in r_peaks:
        for name, (start, stop) in WAVES.items():
            cut = slice(max(0, round(peak + start * rate)), min(length, round(peak + stop * rate)))
            if cut.start < cut.stop:
                found.append((name, cut))
    return found
