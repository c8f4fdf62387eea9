from typing import Any

import numpy as np
import pytest
import torch
import wfdb

from rlab.data.batch import UNBOUNDED, summarise_losses
from rlab.data.load import load
from rlab.data.wfdb import CLASS_OF
from rlab.errors import DataError, InputError, OptionError

RATE, LENGTH = 100, 2000
BEATS = {30: "N", 300: "V", 600: "L", 900: "A", 1200: "F", 1500: "/", 1990: "N"}


def save(folder, name, values, leads, rate=RATE, unit="mV"):
    kinds = {"fmt": ["16"] * len(leads), "adc_gain": [200.0] * len(leads), "baseline": [0] * len(leads)}
    units = [unit] * len(leads)
    wfdb.wrsamp(name, fs=rate, units=units, sig_name=list(leads), p_signal=values, write_dir=str(folder), **kinds)


def write(folder, name, beats=BEATS, leads=("MLII", "V5"), rate=RATE, gap=None, unit="mV"):
    """Write a record whose values are steps of 1/200 mV, and return them (leads, time)."""
    folder.mkdir(exist_ok=True)
    steps = np.random.default_rng(int(name)).integers(-400, 400, (LENGTH, len(leads)))
    values = steps / 200
    if gap is not None:
        values[gap] = np.nan
    save(folder, name, values, leads, rate, unit)
    if beats:
        wfdb.wrann(name, "atr", np.array([*beats]), symbol=[*beats.values()], write_dir=str(folder))
    return torch.from_numpy(values.T.astype(np.float32))


def test_beats_of_one_record(tmp_path):
    values = write(tmp_path, "100", dict(sorted({**BEATS, 700: "+", 800: "~"}.items())))
    batch = load(tmp_path / "100", window=1.0)
    assert batch.ids == ("100:000300", "100:000600", "100:000900", "100:001200", "100:001500")
    assert [batch.classes[i] for i in batch.y] == ["V", "N", "S", "F", "Q"]
    assert torch.allclose(batch.x[1], values[:, 550:650], atol=1e-6)
    assert (batch.unit, batch.rate, batch.bounds, batch.classes) == ("mV", 100, UNBOUNDED, ("N", "S", "V", "F", "Q"))
    assert batch.left_out == (("100:000030", "at the record's border"), ("100:001990", "at the record's border"))


def test_masks_reach_fifty_milliseconds_either_side(tmp_path):
    write(tmp_path, "100")
    assert load(tmp_path).size == (72,)  # 0.72 s by default
    masks = load(tmp_path / "100.hea", window=1.0).masks
    assert masks is not None
    assert masks[0].nonzero().flatten().tolist() == list(range(45, 56))


def test_folder_keeps_common_leads(tmp_path):
    first = write(tmp_path, "100", leads=("MLII", "V5"))
    second = write(tmp_path, "101", leads=("V1", "MLII"))
    batch = load(tmp_path, window=1.0)
    assert batch.x.shape == (10, 1, 100)
    assert torch.allclose(batch.x[0, 0], first[0, 250:350], atol=1e-6)
    assert torch.allclose(batch.x[5, 0], second[1, 250:350], atol=1e-6)
    assert batch.ids[5] == "101:000300"


def test_a_chosen_lead_leaves_out_records_without_it(tmp_path):
    write(tmp_path, "100", leads=("MLII", "V5"))
    write(tmp_path, "101", leads=("V1", "MLII"))
    batch = load(tmp_path, leads=("V1",), window=1.0)
    assert {one.split(":")[0] for one in batch.ids} == {"101"}
    assert ("100", "has leads MLII, V5, not V1") in batch.left_out
    assert load(tmp_path, leads="V1", records=101, window=1.0).ids == batch.ids
    assert load(tmp_path, leads="MLII,V1", records="101", window=1.0).leads == ("MLII", "V1")


def test_records_of_another_rate_or_unit_are_left_out(tmp_path):
    write(tmp_path, "100")
    write(tmp_path, "101", rate=250)
    write(tmp_path, "102", unit="uV")
    batch = load(tmp_path, window=1.0)
    assert len(batch) == 5
    rate = "has rate 250, not 100: pass rate to resample all records"
    assert {("101", rate), ("102", "is in uV, not mV")} <= set(batch.left_out)


def test_chosen_records_and_patient_disjoint_splits(tmp_path):
    for name in ("100", "101", "103"):
        write(tmp_path, name)

    def used(**options):
        return {one.split(":")[0] for one in load(tmp_path, window=1.0, **options).ids}

    assert used(records=("101",)) == {"101"}
    assert used(split="train") == {"101"}
    assert used(split="test") == {"100", "103"}


def test_limit_and_shuffle_reach_over_all_records(tmp_path):
    for name in ("100", "101", "102"):
        write(tmp_path, name)
    every = load(tmp_path, window=1.0)
    some = load(tmp_path, window=1.0, limit=6, shuffle=True, seed=2)
    assert len({one.split(":")[0] for one in some.ids}) > 1
    for row, name in enumerate(some.ids):
        assert torch.equal(some.x[row], every.x[every.ids.index(name)])
        assert some.y[row] == every.y[every.ids.index(name)]


