"""`rlab explain`: where a decision rests, by our method, or by several side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlab.cli import options as given
from rlab.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from rlab.data.batch import Batch

SIDE_BY_SIDE = "credit,mask,rise(masks=1000),occlusion,middle"
WHITE = "gradcam,gradcam++,ablationcam,scorecam"


def explain(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="credit, mask, instant, rise, occlusion, gradcam, ...; repeated or with commas, with options."
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Score several methods: one table and a gallery page.")
    ] = False,
    agent: Annotated[Path | None, typer.Option(help="An agent's .safetensors file, for the method 'instant'.")] = None,
    label: Annotated[
        int | None, typer.Option("--class", help="Explain this class; the predicted one if left out.")
    ] = None,
    masks: Annotated[Path | None, typer.Option(help="Folder of ground-truth mask images, named as the images.")] = None,
    mask_values: Annotated[str | None, typer.Option(help="Values that mean inside, e.g. 1,3; anything but 0.")] = None,
    rule: Annotated[str, typer.Option(help="How a map becomes a mask: otsu, or share:0.2.")] = "otsu",
    steps: Annotated[int, typer.Option(min=2, help="Steps of insertion and deletion.")] = 50,
    twice: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Stability over seeds and the sanity check.")
    ] = True,
    seed: given.Seed = None,
    folder: given.Out = None,
    pictures: Annotated[int, typer.Option(min=0, help="How many samples to draw.")] = 12,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Show where the model's decisions rest: a heat map and a mask for every sample.

    The model is asked, never opened, unless a method that needs its layers is named (gradcam, gradcam++, ablationcam,
    scorecam, integrated_gradients). With --compare several methods run on the same samples and are scored; ground truth
    comes from the data or from --masks, and the scores that need it are left out where there is none.
    """
    values = given.gathered(locals())
    import torch

    from rlab.cli.app import out
    from rlab.explanation import Judge, parse_methods
    from rlab.explanation.judge import RULES
    from rlab.explanation.minimal import Instant
    from rlab.explanation.pictures import save_overlays
    from rlab.explanation.save import save_comparison, save_explanation
    from rlab.victims.torch_module import TorchVictim

    run, batch, victim = given.prepare(values, out)
    batch = _with_truth(batch, masks, given.numbers(mask_values))
    usual = "credit" if not compare else SIDE_BY_SIDE + ("," + WHITE if isinstance(victim, TorchVictim) else "")
    methods = parse_methods(method or [usual])
    methods = [Instant(str(agent)) if isinstance(one, Instant) and agent else one for one in methods]
    wanted = None if label is None else torch.full((len(batch),), label)
    place = folder or given.new_folder("explain")
    if compare:
        judge = Judge(
            steps=steps, stability=twice, sanity=twice, rule=rule,
            tell=lambda name, one: out.print(f"[dim]{name}: {one.explanation.seconds:.0f} s[/dim]"),
        )  # fmt: skip
        comparison = judge(victim, batch, methods, wanted, run.seed)
        page = save_comparison(comparison, place, f"Where {run.model.name} looks", pictures)
        out.print(comparison.table())
        for line in comparison.left_out:
            out.print(f"{line}.", highlight=False)
        out.print(f"[dim]{RULES}[/dim]", highlight=False)
        out.print(f"Gallery: [bold]{page}[/bold], arrays and scores beside it")
        return
    for one in methods:
        found = one(victim, batch, wanted, run.seed, rule)
        save_explanation(found, batch, place)
        made = save_overlays(found, batch, place / "pictures", pictures)
        share, spent = float(found.mask.float().mean()), float(found.queries.float().mean())
        out.print(f"{one.name}: {spent:,.0f} queries a sample, the mask covers {share:.0%}, {len(made)} pictures")
    out.print(f"Maps and pictures: [bold]{place}[/bold]")


def _with_truth(batch: Batch, masks: Path | None, inside: int | list[int] | None) -> Batch:
    from rlab.explanation.truth import read_masks

    if masks is None:
        if inside is not None:
            raise InputError("--mask-values says which values of --masks mean inside: pass the folder of masks too")
        return batch
    chosen = [inside] if isinstance(inside, int) else inside
    found: Tensor = read_masks(masks, batch, chosen)
    return replace(batch, masks=found)
