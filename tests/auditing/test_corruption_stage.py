"""The corrupt stage of an audit: it runs if a requirement needs it, and its verdicts are in JUnit and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlab.corruptions.report import CorruptionReport
from rlab.errors import OptionError
from tests.auditing.cases import quick, watched

MEAN: dict[str, Any] = {"metric": "corruption_accuracy", "at_least": "1%"}


@pytest.mark.slow
def test_requirements_on_kinds_and_levels(tmp_path: Path) -> None:
    needs = [MEAN, {**MEAN, "distortion": "contrast", "level": 5, "at_least": "99%"}]
    values = quick(data={"path": "demo:digits", "limit": 2}, doctor=False, budget=5, requirements=needs)
    audit, watch = watched(values, tmp_path / "out", page=True)
    report = audit.find(CorruptionReport)
    assert report is not None
    assert audit.rows.model == watch.rows
    assert audit.verdicts[0].value == pytest.approx(report.accuracy)
    by_level = [tally.accuracy.value for tally in report.kinds["contrast"]]
    assert audit.verdicts[1].value == pytest.approx(by_level[4])
    assert np.mean(by_level) >= by_level[4]
    assert not audit.verdicts[1].passed
    assert "corruption accuracy under contrast" in (tmp_path / "out" / "junit.xml").read_text().replace("at 5 ", "")
    assert "Corruptions" in audit.page.read_text()
    again, other = watched(values, tmp_path / "out")
    assert other.rows == 0
    assert again.find(CorruptionReport) == report


@pytest.mark.parametrize(("more", "said"), [({"distortion": "fogg"}, "'fogg'"), ({"level": 7}, "'7'")])
def test_an_unknown_kind_or_level_costs_no_query(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        watched(quick(requirements=[{**MEAN, **more}]), tmp_path / "out")
