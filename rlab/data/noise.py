"""Recordings of noise alone, such as those of the MIT-BIH Noise Stress Test Database (https://doi.org/10.13026/C2HS3T)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlab.data.source import Unreadable, reading
from rlab.data.wfdb import read_record, read_values
from rlab.errors import DataError, OptionError

KINDS = {"bw": "recorded_baseline_wander", "em": "recorded_electrode_motion", "ma": "recorded_muscle_noise"}


def read_noise(folder: str, rate: float | None) -> dict[str, Tensor]:
    """Noise (channels, time) at `rate` by the name of its filter, from the records bw*, em* and ma* in the folder."""
    if rate is None:
        raise OptionError("recorded noise needs the rate of the data, which is unknown: pass it (-D rate=360)")
    found = {}
    for begin, name in KINDS.items():
        headers = sorted(Path(folder).glob(f"{begin}*.hea"))
        if headers:
            found[name] = _read(headers[0].with_suffix(""), rate)
    if not found:
        records = ", ".join(f"{begin}*.hea" for begin in KINDS)
        raise DataError(f"the folder {folder!r} holds no recorded noise: expected WFDB records {records}")
    return found


def _read(path: Path, rate: float) -> Tensor:
    try:
        with reading():
            record = read_record(path, rate)
            values = read_values(record, record.leads).values
    except Unreadable as why:
        raise DataError(f"the noise {path.name!r} {why}") from why
    if not np.isfinite(values).all():
        raise DataError(f"the recorded noise {path.name!r} holds gaps (NaN): use a record without them")
    return torch.from_numpy(values).float()
