"""Wave masks of beats whose waves are known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.ecg_masks import mark_masks, segment_masks
from rlab.data.load import load
from rlab.errors import DataError, InputError, MissingExtra

RATE = 250.0
PEAKS = tuple(range(200, 2400, 220))


def beats(n: int = 2, marked: bool = True) -> Batch:
    """Ten seconds of beats with P 160 ms before R and T 280 ms after; lead 2 is upside down."""
    time = np.arange(2500) / RATE
    x = np.zeros(2500)
    for peak in PEAKS:
        since = time - peak / RATE
        for height, at, width in ((0.15, -0.16, 0.02), (-0.1, -0.03, 0.008), (1.2, 0, 0.011), (0.3, 0.28, 0.04)):
            x += height * np.exp(-0.5 * ((since - at) / width) ** 2)
    x += 0.003 * np.random.default_rng(0).standard_normal(2500)
    return Batch(
        x=torch.from_numpy(np.stack([np.stack([x, -x])] * n).astype(np.float32)),
        y=torch.zeros(n, dtype=torch.int64),
        bounds=UNBOUNDED,
        rate=RATE,
        r_peaks=(PEAKS,) * n if marked else None,
        leads=("II", "AVR"),
    )


def test_qrs_masks_have_the_requested_width():
    mask = mark_masks((PEAKS,) * 2, 2500, 25)
    assert mask.shape == (2, 2500)
    expected = torch.zeros(2500, dtype=torch.bool)
    for peak in PEAKS:
        expected[peak - 25 : peak + 26] = True
    assert torch.equal(mask[0], expected)


def test_the_mask_of_a_peak_just_outside_reaches_in():
    assert mark_masks(((-4, 105, 130),), 100, 12)[0].nonzero().flatten().tolist() == [*range(9), *range(93, 100)]


def test_the_masks_of_the_demo_follow_the_convention():
    batch = load("demo:ecg", limit=20)
    assert batch.masks is not None
    assert batch.r_peaks is not None
    assert (mark_masks(batch.r_peaks, 288, 18) ^ batch.masks).sum(1).max() <= 1  # its R lies between two samples


@pytest.mark.parametrize("marked", [True, False])
def test_every_beat_has_four_parts_that_do_not_overlap(marked: bool):
    parts = segment_masks(beats(1, marked))
    assert list(parts) == ["P", "QRS", "ST", "T"]
    assert torch.stack(list(parts.values())).sum(0).max() == 1
    for wave, offset in (
        ("P", -40),
        ("QRS", 0),
        ("QRS", -10),
        ("ST", 30),
        ("T", 70),
    ):  # 120 ms after R is neither QRS nor T
        assert all(parts[wave][0, peak + offset] for peak in PEAKS[1:-1]), (wave, offset)
    ends = (parts["QRS"][0, :-1] & parts["ST"][0, 1:]).sum()
    assert ends == parts["QRS"][0].int().diff().eq(-1).sum() >= len(PEAKS) - 1  # ST begins where QRS ends


def test_the_parts_of_a_short_window_have_fixed_distances_from_r():
    batch = Batch(x=torch.zeros(1, 1, 200), **SHORT)
    spans = {wave: mask[0].nonzero().flatten().tolist() for wave, mask in segment_masks(batch).items()}
    assert {wave: (own[0], own[-1] + 1) for wave, own in spans.items()} == {
        "P": (50, 85), "QRS": (85, 115), "ST": (115, 135), "T": (135, 200),
    }  # fmt: skip
    flat = Batch(x=torch.zeros(1, 1, 2500), **SHORT)
    assert not any(mask.any() for mask in segment_masks(flat).values())


SHORT: dict[str, Any] = {
    "bounds": UNBOUNDED,
    "rate": RATE,
    "r_peaks": ((100,),),
    "y": torch.zeros(1, dtype=torch.int64),
}


UNMARKED = SHORT | {"r_peaks": None}


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: segment_masks(Batch(torch.zeros(1, 1, 200), **UNMARKED)), DataError, "at least 2 s, got 0.8 s"),
        (lambda: segment_masks(Batch(torch.rand(1, 3, 8, 8), SHORT["y"])), DataError, "known sampling rate"),
    ],
)
def test_errors(call: Callable[[], object], error: type[InputError], sentence: str):
    with pytest.raises(error, match=sentence):
        call()


def test_without_neurokit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "neurokit2", None)
    with pytest.raises(MissingExtra, match=r"rlab-robustness\[ecg-delineate\]"):
        segment_masks(beats(1))
