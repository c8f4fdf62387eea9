"""`rlab corrupt`: planted models with known answers, files, resuming and what goes wrong."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rlab
from rlab.corruptions import KINDS, LEVELS
from rlab.corruptions.report import CorruptionReport
from rlab.corruptions.run import tally_of
from rlab.data.batch import Batch
from rlab.errors import FolderError, InputError, MissingExtra, ModelError
from rlab.victims.base import Victim
from rlab.victims.failures import Unanswered
from tests.command import rlab_command

QUIET: dict[str, Any] = {"progress": False, "announce": lambda understood: None}


class Mean(Victim):
    """Class 1 where the mean of an image is above a half; sure to a fixed degree."""

    tries = 0

    def __init__(self, sure: float = 0.8) -> None:
        super().__init__(outputs="logits")
        self.sure = sure

    def _predict(self, x: Tensor) -> Tensor:
        one = (x.flatten(1).mean(1) > 0.5).to(x)
        return torch.stack([1 - one, one], 1) * math.log(self.sure / (1 - self.sure))


def grey(*values: float) -> Batch:
    x = torch.tensor(values).view(-1, 1, 1, 1).expand(-1, 3, 8, 8).clone()
    return Batch(x, (x[:, 0, 0, 0] > 0.5).long())


def test_only_what_moves_the_mean_costs_accuracy() -> None:
    """Brightness adds 0.05 to 0.3: at level 5 it lifts 0.25 and 0.45 above a half, at level 1 neither; blurs lift nothing."""
    report = rlab.corrupt(Mean(), grey(0.1, 0.25, 0.45, 0.8), kinds="brightness,defocus_blur", levels="1,5", **QUIET)
    by_kind = {kind: [tally.accuracy.value for tally in tallies] for kind, tallies in report.kinds.items()}
    assert by_kind == {"brightness": [1.0, 0.5], "defocus_blur": [1.0, 1.0]}
    assert report.clean.accuracy.value == 1.0
    assert report.accuracy == pytest.approx(0.875)
    assert report.rows == 4 * (1 + 2 * 2)
    assert report.clean.ece == pytest.approx(0.2, abs=1e-5)  # right always, sure to 80%
    assert [row["accuracy"] for row in report.records()] == [1.0, 0.5, 1.0, 1.0]


def test_queries_are_those_that_were_sent(tmp_path: Path) -> None:
    class Flaky(Mean):
        """Answers every second request."""

        def _predict(self, x: Tensor) -> Tensor:
            self.tries += 1
            if self.tries % 2:
                raise Unanswered("the model is busy")
            return super()._predict(x)

    victim, batch = Flaky(), grey(0.1, 0.25, 0.45, 0.8)
    victim.tries, victim.retries, victim.backoff = 0, 1, 0.0
    options: dict[str, Any] = {"kinds": "brightness", "levels": "1,5", "out": tmp_path / "run", **QUIET}
    report = rlab.corrupt(victim, batch, **options)
    assert report.rows == victim.rows.total() == 2 * 4 * 3
    assert rlab.corrupt(victim, batch, **options).rows == 24  # of the run, not of the last command
    assert victim.rows.total() == 24


def test_calibration_by_hand() -> None:
    tally = tally_of(torch.tensor([0.9, 0.9, 0.9, 0.3]), torch.tensor([True, True, False, False]))
    assert tally.ece == pytest.approx((abs(2 - 2.7) + 0.3) / 4)
    assert (tally + tally).ece == pytest.approx(tally.ece)
    assert (tally.samples, tally.right) == (4, 2)


def test_mce_against_a_baseline_and_files(tmp_path: Path) -> None:
    batch = grey(0.25, 0.45, 0.48, 0.8)
    some: dict[str, Any] = {"kinds": ["brightness", "contrast"], "levels": [1, 5]}
    worse = rlab.corrupt(Mean(), batch, out=tmp_path / "base", **some, **QUIET)
    assert [t.accuracy.value for t in worse.kinds["brightness"]] == [0.75, 0.25]
    same = rlab.corrupt(Mean(), batch, baseline=str(tmp_path / "base"), **some, **QUIET)
    assert (same.mce, same.relative_mce) == (1.0, 1.0)
    assert same.ratios()["brightness"] == 1.0
    assert math.isnan(same.ratios()["contrast"])  # the baseline makes no error there
    stored = CorruptionReport.load(tmp_path / "base")
    assert stored == worse
    saved = same.save(tmp_path / "saved")
    assert CorruptionReport.load(saved) == same
    assert json.loads((saved / "report.json").read_text())["metrics"]["mCE"] == 1.0
    assert "CE" in same.table().head
    assert "CE" not in worse.table().head
    assert worse.report(tmp_path / "page.html").read_text().count("brightness")
    with pytest.raises(FolderError, match="other levels"):
        rlab.corrupt(Mean(), batch, baseline=str(tmp_path / "base"), kinds="brightness", **QUIET)
    with pytest.raises(FolderError, match="other kinds"):
        rlab.corrupt(Mean(), batch, baseline=str(tmp_path / "base"), kinds="fog", levels=[1, 5], **QUIET)
    with pytest.raises(FolderError, match="other data"):
        rlab.corrupt(Mean(), batch[:2], baseline=str(tmp_path / "base"), **some, **QUIET)


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    batch, victim, asked = rlab.load("demo:digits", limit=6), rlab.demo_victim("digits"), list[int]()
    some: dict[str, Any] = {"kinds": "fog,snow", "levels": "2,4", "out": tmp_path / "run"}
    whole = rlab.corrupt(victim, batch, kinds="fog,snow", levels="2,4", **QUIET)

    original = type(victim)._predict

    def predict(self: Any, x: Tensor) -> Tensor:
        asked.append(len(x))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return original(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(victim), "_predict", predict)
        with pytest.raises(KeyboardInterrupt):
            rlab.corrupt(victim, batch, **some, **QUIET)
        assert not (tmp_path / "run" / "report.json").exists()
        before = len(asked)
        resumed = rlab.corrupt(victim, batch, **some, **QUIET)
    assert len(asked) - before == 2  # of five
    assert resumed == whole


def test_signals_and_clips() -> None:
    signals = rlab.corrupt("demo:ecg", "demo:ecg", limit=3, levels=[3], **QUIET)
    assert "baseline_wander" in signals.kinds
    clips = rlab.corrupt("demo:clips", "demo:clips", limit=2, kinds="fog", levels=[3], **QUIET)
    assert clips.clean.samples == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kinds": "fogg"}, "'fog'"),
        ({"levels": [6]}, "levels from 1 to 5"),
        ({"levels": []}, "levels from 1 to 5"),
        ({"baseline": "nowhere"}, "nowhere"),
    ],
)
def test_one_sentence_says_what_is_wrong(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        rlab.corrupt(Mean(), grey(0.2, 0.8), **options, **QUIET)


def test_several_labels_per_sample_are_refused() -> None:
    with pytest.raises(ModelError, match="one label per sample"):
        rlab.corrupt(Mean().read_as(multilabel=True), grey(0.2, 0.8), **QUIET)


def test_an_extra_that_is_missing_is_named_before_the_first_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    victim = Mean()
    with pytest.raises(MissingExtra, match="video"):
        rlab.corrupt(victim, Batch(torch.rand(1, 3, 2, 8, 8), torch.tensor([0])), kinds="contrast,h264", **QUIET)
    assert not victim.rows.total()


def test_the_command(tmp_path: Path) -> None:
    said = rlab_command(
        *("corrupt", "demo:digits", "demo:digits", "--limit", 5, "--kinds", "fog", "--levels", "1,2,3,4,5"),
        *("--out", tmp_path / "run", "--json"),
    )
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert 0 <= told["accuracy"] <= told["clean"] <= 1
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"report.json", "results.csv", "report.html"}
    wrong = rlab_command("corrupt", "demo:digits", "demo:digits", "--levels", "0", "--out", tmp_path / "no")
    assert wrong.code == 2
    assert not (tmp_path / "no").exists()


def test_the_table_fits_80_columns() -> None:
    from rich.console import Console

    from rlab.present.table import terminal

    tally = tally_of(torch.tensor([0.9, 0.3]), torch.tensor([True, True]))
    report = rlab.CorruptionReport(tally, dict.fromkeys(KINDS, (tally,) * 5), LEVELS, "", 2)
    both = replace(report, baseline=report)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal(both.table()))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert all(kind in text for kind in report.kinds)  # no name is broken