def test_gaps_are_left_out(tmp_path):
    write(tmp_path, "100", gap=slice(610, 612))
    batch = load(tmp_path, window=1.0)
    assert "100:000600" not in batch.ids
    assert len(batch) == 4
    assert ("100:000600", "holds a gap (NaN)") in batch.left_out


def test_windows_take_the_most_common_class_except_n(tmp_path):
    beats = {50: "N", 80: "V", 90: "N", 250: "N", 450: "A", 460: "A", 470: "V", 700: "N"}
    values = write(tmp_path, "100", beats)
    batch = load(tmp_path, beats=False, window=2.0)
    assert batch.ids == ("100:000000", "100:000200", "100:000400", "100:000600")
    assert [batch.classes[i] for i in batch.y] == ["V", "N", "S", "N"]
    assert torch.allclose(batch.x[2], values[:, 400:600], atol=1e-6)
    assert batch.masks is not None
    assert batch.masks[1].nonzero().flatten().tolist() == list(range(45, 56))
    assert [one for one, _ in batch.left_out] == [f"100:{at:06d}" for at in range(800, 2000, 200)]
    assert {reason for _, reason in batch.left_out} == {"holds no annotated beat"}


def test_windows_labelled_by_record(tmp_path):
    write(tmp_path / "r", "100", beats=None)
    write(tmp_path / "r", "101", beats=None)
    (tmp_path / "labels.csv").write_text("record,label\n100,sick\n101,fine\n")
    batch = load(tmp_path / "r", beats=False, window=10.0, labels=str(tmp_path / "labels.csv"))
    assert (batch.y.tolist(), batch.classes, batch.masks) == ([1, 1, 0, 0], ("fine", "sick"), None)
    (tmp_path / "labels.csv").write_text("record,label\n100,sick\n")
    with pytest.raises(DataError):
        load(tmp_path / "r", beats=False, window=10.0, labels=str(tmp_path / "labels.csv"))


def test_corrupt_records_among_many_are_skipped(tmp_path):
    for name in ("100", "101", "102", "103", "104"):
        write(tmp_path, name, beats=None if name == "103" else BEATS)
    (tmp_path / "101.hea").write_text("garbage\n")
    (tmp_path / "102.dat").write_bytes((tmp_path / "102.dat").read_bytes()[:501])
    (tmp_path / "104.atr").write_bytes(b"\x01")
    batch = load(tmp_path, window=1.0)
    assert {one.split(":")[0] for one in batch.ids} == {"100"}
    reasons = dict(batch.left_out)
    assert all("cannot be read" in reasons[name] for name in ("101", "102")), reasons
    assert reasons["103"] == "has no annotation file 103.atr"
    assert len(batch) == 5


def test_every_beat_symbol_has_a_class():
    assert set(CLASS_OF) == set("NLRBAaJSVrFejnE/fQ?")


def test_r_peaks_inside_and_just_outside(tmp_path):
    write(tmp_path, "100", {300: "N", 340: "V", 365: "N", 600: "N"})
    batch = load(tmp_path, window=1.0)
    assert batch.leads == ("MLII", "V5")
    assert batch.r_peaks == ((50, 90, 115), (10, 50, 75), (-15, 25, 50), (50,))
    some = batch[[3, 0]]
    assert some.r_peaks == ((50,), (50, 90, 115))


def hum_record(folder, name, rate, hertz=5.0, seconds=12, gap=None):
    """A record of one sine and beats at whole seconds."""
    folder.mkdir(exist_ok=True)
    time = np.arange(round(seconds * rate)) / rate
    values = np.sin(2 * np.pi * hertz * time)[:, None] + 0.3
    if gap is not None:
        values[gap] = np.nan
    kinds = {"fmt": ["16"], "adc_gain": [2000.0], "baseline": [0]}
    wfdb.wrsamp(name, fs=rate, units=["mV"], sig_name=["II"], p_signal=values, write_dir=str(folder), **kinds)
    at = np.array([round(second * rate) for second in range(2, seconds - 1, 2)])
    wfdb.wrann(name, "atr", at, symbol=["N"] * len(at), write_dir=str(folder))


def test_records_of_several_rates_are_resampled(tmp_path):
    for name, rate in (("100", 360), ("101", 250), ("102", 128)):
        hum_record(tmp_path, name, rate)
    batch = load(tmp_path, window=1.0, rate=250.0)
    assert (batch.rate, batch.size, len(batch)) == (250, (250,), 15)
    assert not batch.left_out
    assert set(batch.r_peaks or ()) == {(125,)}
    assert batch.masks is not None
    time = np.arange(-125, 125) / 250
    for one in batch.x[:, 0].numpy():
        np.testing.assert_allclose(one, np.sin(2 * np.pi * 5.0 * time) + 0.3, atol=0.02)
    assert batch.masks[0].nonzero().flatten().tolist() == list(range(113, 138))  # 12 either side: 50 ms


