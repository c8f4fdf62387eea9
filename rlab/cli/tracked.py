"""The option --track of commands that leave a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.spoken import out
from rlab.present.table import plain


def _check(name: str | None) -> str | None:
    """Before anything is spent."""
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
        help="Log settings, figures and pictures of the finished run: mlflow, wandb or tensorboard, each an extra.",
    ),
]


def track(folder: Path, name: str | None) -> None:
    """Logs the finished run where a tracker is named."""
    if name is not None:
        from rlab.folders.tracking import track_run

        out.print(f"Tracked: [bold]{plain(track_run(folder, name))}[/bold]", highlight=False)
