"""`rlab show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlab.cli.ending import tell_result
from rlab.cli.spoken import out, spoken, summary
from rlab.folders.kinds import kind_of
from rlab.present.table import Table, plain, records, terminal, text, typed
from rlab.results.result import AttackResult
from rlab.results.stages import read_stages, stages_line
from rlab.results.tables import breakdown_tables, detail_table, reach_line
from rlab.storage.lock import hold
from rlab.storage.names import refuse_strange
from rlab.storage.steps import read_versions

if TYPE_CHECKING:  # pages import matplotlib, which is slow
    from rlab.present.page import Block, Page

ROWS = 50  # shown of each table
DATA_HELP = "Data of the attack, to rebuild inputs that it did not keep"


@spoken
def command(
    run: Annotated[Path, typer.Argument(help="Run folder")],
    samples: Annotated[int, typer.Option(min=0, help="Number of samples to list")] = 20,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw again")] = 0,
    data: Annotated[Path | None, typer.Option(help=DATA_HELP, show_default=False)] = None,
) -> None:
    """Show the results of any run; for an attack: summary, samples and pictures."""
    kind = kind_of(run)
    if kind is None or kind.command != "attack":
        from rlab.folders.reports import page_of  # imports much of rlab

        _show_page(page_of(run, 0), run)
        return _show_versions(run)
    result = _load(run, data)
    out.print(f"{plain(result.sentence)}.")
    tell_result(run.name, result)
    if reach := reach_line(result):
        out.print(reach)
    if stages := read_stages(run):
        out.print(stages_line(stages))
    for table in (*breakdown_tables(result), detail_table(result, samples)):
        out.print(terminal(table))
    shown = range(min(samples, len(result)))
    for i in (i for i in shown if result.inputs.has(i)):
        out.print(plain(result[i]))
    if not all(map(result.inputs.has, shown)):
        out.print("[dim]Some inputs were not kept: pass --data to rebuild them.[/dim]")
    if pictures:
        from rlab.results.plots import save_pictures

        with hold(run, "show"):
            save_pictures(result, run / "pictures", limit=pictures)
    if (run / "pictures").is_dir():
        out.print(f"Pictures: {plain(run / 'pictures')}")
    _show_versions(run)
    summary(command="show", run=run, policy=result.setting.policy, budget=result.setting.budget, **result.summary())


def _load(run: Path, data: Path | None) -> AttackResult:
    refuse_strange(run)
    if data is None:
        return AttackResult.load(run)
    from rlab.folders.reports import data_of

    return AttackResult.load(run, data_of(run, data))


def _show_versions(run: Path) -> None:
    if versions := read_versions(run):
        made_by = ", ".join(
            f"{name} {version}" for name, version in versions.items() if name not in ("device", "threads")
        )
        where = f"{versions['device']}, threads: {versions['threads']}" if "threads" in versions else versions["device"]
        out.print(f"[dim]Made by {plain(made_by)} on {plain(where)}[/dim]")


def _show_page(page: Page, run: Path) -> None:
    from rlab.present.page import Facts, Text

    tables: list[dict[str, Any]] = []
    if page.lead:
        out.print(plain(page.lead))
    if page.numbers:
        rows = [[number.name, text(number.value) + number.unit] for number in page.numbers]
        out.print(terminal(Table(["figure", "measured"], rows)))
    for section in page.sections:
        out.print(f"[bold]{plain(section.title)}[/bold]")
        for block in _unfolded(section.blocks):
            if isinstance(block, Table):
                out.print(terminal(block.first(ROWS)))
                tables.append({"section": section.title, "title": block.title, "rows": records(block)})
            elif isinstance(block, Facts):
                tables.append({"section": section.title, "facts": dict(block.facts)})
                out.print(terminal(Table(["", ""], [[name, value] for name, value in block.facts.items()], words=2)))
            elif isinstance(block, Text):
                out.print(f"[dim]{plain(block.text)}[/dim]")
    out.print(f"[dim]With pictures: rlab report {typed(run)}[/dim]")
    summary(command="show", run=run, title=page.title, tables=tables)


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks, including those that a page folds away."""
    from rlab.present.page import Folded

    for block in blocks:
        if isinstance(block, Folded):
            yield from _unfolded(block.blocks)
        else:
            yield block
