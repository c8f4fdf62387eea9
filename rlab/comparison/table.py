"""A comparison as a table that fits a terminal, and the rules its figures follow."""

from __future__ import annotations

from rich.table import Table

from rlab.comparison.comparison import Comparison
from rlab.comparison.figures import Estimate, query_ratio
from rlab.present.tables import number

RULES = (
    "Success is over samples the model had right. Queries are search + cleanup; a sample that was not flipped counts as "
    "the whole budget in 'all'. L2 is over flipped samples, values in [0, 1]. Brackets: 95% bootstrap intervals."
)


def comparison_table(comparison: Comparison) -> Table:
    """One row an attack; ratios are of median queries (all) over the first attack's, by the same draws of samples."""
    table = Table()
    first = next(iter(comparison.outcomes))
    table.add_column("attack", overflow="fold")  # a least width here would push the last column over the edge
    for heading in ("success", "queries,\nall", "queries,\nflipped", "L2", f"queries ÷\n{first}"):
        table.add_column(heading, justify="right")
    table.add_column("rows\nin all", justify="right", no_wrap=True)
    for name, figures in comparison.figures().items():
        times = query_ratio(comparison.outcomes[first], comparison.outcomes[name], comparison.seed)
        table.add_row(
            name,
            share(figures.success),
            interval(figures.queries),
            interval(figures.queries_won),
            interval(figures.l2),
            "1\n" if name == first else interval(times),
            f"{figures.rows:,}",
        )
    return table


def equal_lines(comparison: Comparison) -> list[str]:
    """One sentence for each attack that was run at several strengths: its queries at the first attack's median L2."""
    first, lines = next(iter(comparison.outcomes)), []
    for base in comparison.settings():
        at = comparison.at_equal_l2(first, base)
        if at["queries"] != at["queries"]:
            lines.append(
                f"{base}: its settings do not enclose the median L2 {number(at['l2'])} of {first}; add strengths"
            )
        else:
            lines.append(
                f"{base} at the median L2 {number(at['l2'])} of {first}: {number(at['queries'])} queries, "
                f"{number(at['ratio'])} times as many [{number(at['low'])}, {number(at['high'])}]"
            )
    return lines


def interval(estimate: Estimate) -> str:
    return f"{number(estimate.value)}\n[{number(estimate.low)}, {number(estimate.high)}]"


def share(estimate: Estimate) -> str:
    return f"{estimate.value:.1%}\n[{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
