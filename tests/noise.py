"""Recordings of noise for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import wfdb


def write_noise(folder: Path) -> Path:
    """Ten seconds of white noise in the records bw and em_60s, two channels at 500 Hz, with an RMS of 0.2 mV."""
    draw, about = np.random.default_rng(0), {"units": ["mV"] * 2, "sig_name": ["n1", "n2"], "fmt": ["16"] * 2}
    for name in ("bw", "em_60s"):
        wfdb.wrsamp(name, fs=500, p_signal=draw.normal(0, 0.2, (5000, 2)), write_dir=str(folder), **about)
    return folder
