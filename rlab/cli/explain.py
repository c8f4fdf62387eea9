"""`rlab explain`: explain decisions with one method, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.plan import DryRun, tell_plan
from rlab.cli.spoken import summary
from rlab.data.batch import Batch
from rlab.explanation.base import Method
from rlab.explanation.judge import MethodJudge
from rlab.explanation.options import ExplainOptions
from rlab.explanation.page import open_explanation, save_comparison, save_explanation
from rlab.explanation.pictures import save_overlays
from rlab.explanation.scores import RULES
from rlab.explanation.words import statements
from rlab.folders.reports import PAGE, report_run
from rlab.present.table import plain, terminal
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model
from rlab.victims.torch_module import TorchVictim


@declared(ExplainOptions, without=("keep",))
def command(
    options: ExplainOptions,
    label: Annotated[
        int | None, typer.Option("--class", help="Class to explain (default: the predicted class)")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Score several methods in a table and a gallery page")
    ] = False,
    folder: Out = None,
    pictures: Annotated[int, typer.Option(min=0, help="Number of samples to draw")] = 12,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Show which regions decide: a heat map and a mask for every sample.

    The model is a black box unless you name a method that needs its layers (gradcam, gradcam++, ablationcam, scorecam,
    integrated_gradients). With --compare, several methods are scored on the same samples; ground truth comes from the data or
    from --masks, and scores that need it are omitted if there is none. Attack options apply to the method 'mask'.
    """
    options = options if label is None else options.model_copy(update={"label": label})
    if dry_run:
        return _plan(options, folder, compare)
    with run_folder(folder, "explain", wait) as folder, open_explanation(folder):
        _explain(options, folder, compare, pictures)


def _load(options: ExplainOptions, compare: bool) -> tuple[Batch, Victim, list[Method], MethodJudge]:
    batch = options.data.load()
    tell_data(batch, {})
    victim, batch = load_model(options.model, batch.bounds), options.with_masks(batch)
    judge = options.judge(
        lambda name, scored: out.print(f"[dim]{plain(name)}: {scored.explanation.seconds:.0f} s[/dim]")
    )
    return batch, victim, options.methods(compare, isinstance(victim, TorchVictim)), judge


def _plan(options: ExplainOptions, folder: Path | None, compare: bool) -> None:
    batch, victim, methods, judge = _load(options, compare)
    each = {m.name: judge.most(m, batch.size) if compare else m.most(batch.size) for m in methods}
    rows = {name: None if most is None else most * len(batch) for name, most in each.items()}
    facts = {"samples": len(batch), "methods": [m.name for m in methods], "scored": compare, "seed": options.seed}
    tell_plan(facts, rows, folder, [victim], batch.x)


def _explain(options: ExplainOptions, folder: Path, compare: bool, pictures: int) -> None:
    batch, victim, methods, judge = _load(options, compare)
    labels = options.labels(batch)
    if compare:
        comparison = judge(victim, batch, methods, labels, options.seed)
        page = save_comparison(comparison, folder, f"Where {options.model.name} looks", pictures)
        out.print(terminal(comparison.table()))
        for line in comparison.left_out:
            out.print(plain(f"{line}."), highlight=False)
        out.print(f"[dim]{RULES}[/dim]", highlight=False)
        queries = f"{victim.rows.total():,} queries to the model, including those for scores"
        out.print(f"{queries}, {comparison.copy_rows:,} to a copy with shuffled weights", highlight=False)
        summary(command="explain", out=folder, methods=[m.name for m in methods], rows=victim.rows.total(), page=page)
        out.print(f"Gallery: [bold]{plain(page)}[/bold], arrays and scores beside it")
        return
    figures = {}
    for method in methods:
        explanation = method(victim, batch, labels, options.seed, options.rule)
        save_explanation(explanation, batch, folder, pictures)
        drawn = save_overlays(explanation, batch, folder / "pictures", pictures)
        share, spent = float(explanation.mask.float().mean()), float(explanation.queries.float().mean())
        figures[method.name] = {"queries": spent, "mask_share": share}
        out.print(f"{method.name}: {spent:,.0f} queries per sample, the mask covers {share:.0%}, {len(drawn)} pictures")
        for line in statements(explanation, batch, 0):
            out.print(plain(f"  {batch.ids[0]}: {line}"), highlight=False)
    page = report_run(folder, folder / PAGE)
    out.print(f"Page: [bold]{plain(page)}[/bold], maps and pictures beside it")
    summary(command="explain", out=folder, methods=figures, rows=victim.rows.total(), page=page)
