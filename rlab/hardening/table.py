"""Comparisons of hardenings as tables."""

from __future__ import annotations

import math

from rich.table import Table

from rlab.comparison import Estimate
from rlab.hardening.compare import HardeningComparison

COLUMNS = {
    "clean": "clean",
    "agent_l2": "L2 to flip",
    "l2_ratio": "times unchanged",
    "agent": "agent, adaptive",
    "transfer": "agent, as it was",
    "square": "Square",
    "pgd": "PGD",
    "corruptions": "corruptions",
    "held_out": "held-out",
}
RULES = (
    "Shares of samples that stay right; L2 to flip is the median the policy needs on the model itself, ∞ where its budget "
    "did not do for half of them. Brackets are 95% bootstrap intervals over seeds and samples."
)


def cells(comparison: HardeningComparison, method: str) -> list[str]:
    """One method's figures in the order of COLUMNS."""
    found = []
    for figure in COLUMNS:
        if figure == "l2_ratio":
            found.append(interval(comparison.l2_ratio(method)))
        elif figure in comparison.methods[method]:
            e = comparison.estimate(method, figure)
            found.append(interval(e) if figure == "agent_l2" else shares(e))
        else:
            found.append("–")
    return found


def comparison_table(comparison: HardeningComparison) -> Table:
    table = Table()
    table.add_column("method", overflow="fold")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    for method in comparison.methods:
        table.add_row(method, *(cell.replace(" [", "\n[") for cell in cells(comparison, method)), end_section=True)
    return table


def number(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.3g}"


def interval(e: Estimate) -> str:
    return f"{number(e.value)} [{number(e.low)}, {number(e.high)}]"


def shares(e: Estimate) -> str:
    if math.isnan(e.value):
        return "–"
    return f"{e.value:.1%} [{e.low:.1%}, {e.high:.1%}]"
