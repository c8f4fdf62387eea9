"""The journal of a training: lines of JSON, and TensorBoard scalars where they are asked for."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from rlab.errors import MissingExtra
from rlab.training.trainer import MetricLogger


def test_a_line_for_every_note(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first = MetricLogger(path)
    first.note({"success": 0.5, "median_l2": 1.25}, 3.0)
    path.write_text("a line of a killed training, and half of ano")
    again = MetricLogger(path, first.lines)
    again.note({"success": 0.75}, 9.0)
    assert path.read_text() == '{"success": 0.5, "median_l2": 1.25}\n{"success": 0.75}\n'
    again.note({"median_queries": math.nan}, 0.0)  # unknown so far
    assert math.isnan(json.loads(path.read_text().splitlines()[-1])["median_queries"])
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it could not be imported
    with pytest.raises(MissingExtra, match=r"pip install 'rlab-robustness\[tensorboard\]'"):
        MetricLogger(tmp_path / "log.jsonl", tensorboard=True)
    MetricLogger(tmp_path / "log.jsonl").note({"loss": 1.0}, 0.0)  # and nobody else needs it


def test_scalars_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = MetricLogger(tmp_path / "log.jsonl", tensorboard=True)
    journal.note({"success": 0.5, "median_queries": math.nan}, 2.4)
    journal.note({"success": 0.75, "median_queries": 12.0}, 60.0)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    told = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert told == {"success": [(2, 0.5), (60, 0.75)], "median_queries": [(60, 12.0)]}
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2
