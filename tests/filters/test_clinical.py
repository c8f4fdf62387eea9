"""The clinical filters, with a clinician's eye: amplitudes and spectra of recorded noise, and what swapped cables show."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import signal as scipy_signal

from rlab.data.wfdb import read_noise
from rlab.errors import OptionError
from rlab.filters import Palette, find
from rlab.filters.clinical import recorded_filter, reversal_filters
from rlab.filters.palettes import CLINICAL, RECORDER, named_palette
from tests.filters.samples import millivolts, seeded

REAL = Path(os.environ.get("RLAB_REAL", Path(__file__).parents[2].parent / "shared" / "real"))
NSTDB = REAL / "ecg12" / "nstdb"
recordings = pytest.mark.skipif(not NSTDB.is_dir(), reason=f"no recordings of noise in {NSTDB}: set RLAB_REAL")
RATE, WINDOW = 360.0, 3600
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
# our filter and its weakest and strongest entry, the recording, bands in Hz
PAIRS = {
    "baseline_wander": ("recorded_baseline_wander", (0.05, 0.5, 1.0, 5.0, 20.0, 150.0)),
    "electrode_motion": ("recorded_electrode_motion", (0.05, 0.5, 1.0, 5.0, 20.0, 150.0)),
    "muscle_noise": ("recorded_muscle_noise", (5.0, 20.0, 30.0, 60.0, 150.0)),
}


def bands(x: NDArray[np.float64], edges: tuple[float, ...]) -> NDArray[np.float64]:
    """(..., time) -> (channels, bands): the share of the power in each band."""
    hertz, power = scipy_signal.welch(x, RATE, nperseg=WINDOW, axis=-1)
    inside = [(hertz >= low) & (hertz < high) for low, high in pairwise(edges)]
    parts = np.stack([power[..., one].sum(-1) for one in inside], -1).reshape(-1, len(inside))
    return parts / parts.sum(-1, keepdims=True)


def ours(name: str) -> tuple[NDArray[np.float64], ...]:
    """Ten seconds of each clinical entry of the filter, in mV, on a silent record."""
    specs = [spec for spec in CLINICAL if spec.startswith(name)]
    silence = torch.zeros(20, 2, WINDOW)
    bank = Palette.of(specs, 1, 2, RATE, "mV").bank(silence, (-torch.inf, torch.inf), range(20))
    return tuple(bank[:, 1:].transpose(0, 1).double().numpy())


@recordings
@pytest.mark.parametrize("name", PAIRS)
def test_the_spectrum_is_near_that_of_the_recordings(name: str):
    recorded, edges = PAIRS[name]
    real = bands(read_noise(str(NSTDB), RATE)[recorded].double().numpy(), edges)
    made = bands(ours(name)[-1], edges).mean(0)
    assert (made >= real.min(0) - 0.15).all(), (made, real)
    assert (made <= real.max(0) + 0.15).all(), (made, real)


def opposites(name: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Band shares of each half of each channel, and of the other half of the other channel, which shares no sample with it."""
    recorded, edges = PAIRS[name]
    noise = read_noise(str(NSTDB), RATE)[recorded].double().numpy()
    half = noise.shape[1] // 2
    part = {(c, h): bands(noise[c, h * half : (h + 1) * half], edges)[0] for c in (0, 1) for h in (0, 1)}
    return [(part[c, h], part[1 - c, 1 - h]) for c, h in part]


