"""The table of the default command in docs/results.md: CIFAR-10 test images 0-99, with nothing set but model and data.

python -m benchmarks.default            # run `rlab compare` on each net, then write docs/results.md and results/default.md
python -m benchmarks.default --quick    # patches and distances against those of rlab 0.3.0, and what the stop gives up

Runs are kept in runs/default, so a stopped run resumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.default import few
from benchmarks.default.cases import IMAGES, NETS, command, compared, shell
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import HERE, RAW, Raw, Store
from benchmarks.tables import section
from rlab.comparison import AttackOutcome
from rlab.comparison import Figures as OutcomeFigures
from rlab.present.table import Share, Table, Value, markdown, number
from rlab.results.result import WITHIN

PAGE, RUNS = HERE.parent / "docs" / "results.md", Path("runs", "default")
BEGIN, END = "<!-- python -m benchmarks.default: begin -->\n", "<!-- end -->\n"
HEAD = ["", "flipped", *(f"L2 within {q}" for q in WITHIN), "L2 in the end", "queries, median (mean)"]
RULES = """
CIFAR-10 test images 0-99, with nothing set but model and data. The settings of the search were chosen on test images
1000-1399. The prior of `auto` was trained with ResNet-20, never with VGG.
"""


def measured(outcome: AttackOutcome, seed: int = 0) -> dict[str, float]:
    """Medians over all images the model classifies correctly, and the mean number of queries, which papers report."""
    f = OutcomeFigures.of(outcome, seed)
    within = {f"l2_within_{q}": f.within[q].value for q in WITHIN}
    queries = {"queries": f.queries.value, "queries_mean": f.queries_mean.value}
    return {"success": f.success.value, **queries, "l2": f.l2.value, **within}


def row(name: str, values: dict[str, float]) -> list[Value | Share]:
    queries = f"{number(values['queries'])} ({number(values['queries_mean'])})"
    return [name, Share(values["success"], 0), *(values[f"l2_within_{q}"] for q in WITHIN), values["l2"], queries]


def make(name: str, device: str, folder: Path = RUNS, images: int = IMAGES, more: Sequence[str] = ()) -> Raw:
    comparison = compared(name, folder / name, images, more)
    return Raw({policy: measured(each, comparison.seed) for policy, each in comparison.outcomes.items()})


def pieces(options: Options) -> Iterator[Piece]:
    for name in NETS:
        yield Piece(name, name, {"command": command(name)}, partial(make, name))
    yield from few.pieces()


def rows(name: str, policies: dict[str, Any]) -> Iterator[list[Value | Share]]:
    """The net is named in the row of its first policy."""
    for at, (policy, values) in enumerate(policies.items()):
        yield row(f"{NETS[name][0]}: `{policy}`" if not at else f"`{policy}`", values)


def shown(lines: Sequence[list[Value | Share]], name: str = "vgg") -> str:
    """The table and the command that makes its first rows."""
    return f"{markdown(Table(HEAD, lines))}\n<!-- skip -->\n```bash\n{shell(command(name))}\n```\n"


def written(text: str, body: str) -> str:
    """The page's text with this table between its marks."""
    marks = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    if not re.search(marks, text, re.S):
        raise SystemExit(f"{PAGE.name} has no lines {BEGIN.strip()} and {END.strip()}")
    return re.sub(marks, lambda _: f"{BEGIN}{body}{END}", text, count=1, flags=re.S)


def sections(store: Store) -> Iterator[str]:
    """Written into docs/results.md as well, once both nets are there."""
    if all(name in store for name in NETS):
        body = shown([line for name in NETS for line in rows(name, dict(store.read(name).numbers))])
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), body), encoding="utf-8")
        yield section("Two networks", body.rstrip("\n"))
    yield from few.sections(store)


def figures(store: Store) -> Figures:
    nets = keyed({name: store.read(name).numbers for name in NETS if name in store})
    return {"images": IMAGES, **nets, **few.figures(few.kept(store, few.NOW), few.kept(store, few.THEN))}


def keyed(found: dict[str, Any]) -> Figures:
    rows = [(f"{name}_{policy}", values) for name, policies in found.items() for policy, values in policies.items()]
    return {f"{row}_{key}": value for row, values in rows for key, value in values.items() if key != "queries_mean"}


def quick(options: Options) -> Figures:
    return few.figures(few.measured(options.device), few.kept(Store(RAW / "default"), few.THEN))


CLAIM = Claim(
    "default", "The default command", __doc__, RULES, quick, pieces, sections, figures, cases=(*NETS, few.GROUP)
)
