"""`rlab show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.speak import ROWS, out, summary, tell_page
from rlab.errors import OptionError
from rlab.folders.finished import load_report
from rlab.present.table import plain, typed
from rlab.storage.lock import hold
from rlab.storage.run_file import read_versions

DATA_HELP = "Data of the attack, to rebuild inputs that it did not keep"


@declared()
def command(
    run: Annotated[Path, typer.Argument(help="Run folder")],
    samples: Annotated[
        int, typer.Option(min=0, help="Number of samples, and of other rows of a table, to list")
    ] = ROWS,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw again")] = 0,
    data: Annotated[Path | None, typer.Option(help=DATA_HELP, show_default=False)] = None,
) -> None:
    """Show the results of any run: figures, tables and sentences of its page."""
    from rlab.folders.reports import data_of  # imports much of rlab

    report = load_report(run, data_of(run, data))
    page = report.view(0, run)
    tables = tell_page(page, samples)
    if pictures:
        from rlab.present.figures import save_drawings
        from rlab.results.result import AttackResult

        if not isinstance(report, AttackResult):
            raise OptionError(f"--pictures draws samples of an attack: rlab report {run} makes a page of this run")
        with hold(run, "show"):
            save_drawings(report.drawings(pictures), run / "pictures", "png")
    if (run / "pictures").is_dir():
        out.print(f"Pictures: {plain(run / 'pictures')}")
    if versions := read_versions(run):
        device, threads = versions.pop("device", ""), versions.pop("threads", "")
        where = f"{device}, threads: {threads}" if threads else device
        made_by = ", ".join(f"{name} {version}" for name, version in versions.items())
        out.print(f"[dim]Made by {plain(made_by)} on {plain(where)}[/dim]")
    out.print(f"[dim]With pictures: rlab report {typed(run)}[/dim]")
    summary(command="show", run=run, title=page.title, tables=tables, **report.summary())
