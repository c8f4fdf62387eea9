"""Masks of the waves of an ECG: a fixed width around annotated R peaks, or delineated by neurokit2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import DataError, MissingExtra, OptionError

QRS = 0.05  # seconds on either side of R; a convention, because annotations mark only R
WAVES = {"P": ("P_Onsets", "P_Offsets"), "QRS": ("R_Onsets", "R_Offsets"), "T": ("T_Onsets", "T_Offsets")}
_LEAST = 2.0  # seconds; neurokit2 finds no reliable waves in shorter windows
_LONGEST = {"P": 0.25, "QRS": 0.25, "T": 0.5}  # seconds; anything longer is two waves merged into one


def qrs_masks(batch: Batch, half_width: float = QRS) -> Tensor:
    """Masks (n, time) of the values within `half_width` seconds of an annotated R."""
    if batch.kind != "signal" or batch.r_peaks is None or batch.rate is None:
        need = "signals with a sampling rate and annotated R peaks (Batch.r_peaks)"
        raise DataError(f"wave masks need {need}: load WFDB records with .atr files")
    if not half_width > 0:
        raise OptionError(f"expected a half width above 0 seconds, got {half_width:g}")
    return mark_masks(batch.r_peaks, batch.size[0], round(half_width * batch.rate))


def mark_masks(r_peaks: Sequence[Sequence[int]], length: int, reach: int) -> Tensor:
    """Masks (n, length) of the values within `reach` samples of a peak, which may lie outside the window."""
    mask = torch.zeros(len(r_peaks), length, dtype=torch.bool)
    for row, peaks in zip(mask, r_peaks, strict=True):
        for at in peaks:
            row[max(0, at - reach) : max(0, at + reach + 1)] = True
    return mask


def wave_masks(batch: Batch, lead: int | str = 0) -> dict[str, Tensor]:
    """Masks (n, time) of P, QRS and T, delineated in one lead by neurokit2; the mask of a wave it misses is empty.

    Uses the annotated R peaks, or lets neurokit2 detect them if there are none.
    """
    rate = batch.rate
    if batch.kind != "signal" or rate is None:
        raise DataError("delineation needs signals with a known sampling rate: pass rate when you load them")
    if batch.size[0] < _LEAST * rate:
        need = f"windows of at least {_LEAST:g} s, got {batch.size[0] / rate:.2g} s"
        raise DataError(f"delineation needs {need}: load longer ones with beats=False, or use qrs_masks")
    values = batch.x[:, _lead(batch, lead)].double().numpy()
    masks = {wave: torch.zeros(len(batch), batch.size[0], dtype=torch.bool) for wave in WAVES}
    for row, x in enumerate(values):
        peaks = None if batch.r_peaks is None else [at for at in batch.r_peaks[row] if 0 <= at < batch.size[0]]
        for wave, spans in _delineate(x, peaks, rate).items():
            for start, stop in spans:
                masks[wave][row, start : stop + 1] = True
    if not any(bool(mask.any()) for mask in masks.values()):
        raise DataError(f"neurokit2 delineated no wave in {len(batch)} samples: choose another lead or longer windows")
    return masks


def _lead(batch: Batch, lead: int | str) -> int:
    names = batch.leads or tuple(str(i) for i in range(batch.x.shape[1]))
    if isinstance(lead, int) and 0 <= lead < len(names):
        return lead
    if lead not in names:
        raise OptionError(f"there is no lead {lead!r}: the data have {', '.join(names)}")
    return names.index(str(lead))


def _delineate(x: NDArray[np.float64], annotated: list[int] | None, rate: float) -> dict[str, list[tuple[int, int]]]:
    """Spans (first, last) of each wave in x: (time,); empty if the delineation fails."""
    try:
        import neurokit2 as nk
    except ImportError as error:
        raise MissingExtra("neurokit2", "ecg-delineate") from error
    try:
        clean = nk.ecg_clean(x, sampling_rate=rate)
        peaks = np.array(annotated or ())
        if annotated is None:
            peaks = nk.ecg_peaks(clean, sampling_rate=rate)[1]["ECG_R_Peaks"]
        if len(peaks) < 2:
            return {}
        _, waves = nk.ecg_delineate(clean, peaks, sampling_rate=rate, method="dwt")
    except Exception:  # neurokit2 raises various errors if waves are missing or lie at a border
        return {}
    return {
        wave: _spans(waves[f"ECG_{first}"], waves[f"ECG_{last}"], _LONGEST[wave] * rate)
        for wave, (first, last) in WAVES.items()
    }


def _spans(onsets: Sequence[float], offsets: Sequence[float], longest: float) -> list[tuple[int, int]]:
    """Pair each onset with the first offset after it; the lists may hold NaN and differ in length."""
    starts, stops = (np.array(sorted(at for at in ends if np.isfinite(at)), np.int64) for ends in (onsets, offsets))
    pairs = [(int(start), stops[stops > start][:1]) for start in starts]
    return [(start, int(stop[0])) for start, stop in pairs if len(stop) and stop[0] - start <= longest]
