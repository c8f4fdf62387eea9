"""The method 'waves' on models that read one wave in one lead, its tables and sentences, and the sheet of twelve leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlab.core.channels import LEADS
from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.load import load
from rlab.errors import DataError, InputError, OptionError
from rlab.explanation.explanation import Explanation
from rlab.explanation.options import ExplainOptions
from rlab.explanation.pictures import Overlay
from rlab.explanation.run import explain_batch, parse_method
from rlab.explanation.waves import ends_moved, isoelectric
from rlab.present.layers import FULL, Layers, Mark
from rlab.present.page import render
from rlab.present.sheet import MM, clinical_sheet
from rlab.storage.config import check
from rlab.victims.callables import CallableVictim

RATE, R = 250.0, 100  # samples per second, and the R peak
READ = {"P": (65, 80), "QRS": (95, 105), "ST": (120, 130), "T": (150, 180)}  # well inside each wave's window
GROUPS = {"II": "II, III, aVF", "aVL": "I, aVR, aVL", "V2": "V1-V3", "V5": "V4-V6"}  # by a lead that each holds


def windows(n: int = 2, level: float = 0.3) -> Batch:
    """Windows of 1 s: `level` mV in every wave of every lead, above an isoelectric line at 0.05 mV."""
    x = torch.full((n, 12, 250), 0.05)
    x[:, :, 50:200] += level
    known: dict[str, Any] = {"rate": RATE, "unit": "mV", "leads": LEADS, "classes": ("other", "MI")}
    return Batch(x, torch.ones(n, dtype=torch.int64), bounds=UNBOUNDED, r_peaks=((R,),) * n, **known)


def reader(lead: str, start: int, stop: int) -> CallableVictim:
    """The log-odds of MI are ten times the mean of some points of one lead."""

    def scores(x: NDArray[np.float32]) -> NDArray[np.float32]:
        level = 10 * x[:, LEADS.index(lead), start:stop].mean(1)
        return np.stack([np.zeros_like(level), level], 1)

    return CallableVictim(scores, outputs="logits", bounds=UNBOUNDED)


@pytest.mark.parametrize("lead", GROUPS)
@pytest.mark.parametrize("wave", READ)
def test_only_the_wave_and_the_leads_that_a_model_reads_have_an_effect(wave: str, lead: str):
    victim, batch = reader(lead, *READ[wave]), windows()
    found = parse_method("waves(queries=65)")(victim, batch)
    assert found.queries.tolist() == [65, 65]
    assert victim.rows.total() == 130
    assert found.effects is not None
    before, after = torch.tensor(3.5).sigmoid().item(), torch.tensor(0.5).sigmoid().item()
    for row in found.effects.rows(found.ids, found.names):
        mine = (row["wave"], row["leads"]) == (wave, GROUPS[lead])
        assert row["before"] == pytest.approx(before, abs=1e-5)
        assert row["after"] == pytest.approx(after if mine else before, abs=1e-5)
        assert row["low"] - 1e-5 <= row["after"] <= row["high"] + 1e-5
    first, *rest = found.statements(0)
    assert all(part in first for part in (f"the {wave} ", f" in {GROUPS[lead]} ", f"from {before:.2f} to {after:.2f}"))
    assert len(rest) == 1


def test_each_lead_alone_and_the_map_of_each_lead():
    found = explain_batch(reader("V2", *READ["ST"]), windows(1), "waves(channels='each', queries=193)")
    assert found.effects is not None
    assert found.by_lead is not None
    assert tuple(leads for wave, leads in found.effects.parts if wave == "P") == LEADS
    heat, effect = found.by_lead[0], float(found.effects.effect.max())
    assert float(heat.sum()) == pytest.approx(effect, rel=1e-4)  # sums of heat are effects
    assert float(heat[LEADS.index("V2"), 115:135].sum()) == pytest.approx(effect, rel=1e-4)
    torch.testing.assert_close(found.maps[0], heat.sum(0))


def test_the_interval_holds_other_cuts_and_windows():
    victim, batch = reader("V2", 110, 120), windows(1)  # at the edge of ST, which each cut moves
    many = parse_method("waves(queries=401, channels='V1-V3')")(victim, batch).effects
    assert many is not None
    for seed in range(3):
        few = parse_method("waves(queries=81, channels='V1-V3')")(victim, batch, seed=seed + 1).effects
        assert few is not None
        part = few.parts.index(("ST", "V1-V3"))
        assert float(few.high[0, part] - few.low[0, part]) > 0.2
        assert float(few.after[0, part]) == pytest.approx(float(many.after[0, part]), abs=1e-5)
        assert float(few.low[0, part]) == pytest.approx(float(many.low[0, part]), abs=0.1)
        assert float(few.high[0, part]) == pytest.approx(float(many.high[0, part]), abs=0.1)


def test_windows_move_and_stay_in_the_record():
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, [0, 1, 5, 6, 7, 11]] = True
    at = [row.nonzero().flatten().tolist() for row in ends_moved(mask, torch.tensor([0, 2, -2]))]
    assert at == [[0, 1, 5, 6, 7, 11], [0, 1, 2, 3, 5, 6, 7, 8, 9, 11], [5, 11]]


def heat_of(explanation: Explanation, batch: Batch) -> Any:
    return Overlay.of(explanation, batch, 0).layers.heat


def test_pictures_show_effects_on_one_scale_with_evidence_against_the_class():
    """A small effect has little colour in a record without larger ones, and one that raises the probability is below 0."""
    found = parse_method("waves(queries=65)")(reader("V2", *READ["ST"]), small := windows(1, 0.05), small.y)
    assert found.effects is not None
    effect = float(found.effects.effect.max())
    assert 0.01 < effect < 0.2
    assert float(np.max(heat_of(found, small))) == pytest.approx(effect / FULL, abs=1e-5)
    batch = windows(1, -0.3)
    against = parse_method("waves(queries=65)")(reader("V2", *READ["ST"]), batch, batch.y)
    assert float(np.min(heat_of(against, batch))) < -0.5
    assert f"{FULL:g} against the class" in render(against.view())


def test_an_elevated_segment_goes_down_to_the_isoelectric_line():
    batch = windows(1)
    waves = torch.zeros(1, 250, dtype=torch.bool)
    waves[:, 50:200] = True
    torch.testing.assert_close(isoelectric(batch.x, waves, RATE), torch.full_like(batch.x, 0.05))
    median = isoelectric(batch.x, torch.ones_like(waves), RATE)
    torch.testing.assert_close(median, batch.x.median(2, keepdim=True).values.expand_as(batch.x))


def test_leads_without_a_name_have_numbers():
    found = parse_method("waves")(reader("V1", *READ["QRS"]), replace(windows(1), leads=()))
    assert found.effects is not None
    assert [leads for _, leads in found.effects.parts[:12]] == [f"lead {number}" for number in range(1, 13)]


def test_channels_of_the_command_are_the_groups_of_leads():
    options = check(ExplainOptions, {"model": "demo:ecg", "data": "demo:ecg", "method": "waves", "channels": "V1;V6"})
    found = explain_batch(reader("V1", *READ["QRS"]), windows(1), options.methods()[0])
    assert found.effects is not None
    assert found.effects.parts[:2] == (("P", "V1"), ("P", "V6"))
    assert found.effects.settled()[0].nonzero().tolist() == [[2]]  # QRS in V1


def test_a_folder_has_the_table_of_waves_and_leads(tmp_path: Path):
    found = explain_batch(reader("V2", *READ["ST"]), windows(1), "waves")
    page = render(Explanation.load(found.save(tmp_path)).view())
    for text in (page, render(found.view()), found._repr_html_()):
        assert all(part in text for part in ("Waves that change", "ST", "V1-V3", "0.97", "0.62"))
    assert len((tmp_path / "waves.csv").read_text().splitlines()) == 1 + 4 * 4


def test_a_record_without_waves_says_so():
    flat = Batch(torch.zeros(1, 12, 1250), torch.zeros(1, dtype=torch.int64), bounds=UNBOUNDED, rate=RATE, leads=LEADS)
    found = explain_batch(reader("V2", 0, 9), flat, "waves(queries=49)")
    assert found.effects is not None
    assert found.effects.rows(found.ids, found.names) == []
    assert "no place was found for the P wave" in found.statements(0)[0]


IMAGE = Batch(torch.rand(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: explain_batch(reader("I", 0, 9), windows(1), "waves(queries=48)"), OptionError, "at least 49 queries"),
        (lambda: explain_batch(reader("I", 0, 9), windows(1), "waves(channels='V9')"), OptionError, "V9"),
        (lambda: explain_batch(CallableVictim(lambda x: x[:, :, 0, 0]), IMAGE, "waves"), DataError, "sampling rate"),
    ],
)
def test_errors(call: Callable[[], object], error: type[InputError], sentence: str):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize(("lead", "column", "row"), [("aVF", 1, 2), ("II", 0, 1)])
def test_the_heat_of_a_lead_lies_in_its_place_on_the_sheet(lead: str, column: int, row: int):
    x = np.stack([np.sin(np.arange(1000, dtype=np.float32) / 9) * 0.5] * 12).astype(np.float32)
    at = Mark("red", "the lead", [(0, LEADS.index(lead), 1000, 1)])
    sheet = clinical_sheet(Layers(x, UNBOUNDED, marks=[at], rate=100.0, unit="mV", leads=LEADS))
    assert [side / MM for side in sheet.size] == pytest.approx([25 * 10.5, 80])
    (mark,) = sheet.marks
    places = [tuple(round(side / MM, 3) for side in place) for place in mark.places]
    strip = [(12.5, 60, 250, 20)] if lead == "II" else []  # which is also the rhythm strip
    assert places == [(12.5 + 62.5 * column, 20 * row, 62.5, 20), *strip]
    figure = Figure((sheet.size[0] / 96, sheet.size[1] / 96))
    sheet.draw(ax := figure.add_axes((0, 0, 1, 1)))
    assert [text.get_text() for text in ax.texts] == [*LEADS, "II"]


@pytest.mark.real
def test_a_twelve_lead_record_of_ptb_xl(real: Path):
    batch = load(real / "ptbxl", limit=1, order="first")
    found = explain_batch(reader("V2", 0, 1000), batch, "waves(queries=49)", labels=torch.tensor([1]))
    assert found.effects is not None
    assert found.effects.there.all()
    drawn = Overlay.of(found, batch, 0).figure()
    assert (drawn.get_size_inches() * 25.4).tolist() == pytest.approx([297, 210])
