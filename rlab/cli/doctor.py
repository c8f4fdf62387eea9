"""`rlab doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import declared, out, prepare
from rlab.diagnosis import examine, findings_table
from rlab.present.table import plain, terminal
from rlab.runs.options import RunOptions
from rlab.runs.palette_options import make_palette


@declared(
    RunOptions,
    without=(
        "patch",
        "channels",
        "goal",
        "budget",
        "policy",
        "accept",
        "keep",
        "l2_penalty",
        "cleanup",
        "patience",
        "chunk",
    ),
)
def command(
    options: RunOptions, samples: Annotated[int, typer.Option(min=2, help="Number of samples to check")] = 16
) -> None:
    """Check normalisation, channel order, model mode, labels and filters before you spend queries."""
    options, batch, victim = prepare(options)
    own = options.gradients(batch)
    palette = make_palette(options.palette or (), batch, own)
    report = examine(victim, batch, palette, samples=samples)
    for table in (
        findings_table(report.findings),
        findings_table((), report.passed),
    ):  # one table has no room for changes
        if table.rows:
            out.print(terminal(table))
    for finding in report.findings:
        if finding.flag:
            out.print(plain(f"{finding.name}: add {finding.flag}"), highlight=False, soft_wrap=True)
    accuracy = "" if report.accuracy is None else f", accuracy {report.accuracy:.0%}"
    out.print(f"{report.queries} queries used{accuracy}. {report.sentence}")
    if not report.healthy:
        raise typer.Exit(1)
