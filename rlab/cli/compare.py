"""`rlab compare`."""

from __future__ import annotations

from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options
from rlab.comparison import ATTACKS, CompareOptions
from rlab.verbs import compare

_HIDDEN = ("policy", "keep")  # a file may hold them for other commands


@declared(without=_HIDDEN, queries=True)
def command(options: CompareOptions, run: RunFlags, dry_run: DryRun = False) -> None:
    contenders = options.contenders()  # refuse unknown names before loading anything
    if dry_run:
        return tell_options(options, [options.model], options.data, run.folder, attacks=len(contenders))
    given = {name: getattr(options, name) for name in options.model_fields_set - {"model", "data", *_HIDDEN}}
    with run.opened("compare") as folder:
        comparison = compare(options.model, options.data, out=folder, announce=tell_data, **given)
        attacks = {
            name: {"success": f.success.value, "queries": f.queries.value, "queries_to_flip": f.first.value}
            | {
                "queries_flipped": f.queries_won.value,
                "queries_mean": f.queries_mean.value,
                "l2": f.l2.value,
                "rows": f.rows,
            }
            | {"needs": comparison.needs[name]}
            | {f"within_{q}": best.value for q, best in f.within.items()}
            for name, f in comparison.figures.items()
        }
        run.finish(comparison, folder, budget=comparison.budget, seed=comparison.seed, attacks=attacks)


command.__doc__ = f"""Run several attacks on the same model, samples and budget, and count every query.

The first attack is the reference for the others.

ATTACKS of other libraries, with a strength after '@': {", ".join(ATTACKS)}.

Each finished attack is stored: run the same command with the same --out again to resume a stopped comparison, or with
more attacks to add them.
"""