def test_resampling_removes_frequencies_above_the_new_limit(tmp_path):
    hum_record(tmp_path, "100", 360, hertz=110.0)
    x = load(tmp_path, window=1.0, rate=100.0).x
    assert (x - 0.3).abs().max() < 0.02  # an alias would show as 10 Hz of full height


def test_a_gap_stays_a_gap_when_resampled(tmp_path):
    hum_record(tmp_path, "100", 360, gap=slice(1440, 1443))
    batch = load(tmp_path, window=1.0, rate=250.0)
    assert batch.ids == ("100:000500", "100:001500", "100:002000", "100:002500")
    assert batch.left_out == (("100:001000", "holds a gap (NaN)"),)


@pytest.mark.parametrize("scaling", ["record", "window"])
def test_scaling_over_the_record_or_the_window(tmp_path, scaling):
    values = write(tmp_path, "100")
    batch = load(tmp_path, window=1.0, scaling=scaling)
    assert batch.unit == "SD"
    part = values[:, 250:350]
    over = values if scaling == "record" else part
    expected = (part - over.mean(1, keepdim=True)) / over.std(1, keepdim=True, correction=0)
    assert torch.allclose(batch.x[0], expected, atol=1e-4)


def spoil(folder, change, leads=("MLII", "V5")):
    """Record 100 with its values changed before they are written."""
    write(folder, "100", leads=leads)
    values = wfdb.rdrecord(str(folder / "100")).p_signal
    change(values)
    save(folder, "100", values, leads)


def test_saturated_and_flat_parts_are_skipped_and_counted(tmp_path):
    def change(values):
        values[600:606, 0] = 5.115  # 60 ms at the highest value there is
        values[880:910, 1] = 0.25  # 300 ms of one value
        values[1190:1193, 1] = 5.115  # 30 ms: a peak that touches the limit

    spoil(tmp_path, change)
    batch = load(tmp_path, window=1.0)
    assert batch.ids == ("100:000300", "100:001200", "100:001500")
    assert ("100:000600", "lead MLII is saturated") in batch.left_out
    assert ("100:000900", "lead V5 is a flat line") in batch.left_out
    assert "2 × at the record's border (first 100:000030)" in summarise_losses(batch.left_out)
    assert summarise_losses(batch.left_out).startswith("4 left out: ")
    assert len(load(tmp_path, window=1.0, leads=("MLII",))) == 4  # the other lead's faults do not matter then


def test_records_shorter_than_a_window_are_counted(tmp_path):
    write(tmp_path, "100")
    hum_record(tmp_path, "101", RATE, seconds=30)
    batch = load(tmp_path, beats=False, window=25.0, leads=("II",))
    assert batch.ids == ("101:000000",)
    assert ("100", "has leads MLII, V5, not II") in batch.left_out


UNREADABLE = "none of 1 WFDB records can be read: 100 "
ALONE: dict[str, Any] = {"100": {}}
APART = {"100": {"leads": ("MLII",)}, "101": {"leads": ("V1",)}}


@pytest.mark.parametrize(
    ("records", "path", "options", "error", "sentence"),
    [
        (APART, "", {}, OptionError, "the records share no lead"),
        (ALONE, "", {"leads": ("V9",)}, OptionError, "no record has the leads V9: pass leads, some of MLII, V5"),
        (ALONE, "", {"records": ("100", "234")}, OptionError, "has no record '234': it holds 100"),
        (ALONE, "", {"split": "train"}, OptionError, "has no record of the train split: it holds 100"),
        (ALONE, "", {"split": "val"}, OptionError, "expected split train or test, got 'val'"),
        (ALONE, "100", {"split": "test"}, OptionError, "is a single record: records and split work only for a folder"),
        (ALONE, "999", {}, InputError, "there is no file or folder"),
        (ALONE, "", {"scaling": "both"}, InputError, "'scaling' .* Input should be 'record' or 'window'"),
        (ALONE | {"100.dat": ""}, "", {"window": 1.0}, DataError, UNREADABLE + "cannot be read"),
        (ALONE | {"100.hea": "garbage"}, "", {}, DataError, UNREADABLE + "cannot be read"),
        ({"100": {"beats": None}}, "", {}, DataError, UNREADABLE + r"has no annotation file 100\.atr"),
        ({"100": {"beats": {30: "N"}}}, "", {}, DataError, "no usable beats .* 100:000030 at the record's border"),
        (ALONE, "", {"window": 0.001}, OptionError, "a window of at least two values"),
        (ALONE, "", {"beats": False, "window": 25.0}, DataError, "no usable windows in .*: 100 is shorter than a"),
    ],
)
def test_errors(
    tmp_path, records: dict[str, Any], path: str, options: dict[str, Any], error: type[InputError], sentence
):
    for name, content in records.items():
        if isinstance(content, str):
            (tmp_path / name).write_text(content)
        else:
            write(tmp_path, name, **content)
    with pytest.raises(error, match=sentence):
        load(tmp_path / path, **options)


def test_a_flat_record(tmp_path):
    spoil(tmp_path, lambda values: values.fill(0.1))
    with pytest.raises(DataError):
        load(tmp_path, window=1.0)
