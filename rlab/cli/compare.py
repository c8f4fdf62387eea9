"""`rlab compare`."""

from __future__ import annotations

from rlab.cli.declared import Out, Wait, declared, out, prepare, run_folder
from rlab.cli.plan import DryRun, tell_attack
from rlab.cli.spoken import summary
from rlab.cli.tracked import Track, track
from rlab.comparison import ATTACKS, NAMES, CompareOptions, Figures, compare
from rlab.comparison.comparison import open_comparison
from rlab.comparison.page import RULES, comparison_tables, equal_lines
from rlab.present.table import plain, terminal
from rlab.workers import Crew


@declared(CompareOptions, without=("policy", "keep"))
def command(
    options: CompareOptions, folder: Out = None, tracker: Track = None, wait: Wait = False, dry_run: DryRun = False
) -> None:
    contenders = options.contenders()  # refuses unknown names before anything is loaded
    if dry_run:
        return tell_attack(options, folder, list(contenders), len(options.attacks))
    with run_folder(folder, "compare", wait) as folder, open_comparison(folder) as resume:
        options, batch, victim = prepare(options)
        assert options.budget is not None  # filled in by prepare
        comparison = compare(
            victim,
            batch,
            options.kept(resume, Crew.of(options, options.model, victim)),
            options.budget,
            options.seed,
            lambda name, outcome: out.print(f"[dim]{plain(name)}: {outcome.seconds:.0f} s[/dim]"),
        )
        comparison.save(folder)
    for table in comparison_tables(comparison):
        out.print(terminal(table))
    for line in equal_lines(comparison):
        out.print(plain(line), highlight=False)
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    out.print(f"Rows and curves: [bold]{plain(folder)}[/bold]")
    track(folder, tracker)
    figures = {name: Figures.of(outcome, comparison.seed) for name, outcome in comparison.outcomes.items()}
    told = {
        name: {"success": f.success.value, "queries": f.queries.value, "queries_flipped": f.queries_won.value}
        | {"queries_mean": f.queries_mean.value}
        | {"l2": f.l2.value, "rows": f.rows, "needs": list(comparison.needs[name])}
        | {f"within_{q}": best.value for q, best in f.within.items()}
        for name, f in figures.items()
    }  # fmt: skip
    summary(command="compare", out=folder, budget=comparison.budget, seed=comparison.seed, attacks=told)


command.__doc__ = f"""Run several attacks on the same model, samples and budget, and count every query.

The first attack is the reference for the others. If you name an attack at several strengths, such as
torchattacks:square@1.0 and torchattacks:square@2.0, it is also compared at the median L2 of the reference.

ATTACKS from papers, with an optional strength in L2 after '@'; most need --surrogate: {", ".join(NAMES)}.

Attacks from other libraries: {", ".join(ATTACKS)}.

Each attack is saved when it ends. To resume a stopped comparison, or to add attacks, repeat the command with the same --out.
"""
