"""`rlab compare`."""

from __future__ import annotations

from rlab.cli.declared import Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.ending import Paged, Track, tell_page, track, write_report
from rlab.cli.plan import DryRun, tell_options
from rlab.cli.spoken import summary
from rlab.comparison import ATTACKS, CompareOptions
from rlab.comparison.comparison import RULES
from rlab.present.table import plain, terminal
from rlab.verbs import compare

_INPUTS = ("model", "data", "policy", "keep")  # not keywords of `rlab.compare`; a file may hold them for other commands


@declared(CompareOptions, without=("policy", "keep"))
def command(
    options: CompareOptions,
    folder: Out = None,
    page: Paged = True,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    contenders = options.contenders()  # refuse unknown names before loading anything
    if dry_run:
        return tell_options(options, options.data, [options.model], folder, len(contenders))
    given = {name: getattr(options, name) for name in options.model_fields_set - set(_INPUTS)}
    with run_folder(folder, "compare", wait) as folder:
        comparison = compare(
            options.model, options.data, out=folder, announce=tell_data,
            tell=lambda name, outcome: out.print(f"[dim]{plain(name)}: {outcome.seconds:.0f} s[/dim]"), **given,
        )  # fmt: skip
        written = write_report(folder, page)
    for table in comparison.tables():
        out.print(terminal(table))
    for line in comparison.lines():
        out.print(plain(line))
    out.print(f"[dim]{RULES}[/dim]")
    out.print(f"Rows and curves: [bold]{plain(folder)}[/bold]")
    track(folder, tracker)
    figures = {
        name: {"success": f.success.value, "queries": f.queries.value, "queries_to_flip": f.first.value}
        | {"queries_flipped": f.queries_won.value, "queries_mean": f.queries_mean.value}
        | {"l2": f.l2.value, "rows": f.rows, "needs": list(comparison.needs[name])}
        | {f"within_{q}": best.value for q, best in f.within.items()}
        for name, f in comparison.figures.items()
    }  # fmt: skip
    settings = {"budget": comparison.budget, "seed": comparison.seed}
    summary(command="compare", out=folder, page=written, **settings, attacks=figures)
    tell_page(written)


command.__doc__ = f"""Run several attacks on the same model, samples and budget, and count every query.

The first attack is the reference for the others. If you name an attack at several strengths, such as
torchattacks:square@1.0 and torchattacks:square@2.0, the table also shows how many queries it needs at the reference's median L2.

ATTACKS of other libraries, with a strength after '@': {", ".join(ATTACKS)}.

Each finished attack is stored: run the same command with the same --out again to resume a stopped comparison, or with
more attacks to add them.
"""
