"""`rlab explain`: explain decisions with one method, or compare several."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.plan import DryRun, tell_options
from rlab.cli.spoken import summary
from rlab.explanation.explanation import Explanation, MethodComparison
from rlab.explanation.options import PAGE, ExplainOptions, explain_declared
from rlab.explanation.words import AGAINST, RULES
from rlab.present.table import plain, terminal


@declared(ExplainOptions, without=("keep",))
def command(
    options: ExplainOptions,
    label: Annotated[
        str | None, typer.Option("--class", help="Class to explain, by number or name (default: the predicted one)")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Score several methods in a table and on the page")
    ] = False,
    folder: Out = None,
    wait: Wait = False,
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
        return tell_options(options, options.data, [options.model], folder)
    with run_folder(folder, "explain", wait) as folder:
        found = explain_declared(
            options, options.model, options.data, compare, out=folder, announce=tell_data,
            tell=_tell_scored if compare else _tell_maps,
        )  # fmt: skip
        if compare:
            _tell_comparison(found)
        figures = {
            name: {"queries": each.mean_queries, "mask_share": each.mask_share} for name, each in found.judged.items()
        }
        page = folder / PAGE
        summary(command="explain", out=folder, methods=figures, rows=found.rows, page=page)
        out.print(f"Page: [bold]{plain(page)}[/bold], maps and pictures beside it")


def _tell_scored(explanation: Explanation) -> None:
    out.print(f"[dim]{plain(explanation.method)}: {explanation.seconds:.0f} s[/dim]")


def _tell_maps(explanation: Explanation) -> None:
    out.print(f"{explanation.method}: {explanation.effort}, the mask covers {explanation.mask_share:.0%}")
    lines = explanation.statements(0)
    for line in lines:
        out.print(plain(f"  {explanation.ids[0]}: {line}"))
    if lines and len(explanation) > 1:
        out.print(f"[dim]  this is the first of {len(explanation):,} samples; the page describes more[/dim]")


def _tell_comparison(comparison: MethodComparison) -> None:
    out.print(terminal(comparison.table()))
    if middle := comparison.middle_table():
        out.print(terminal(middle))
        out.print(f"[dim]{AGAINST}[/dim]")
    for line in comparison.left_out:
        out.print(plain(f"{line}."))
    out.print(f"[dim]{RULES}[/dim]")
    queries = f"{comparison.rows:,} queries to the model, including those for scores"
    out.print(f"{queries}, {comparison.copy_rows:,} to a copy with shuffled weights")
