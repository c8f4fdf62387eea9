"""Real PTB-XL records, damaged: each is read right, or left out and counted with the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import wfdb
from numpy.typing import NDArray
from scipy.signal import resample_poly

from rlab.data.load import load
from tests.data.test_physionet import LEADS

REAL = Path(os.environ.get("RLAB_REAL", Path(__file__).parents[2].parent / "shared" / "real")) / "ptbxl"
pytestmark = [pytest.mark.real, pytest.mark.skipif(not REAL.is_dir(), reason=f"no PTB-XL in {REAL}: set RLAB_REAL")]
FIRST = REAL / "records100" / "00000"
Array = NDArray[np.float64]


def same(x: Array) -> Array:
    return x


def with_gap(x: Array) -> Array:
    x = x.copy()
    x[300:310, 4] = np.nan
    return x


def flat(x: Array) -> Array:
    x = x.copy()
    x[:, 7] = 0.2
    return x


def clipped(x: Array) -> Array:
    x = x.copy()
    x[200:240, 1] = x[:, 1].max() + 1
    return x


def at(rate: int) -> Callable[[Array], Array]:
    return lambda x: resample_poly(x, rate, 100, axis=0)


# name: rate in the header, change of the values, leads in the file, further arguments of wfdb.wrsamp, reason or None if it is read
BAD: dict[str, tuple[int, Callable[[Array], Array], tuple[int, ...], dict[str, Any], str | None]] = {
    "whole": (100, same, tuple(range(12)), {}, None),
    "other order": (100, same, (11, 3, 0, 5, 2, 1, 4, 6, 7, 8, 9, 10), {}, None),
    "missing leads": (100, same, tuple(range(8)), {}, "has leads"),
    "NaN": (100, with_gap, tuple(range(12)), {}, "gap"),
    "flat lead": (100, flat, tuple(range(12)), {}, "lead V2 is a flat line"),
    "saturated": (100, clipped, tuple(range(12)), {}, "lead II is saturated"),
    "250 Hz": (250, at(250), tuple(range(12)), {}, None),
    "1000 Hz": (1000, at(1000), tuple(range(12)), {}, None),
    "8 s": (100, lambda x: x[:800], tuple(range(12)), {}, "shorter than a window"),
    "gain too low": (100, lambda x: x * 1000, tuple(range(12)), {}, "the gain in its header is wrong"),
    "gain too high": (100, lambda x: x / 1000, tuple(range(12)), {}, "the gain in its header is wrong"),
    "microvolts": (100, lambda x: x * 1000, tuple(range(12)), {"units": ["uV"] * 12}, "is in uV, not mV"),
}


@pytest.fixture(scope="module")
def original() -> Array:
    record = wfdb.rdrecord(str(FIRST / "00001_lr"))
    assert [name.upper() for name in record.sig_name] == [lead.upper() for lead in LEADS]
    return np.asarray(record.p_signal, np.float64)


@pytest.fixture(scope="module")
def folder(original: Array, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("records")
    for name, (rate, change, rows, more, _) in BAD.items():
        values = change(original)[:, list(rows)]
        known = {"units": ["mV"] * len(rows), "sig_name": [LEADS[i] for i in rows], "fmt": ["16"] * len(rows)} | more
        wfdb.wrsamp(name.replace(" ", "_"), fs=rate, p_signal=values, write_dir=str(place), **known)
    for name in ("cut", "lost"):
        for ending in (".hea", ".dat"):
            text = (FIRST / f"00002_lr{ending}").read_bytes().replace(b"00002_lr", name.encode())
            (place / f"{name}{ending}").write_bytes(text)
    (place / "cut.dat").write_bytes((place / "cut.dat").read_bytes()[:9000])
    (place / "lost.dat").unlink()
    lines = [f"{file.stem},{'odd' if 'lead' in file.stem else 'even'}" for file in place.glob("*.hea")]
    (place / "labels.csv").write_text("record,label\n" + "\n".join(lines) + "\n")
    return place


def test_bad_records_are_read_right_or_left_out_and_counted(folder: Path, original: Array):
    batch = load(
        folder, kind="signal", beats=False, window=10.0, rate=100.0, leads=LEADS, labels=str(folder / "labels.csv")
    )
    reasons = {name.partition(":")[0]: why for name, why in batch.left_out}
    assert len(batch) + len(batch.left_out) == len(BAD) + 2
    assert set(reasons) == {name.replace(" ", "_") for name, row in BAD.items() if row[4]} | {"cut", "lost"}
    for name, row in BAD.items():
        if row[4]:
            assert row[4] in reasons[name.replace(" ", "_")]
    assert "too short" in reasons["cut"]
    assert "no file" in reasons["lost"]
    right = torch.from_numpy(original.T).float()
    for name, x in zip(batch.ids, batch.x, strict=True):
        far = (x - right).abs()[:, 20:-20]  # a resampled record differs at its ends
        assert float(far.max()) < (0.08 if "Hz" in name else 2e-3), name
    assert (batch.leads, batch.unit, batch.rate) == (LEADS, "mV", 100.0)


def test_real_records_as_they_lie_and_by_fold(tmp_path: Path):
    """A copy of twenty records: the table keeps its line for each, the files of the others are absent and counted."""
    place = tmp_path / "records100" / "00000"
    place.mkdir(parents=True)
    for name in sorted(FIRST.glob("*.hea"))[:20]:
        shutil.copy(name, place)
        shutil.copy(name.with_suffix(".dat"), place)
    rows = (REAL / "ptbxl_database.csv").read_text().splitlines()
    kept = [row for row in rows[1:] if any(f"{name.stem}" in row for name in place.glob("*.hea"))]
    (tmp_path / "ptbxl_database.csv").write_text("\n".join([rows[0], *kept]) + "\n")
    shutil.copy(REAL / "scp_statements.csv", tmp_path)
    whole = load(tmp_path)
    assert len(whole) + len(whole.left_out) == 20
    assert whole.classes == ("NORM", "MI", "STTC", "CD", "HYP")
    halves = [load(tmp_path, folds=folds) for folds in ("1-5", "6-9")]
    assert sorted(halves[0].ids + halves[1].ids) == sorted(whole.ids)
    single = load(tmp_path, multilabel=False)
    several = [name for name, row in zip(whole.ids, whole.y, strict=True) if int(row.sum()) > 1]
    assert set(single.ids) == set(whole.ids) - set(several)
    assert single.one_label
    assert torch.equal(load(tmp_path, stream=True)[:].x, whole.x)
    rhythm = load(tmp_path, label_column="rhythm")
    assert "SR" in rhythm.classes
