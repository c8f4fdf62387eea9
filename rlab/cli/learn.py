"""`rlab learn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import RunFlags
from rlab.cli.speak import out
from rlab.learning.report import Learned
from rlab.learning.simulator import FILE
from rlab.present.table import plain, typed
from rlab.runs.learn import LearnOptions, LearnRunOptions, learn

_FACTS = {"queries", "clean", "distorted", "aside", "agreement", "agreements"}


@declared(queries=True)
def command(
    options: LearnRunOptions,
    run: RunFlags,
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Run folders of earlier attacks on the same model, whose answers cost no query"),
    ] = None,
) -> None:
    """Train a simulator on a model's answers: small networks, the students, that stand in for the model.

    The command queries the model on clean and distorted inputs and needs no labels. Attacks then try their proposals on the
    students first, which costs no query. With --from, the command also uses answers to earlier attacks, and you can leave out
    MODEL and DATA. To resume a stopped run, repeat the command with the same --out.
    """
    given = {name: getattr(options, name) for name in LearnOptions.model_fields}
    with run.opened("learn") as folder:
        simulator = learn(
            options.model,
            options.data,
            out=folder,
            earlier=earlier or (),
            tell=lambda line: out.print(plain(line)),
            **given,
        )
        out.print(f"Use it: rlab attack MODEL DATA --simulator {typed(folder)}")
        facts = simulator.card.model_dump(mode="json", include=_FACTS)
        run.finish(Learned(simulator.card), folder, file=folder / FILE, **facts)
