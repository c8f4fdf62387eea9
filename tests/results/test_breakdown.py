"""Per-class figures, by hand."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import tensor

from rlab.data.batch import UNBOUNDED
from rlab.errors import OptionError
from rlab.present.table import terminal
from rlab.results.breakdown import by_class, by_distortion, by_label, entry_filters, has_classes
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Status
from rlab.results.tables import breakdown_tables
from tests.results.plots.fixtures import CASES, Recipe, make_result

PALETTE = ("hum@0.1", "hum@6dB", "noise@0.2#2", "blur@1")


def hand_made() -> AttackResult:
    """Class a: two flipped, one not. Class b: one flipped, one skipped. Class c: one skipped."""
    classes = ("a", "b", "c")
    made = make_result(Recipe((4,), (2,), n=6, k=3, classes=classes, palette=PALETTE, bounds=UNBOUNDED, unit="mV"))
    won, spent, skipped = Status.SUCCEEDED, Status.SPENT, Status.SKIPPED
    return replace(
        made,
        labels=tensor([0, 0, 0, 1, 1, 2]),
        status=(won, won, spent, won, skipped, skipped),
        queries=tensor([[10, 4, 1, 0], [20, 6, 1, 0], [99, 0, 0, 0], [5, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]),
        flip=dict(made.flip) | {"snr_db": tensor([10.0, 14.0, math.nan, 3.0, math.nan, math.nan])},
        final=dict(made.final) | {"l2": tensor([1.0, 2.0, 9.0, 4.0, 0.0, 0.0]), "snr_db": torch.arange(6.0)},
        assignment=tensor([[1, 0], [2, 4], [3, 3], [0, 3], [0, 0], [0, 0]], dtype=torch.uint8),
    )


def test_by_class():
    rows = {row.name: row for row in by_class(hand_made())}
    assert [row.name for row in by_class(hand_made())] == ["b", "a", "c"]  # easiest first, none attacked last
    a, b, c = (rows[name] for name in "abc")
    assert (a.samples, a.attacked, a.succeeded) == (3, 3, 2)
    medians = (a.success, a.median_queries, a.median_l2, a.snr_flip, a.snr_final)
    assert medians == pytest.approx((2 / 3, 20, 1.5, 12, 0.5))
    assert (b.samples, b.attacked, b.succeeded, b.success, b.median_queries, b.snr_flip) == (2, 1, 1, 1.0, 6, 3)
    assert (c.samples, c.attacked, c.succeeded) == (1, 0, 0)
    assert all(map(math.isnan, (c.success, c.median_queries, c.median_l2, c.snr_flip)))


def test_by_distortion_is_the_share_of_the_squared_change() -> None:
    assert entry_filters(PALETTE) == {"hum": [1, 2], "noise": [3], "blur": [4]}
    result = hand_made()
    x = torch.zeros(6, 1, 4)
    x[0, 0, :2], x[1, 0, :2], x[1, 0, 2:], x[3, 0, 2:] = 0.5, 1.0, 2.0, 1.0
    shares = by_distortion(replace(result, inputs=HeldInputs(torch.zeros(6, 1, 4), x)))
    assert shares["a"] == pytest.approx({"hum": 0.6, "noise": 0.0, "blur": 0.4})  # 100% and 20%, 0% and 80%
    assert shares["b"] == pytest.approx({"hum": 0.0, "noise": 1.0, "blur": 0.0})


def several() -> AttackResult:
    made = make_result(Recipe((4,), (2,), n=3, k=3, classes=("MI", "STTC", "HYP"), multilabel=True))
    return replace(
        made,
        labels=tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1]]),
        status=(Status.SUCCEEDED, Status.SUCCEEDED, Status.SKIPPED),
        queries=tensor([[10, 2, 1, 0], [30, 2, 1, 0], [1, 0, 0, 0]]),
        before=tensor([[0.9, 0.8, 0.1], [0.7, 0.2, 0.3], [0.9, 0.9, 0.1]]),
        after=tensor([[0.4, 0.8, 0.6], [0.3, 0.2, 0.1], [0.9, 0.9, 0.1]]),
    )


def test_by_label_counts_labels_that_switched_on_and_off():
    mi, sttc, hyp = by_label(several())
    assert (mi.name, mi.true, mi.switched_off, mi.absent, mi.switched_on, mi.median_queries) == ("MI", 2, 2, 0, 0, 22)
    assert (sttc.true, sttc.switched_off, sttc.absent, sttc.switched_on) == (1, 0, 1, 0)
    assert math.isnan(sttc.median_queries)
    assert (hyp.true, hyp.switched_off, hyp.absent, hyp.switched_on, hyp.median_queries) == (0, 0, 2, 1, 12)
    assert {row.name: row.samples for row in by_class(several())} == {"MI": 2, "STTC": 1, "HYP": 1}
    with pytest.raises(OptionError):
        by_label(hand_made())


def printed(result: AttackResult) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    for table in breakdown_tables(result):
        console.print(terminal(table))
    return console.export_text()


def test_tables_hold_the_figures():
    text = printed(hand_made())
    assert "L2 mV" in text
    row = next(line for line in text.splitlines() if line.startswith("│ a "))
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["a", "3", "2 of 3", "67%", "20", "1.5", "12", "0.5"]
    hum = next(line for line in text.splitlines() if line.startswith("│ hum"))
    assert len(hum.strip("│").split("│")) == 3
    assert "By label" not in text
    assert "2 of 2" in printed(several())
    assert "By label" in printed(several())


def test_one_class_needs_no_tables():
    one = replace(hand_made(), labels=torch.zeros(6, dtype=torch.int64))
    assert not has_classes(one)
    assert breakdown_tables(one) == []


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_result_can_be_broken_down(name: str):
    result = make_result(CASES[name])
    rows = by_class(result)
    if not result.labels.shape[1:]:
        assert sum(row.samples for row in rows) == len(result)
        assert sum(row.succeeded for row in rows) == int(result.succeeded.sum())
    printed(result)
