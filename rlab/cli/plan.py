"""`--dry-run`: print the samples, the options and, for attacks, the most that they cost; query and write nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rlab.cli.declared import tell_data
from rlab.cli.spoken import out, summary
from rlab.data.load import DataOptions
from rlab.errors import OptionError
from rlab.present.table import plain
from rlab.runs.executor import place
from rlab.runs.inputs import relabelled
from rlab.runs.options import AttackOptions, RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.runs.understood import Understood
from rlab.victims.bill import per_query
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

_HELP = "Print samples, options and, for attacks, the maximum number of queries and their cost; query and write nothing"
DryRun = Annotated[bool, typer.Option("--dry-run", help=_HELP)]


def tell_options(
    options: AttackOptions, data: DataOptions, models: Sequence[ModelOptions], folder: Path | None, attacks: int = 0
) -> None:
    """Load data and models, and print what a command would do.

    `attacks` is the number of attacks on each sample, 0 if the command does more than attacks, which their budget does not bound.
    """
    batch = options.suited_data().open() if isinstance(options, RunOptions) else data.suited(several=False).open()
    placed = [place(options, model)[1] if isinstance(options, WorkerOptions) else model for model in models]
    victims = [load_model(model, batch.bounds) for model in placed]
    batch = relabelled(batch, victims[0].own_classes) if victims else batch
    filled, defaulted = options.filled(batch)
    if filled.budget is None:
        raise OptionError("expected a budget")
    tell_data(Understood(batch, tuple(victims), defaulted))
    price = max([0.0, *(per_query(model.price) for model in models)])
    tell_plan({"samples": len(batch), **filled.plain()}, folder, len(batch) * filled.budget * attacks, price)


def tell_plan(facts: Mapping[str, Any], folder: Path | None, rows: int = 0, price: float = 0.0) -> None:
    """Print what a command would do; `rows` is the maximum number of its queries, 0 if it is unknown."""
    where = str(folder or "a new folder below runs/")
    for name, value in facts.items():
        out.print(plain(f"{name}: {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"))
    limit = "not known in advance: --max-queries N sets a limit"
    out.print(f"queries at most: {f'{rows:,}' if rows else limit}")
    if rows and price:
        out.print(f"cost at most: {rows * price:.6g}")
    out.print(f"out: {plain(where)}")
    cost = {"cost_at_most": rows * price} if rows and price else {}
    summary(dry_run=True, rows_at_most=rows or None, **cost, **{**facts, "out": where})
