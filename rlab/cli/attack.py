"""`rlab attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options
from rlab.results.result import AttackResult
from rlab.runs.options import SharedAttackOptions, SharedRunOptions
from rlab.verbs import attack


@declared(queries=True)
def command(
    options: SharedRunOptions,
    run: RunFlags,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw as PNG files")] = 0,
    dry_run: DryRun = False,
) -> None:
    """Find patches of every sample whose distortion makes the model fail.

    To resume a stopped run, repeat the command with the same --out.
    """
    if dry_run:
        return tell_options(options, [options.model], options.data, run.folder, attacks=1)
    given = {name: getattr(options, name) for name in SharedAttackOptions.model_fields}
    with run.opened("attack") as folder:
        result = attack(options.model, options.data, out=folder, keep=options.keep, announce=tell_data, **given)
        drawn = (pictures or run.page) and options.keep != "everything"
        data = options.suited_data().open() if drawn else None  # rebuilds the inputs that were not stored
        if pictures:
            from rlab.present.figures import save_drawings  # imports matplotlib

            shown = result if data is None else AttackResult.load(folder, data)
            save_drawings(shown.drawings(pictures), folder / "pictures", "png")
        setting = result.setting
        run.finish(result, folder, data, policy=setting.policy, budget=setting.budget)
