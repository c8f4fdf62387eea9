"""`rlab learn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import Wait, declared, out, out_flag, run_folder
from rlab.cli.spoken import summary
from rlab.learning.simulator import FILE
from rlab.present.table import plain
from rlab.runs.learn import LearnOptions, LearnRunOptions, learn


@declared(LearnRunOptions)
def command(
    options: LearnRunOptions,
    folder: Annotated[Path | None, out_flag("Folder for the simulator (default: a new one below runs/)")] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Run folders of earlier attacks on the same model, whose answers cost no query"),
    ] = None,
    wait: Wait = False,
) -> None:
    """Train a simulator on a model's answers: small networks, the students, that stand in for the model.

    The command queries the model on clean and distorted inputs and needs no labels. Attacks then try their proposals on the
    students first, which costs no query. With --from, the command also uses answers to earlier attacks, and you can leave out
    MODEL and DATA. To resume a stopped run, repeat the command with the same --out.
    """
    given = {name: getattr(options, name) for name in LearnOptions.model_fields}
    with run_folder(folder, "learn", wait) as folder:
        simulator = learn(
            options.model,
            options.data,
            out=folder,
            earlier=earlier or (),
            tell=lambda line: out.print(plain(line)),
            **given,
        )
    card = simulator.card
    agree = f"{len(card.students)} students agree with the model on {card.agreement:.1%} of {card.aside:,} answers kept aside"
    out.print(f"{agree}; {card.queries:,} queries")
    out.print(f"Simulator: [bold]{plain(folder / FILE)}[/bold]")
    out.print(f"Use it: rlab attack MODEL DATA --simulator {plain(folder)}")
    facts = card.model_dump(mode="json", include={"queries", "clean", "distorted", "aside", "agreement", "agreements"})
    summary(command="learn", out=folder, file=folder / FILE, **facts)
