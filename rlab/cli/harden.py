"""`rlab harden`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import Out, Section, Wait, declared, out, run_folder, tell_data
from rlab.cli.ending import Track, track
from rlab.cli.plan import DryRun, tell_options
from rlab.cli.spoken import summary
from rlab.folders.reports import PAGE
from rlab.hardening.comparison import METHODS, compare_hardening
from rlab.hardening.options import EvaluationOptions, HardenOptions, HardenRunOptions
from rlab.hardening.report import RULES, WEIGHTS, figures_table
from rlab.hardening.run import Splits, load_hardening, run_hardening
from rlab.present.report import RESULTS
from rlab.present.table import plain, terminal
from rlab.victims.base import Victim

TRAINING = Section(
    "harden",
    HardenOptions,
    (
        "from_scratch", "epochs", "training_batch", "learning_rate", "adversary", "adversary_budget", "adversarial_share",
        "max_clean_drop", "patience",
    ),
    "Training",
)  # fmt: skip


@dataclass(frozen=True)
class ComparisonFlags:
    """Flags of a comparison."""

    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with augmentation, AugMix, FGSM, PGD and TRADES")
    ] = False
    methods: Annotated[
        str, typer.Option(help="With --compare: methods, separated by commas, with an optional radius: pgd_l2@0.5")
    ] = ",".join(METHODS)
    seeds: Annotated[int, typer.Option(min=1, help="With --compare: number of trainings per method")] = 3

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.methods.split(",") if name.strip()]


@declared(HardenRunOptions, without=("keep", "rate", "price", "max_cost"), section=TRAINING)
def command(
    options: HardenRunOptions,
    comparison: ComparisonFlags,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False,
    folder: Out = None,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Train a torch model on its own failures while keeping its clean accuracy, and measure it before and after.

    --policy and --budget set how the model is measured; --adversary and --adversary-budget set how training samples are made. In a
    --config file, training options go below 'harden:'. To resume a stopped run, repeat the command.
    """
    if dry_run:
        return tell_options(options, options.data, [options.model], folder)
    with run_folder(folder, "harden", wait) as folder:
        stopped = _compare(options, comparison, folder) if comparison.compare else _harden(options, onnx, folder)
        track(folder, tracker)
    if stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)


def _load(options: HardenRunOptions) -> tuple[Victim, Splits, HardenOptions, EvaluationOptions]:
    loaded = load_hardening(options, tell_data)
    _, data, _, _ = loaded
    if options.test is None and data.test is not None:
        held = f"{len(data.test)} of {len(data.train) + len(data.test)} samples are held out for the test"
        out.print(f"[dim]{held}; pass --test to use other data[/dim]")
    return loaded


def _compare(options: HardenRunOptions, flags: ComparisonFlags, folder: Path) -> str:
    victim, data, training, evaluation = _load(options)
    chosen = {"methods": flags.names, "seeds": range(flags.seeds), "harden": training, "evaluation": evaluation}
    comparison = compare_hardening(
        victim, data, chosen, folder,
        lambda name, seed, m: out.print(f"[dim]{name}, seed {seed}: {m.figures['clean'].mean():.1%} clean[/dim]"),
    )  # fmt: skip
    out.print(terminal(comparison.table()))
    out.print(f"[dim]{RULES}[/dim]")
    summary(command="harden", out=folder, figures=folder / RESULTS)
    out.print(f"Figures: [bold]{plain(folder / RESULTS)}[/bold]")
    return ""


def _harden(options: HardenRunOptions, onnx: bool, folder: Path) -> str:
    """Harden, measure and print; -> why training stopped."""
    victim, data, training, evaluation = _load(options)
    hardened = run_hardening(victim, data, training, evaluation, folder)
    out.print(plain(hardened))
    figures = {when: each.figures for when, each in hardened.measured.items()}
    out.print(terminal(figures_table(figures)))
    means = {when: {name: each.value for name, each in own.items()} for when, own in figures.items()}
    summary(command="harden", out=folder, stopped=hardened.stopped, rows=hardened.queries, **means)
    page = plain(hardened.report(folder / PAGE))
    out.print(f"Weights: [bold]{plain(folder / WEIGHTS)}[/bold]  Before and after: [bold]{page}[/bold]")
    if onnx:
        exported = hardened.export_onnx(folder / "hardened.onnx", tuple(data.train.x.shape[1:]))
        out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
    return hardened.stopped
