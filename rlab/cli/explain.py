"""`rlab explain`: explain decisions with one method, or compare several."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options
from rlab.cli.speak import out
from rlab.explanation.options import ExplainOptions, explain_declared
from rlab.present.table import plain


@declared(without=("keep",), queries=True)
def command(
    options: ExplainOptions,
    run: RunFlags,
    label: Annotated[
        str | None, typer.Option("--class", help="Class to explain, by number or name (default: the predicted one)")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Score several methods in a table and on the page")
    ] = False,
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
        found = explain_declared(options, options.model, options.data, compare, out=folder, announce=tell_data)
        figures = {
            name: {"queries": each.mean_queries, "mask_share": each.mask_share} for name, each in found.judged.items()
        }
        for each in () if compare else found.judged.values():
            for line in each.statements(0):
                out.print(plain(f"{each.ids[0]}, by {each.method}: {line}"))
        run.finish(found, folder, methods=figures, rows=found.rows)
