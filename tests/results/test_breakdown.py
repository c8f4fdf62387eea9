"""Per-class figures, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import tensor

from rlab.data.batch import UNBOUNDED
from rlab.present.table import as_text
from rlab.results.breakdown import by_class, class_table, entry_filters
from rlab.results.kept import HeldInputs
from rlab.results.page import attack_sections
from rlab.results.result import AttackResult, Status
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
    rows = {row["class"]: list(row.values()) for row in by_class(hand_made())}
    assert [*rows] == ["b", "a", "c"]  # easiest first, none attacked last
    assert rows["a"][1:3] == [3, "2 of 3"]
    assert rows["a"][3:8] == pytest.approx([2 / 3, 20, 1.5, 12, 0.5])
    assert rows["b"][1:7] == [2, "1 of 1", 1.0, 6, 4.0, 3]
    assert rows["c"][1:3] == [1, "0 of 0"]
    assert all(map(math.isnan, rows["c"][3:8]))


def test_each_class_names_the_distortion_that_made_most_of_the_squared_change() -> None:
    assert entry_filters(PALETTE) == {"hum": [1, 2], "noise": [3], "blur": [4]}
    result = hand_made()
    x = torch.zeros(6, 1, 4)
    x[0, 0, :2], x[1, 0, :2], x[1, 0, 2:], x[3, 0, 2:] = 0.5, 1.0, 2.0, 1.0
    rows = by_class(replace(result, inputs=HeldInputs(torch.zeros(6, 1, 4), x)))
    mostly = {row["class"]: row["mostly by"] for row in rows}
    assert mostly == {"a": "hum 60%", "b": "noise 100%", "c": "–"}  # of a, 100% and 20% hum, 0% and 80% blur


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


def test_labels_that_switched_on_and_off_are_counted():
    rows = {row["class"]: (row["samples"], row["switched off"], row["switched on"]) for row in by_class(several())}
    assert rows == {"MI": (2, "2 of 2", "0 of 0"), "STTC": (1, "0 of 1", "0 of 1"), "HYP": (1, "0 of 0", "1 of 2")}


def printed(result: AttackResult) -> str:
    return as_text(class_table(result), 100)


def test_the_table_holds_the_figures():
    row = next(line for line in printed(hand_made()).splitlines() if line.startswith("│ a "))
    assert [cell.strip() for cell in row.strip("│").split("│")][:8] == [
        "a",
        "3",
        "2 of 3",
        "67%",
        "20",
        "1.5",
        "12",
        "0.5",
    ]
    assert "L2 mV" in printed(hand_made())


def test_a_page_has_the_table_if_there_are_several_classes():
    one = replace(hand_made(), labels=torch.zeros(6, dtype=torch.int64))
    for result, titles in ((hand_made(), ["By class"]), (one, [])):
        assert [section.title for section in attack_sections(result, 0) if section.title == "By class"] == titles


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_result_can_be_broken_down(name: str):
    result = make_result(CASES[name])
    rows = by_class(result)
    if not result.labels.shape[1:]:
        assert sum(row["samples"] for row in rows) == len(result)
        assert sum(int(row["flipped"].split()[0]) for row in rows) == int(result.succeeded.sum())
    printed(result)
