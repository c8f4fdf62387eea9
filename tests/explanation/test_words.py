"""Sentences about maps: important frames, waves, classes with their probabilities."""

from dataclasses import replace

import pytest
import torch

import rlab
from rlab.data.batch import Batch
from rlab.explanation.pictures import Overlay
from rlab.explanation.run import explain_batch
from rlab.explanation.words import PLACES, frame_shares, frames_that_matter, shares_in_waves


def test_shares_of_frames_count_only_positive_values():
    heat = torch.zeros(4, 2, 2)
    heat[1], heat[2, 0, 0], heat[3] = 1.0, 4.0, -9.0
    assert frame_shares(heat).tolist() == pytest.approx([0.0, 0.5, 0.5, 0.0])
    assert frame_shares(-heat[:2]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("shares", "run", "held"),
    [
        ([0.1, 0.6, 0.3], range(1, 2), 0.6),
        ([0.25, 0.25, 0.25, 0.25], range(2), 0.5),
        ([0.4, 0.1, 0.1, 0.4], range(2), 0.5),
        ([0.0, 0.0], range(2), 0.0),
    ],
)
def test_the_shortest_run_of_frames_that_holds_half(shares, run, held):
    found, share = frames_that_matter(torch.tensor(shares, dtype=torch.float64))
    assert found == run
    assert share == pytest.approx(held)


def test_shares_of_waves_sum_to_one():
    heat = torch.zeros(360)
    heat[180], heat[150], heat[300], heat[20] = 2.0, 1.0, 1.0, -5.0
    zeros = torch.zeros(2, 1, 360)
    beats = Batch(zeros, torch.zeros(2, dtype=torch.int64), rate=360.0, r_peaks=((180,), ()))
    shares = shares_in_waves(heat.expand(2, -1), beats)
    assert shares is not None
    assert dict(zip(PLACES, shares[0].tolist(), strict=True)) == pytest.approx(
        {"P": 0.25, "QRS": 0.5, "T": 0.25, "elsewhere": 0.0}
    )
    assert shares[1].isnan().all()
    assert shares_in_waves(heat.expand(2, -1), replace(beats, rate=None)) is None


@pytest.mark.parametrize(("kind", "word"), [("ecg", "QRS"), ("clips", "frames "), ("digits", None)])
def test_statements_and_titles_by_kind_of_data(kind, word):
    victim, batch = rlab.demo_victim(kind), rlab.load(f"demo:{kind}", limit=2)
    found = explain_batch(victim, batch, "occlusion(along=3)", labels=torch.tensor([0, 0]))
    lines = found.statements(1)
    assert any(word in line for line in lines) if word else lines == []
    p = victim.probabilities(victim(batch.x))[1]
    title, true, guess = Overlay.of(found, batch, 1).title, int(batch.y[1]), int(p.argmax())
    for label in (true, guess):
        assert f"{batch.label_name(label)} (P {float(p[label]):.2f})" in title
