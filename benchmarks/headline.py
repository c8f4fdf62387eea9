"""Write README's table of results: six cases, each beside the strongest baseline that users can run.

python -m benchmarks.headline           # writes the table from benchmarks/results into README.md
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.claims import INFINITE, OTHERS, OURS, README, WITHIN, value_of
from benchmarks.harness import command, finish
from benchmarks.tables import Results
from benchmarks.tables import table as markdown

BEGIN, END = "<!-- python -m benchmarks.headline: begin -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Headline:
    """A row of README's table: our row of a results page beside the best of the baselines (default: all peers)."""

    case: str
    page: str
    section: str
    ours: str
    baseline: str
    others: Sequence[str] = ()

    def cells(self) -> list[str]:
        results = Results.read(self.page)
        rows = {name: cells for name, cells in results.rows(self.section).items() if "÷" not in name}
        others = self.others or [name for name in rows if not name.startswith(OURS)]
        pairs = [(queries, names) for queries in QUERIES for names in ([self.ours], others)]
        figures = [_shown(min(_at(rows[name], queries) for name in names)) for queries, names in pairs]
        return [self.case, self.baseline, *figures, results.match(r"\brlab (\d+\.\d+\.\d+)")]


QUERIES = ("20", "100")
BASELINES = "`square`/`random`"
HEADLINES = (
    Headline("CIFAR-10, VGG", "anytime.md", "vgg natural", "auto", BASELINES, OTHERS),
    Headline("CIFAR-10, vision transformer", "anytime.md", "vit natural", "auto", BASELINES, OTHERS),
    Headline("CIFAR-10, certified CNN", "anytime.md", "robust natural", "auto", BASELINES, OTHERS),
    Headline("ECG beats, CNN", "anytime.md", "beats cnn", "auto", BASELINES, OTHERS),
    Headline("UCF-101 clips, SlowFast", "video.md", "SLOWFAST", "auto", "two agents", (*OTHERS, "two agents")),
    Headline("CIFAR-10, VGG, free pixels", "peers.md", "VGG, free pixels", "pixels + surrogates", "ensemble PGD"),
)


def _at(cells: dict[str, str], queries: str) -> float:
    """The distance within this number of queries."""
    columns = (f"{WITHIN} {queries}", f"L2 within {queries}", f"attack MAP within {queries}")
    return next(value_of(cells[column]) for column in columns if column in cells)


def _shown(value: float) -> str:
    return INFINITE if math.isinf(value) else f"{value:.3g}"


def table() -> str:
    """README's table of results, between its marks."""
    head = ["model", "strongest baseline", *(f"{who}, {q}" for q in QUERIES for who in ("rlab", "baseline"))]
    return f"{BEGIN}{markdown((*head, 'version'), [headline.cells() for headline in HEADLINES])}\n{END}"


def written(readme: str) -> str:
    """README with its table of results written again."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md needs the lines {BEGIN.strip()} and {END.strip()}")
    return before + table() + after


def main() -> None:
    command(__doc__).parse_args()
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
    finish({"rows": len(HEADLINES)})


if __name__ == "__main__":
    main()
