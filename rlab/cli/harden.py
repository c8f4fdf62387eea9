"""`rlab harden`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from rlab.cli.declared import MODEL_HELP, Out, Wait, declared, out, pairs, prepare, run_folder
from rlab.cli.plan import DryRun, tell_plan
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.hardening.comparison import (
    METHODS,
    OURS,
    HardeningComparisonOptions,
    Splits,
    compare_hardening,
    parse_method,
)
from rlab.hardening.evaluation import AGENTS, adaptive_policy, measure_before_after
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.plan import measuring_rows, training_rows
from rlab.hardening.run import harden, refuse_shared
from rlab.hardening.sections import RULES, comparison_table, write_before_after
from rlab.hardening.trainable import goal_of, trainable
from rlab.present.table import plain, terminal
from rlab.storage.config import check

_HELD_OUT = 5  # every fifth sample is held out if there are no test data


def _flag(name: str, *flags: str) -> Any:
    """A flag for a field of the section 'harden'."""
    about = HardenOptions.model_fields[name].description or ""
    return typer.Option(f"--{name.replace('_', '-')}", *flags, help=about[:1].upper() + about[1:], show_default=False)


@declared(HardenRunOptions, without=("keep",))
def command(
    options: HardenRunOptions,
    test: Annotated[str | None, typer.Option(help="Data to measure on (default: a fifth of DATA)")] = None,
    mode: Annotated[str | None, _flag("mode")] = None,
    rounds: Annotated[int | None, _flag("rounds")] = None,
    epochs: Annotated[int | None, _flag("epochs")] = None,
    adversarial_share: Annotated[float | None, _flag("adversarial_share", "--share")] = None,
    learning_rate: Annotated[float | None, _flag("learning_rate", "--rate")] = None,
    batch_size: Annotated[int | None, _flag("batch_size", "--batch")] = None,
    max_clean_drop: Annotated[str | None, _flag("max_clean_drop", "--keep-clean", "--drop")] = None,
    patience: Annotated[int | None, _flag("patience")] = None,
    adversary: Annotated[str | None, _flag("adversary", "--maker")] = None,
    adversary_budget: Annotated[int | None, _flag("adversary_budget", "--queries")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with augmentation, AugMix, FGSM, PGD and TRADES")
    ] = False,
    methods: Annotated[
        str, typer.Option(help="With --compare: methods, separated by commas, with an optional radius: pgd_l2@0.5")
    ] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(min=1, help="With --compare: number of trainings per method")] = 3,
    retrain: Annotated[float, typer.Option(min=0, help="Minutes to train an agent against each measured model")] = 0,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False,
    test_option: Annotated[
        list[str] | None, typer.Option("--test-option", "-T", help="Options of the test data, e.g. -T split=test")
    ] = None,
    folder: Out = None,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    flags = {
        name: value for name, value in locals().items() if name in HardenOptions.model_fields and value is not None
    }
    section = options.harden.updated(flags)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if dry_run:
        return _plan(options, section, test, test_option, folder, names * seeds if compare else [], bool(retrain))
    with run_folder(folder, "harden", wait) as folder:
        options, batch, victim = prepare(options)
        chosen = section.following(options)
        train, measured_on = _split(batch, _test_data(options, test, pairs(test_option, "-T")))
        policy_for = adaptive_policy(train, chosen, folder / AGENTS, retrain) if retrain else None
        evaluation = options.evaluation_options()
        if compare:
            values = {"methods": names, "seeds": range(seeds), "harden": chosen, "evaluation": evaluation}
            comparison = compare_hardening(
                victim, Splits(train, measured_on), check(HardeningComparisonOptions, values | {"policy_for": policy_for}),
                folder, lambda name, seed, m: out.print(f"[dim]{name}, seed {seed}: {m.figures['clean'].mean():.1%} clean[/dim]"),
            )  # fmt: skip
            comparison.save(folder)
            out.print(terminal(comparison_table(comparison)))
            out.print(f"[dim]{RULES}[/dim]", highlight=False)
            summary(command="harden", out=folder, figures=folder / "comparison.csv")
            out.print(f"Figures: [bold]{plain(folder / 'comparison.csv')}[/bold]")
            return track(folder, tracker)
        hardened = harden(victim, train, chosen, out=folder)
        hardened.save(folder)
        out.print(plain(hardened), highlight=False)
        measured = measure_before_after(hardened, measured_on, evaluation, folder, policy_for)
        page = write_before_after(folder / "before-after.html", hardened, measured)
        figures = {
            when: {name: figure.mean() for name, figure in each.figures.items()} for when, each in measured.items()
        }
        rows = hardened.rows + sum(each.rows for each in measured.values())
        summary(command="harden", out=folder, stopped=hardened.stopped, rows=rows, **figures)
        for name, about in (
            ("clean", "accuracy on clean test samples"),
            ("corruptions", "accuracy under the palette's filters"),
        ):
            before, after = (measured[when].figures[name].mean() for when in ("before", "after"))
            out.print(f"{about}: {before:.1%} -> {after:.1%}", highlight=False)
        weights = plain(folder / "hardened.safetensors")
        out.print(f"Weights: [bold]{weights}[/bold]  Before and after: [bold]{plain(page)}[/bold]")
        if onnx:
            exported = hardened.export_onnx(folder / "hardened.onnx", tuple(train.x.shape[1:]))
            out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
        track(folder, tracker)
    if hardened.stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)


def _plan(
    options: HardenRunOptions, section: HardenOptions, test: str | None, more: list[str] | None, folder: Path | None,
    compared: Sequence[str], retrain: bool,
) -> None:  # fmt: skip
    """`compared` holds the method of every training of a comparison; it is empty without --compare."""
    options, batch, victim = prepare(options)
    chosen = section.following(options)
    train, measured_on = _split(batch, _test_data(options, test, pairs(more, "-T")))
    goal = goal_of(trainable(victim, train))
    methods = [parse_method(name, chosen, train, goal) for name in compared or [OURS]]
    trained = [
        training_rows(len(train), each, each.generator(train, goal).most) for each in methods if each is not None
    ]
    known = [rows for rows in trained if rows is not None]
    rows = {
        "training": sum(known) if len(known) == len(trained) else None,
        "measuring": (len(compared) or 2) * measuring_rows(measured_on, options.evaluation_options()),
    }
    rows |= {"training agents to measure with": None} if retrain else {}
    facts = {
        "samples": len(train), "test samples": len(measured_on), "epochs": chosen.total_epochs, "mode": chosen.mode,
        "adversary": str(chosen.adversary), "seed": chosen.seed,
    }  # fmt: skip
    tell_plan(facts, rows, folder, [victim], batch.x)


def _test_data(options: HardenRunOptions, path: str | None, more: dict[str, Any]) -> Batch | None:
    declared = {} if options.test is None else options.test.model_dump(exclude_unset=True)
    values = declared | more | ({} if path is None else {"path": path})
    return check(DataOptions, values, "the test data").load() if values else None


def _split(batch: Batch, test: Batch | None) -> tuple[Batch, Batch]:
    """Data to train on, and data to measure on."""
    if test is not None:
        refuse_shared(batch, test, "test")
        return batch, test
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).tolist()
    count = max(2, len(batch) // _HELD_OUT)
    out.print(f"[dim]{count} of {len(batch)} samples are held out for the test; pass --test to use other data[/dim]")
    return batch[order[count:]], batch[order[:count]]


command.__doc__ = f"""Train a torch model on its own failures while keeping its clean accuracy, and measure it before and after.

--policy and --budget set how the model is measured, --adversary and --adversary-budget how training samples are made. In a
--config file, these options go below 'harden:'. To resume a stopped run, repeat the command.

{MODEL_HELP}
"""
