"""`rlab attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import MODEL_HELP, Out, Wait, declared, out, prepare, run_folder
from rlab.cli.plan import DryRun, tell_attack
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.core.result import AttackResult
from rlab.options import SharedRunOptions
from rlab.present.table import plain, terminal
from rlab.present.tables import MEDIANS, figures_line, summary_table
from rlab.progress import bar
from rlab.runs.attack import run_attack
from rlab.workers import Crew


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
        options, batch, victim = prepare(options, stream=True)
        crew = Crew.of(options, options.model, victim)
        attack, workers = options.build(batch), None
        if crew is not None:
            attack, workers = crew.paced(attack), crew.attack_parts(options, batch.y)
        with bar(len(batch)) as progress:
            result = run_attack(attack, victim, batch, folder, options.plain(), progress, workers, options.keep)
        if pictures and options.keep != "everything":
            result = AttackResult.load(folder, batch)  # it can rebuild inputs that were not kept
        if pictures:
            from rlab.present.plots import save_pictures  # imports matplotlib

            save_pictures(result, folder / "pictures", limit=pictures)
    out.print(terminal(summary_table({options.model.name: result})))
    out.print(f"[dim]{MEDIANS}[/dim]", highlight=False)
    out.print(figures_line(result))
    if result.attacked.sum() < len(result) / 2:
        out.print("The model was wrong on more than half the samples before any change: run `rlab doctor` to see why.")
    out.print(f"Run folder: [bold]{plain(folder)}[/bold]  ([dim]rlab show {plain(folder)}[/dim])")
    track(folder, tracker)
    summary(
        command="attack", out=folder, policy=result.setting.policy, budget=result.setting.budget, **result.summary()
    )


command.__doc__ = f"""Find, for every sample, a few patches whose distortion makes the model err.

{MODEL_HELP}

To resume a stopped run, repeat the command with the same --out.
"""
