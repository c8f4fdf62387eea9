"""`rlab harden`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlab.cli.build import declared
from rlab.cli.fields import Section
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options
from rlab.cli.speak import out
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.run import load_hardening, run_hardening
from rlab.present.table import plain

TRAINING = Section(
    "harden",
    HardenOptions,
    (
        "from_scratch", "method", "epochs", "training_batch", "learning_rate", "adversary", "adversary_budget",
        "adversarial_share", "max_clean_drop", "patience",
    ),
    "Training",
)  # fmt: skip


@declared(without=("keep", "rate", "price", "max_cost"), section=TRAINING, queries=True)
def command(
    options: HardenRunOptions,
    run: RunFlags,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False,
    dry_run: DryRun = False,
) -> None:
    """Train a torch model on its own failures while keeping its clean accuracy, and measure it before and after.

    --policy and --budget set how the model is measured; --adversary and --adversary-budget set how training samples are made. In a
    --config file, training options go below 'harden:'. To compare methods, run the command once for each --method, then
    `rlab report RUN RUN ...`. To resume a stopped run, repeat the command.
    """
    if dry_run:
        return tell_options(options, [options.model], options.data, run.folder)
    with run.opened("harden") as folder:
        victim, data, training, evaluation = load_hardening(options, tell_data)
        if options.test is None and data.test is not None:
            held = f"{len(data.test)} of {len(data.train) + len(data.test)} samples are held out for the test"
            out.print(f"[dim]{held}; pass --test to use other data[/dim]")
        hardened = run_hardening(victim, data, training, evaluation, folder)
        if onnx:
            exported = hardened.export_onnx(folder / "hardened.onnx", tuple(data.train.x.shape[1:]))
            out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
        figures = {when: each.figures for when, each in hardened.measured.items()}
        means: dict[str, Any] = {when: {name: e.value for name, e in own.items()} for when, own in figures.items()}
        run.finish(hardened, folder, stopped=hardened.stopped, rows=hardened.queries, **means)
    if hardened.stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)
