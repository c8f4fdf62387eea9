"""`rlab attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.ending import Paged, Track, tell_page, tell_result, track, write_report
from rlab.cli.plan import DryRun, tell_options
from rlab.cli.spoken import summary
from rlab.present.table import plain, typed
from rlab.results.result import AttackResult
from rlab.runs.options import SharedAttackOptions, SharedRunOptions
from rlab.verbs import attack


@declared(SharedRunOptions)
def command(
    options: SharedRunOptions,
    folder: Out = None,
    page: Paged = True,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw as PNG files")] = 0,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Find patches of every sample whose distortion makes the model fail.

    To resume a stopped run, repeat the command with the same --out.
    """
    if dry_run:
        return tell_options(options, options.data, [options.model], folder, attacks=1)
    given = {name: getattr(options, name) for name in SharedAttackOptions.model_fields}
    with run_folder(folder, "attack", wait) as folder:
        result = attack(options.model, options.data, out=folder, keep=options.keep, announce=tell_data, **given)
        drawn = (pictures or page) and options.keep != "everything"
        data = options.suited_data().open() if drawn else None  # rebuilds the inputs that were not stored
        if pictures:
            from rlab.results.plots import save_pictures  # imports matplotlib

            stored = result if data is None else AttackResult.load(folder, data)
            save_pictures(stored, folder / "pictures", limit=pictures)
        written = write_report(folder, page, data)
    tell_result(options.model.name, result)
    out.print(f"Run folder: [bold]{plain(folder)}[/bold]  ([dim]rlab show {typed(folder)}[/dim])", soft_wrap=True)
    track(folder, tracker)
    setting = result.setting
    figures = {"policy": setting.policy, "budget": setting.budget, **result.summary()}
    summary(command="attack", out=folder, page=written, **figures)
    tell_page(written)
