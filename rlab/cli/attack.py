"""`rlab attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import MODEL_HELP, Out, Wait, declared, out, prepare, run_folder
from rlab.cli.plan import DryRun, tell_attack
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.core.result import AttackResult
from rlab.options import RunOptions
from rlab.present.plots import save_pictures
from rlab.present.table import plain, terminal
from rlab.present.tables import MEDIANS, figures_line, summary_table
from rlab.progress import bar
from rlab.runs.attack import run_attack
from rlab.workers import parse_devices, shared_out

_WORKERS = "Processes that attack at once, each with a model of its own; results are the same for any number."
_DEVICES = "One for each worker, such as cuda:0,cuda:1; without them workers share the processor's threads."


@declared(RunOptions)
def command(
    options: RunOptions,
    folder: Out = None,
    pictures: Annotated[int, typer.Option(min=0, help="How many samples to draw; 0 draws nothing.")] = 6,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
    workers: Annotated[int | None, typer.Option(min=1, help=_WORKERS, show_default=False)] = None,
    devices: Annotated[str | None, typer.Option(help=_DEVICES, show_default=False)] = None,
) -> None:
    each = parse_devices(devices, options.model.device)
    if each:
        options = options.model_copy(update={"model": options.model.model_copy(update={"device": each[0]})})
    if dry_run:
        return tell_attack(options, folder)
    with run_folder(folder, "attack", wait) as folder:
        options, batch, victim = prepare(options, stream=True)
        count = workers or len(each)
        starts = shared_out(options, batch, count, each) if count > 1 else []
        with bar(len(batch)) as progress:
            asked = options.plain()
            result = run_attack(options.build(batch), victim, batch, folder, asked, progress, starts, options.keep)
        if pictures and options.keep != "everything":
            result = AttackResult.load(folder, batch)  # which can make again what was not kept
        if pictures:
            save_pictures(result, folder / "pictures", limit=pictures)
    out.print(terminal(summary_table({options.model.name: result})))
    out.print(f"[dim]{MEDIANS}[/dim]", highlight=False)
    out.print(figures_line(result))
    if result.attacked.sum() < len(result) / 2:
        out.print("More than half the samples were wrong before any change: `rlab doctor` may find out why.")
    out.print(f"Run folder: [bold]{plain(folder)}[/bold]  ([dim]rlab show {plain(folder)}[/dim])")
    track(folder, tracker)
    summary(
        command="attack", out=folder, policy=result.setting.policy, budget=result.setting.budget, **result.summary()
    )


command.__doc__ = f"""Find, for every sample, few patches whose distortion makes the model err.

{MODEL_HELP}

A run that was stopped goes on where it was when the same command with the same --out is given again.
"""
