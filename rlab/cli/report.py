"""`rlab report`: a page of a finished run, or a comparison of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import Track, check_out, track
from rlab.cli.show import DATA_HELP
from rlab.cli.speak import out, summary
from rlab.errors import OptionError
from rlab.folders.records import changes_page, figure_changes, figures_table, read_runs, settings_table
from rlab.folders.reports import data_of, report_run, save_figures
from rlab.present.page import write_page
from rlab.present.table import plain, terminal


@declared()
def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folder of any command; several runs of one command (attack, compare, corrupt, harden, train, audit) are "
            "compared",
            show_default=False,
        ),
    ],
    page: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Page to write (default: report.html in the run folder, or RUN.html here if that is read-only)",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Number of attacked samples to show")] = 24,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures of an attack or comparison as SVG and PDF")
    ] = None,
    data: Annotated[Path | None, typer.Option(help=DATA_HELP, show_default=False)] = None,
    tracker: Track = None,
) -> None:
    """Make a self-contained HTML page from a finished run, without loading or querying a model.

    For several runs of the same command, show the settings and figures that differ.
    """
    if page is not None:
        check_out(page.parent)
        if page.is_dir():
            raise OptionError(f"{page} is a folder: name a file for the page with --out")
    single = "--figures" if figures is not None else "--track" if tracker is not None else ""
    if single and len(runs) > 1:
        raise OptionError(f"{single} takes one run: pass a single folder")
    if len(runs) > 1:
        return _compare(runs, page)
    samples_of = data_of(runs[0], data)
    written = report_run(runs[0], page, samples, samples_of)
    out.print(f"Page: [bold]{plain(written)}[/bold]")
    more: dict[str, object] = {}
    if figures is not None:
        check_out(figures)
        more["figures"] = [str(path) for path in save_figures(runs[0], figures, samples, samples_of)]
        out.print(f"Figures: [bold]{plain(figures)}[/bold]")
    track(runs[0], tracker)
    summary(command="report", run=runs[0], page=written, **more)


def _compare(folders: list[Path], page: Path | None) -> None:
    """Print the tables, and write the page if --out names one."""
    runs = read_runs(folders)
    out.print(terminal(settings_table(runs)))
    out.print(terminal(figures_table(runs)))
    more: dict[str, object] = {}
    if page is not None:
        more = {"page": write_page(changes_page(runs), page)}
        out.print(f"Page: [bold]{plain(page)}[/bold]")
    else:
        out.print("[dim]With curves and samples: --out changes.html[/dim]")
    changed = {str(row[0]): list(row[1:]) for row in settings_table(runs).rows}
    summary(command="report", runs=folders, settings=changed, figures=figure_changes(runs), **more)
