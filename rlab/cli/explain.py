"""`rlab explain`: explain decisions with one method, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options
from rlab.cli.speak import out, summary
from rlab.data.batch import Batch
from rlab.explanation.explanation import PICTURED, Explanation
from rlab.explanation.files import GALLERY, REPORT
from rlab.explanation.method_comparison import AGAINST, RULES, MethodComparison
from rlab.explanation.options import ExplainOptions, explain_declared
from rlab.explanation.words import statements
from rlab.present.table import plain, terminal


@declared(without=("keep",), queries=True)
def command(
    options: ExplainOptions,
    run: RunFlags,
    label: Annotated[
        str | None, typer.Option("--class", help="Class to explain, by number or name (default: the predicted one)")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Score several methods in a table and a gallery page")
    ] = False,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw")] = PICTURED,
    dry_run: DryRun = False,
) -> None:
    """Show where the model looks: a heat map and a mask for every sample.

    The model is a black box unless you name a method that needs its layers (gradcam, gradcam++, ablationcam, scorecam,
    integrated_gradients). With --compare, several methods are scored on the same samples. Ground truth comes from the data or
    from --masks; without it, the scores that need it are left out. Attack options apply to the method 'mask', which shows the
    patches that an attack changed. These localise badly: to see where the model looks, use the default method, 'belief'.
    """
    if label is not None:
        options = options.model_copy(update={"label": int(label) if label.isdecimal() else label})
    if dry_run:
        return tell_options(options, [options.model], options.data, run.folder)
    with run.opened("explain") as folder:
        explained = explain_declared(
            options, options.model, options.data, compare, out=folder, announce=tell_data, pictures=pictures,
            tell=_tell_scored if compare else _tell_maps,
        )  # fmt: skip
        if isinstance(explained, MethodComparison):
            _tell_comparison(explained, folder)
        else:
            out.print(f"Page: [bold]{plain(folder / REPORT)}[/bold], maps and pictures beside it")
            figures = {each.method: {"queries": each.mean_queries, "mask_share": each.mask_share} for each in explained}
            rows = sum(int(each.queries.sum()) for each in explained)
            summary(command="explain", out=folder, methods=figures, rows=rows, page=folder / REPORT)


def _tell_scored(explanation: Explanation, batch: Batch) -> None:
    out.print(f"[dim]{plain(explanation.method)}: {explanation.seconds:.0f} s[/dim]")


def _tell_maps(explanation: Explanation, batch: Batch) -> None:
    out.print(f"{explanation.method}: {explanation.effort}, the mask covers {explanation.mask_share:.0%}")
    lines = statements(explanation, batch, 0)
    for line in lines:
        out.print(plain(f"  {batch.ids[0]}: {line}"))
    if lines and len(batch) > 1:
        out.print(f"[dim]  this is the first of {len(batch):,} samples; the page describes more[/dim]")


def _tell_comparison(comparison: MethodComparison, folder: Path) -> None:
    out.print(terminal(comparison.table()))
    if middle := comparison.middle_table():
        out.print(terminal(middle))
        out.print(f"[dim]{AGAINST}[/dim]")
    for line in comparison.left_out:
        out.print(plain(f"{line}."))
    out.print(f"[dim]{RULES}[/dim]")
    queries = f"{comparison.rows:,} queries to the model, including those for scores"
    out.print(f"{queries}, {comparison.copy_rows:,} to a copy with shuffled weights")
    page, methods = folder / GALLERY, list(comparison.judged)
    summary(command="explain", out=folder, methods=methods, rows=comparison.rows, page=page)
    out.print(f"Gallery: [bold]{plain(page)}[/bold], arrays and scores beside it")
