"""`python -m benchmarks CLAIM ...` is the same as `python -m benchmarks.CLAIM ...`; the flags concern all claims at once.

python -m benchmarks --check          # are all pages current, all claims traced, all budgets equal?
python -m benchmarks --page           # write every page and the tables of README and docs/results.md from the raw files
python -m benchmarks --leaderboard    # write the leaderboard from the raw files
python -m benchmarks --submit my_module:thing --task "demo digits"    # measure a policy or an attack of yours
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

CLAIMS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/__main__.py"))
FLAGS = ("--check", "--page", "--leaderboard", "--submit")


def write_pages() -> int:
    from benchmarks import check, headline
    from benchmarks.harness import Claim
    from benchmarks.raw import RAW, RESULTS, Store

    for name in CLAIMS:
        claim: Claim = importlib.import_module(f"benchmarks.{name}.run").CLAIM
        claim.write_page(Store(RAW / name), RESULTS / f"{name}.md")
    headline.write_tables()
    check.shrink_list()
    return 0


def run(flag: str) -> int:
    if flag == "--page":
        return write_pages()
    if flag == "--check":
        from benchmarks.check import check

        return check()
    from benchmarks import leaderboard

    return leaderboard.submit(sys.argv[1:]) if flag == "--submit" else leaderboard.write()


if __name__ == "__main__":
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in FLAGS:
        raise SystemExit(run(word))
    if word not in CLAIMS:
        raise SystemExit(
            f"name a benchmark: python -m benchmarks {{{','.join((*FLAGS, *CLAIMS))}}} [--quick] [--page] ..."
        )
    runpy.run_module(f"benchmarks.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
