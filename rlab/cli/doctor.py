"""`rlab doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import prepare
from rlab.cli.speak import out, summary, tell_page
from rlab.diagnosis import examine
from rlab.diagnosis.protocols import configuration, known_protocol
from rlab.present.table import plain
from rlab.runs.inputs import as_batch, relabelled
from rlab.runs.options import RunOptions
from rlab.runs.palette_options import make_palette
from rlab.storage.files import write_text

_UNUSED = (
    "patch", "channels", "goal", "budget", "policy", "accept", "keep", "l2_penalty", "cleanup", "patience", "chunk",
)  # options of an attack  # fmt: skip


@declared(without=_UNUSED, queries=True)
def command(
    options: RunOptions,
    samples: Annotated[int, typer.Option(min=2, help="Number of samples to check")] = 16,
    write: Annotated[Path | None, typer.Option(help="File for the configuration of a model behind an address")] = None,
) -> None:
    """Check normalisation, channel order, model mode, labels and filters before you spend queries.

    For an http(s) address, this also finds out which protocol the server speaks.
    """
    options, loaded, (victim,) = prepare(options, [options.model], options.data)
    batch = as_batch(loaded)
    protocol = known_protocol(options.model, victim, batch)
    batch = relabelled(batch, protocol.victim.own_classes)
    if protocol.model is not None:
        template = f' -M "template={protocol.model.template}"' if protocol.model.template else ""
        out.print(plain(f"protocol: {protocol.model.name}{template}"), soft_wrap=True)
        options = options.model_copy(update={"model": protocol.model})
    if write is not None:
        write_text(write, configuration(options.model, options.data))
    palette = make_palette(options.palette or (), batch, options.gradients(batch))
    report = protocol.added_to(examine(protocol.victim, batch, palette, samples=samples))
    tell_page(report.view())
    for finding in report.findings:
        if finding.flag:
            out.print(plain(f"{finding.name}: add {finding.flag}"), soft_wrap=True)
    summary(command="doctor", healthy=report.healthy, findings=report.records(), queries=report.queries)
    if not report.healthy:
        raise typer.Exit(1)
