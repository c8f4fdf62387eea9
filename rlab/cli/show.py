"""`rlab show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.core.result import AttackResult
from rlab.present.plots import save_pictures
from rlab.present.table import plain, terminal
from rlab.present.tables import MEDIANS, breakdown_tables, detail_table, figures_line, reach_line, summary_table
from rlab.runs.lock import hold
from rlab.runs.names import refuse_links


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    samples: Annotated[int, typer.Option(min=0, help="Rows of the table.")] = 20,
    pictures: Annotated[int, typer.Option(min=0, help="Draw so many samples again.")] = 0,
) -> None:
    """Show what a run found: summary, samples, where its pictures are."""
    refuse_links(run)
    result = AttackResult.load(run)
    out.print(terminal(summary_table({run.name: result})))
    out.print(f"[dim]{MEDIANS}[/dim]", highlight=False)
    out.print(figures_line(result))
    if reach := reach_line(result):
        out.print(reach)
    for table in (*breakdown_tables(result), detail_table(result, samples)):
        out.print(terminal(table))
    if pictures:
        with hold(run, "show"):
            save_pictures(result, run / "pictures", limit=pictures)
    if (run / "pictures").is_dir():
        out.print(f"Pictures: {plain(run / 'pictures')}")
