"""`rlab harden`."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
from rlab.hardening.evaluation import AGENTS, PolicyFor, adaptive_policy, measure_before_after
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.plan import measuring_rows, training_rows
from rlab.hardening.run import harden, refuse_shared
from rlab.hardening.sections import RULES, comparison_table, write_before_after
from rlab.hardening.trainable import goal_of, trainable
from rlab.present.table import plain, terminal
from rlab.storage.config import check
from rlab.victims.base import Victim

_HELD_OUT = 5  # every fifth sample is held out if there are no test data


def _flag(name: str, *flags: str) -> Any:
    """A flag for a field of the section 'harden'."""
    about = HardenOptions.model_fields[name].description or ""
    return typer.Option(f"--{name.replace('_', '-')}", *flags, help=about[:1].upper() + about[1:], show_default=False)


@dataclass(frozen=True)
class HardenFlags:
    """Flags of the command beside the generated ones; None leaves the value of the section 'harden'."""

    test: Annotated[str | None, typer.Option(help="Data to measure on (default: a fifth of DATA)")] = None
    mode: Annotated[str | None, _flag("mode")] = None
    rounds: Annotated[int | None, _flag("rounds")] = None
    epochs: Annotated[int | None, _flag("epochs")] = None
    adversarial_share: Annotated[float | None, _flag("adversarial_share", "--share")] = None
    learning_rate: Annotated[float | None, _flag("learning_rate", "--rate")] = None
    batch_size: Annotated[int | None, _flag("batch_size", "--batch")] = None
    max_clean_drop: Annotated[str | None, _flag("max_clean_drop", "--keep-clean", "--drop")] = None
    patience: Annotated[int | None, _flag("patience")] = None
    adversary: Annotated[str | None, _flag("adversary", "--maker")] = None
    adversary_budget: Annotated[int | None, _flag("adversary_budget", "--queries")] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with augmentation, AugMix, FGSM, PGD and TRADES")
    ] = False
    methods: Annotated[
        str, typer.Option(help="With --compare: methods, separated by commas, with an optional radius: pgd_l2@0.5")
    ] = ",".join(METHODS)
    seeds: Annotated[int, typer.Option(min=1, help="With --compare: number of trainings per method")] = 3
    retrain: Annotated[float, typer.Option(min=0, help="Minutes to train an agent against each measured model")] = 0
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False
    test_option: Annotated[
        list[str] | None, typer.Option("--test-option", "-T", help="Options of the test data, e.g. -T split=test")
    ] = None

    def section(self, options: HardenRunOptions) -> HardenOptions:
        """The section 'harden' of the file with the flags over it."""
        names = {field.name for field in fields(self)} & HardenOptions.model_fields.keys()
        values = {name: getattr(self, name) for name in names}
        return options.harden.updated({name: value for name, value in values.items() if value is not None})

    @property
    def compared(self) -> list[str]:
        """The methods of a comparison."""
        return [name.strip() for name in self.methods.split(",") if name.strip()]


@dataclass(frozen=True)
class _Job:
    """What a hardening starts from."""

    options: HardenRunOptions
    chosen: HardenOptions
    victim: Victim
    train: Batch
    test: Batch

    @classmethod
    def load(cls, options: HardenRunOptions, flags: HardenFlags) -> _Job:
        options, batch, victim = prepare(options)
        train, test = _split(batch, _test_data(options, flags.test, pairs(flags.test_option, "-T")))
        return cls(options, options.harden.following(options), victim, train, test)

    def policy_for(self, folder: Path, minutes: float) -> PolicyFor | None:
        return adaptive_policy(self.train, self.chosen, folder / AGENTS, minutes) if minutes else None


@declared(HardenRunOptions, without=("keep",))
def command(
    options: HardenRunOptions,
    flags: HardenFlags,
    folder: Out = None,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    options = options.model_copy(update={"harden": flags.section(options)})
    if dry_run:
        return _plan(_Job.load(options, flags), flags, folder)
    with run_folder(folder, "harden", wait) as folder:
        job = _Job.load(options, flags)
        stopped = _compare(job, flags, folder) if flags.compare else _harden(job, flags, folder)
        track(folder, tracker)
    if stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)


def _compare(job: _Job, flags: HardenFlags, folder: Path) -> str:
    values = {
        "methods": flags.compared, "seeds": range(flags.seeds), "harden": job.chosen,
        "evaluation": job.options.evaluation_options(), "policy_for": job.policy_for(folder, flags.retrain),
    }  # fmt: skip
    comparison = compare_hardening(
        job.victim, Splits(job.train, job.test), check(HardeningComparisonOptions, values), folder,
        lambda name, seed, m: out.print(f"[dim]{name}, seed {seed}: {m.figures['clean'].mean():.1%} clean[/dim]"),
    )  # fmt: skip
    comparison.save(folder)
    out.print(terminal(comparison_table(comparison)))
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    summary(command="harden", out=folder, figures=folder / "comparison.csv")
    out.print(f"Figures: [bold]{plain(folder / 'comparison.csv')}[/bold]")
    return ""


def _harden(job: _Job, flags: HardenFlags, folder: Path) -> str:
    """Harden, measure and print; -> why training stopped."""
    policy_for = job.policy_for(folder, flags.retrain)
    hardened = harden(job.victim, job.train, job.chosen, out=folder)
    hardened.save(folder)
    out.print(plain(hardened), highlight=False)
    measured = measure_before_after(hardened, job.test, job.options.evaluation_options(), folder, policy_for)
    page = write_before_after(folder / "before-after.html", hardened, measured)
    figures = {when: {name: figure.mean() for name, figure in each.figures.items()} for when, each in measured.items()}
    rows = hardened.rows + sum(each.rows for each in measured.values())
    summary(command="harden", out=folder, stopped=hardened.stopped, rows=rows, **figures)
    abouts = {"clean": "accuracy on clean test samples", "corruptions": "accuracy under the palette's filters"}
    for name, about in abouts.items():
        out.print(f"{about}: {figures['before'][name]:.1%} -> {figures['after'][name]:.1%}", highlight=False)
    weights = plain(folder / "hardened.safetensors")
    out.print(f"Weights: [bold]{weights}[/bold]  Before and after: [bold]{plain(page)}[/bold]")
    if flags.onnx:
        exported = hardened.export_onnx(folder / "hardened.onnx", tuple(job.train.x.shape[1:]))
        out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
    return hardened.stopped


def _plan(job: _Job, flags: HardenFlags, folder: Path | None) -> None:
    goal = goal_of(trainable(job.victim, job.train))
    compared = flags.compared * flags.seeds if flags.compare else []  # one name per training
    methods = [parse_method(name, job.chosen, job.train, goal) for name in compared or [OURS]]
    trained = [
        training_rows(len(job.train), each, each.generator(job.train, goal).most)
        for each in methods
        if each is not None
    ]
    known = [rows for rows in trained if rows is not None]
    rows = {
        "training": sum(known) if len(known) == len(trained) else None,
        "measuring": (len(compared) or 2) * measuring_rows(job.test, job.options.evaluation_options()),
    }
    rows |= {"training agents to measure with": None} if flags.retrain else {}
    facts = {
        "samples": len(job.train), "test samples": len(job.test), "epochs": job.chosen.total_epochs,
        "mode": job.chosen.mode, "adversary": str(job.chosen.adversary), "seed": job.chosen.seed,
    }  # fmt: skip
    tell_plan(facts, rows, folder, [job.victim], job.train.x)


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
