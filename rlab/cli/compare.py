"""`rlab compare`."""

from __future__ import annotations

from rlab.cli.declared import Out, Wait, declared, out, prepare, run_folder
from rlab.cli.plan import DryRun, tell_attack
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.comparison import ATTACKS, NAMES, CompareOptions, run_comparison
from rlab.comparison.comparison import RULES, open_comparison
from rlab.present.table import plain, terminal
from rlab.runs.executor import Workers


@declared(CompareOptions, without=("policy", "keep"))
def command(
    options: CompareOptions, folder: Out = None, tracker: Track = None, wait: Wait = False, dry_run: DryRun = False
) -> None:
    contenders = options.contenders()  # refuse unknown names before loading anything
    if dry_run:
        return tell_attack(options, folder, list(contenders), len(options.attacks))
    with run_folder(folder, "compare", wait) as folder, open_comparison(folder):
        options, batch, victim = prepare(options)
        assert options.budget is not None  # filled in by prepare
        comparison = run_comparison(
            victim,
            batch,
            options.contenders(Workers.of(options, options.model, victim)),
            options.budget,
            options.seed,
            folder,
            options.settings(),
            lambda name, outcome: out.print(f"[dim]{plain(name)}: {outcome.seconds:.0f} s[/dim]"),
        )
    for table in comparison.tables():
        out.print(terminal(table))
    for line in comparison.equal_lines():
        out.print(plain(line), highlight=False)
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    out.print(f"Rows and curves: [bold]{plain(folder)}[/bold]")
    track(folder, tracker)
    told = {
        name: {"success": f.success.value, "queries": f.queries.value, "queries_flipped": f.queries_won.value}
        | {"queries_mean": f.queries_mean.value}
        | {"l2": f.l2.value, "rows": f.rows, "needs": list(comparison.needs[name])}
        | {f"within_{q}": best.value for q, best in f.within.items()}
        for name, f in comparison.figures.items()
    }  # fmt: skip
    summary(command="compare", out=folder, budget=comparison.budget, seed=comparison.seed, attacks=told)


command.__doc__ = f"""Run several attacks on the same model, samples and budget, and count every query.

The first attack is the reference for the others. If you name an attack at several strengths, such as
torchattacks:square@1.0 and torchattacks:square@2.0, its queries at the reference's median L2 are shown too.

ATTACKS from papers, with an L2 strength after '@' (most need --surrogate): {", ".join(NAMES)}.

ATTACKS from other libraries: {", ".join(ATTACKS)}.

Each finished attack is stored: run the same command with the same --out again to resume a stopped comparison, or with
more attacks to add them.
"""
