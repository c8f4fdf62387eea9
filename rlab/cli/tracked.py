"""The option --track of commands that write a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.spoken import out
from rlab.present.table import plain


def _check(name: str | None) -> str | None:
    """Check the tracker before any query is spent."""
    if name is not None:
        from rlab.folders.tracking import check_tracker

        check_tracker(name)
    return name


Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        callback=_check,
        help="Log the finished run to mlflow, wandb or tensorboard (each is an extra)",
    ),
]


def track(folder: Path, name: str | None) -> None:
    if name is not None:
        from rlab.folders.tracking import track_run

        out.print(f"Tracked: [bold]{plain(track_run(folder, name))}[/bold]", highlight=False)
