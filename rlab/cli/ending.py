"""The options --no-page and --track: what becomes of a finished run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.spoken import out
from rlab.data.batch import Samples
from rlab.present.table import plain, terminal
from rlab.results.result import AttackResult
from rlab.results.tables import MEDIANS, figures_line, summary_table
from rlab.storage.lock import is_read_only

Paged = Annotated[bool, typer.Option("--page/--no-page", help="Write report.html, a page about the run")]


def write_report(folder: Path, wanted: bool, data: Samples | None = None) -> Path | None:
    """Write the page of a finished run, unless its medium is read-only; `data` rebuild inputs that an attack did not store."""
    if not wanted or is_read_only(folder):
        return None
    from rlab.folders.reports import report_run  # imports matplotlib

    return report_run(folder, data=data)


def tell_result(name: str, result: AttackResult) -> None:
    """Print the figures of an attack, and what learning cost if it used a simulator that learned from the model."""
    out.print(terminal(summary_table({name: result})))
    out.print(f"[dim]{MEDIANS}[/dim]")
    out.print(figures_line(result))
    if result.setting.learned is not None:
        out.print(f"learning: {result.setting.learned}")


def tell_page(page: Path | None) -> None:
    """Print where the page is, as the last line of a command."""
    if page is not None:
        out.print(f"Page: [bold]{plain(page)}[/bold]", soft_wrap=True)


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

        out.print(f"Tracked: [bold]{plain(track_run(folder, name))}[/bold]")
