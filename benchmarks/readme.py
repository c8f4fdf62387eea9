"""The table of the default command in docs/results.md: CIFAR-10 test images 0-99, nothing set but model and data.

python -m benchmarks.readme            # runs or resumes `rlab compare` on each net, and writes the rows into
                                       # docs/results.md and benchmarks/results/default.md
python -m benchmarks.readme --quick    # under a minute: 4 images, 60 queries, writes nothing

The settings of the search were chosen on test images 1000-1399. The prior of `auto` was trained with ResNet-20, never with VGG.
Runs are kept in runs/readme.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import common, nets
from rlab.comparison import AttackOutcome, Figures
from rlab.comparison.comparison import Comparison
from rlab.present.table import Share, Table, Value, markdown, number
from rlab.results.result import WITHIN

PAGE, RUNS = common.HERE.parent / "docs" / "results.md", Path("runs", "readme")
BEGIN, END = "<!-- python -m benchmarks.readme: begin -->\n", "<!-- end -->\n"
IMAGES = 100
NETS = {
    "vgg": ("VGG, in no training of ours", "benchmarks/weights/vgg.safetensors"),
    "resnet20": ("ResNet-20, which the prior was trained with", "$RLAB_REAL/cifar10/resnet20.safetensors"),
}
HEAD = ["", "flipped", *(f"L2 within {q}" for q in WITHIN), "L2 in the end", "queries, median (mean)"]


def command(name: str, images: int = IMAGES) -> list[str]:
    """What anyone would type: model and data, everything else as it comes."""
    data, scale = "$RLAB_REAL/cifar10/test_0_4999.npz", {"mean": nets.MEAN, "std": nets.STD}
    told = [f"{key}=[{','.join(map(str, values))}]" for key, values in scale.items()]
    options = [word for each in (f"factory=benchmarks.nets:{name}", *told) for word in ("-M", each)]
    return ["rlab", "compare", NETS[name][1], data, *options, "--limit", str(images)]


def compared(name: str, folder: Path, images: int = IMAGES, more: Sequence[str] = ()) -> Comparison:
    """The command is run; a finished run is read back by it."""
    real = str(common.real())
    words = [word.replace("$RLAB_REAL", real) for word in command(name, images)[1:]]
    subprocess.run([sys.executable, "-m", "rlab", *words, *more, "--out", str(folder)], check=True)
    return Comparison.load(folder)


def row(policy: str, outcome: AttackOutcome, seed: int = 0) -> list[Value | Share]:
    """One policy: medians over all images the model had right, and the mean of queries, which papers tell."""
    f = Figures.of(outcome, seed)
    queries = f"{number(f.queries.value)} ({number(f.queries_mean.value)})"
    return [policy, Share(f.success.value, 0), *(f.within[q].value for q in WITHIN), f.l2.value, queries]


def rows(name: str, comparison: Comparison) -> Iterator[list[Value | Share]]:
    """The net stands before its first policy."""
    for at, (policy, outcome) in enumerate(comparison.outcomes.items()):
        yield row(f"{NETS[name][0]}: `{policy}`" if not at else f"`{policy}`", outcome, comparison.seed)


def shown(lines: Sequence[list[Value | Share]], name: str = "vgg") -> str:
    """The table and the command that makes its first rows, as docs/results.md shows them."""
    return f"{BEGIN}{markdown(Table(HEAD, lines))}\n<!-- skip -->\n```bash\n{shell(command(name))}\n```\n{END}"


def shell(words: Sequence[str]) -> str:
    """As it is typed, in lines of a readable length."""
    quoted = [word if word.startswith("$RLAB_REAL") else shlex.quote(word) for word in words]
    at = quoted.index("-M")
    return " ".join(quoted[:at]) + " \\\n    " + " ".join(quoted[at:])


def written(text: str, table: str) -> str:
    """The page's text with this table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name} has no lines {BEGIN.strip()} and {END.strip()}")
    return before + table + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few images and queries; writes nothing")
    quick = parser.parse_args().quick
    images, more = (4, ["--budget", "60"]) if quick else (IMAGES, [])
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) if quick else RUNS
        comparisons = {name: compared(name, home / name, images, more) for name in NETS}
    table = shown([line for name, each in comparisons.items() for line in rows(name, each)])
    print(table)
    if not quick:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
        common.write_page(
            common.RESULTS / "default.md",
            "The default command",
            __doc__ or "",
            0,
            [table.removeprefix(BEGIN).removesuffix(END)],
        )
    figures = {
        f"{name}_{policy}_{key}": value
        for name, each in comparisons.items()
        for policy, outcome in each.outcomes.items()
        for key, value in figures_of(outcome, each.seed).items()
    }
    common.finish({"images": images, **figures})


def figures_of(outcome: AttackOutcome, seed: int) -> dict[str, float]:
    f = Figures.of(outcome, seed)
    within = {f"l2_within_{q}": f.within[q].value for q in WITHIN}
    return {"success": f.success.value, "queries": f.queries.value, "l2": f.l2.value, **within}


if __name__ == "__main__":
    main()
