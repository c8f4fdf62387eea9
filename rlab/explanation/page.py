"""The section of explanations: scores by method, and the same inputs side by side."""

from __future__ import annotations

import math

from rlab.explanation import MethodComparison
from rlab.explanation.judge import HEADINGS, RULES
from rlab.explanation.pictures import arrays, picture
from rlab.present.inline import image_address
from rlab.present.page import Block, Gallery, Picture, Section, Table, Text
from rlab.present.tables import number


def explain_section(comparison: MethodComparison) -> Section:
    return Section("Explanations", [score_table(comparison), Text(RULES, quiet=True), *_shots(comparison)])


def score_table(comparison: MethodComparison) -> Table:
    rows = []
    for method, one in comparison.judged.items():
        cells = [method]
        for name in comparison.names:
            e = one.mean(name)
            span = "" if name == "queries" or math.isnan(e.value) else f" [{number(e.low)}, {number(e.high)}]"
            cells.append(number(e.value) + span)
        rows.append(cells)
    return Table(["method", *(HEADINGS[name] for name in comparison.names)], rows, "Means and 95% bootstrap intervals")


def _shots(comparison: MethodComparison) -> list[Block]:
    batch, shown = comparison.batch, []
    for row in range(len(batch)):
        label = int(next(iter(comparison.judged.values())).explanation.labels[row])
        name = f"{batch.ids[row]}: {batch.label_name(label)}"
        shown.append(
            Picture(image_address(picture(batch.x[row].numpy(), None, None, batch.bounds)), "the input", name, "input")
        )
        for method, one in comparison.judged.items():
            x, heat, mask = arrays(one.explanation, batch, row)
            shown.append(
                Picture(image_address(picture(x, heat, mask, batch.bounds)), f"the map of {method}", name, method)
            )
    return [
        Text("Heat is where the decision rests, by each method; the line, or the bar beneath a signal, is its mask."),
        Gallery(shown, 1 + len(comparison.judged)),
    ]
