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
from rlab.runs.executor import Workers


@declared(CompareOptions, without=("policy", "keep"))
def command(
    options: CompareOptions, folder: Out = None, tracker: Track = None, wait: Wait = False, dry_run: DryRun = False
) -> None:
    contenders = options.contenders()  # names that are none are refused before anything is loaded
    if dry_run:
        return tell_attack(options, folder, list(contenders), len(options.attacks))
    with run_folder(folder, "compare", wait) as folder, open_comparison(folder) as resume:
        options, batch, victim = prepare(options)
        assert options.budget is not None  # filled in by prepare
        comparison = compare(
            victim,
            batch,
            options.kept(resume, Workers.of(options, options.model, victim)),
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


command.__doc__ = f"""Run several attacks on the same model, samples and budget, and count every row that reaches the model.

The first one named is what the others are measured against. An attack given at several strengths, such as
torchattacks:square@1.0 and torchattacks:square@2.0, is also told at the first one's median L2.

ATTACKS from papers, a strength in L2 behind '@', most of them with --surrogate: {", ".join(NAMES)}.

Those of other libraries: {", ".join(ATTACKS)}.

Each attack is kept as it ends: a comparison that was stopped goes on with the next one when the same command with the same
--out is given again, and attacks that are named later are added.
"""
