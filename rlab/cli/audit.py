"""`rlab audit`: the whole pipeline from one declared file, with an exit code for pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rlab.cli import options as given

if TYPE_CHECKING:
    from rlab.auditing import Outcome

out = Console()


def audit(
    file: Annotated[
        Path, typer.Argument(help="The declared audit, YAML or TOML: see docs/audit.md.", show_default=False)
    ],
    folder: given.Out = None,
) -> None:
    """Doctor, attack, explain, benchmark, harden if declared, and a report, judged by the file's requirements.

    Exit code 0: all requirements are met; 1: some are not; 2: the file, the model or the data will not do. The same command
    goes on with what is finished; changed requirements are judged without asking the model again. `report.html`, `audit.json`
    and `junit.xml` are in the folder.
    """
    from rlab.auditing import make_audit_config, run_audit
    from rlab.auditing.manifest import Done
    from rlab.runs.config import read_config

    config = make_audit_config(read_config(file))
    place = folder or given.new_folder("audit")

    def tell(stage: str, done: Done, before: bool) -> None:
        when = "finished before" if before else f"{done.seconds:.0f} s"
        note = f"; {done.note}" if done.note else ""
        out.print(f"[dim]{stage}: {done.rows.total:,} rows, {when}{note}[/dim]", highlight=False)

    with _bars() as progress:
        found = run_audit(config, place, tell=tell, progress=progress)
    out.print(_table(found.outcomes))
    for stage, why in found.found.left_out.items():
        out.print(f"{stage} was left out: {why}", highlight=False, markup=False)
    out.print(
        f"{found.found.rows.total:,} rows reached models, {found.found.rows.model:,} of them the audited one",
        highlight=False,
    )
    out.print(f"{'[green]passed[/green]' if found.passed else '[red]failed[/red]'}  Report: [bold]{found.page}[/bold]")
    if not found.passed:
        raise typer.Exit(1)


@contextmanager
def _bars() -> Iterator[Callable[[str, int], Any]]:
    """One bar at a time: a stage's begins where the last one's ends."""
    from rlab.progress import bar

    stack = ExitStack()

    def begin(stage: str, total: int) -> Any:
        stack.close()
        return stack.enter_context(bar(total, stage))

    with stack:
        yield begin


def _table(outcomes: tuple[Outcome, ...]) -> Any:
    from rich.table import Table

    table = Table()
    for heading in ("", "requirement", "measured", ""):
        table.add_column(heading, overflow="fold", justify="right" if heading == "measured" else "left")
    for one in outcomes:
        word = "[green]passes[/green]" if one.passed else "[red]fails[/red]"
        table.add_row(word, one.rule.text, one.shown, one.measured.note)
    return table
