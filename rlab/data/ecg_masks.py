"""Masks of the waves of an ECG: a fixed width around annotated R peaks, or delineated by neurokit2."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import DataError, MissingExtra, optional
from rlab.present.waves import waves

QRS = 0.05  # seconds on either side of R; a convention, because annotations mark only R
WAVES = {"P": ("P_Onsets", "P_Offsets"), "QRS": ("R_Onsets", "R_Offsets"), "T": ("T_Onsets", "T_Offsets")}
_LEAST = 2.0  # seconds; neurokit2 finds no reliable waves in shorter windows
_LONGEST = {"P": 0.25, "QRS": 0.25, "T": 0.5}  # seconds; anything longer is two waves merged into one
_BEFORE_R = 0.06  # seconds
SEGMENTS = ("P", "QRS", "ST", "T")
ST = (0.08, 0.25)  # seconds from the end of QRS: the least of ST, where its level is read, and the latest start of T


def mark_masks(r_peaks: Sequence[Sequence[int]], length: int, reach: int) -> Tensor:
    """Masks (n, length) of the values within `reach` samples of a peak, which may lie outside the window."""
    mask = torch.zeros(len(r_peaks), length, dtype=torch.bool)
    for row, peaks in zip(mask, r_peaks, strict=True):
        for at in peaks:
            row[max(0, at - reach) : max(0, at + reach + 1)] = True
    return mask


def segment_masks(batch: Batch) -> dict[str, Tensor]:
    """Masks (n, time) of P, QRS, ST and T, none of which overlap; empty where a wave is not found.

    Windows shorter than 2 s have fixed windows around their annotated R peaks. Otherwise neurokit2 delineates lead II, or else the
    first, and every beat gets the median distances of the waves from R. QRS begins at most 60 ms before R, because neurokit2
    often begins it in P. ST begins where QRS ends and lasts until T begins, at least 80 ms.
    """
    rate, peaks = batch.rate, batch.r_peaks
    if batch.kind != "signal" or rate is None:
        raise DataError("the waves of an ECG need signals with a known sampling rate: pass rate when you load them")
    if batch.size[0] < _LEAST * rate and peaks is not None:
        found = _window_masks(peaks, batch.size[0], rate)
    else:
        found = _median_masks(batch, rate)
    qrs = found["QRS"]
    st = torch.stack([_st(*pair, rate) for pair in zip(qrs, found["T"], strict=True)]) & ~qrs
    return {"P": found["P"] & ~qrs & ~st, "QRS": qrs, "ST": st, "T": found["T"] & ~qrs & ~st}


def _median_masks(batch: Batch, rate: float) -> dict[str, Tensor]:
    """Masks (n, time) of P, QRS and T at their median distances from every R."""
    length = batch.size[0]
    if length < _LEAST * rate:
        need = f"windows of at least {_LEAST:g} s, got {length / rate:.2g} s"
        raise DataError(
            f"delineation needs {need}: load longer ones with beats=False, or signals with annotated R peaks"
        )
    lead = next((number for number, name in enumerate(batch.leads) if name.upper() == "II"), 0)
    masks = {wave: torch.zeros(len(batch), length, dtype=torch.bool) for wave in WAVES}
    for row, x in enumerate(batch.x[:, lead].double().numpy()):
        annotated = None if batch.r_peaks is None else [at for at in batch.r_peaks[row] if 0 <= at < length]
        peaks, found = _delineate(x, annotated, rate)
        for wave, spans in found.items():
            if len(spans) and len(peaks):
                ends = np.array(spans)
                nearest = np.abs(ends.mean(1)[:, None] - peaks).argmin(1)
                start, stop = np.median(ends - peaks[nearest][:, None], axis=0).round().astype(int).tolist()
                first = max(start, -round(_BEFORE_R * rate)) if wave == "QRS" else start
                for r in peaks.tolist():
                    masks[wave][row, max(0, r + first) : max(0, r + stop + 1)] = True
    return masks


def _window_masks(r_peaks: Sequence[Sequence[int]], length: int, rate: float) -> dict[str, Tensor]:
    """Masks (n, length) of each wave's usual window around the R peaks."""
    masks = {wave: torch.zeros(len(r_peaks), length, dtype=torch.bool) for wave in WAVES}
    for row, peaks in enumerate(r_peaks):
        for wave, cut in waves(peaks, rate, length):
            masks[wave][row, cut] = True
    return masks


def _st(qrs: Tensor, t: Tensor, rate: float) -> Tensor:
    """QRS (time,) and T (time,) -> ST (time,)."""
    least, latest = (round(seconds * rate) for seconds in ST)
    mask = torch.zeros_like(qrs)
    for end in (qrs[:-1] & ~qrs[1:]).nonzero().flatten().add(1).tolist():
        begins = t[end : end + latest].nonzero().flatten()[:1].tolist()
        mask[end : end + max([least, *begins])] = True
    return mask


Spans = list[tuple[int, int]]  # first and last value of each wave


def _delineate(
    x: NDArray[np.float64], annotated: list[int] | None, rate: float
) -> tuple[NDArray[np.int64], dict[str, Spans]]:
    """x: (time,) -> the R peaks, and the spans of each wave; nothing if the delineation fails."""
    nothing = np.zeros(0, np.int64), dict[str, Spans]()
    nk = optional("neurokit2", MissingExtra("neurokit2", "ecg-delineate"))
    try:
        with warnings.catch_warnings(action="ignore"):
            clean = nk.ecg_clean(x, sampling_rate=rate)
            peaks = np.array(annotated or ())
            if annotated is None:
                peaks = nk.ecg_peaks(clean, sampling_rate=rate)[1]["ECG_R_Peaks"]
            if len(peaks) < 2:
                return nothing
            _, ends = nk.ecg_delineate(clean, peaks, sampling_rate=rate, method="dwt")
    except Exception:  # neurokit2 raises various errors if waves are missing or lie at a border
        return nothing
    spans = {
        wave: _spans(ends[f"ECG_{first}"], ends[f"ECG_{last}"], _LONGEST[wave] * rate)
        for wave, (first, last) in WAVES.items()
    }
    return np.asarray(peaks, np.int64), spans


def _spans(onsets: Sequence[float], offsets: Sequence[float], longest: float) -> Spans:
    """Pair each onset with the first offset after it; the lists may hold NaN and differ in length."""
    starts, stops = (np.array(sorted(at for at in ends if np.isfinite(at)), np.int64) for ends in (onsets, offsets))
    pairs = [(int(start), stops[stops > start][:1]) for start in starts]
    return [(start, int(stop[0])) for start, stop in pairs if len(stop) and stop[0] - start <= longest]