def apart(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The share of the power that lies in other bands."""
    return float(np.abs(a - b).sum() / 2)


def muscle_model(corner: float, edges: tuple[float, ...]) -> NDArray[np.float64]:
    """Band shares of the model of Shwedyk et al. 1977 with both corners at `corner` Hz."""
    hertz = np.arange(5.0, 150.0, 0.1)
    power = (hertz * corner**2 / (np.sqrt(hertz**2 + corner**2) * (hertz**2 + corner**2))) ** 2
    parts = np.array([power[(hertz >= low) & (hertz < high)].sum() for low, high in pairwise(edges)])
    return parts / parts.sum()


@recordings
def test_muscle_noise_is_as_near_to_a_recording_as_its_model_fitted_to_another():
    """The filter was fitted to all of the excerpts; the model here only to the half of the channel that is not judged."""
    edges = PAIRS["muscle_noise"][1]
    made = bands(ours("muscle_noise")[-1], edges).mean(0)
    for judged, fitted_to in opposites("muscle_noise"):
        corner = min(range(5, 80), key=lambda hertz: apart(muscle_model(hertz, edges), fitted_to))
        unseen = apart(muscle_model(corner, edges), judged)
        assert unseen < 0.2
        assert apart(made, judged) < unseen + 0.03


@recordings
def test_electrode_motion_is_as_near_to_a_recording_as_another_recording():
    made = bands(ours("electrode_motion")[-1], PAIRS["electrode_motion"][1]).mean(0)
    pairs = opposites("electrode_motion")
    assert np.mean([apart(made, judged) for judged, _ in pairs]) <= np.mean([apart(*pair) for pair in pairs])


@recordings
@pytest.mark.parametrize("name", PAIRS)
def test_the_amplitude_in_millivolts_is_within_that_of_the_recordings(name: str):
    """The weak and the strong entry lie between the calmest and the worst ten seconds of the two channels."""
    noise = read_noise(str(NSTDB), RATE)[PAIRS[name][0]].double().numpy()
    if name == "muscle_noise":  # recorded together with wander, which is another filter
        noise = scipy_signal.sosfiltfilt(scipy_signal.butter(4, 5.0, "highpass", fs=RATE, output="sos"), noise)
    parts = noise[:, : noise.shape[1] // WINDOW * WINDOW].reshape(-1, WINDOW)
    parts = parts - np.median(parts, -1, keepdims=True)
    rms, peak = np.sqrt((parts**2).mean(-1)), np.abs(parts).max(-1)
    weak, strong = (np.median(np.sqrt((x**2).mean(-1))) for x in ours(name))
    highest = np.median([np.abs(x).max((-2, -1)) for x in ours(name)], -1)
    assert 0.5 * rms.min() <= weak < strong <= 1.5 * rms.max(), (weak, strong, rms)
    assert 0.5 * peak.min() <= highest.min() < highest.max() <= 1.5 * peak.max(), (highest, peak)


@recordings
@pytest.mark.parametrize(("severity", "rms"), [("0.2mV", 0.2), ("0.05mV", 0.05)])
def test_recorded_noise_has_the_severity_as_its_rms(severity: str, rms: float):
    x, own = millivolts(), {n: recorded_filter(n, noise) for n, noise in read_noise(str(NSTDB), RATE).items()}
    palette = Palette.of([f"{name}@{severity}" for name in own], 1, 2, RATE, "mV", own)
    bank = palette.bank(x, (-torch.inf, torch.inf), range(len(x)))
    change = (bank[:, 1:] - x[:, None]).square().mean((-2, -1)).sqrt()
    torch.testing.assert_close(change, torch.full_like(change, rms), rtol=1e-3, atol=0)
    assert len(palette) == 3


def einthoven(arms: torch.Tensor) -> torch.Tensor:
    """Twelve leads (1, 12, time) from the potentials (9, time) of RA, LA, LL and V1 to V6."""
    right, left, leg, chest = arms[0], arms[1], arms[2], arms[3:]
    limb = [left - right, leg - right, leg - left]
    wilson = (right + left + leg) / 3
    augmented = [right - (left + leg) / 2, left - (right + leg) / 2, leg - (right + left) / 2]
    return torch.stack([*limb, *augmented, *(one - wilson for one in chest)])[None]


@pytest.mark.parametrize(
    ("name", "electrodes"),
    [
        ("limb_lead_reversal", (1, 0, 2)),
        ("limb_lead_reversal_ra_ll", (2, 1, 0)),
        ("limb_lead_reversal_la_ll", (0, 2, 1)),
    ],
)
@pytest.mark.parametrize("order", [tuple(range(12)), (11, 3, 0, 5, 2, 1, 4, 6, 7, 8, 9, 10)])
def test_swapped_cables_show_what_swapped_electrodes_record(
    name: str, electrodes: tuple[int, ...], order: tuple[int, ...]
):
    arms = torch.randn(9, 50, generator=seeded())
    leads = reversal_filters([LEADS[i] for i in order])
    result = leads[name](einthoven(arms)[:, list(order)], 1.0, seeded())
    wanted = einthoven(torch.cat([arms[list(electrodes)], arms[3:]]))[:, list(order)]
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def test_swapped_cables_need_the_limb_leads():
    assert reversal_filters(("V1", "V5")) == {}
    with pytest.raises(OptionError, match="limb leads"):
        Palette.of(["limb_lead_reversal"], 1, 2)


def test_saturation_cuts_peaks_and_leaves_the_rest():
    x = millivolts()
    (cut,) = find("saturation", 2)
    result = cut(x, 0.5, seeded())
    middle = x.median(-1, keepdim=True).values
    high = (x - middle).amax(-1)
    torch.testing.assert_close((result - middle).amax(-1), 0.5 * high)
    same = (x - middle) <= 0.5 * high[..., None]
    low = (x - middle) >= 0.5 * (x - middle).amin(-1, keepdim=True)
    assert torch.equal(result[same & low], x[same & low])


@pytest.mark.parametrize("rate", [100.0, 500.0])
def test_the_baseline_filter_halves_the_power_at_its_cut_off(rate: float):
    time = torch.arange(round(60 * rate)) / rate
    (high,) = find("high_pass", 1)
    for hertz, left in ((0.05, 0.1), (0.5, 0.5**0.5), (7.0, 1.0)):
        wave = torch.sin(2 * torch.pi * hertz * time)[None, None]
        later = high.at_rate(rate)(wave, 0.5, seeded())[..., len(time) // 2 :]
        assert float(later.abs().max()) == pytest.approx(left, abs=0.03)


def test_resampling_averages_and_draws_lines():
    (slow,) = find("resampling", 1)
    x = torch.arange(12.0)[None, None]
    torch.testing.assert_close(slow(x, 3.0, seeded())[..., 1:-1], x[..., 1:-1])  # a line stays a line between the means
    assert float(slow(torch.tensor([[[0.0, 0, 0, 1, 0, 0, 0, 0, 0]]]), 3.0, seeded()).max()) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("rate", "hum"), [(500.0, ["50", "60"]), (110.0, ["50"]), (100.0, [])])
def test_the_clinical_palette_has_only_the_hum_that_the_rate_can_hold(rate: float, hum: list[str]):
    names = Palette.of(["clinical"], 1, 12, rate, "mV").names
    assert [name[len("powerline_hum") :].partition("@")[0] for name in names if "hum" in name] == hum
    assert "lead_dropout@1" in names


@pytest.mark.parametrize(("rank", "rate", "unit"), [(1, None, "mV"), (1, 500.0, ""), (2, 500.0, "mV")])
def test_the_clinical_palette_needs_a_rate_and_millivolts(rank: int, rate: float | None, unit: str):
    with pytest.raises(OptionError, match="clinical"):
        Palette.of(["clinical"], rank, 3, rate, unit)


def test_palettes_mix_with_filters_and_the_papers_four_stay():
    assert Palette.of(["paper", "smoothing@8"], 1, 1).names == (
        *(
            "gaussian_noise@0.1",
            "gaussian_blur@2",
            "dropout@1",
            "illuminate+@0.2",
            "illuminate-@0.2",
            "smoothing@8ms",
        ),
    )
    assert Palette.of(["paper"], 2, 3).names[2] == "dead_pixel@1"
    assert named_palette("recorder", 1, 500.0, "mV", reversal_filters(LEADS)) == RECORDER
    assert len(named_palette("recorder", 1, 500.0, "mV")) == len(RECORDER) - 3


@pytest.mark.parametrize("spec", ["dead_pixel@0.5", "dropout@0.5"])
def test_on_signals_a_dead_pixel_is_a_dropout(spec: str):
    palette = Palette.of([spec], 1, 2)
    assert palette.names == ("dropout@0.5",)
    x = millivolts()
    lost = palette.bank(x, (-torch.inf, torch.inf), range(len(x)))[:, 1] == 0
    assert 0.3 < float(lost.float().mean()) < 0.7
    assert torch.equal(lost[:, 0], lost[:, 1])
    with pytest.raises(OptionError, match="is for signals"):
        Palette.of(["dropout"], 2, 3)
