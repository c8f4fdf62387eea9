"""`--dry-run`: print the plan, the maximum number of queries and the time they take; write nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from rlab.cli.inputs import prepare
from rlab.cli.spoken import out, summary
from rlab.core.channels import TOGETHER, group_names
from rlab.present.table import plain
from rlab.runs.options import RunOptions
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim

_HELP = "Print the plan, the maximum number of queries and the time; write nothing. Only torch models are queried, to time them"
DryRun = Annotated[bool, typer.Option("--dry-run", help=_HELP)]
TIMED = 16  # batch size for timing a model


def tell_plan(
    facts: Mapping[str, Any], rows: Mapping[str, int | None], folder: Path | None, victims: Sequence[Victim], x: Tensor
) -> None:
    """`rows` are maximum queries by purpose, None if unknown; models are timed on `x` (n, c, *size)."""
    known = {name: count for name, count in rows.items() if count is not None}
    total = sum(known.values())
    lines = dict(facts) | {"rows at most": f"{total:,}"}
    if len(rows) > 1:
        lines["by part"] = [f"{name} {count:,}" for name, count in known.items()]
    unknown = [name for name in rows if name not in known]
    if unknown:
        lines["not included"] = f"{', '.join(unknown)}: unknown in advance"
    each = [seconds_a_row(victim, x) for victim in victims]
    timed = [seconds for seconds in each if seconds is not None]
    seconds = total * sum(timed) / len(timed) if timed and len(timed) == len(each) else None
    lines["time at most"] = (
        "not measured (only torch models are)" if seconds is None else f"{_rounded(seconds)} for the model alone"
    )
    price = max([0.0, *(victim.bill.price for victim in victims if isinstance(victim, HttpVictim))])
    if price:
        lines["cost at most"] = f"{total * price:.6g}"
    lines["out"] = str(folder or "a new folder below runs/")
    for name, value in lines.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        out.print(f"{name}: {plain(shown)}")
    figures = {**facts, "rows at most": total, "rows": dict(rows), "seconds at most": seconds, "out": lines["out"]}
    figures |= {"cost at most": total * price} if price else {}
    summary(dry_run=True, **{name.replace(" ", "_"): value for name, value in figures.items()})


def tell_attack(options: RunOptions, folder: Path | None, attacks: Sequence[str] = ()) -> None:
    """`attacks` are those of a comparison."""
    options, batch, victim = prepare(options, stream=not attacks)
    attack = options.build(batch)
    facts = {
        "samples": len(batch),
        "budget": attack.budget,
        "policy": list(attacks) or attack.label,
        "palette": attack.palette.names,
        "patch": attack.grid.patch,
        "channels": "; ".join(group_names(attack.grid.groups, batch.leads)) or TOGETHER,
        "patches": len(attack.grid),
        "goal": str(attack.goal),
        "until": attack.until,
        "seed": attack.seed,
    }
    rows: dict[str, int | None] = dict.fromkeys(attacks or ["attack"], len(batch) * attack.budget)
    tell_plan(facts, rows, folder, [victim], batch[:TIMED].x)


def seconds_a_row(victim: Victim, x: Tensor) -> float | None:
    """Time one batch after a warm-up; None for models other than torch's, whose queries may cost money."""
    if not isinstance(victim, TorchVictim):
        return None
    few = x[:TIMED].to(victim.device)
    victim(few[:1], "search").cpu()
    began = time.perf_counter()
    victim(few, "search").cpu()
    return (time.perf_counter() - began) / len(few)


def _rounded(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
