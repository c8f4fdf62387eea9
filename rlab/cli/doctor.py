"""`rlab doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import prepare
from rlab.cli.speak import out, summary, tell_page
from rlab.diagnosis import examine
from rlab.present.table import plain
from rlab.runs.inputs import as_batch
from rlab.runs.options import RunOptions
from rlab.runs.palette_options import make_palette

_UNUSED = (
    "patch", "channels", "goal", "budget", "policy", "accept", "keep", "l2_penalty", "cleanup", "patience", "chunk",
)  # options of an attack  # fmt: skip


@declared(without=_UNUSED, queries=True)
def command(
    options: RunOptions,
    samples: Annotated[int, typer.Option(min=2, help="Number of samples to check")] = 16,
) -> None:
    """Check normalisation, channel order, model mode, labels and filters before you spend queries."""
    options, loaded, (victim,) = prepare(options, [options.model], options.data)
    batch = as_batch(loaded)
    palette = make_palette(options.palette or (), batch, options.gradients(batch))
    report = examine(victim, batch, palette, samples=samples)
    tell_page(report.view())
    for finding in report.findings:
        if finding.flag:
            out.print(plain(f"{finding.name}: add {finding.flag}"), soft_wrap=True)
    summary(command="doctor", healthy=report.healthy, findings=report.records(), queries=report.queries)
    if not report.healthy:
        raise typer.Exit(1)
