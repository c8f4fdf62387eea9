"""`rlab attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import MODEL_HELP, Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.plan import DryRun, tell_attack
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.present.table import plain, terminal
from rlab.results.result import AttackResult
from rlab.results.sentences import learning_lines
from rlab.results.tables import MEDIANS, figures_line, summary_table
from rlab.runs.options import SharedRunOptions
from rlab.verbs import attack


@declared(SharedRunOptions)
def command(
    options: SharedRunOptions,
    folder: Out = None,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw; 0 for none")] = 6,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    if dry_run:
        return tell_attack(options, folder)
    with run_folder(folder, "attack", wait) as folder:
        given = {"out": folder, "keep": options.keep, "announce": tell_data, **options.keywords()}
        result = attack(options.model, options.data, **given)
        if pictures and options.keep != "everything":
            result = AttackResult.load(folder, options.data.open())  # rebuilds the inputs that were not stored
        if pictures:
            from rlab.results.plots import save_pictures  # imports matplotlib

            save_pictures(result, folder / "pictures", limit=pictures)
    out.print(terminal(summary_table({options.model.name: result})))
    out.print(f"[dim]{MEDIANS}[/dim]", highlight=False)
    out.print(figures_line(result))
    for line in learning_lines(result.setting):
        out.print(line, highlight=False)
    out.print(f"Run folder: [bold]{plain(folder)}[/bold]  ([dim]rlab show {plain(folder)}[/dim])")
    track(folder, tracker)
    setting = result.setting
    summary(command="attack", out=folder, policy=setting.policy, budget=setting.budget, **result.summary())


command.__doc__ = f"""Find, for every sample, a few patches whose distortion makes the model err.

{MODEL_HELP}

To resume a stopped run, repeat the command with the same --out.
"""
