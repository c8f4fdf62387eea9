"""`rlab harden`: train a model on what fools it, and show before and after, or compare with other ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rlab.cli import options as given

if TYPE_CHECKING:
    from rlab.data.batch import Batch
    from rlab.hardening import Hardened, Trial
    from rlab.victims.base import Victim

out = Console()
_HELD = 5  # one of so many samples is kept for the test where no test data are named
Count = Annotated[int | None, typer.Option(min=1)]


def harden(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    test: Annotated[str | None, typer.Option(help="Data to measure on; a fifth of DATA if left out.")] = None,
    mode: Annotated[str | None, typer.Option(help="live: attack every batch; rounds: attack all data first.")] = None,
    rounds: Count = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each round.")] = None,
    share: Annotated[float | None, typer.Option(help="Of adversarial samples in a batch.")] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch", min=2, help="Samples a training step.")] = None,
    drop: Annotated[float | None, typer.Option(help="Clean accuracy that may be lost, 0.01 is one point.")] = None,
    patience: Annotated[int | None, typer.Option(min=1, help="Epochs without a better one before it stops.")] = None,
    maker: Annotated[
        str | None, typer.Option(help="Who makes the training samples: slope, or a policy or agent file.")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=2, help="Of a policy, a sample, while training.")] = None,
    palette: given.PaletteOption = None,
    patch: given.Patch = None,
    policy: given.PolicyOption = None,
    budget: given.Budget = None,
    compare: Annotated[bool, typer.Option("--compare", help="Against augmentation, FGSM and PGD.")] = False,
    methods: Annotated[
        str, typer.Option(help="Of --compare, with commas; a radius stands behind '@': pgd_l2@0.5.")
    ] = "unchanged,augment,fgsm,pgd,ours",
    seeds: Annotated[int, typer.Option(min=1, help="Of --compare: how often each is trained.")] = 3,
    retrain: Annotated[float, typer.Option(min=0, help="Minutes to train an agent against each measured model.")] = 0,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX.")] = False,
    seed: given.Seed = None,
    chunk: given.Chunk = None,
    folder: given.Out = None,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    test_option: Annotated[
        list[str] | None, typer.Option("--test-option", "-T", help="Options of the test data, e.g. -T split=test.")
    ] = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Train a torch model on what fools it, keeping its clean accuracy, and measure it before and after.

    --policy and --budget say how it is measured, --maker and --queries how training samples are made. Everything of a
    hardening can also stand below 'harden:' in a --config file. A run that was stopped goes on with the same command.
    """
    values = given.gathered(locals())
    from rlab.errors import InputError

    said: Any = values.pop("harden", None) or {}
    if not isinstance(said, dict):
        raise InputError(f"expected 'harden:' of {config} to hold fields like 'epochs: 3', got {said!r}")
    asked = {
        "mode": mode, "rounds": rounds, "epochs": epochs, "share": share, "rate": rate, "together": batch_size,
        "drop": drop, "patience": patience, "policy": maker, "budget": queries, "seed": seed,
    }  # fmt: skip
    said |= {name: value for name, value in asked.items() if value is not None}
    run, batch, victim = given.prepare(values, out)
    if run.palette and "palettes" not in said:
        said["palettes"] = [run.palette]
    if run.patch and "patches" not in said:
        said["patches"] = [run.patch]
    batch, tested = _test(batch, test, given.pairs(test_option, "-T"))
    place = folder or given.new_folder("harden")

    from rlab.hardening import Trial

    trial = Trial(run.palette, run.patch, run.policy, run.budget, run.chunk, seed=run.seed)
    if compare:
        names = [name.strip() for name in methods.split(",") if name.strip()]
        return _compare(victim, batch, tested, trial, said, names, seeds, retrain, place)
    found = _harden(victim, batch, tested, trial, said, retrain, place)
    if onnx:
        out.print(f"ONNX: [bold]{found.export_onnx(place / 'hardened.onnx', tuple(batch.x.shape[1:]))}[/bold]")
    if found.stopped.startswith("the loss"):
        raise typer.Exit(1)


def _test(batch: Batch, test: str | None, options: dict[str, Any]) -> tuple[Batch, Batch]:
    """Data to train on and data to measure on."""
    import torch

    from rlab.data.load import load

    if test is not None:
        return batch, load(test, **options)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).tolist()
    held = max(2, len(batch) // _HELD)
    out.print(f"[dim]{held} of {len(batch)} samples are kept for the test: name data of their own with --test[/dim]")
    return batch[order[held:]], batch[order[:held]]


def _harden(
    victim: Victim, batch: Batch, test: Batch, trial: Trial, said: dict[str, Any], retrain: float, place: Path
) -> Hardened:
    from rlab.hardening import harden, measure, write_page
    from rlab.hardening.retrain import agent_for

    found = harden(victim, batch, config=said, out=place)
    found.save(place)
    out.print(str(found), highlight=False)
    policy = agent_for(batch, found.config, place / "agents", retrain) if retrain else None
    before = measure(found.original, test, trial, policy=policy)
    after = measure(found.victim, test, trial, before.attack, policy)
    page = write_page(place / "before-after.html", found, before, after)
    _told(before.figures["clean"].mean(), after.figures["clean"].mean(), "clean accuracy on test samples")
    _told(before.figures["corruptions"].mean(), after.figures["corruptions"].mean(), "under the palette's filters")
    out.print(f"Weights: [bold]{place / 'hardened.safetensors'}[/bold]  Before and after: [bold]{page}[/bold]")
    return found


def _told(before: float, after: float, what: str) -> None:
    out.print(f"{what}: {before:.1%} -> {after:.1%}", highlight=False)


def _compare(
    victim: Victim,
    batch: Batch,
    test: Batch,
    trial: Trial,
    said: dict[str, Any],
    methods: list[str],
    seeds: int,
    retrain: float,
    place: Path,
) -> None:
    from rlab.hardening import compare_hardening
    from rlab.hardening.hardening import as_config
    from rlab.hardening.retrain import agent_for
    from rlab.hardening.table import RULES, comparison_table

    policy = agent_for(batch, as_config(said, {}).filled(batch), place / "agents", retrain) if retrain else None
    found = compare_hardening(
        victim,
        batch,
        test,
        methods=methods,
        seeds=range(seeds),
        trial=trial,
        config=said,
        policy=policy,
        out=place,
        tell=lambda name, seed, one: out.print(
            f"[dim]{name}, seed {seed}: {one.figures['clean'].mean():.1%} clean[/dim]"
        ),
    )
    found.save(place)
    out.print(comparison_table(found))
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    out.print(f"Figures: [bold]{place / 'comparison.csv'}[/bold]")
