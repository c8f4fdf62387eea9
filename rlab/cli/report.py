"""`rlab report`: a page of any finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import check_out, out
from rlab.cli.spoken import spoken, summary
from rlab.errors import InputError
from rlab.present.table import plain
from rlab.reports import report_run


@spoken
def command(
    run: Annotated[
        Path,
        typer.Argument(
            help="A folder of attack, benchmark, compare, explain, harden, train or audit.", show_default=False
        ),
    ],
    page: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; report.html in the folder if left out.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Samples of an attack to show.")] = 6,
) -> None:
    """Make one HTML page of a finished run, with all pictures inside. No model is loaded or asked."""
    if page is not None:
        check_out(page.parent)
        if page.is_dir():
            raise InputError(f"{page} is a folder: name a file for the page with --out")
    written = report_run(run, page, samples)
    out.print(f"Page: [bold]{plain(written)}[/bold]")
    summary(command="report", run=run, page=written)
