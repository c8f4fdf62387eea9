"""Where does the model look? Our map and the methods people use, on three kinds of ground truth.

python -m benchmarks.explain                    # run what has no raw file, then write results/explain.md
python -m benchmarks.explain --page             # write the page from the raw files
python -m benchmarks.explain --device cuda --only pets --parts 3    # a case in three pieces
python -m benchmarks.explain --quick            # our map on a few of the same samples
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.explain import quantus
from benchmarks.explain.belief import interval_coverage, within
from benchmarks.explain.cases import CASES, PATCHES, SEED, methods
from benchmarks.explain.page import RULES, figures, sections
from benchmarks.explain.quick import STEPS, quick
from benchmarks.harness import Claim, Options, Piece, circumstances
from benchmarks.raw import Raw
from rlab.explanation.base import mean_fill
from rlab.explanation.belief import Belief
from rlab.explanation.compared import MethodComparison, ScoredMethod
from rlab.explanation.judge import MethodJudge
from rlab.explanation.maps import threshold
from rlab.explanation.scores import area, curves, overlap
from rlab.victims.base import Victim

CHECKED, SHORTER, MEASURED = 16, 30, 20  # samples for stability and sanity, for fewer queries, for intervals


def pieces(options: Options) -> Iterator[Piece]:
    for key in CASES:
        for number in range(1, options.parts + 1):
            settings = {"case": key, "part": number, "parts": options.parts, "samples": options.samples, "seed": SEED}
            make = partial(compete, key, number, options.parts, options.samples)
            yield Piece(f"{key}-{number}of{options.parts}", key, settings, make)
    yield Piece("quantus", "quantus", {"samples": quantus.SAMPLES}, quantus.make)


def compete(key: str, number: int, parts: int, samples: int | None, device: str) -> Raw:
    """Judge all methods, then ours and others within fewer queries, then our intervals."""
    began, case = time.perf_counter(), CASES[key]
    victim, every = case.load(device)
    batch = every[:samples][number - 1 :: parts]
    checked, shorter, measured = (-(-count // parts) for count in (CHECKED, SHORTER, MEASURED))

    def say(method: str, scored: ScoredMethod) -> None:
        print(f"{case.title}: {method}, {scored.explanation.seconds:.0f} s", flush=True)

    judge = MethodJudge(steps=STEPS, stability=True, sanity=True, checked=checked, tell=say)
    found = judge(victim, batch, methods(batch.size, case.channels), batch.y, SEED)
    scores: dict[str, Any] = {"methods": plain_scores(more_scores(found, victim))}
    scores["within"] = within(victim, batch[:shorter], SEED, PATCHES[batch.rank - 1])
    some = batch[:measured]
    made = Belief()(victim, some, some.y, SEED)
    assert made.regions is not None
    scores |= {"coverage": interval_coverage(victim, some, made), "regions": int(made.regions.effect.numel())}
    white_box = [name for name, method in found.judged.items() if method.explanation.gradients]
    about = circumstances(f"python -m benchmarks.explain --only {key}", device)
    facts = {"ids": list(batch.ids), "white_box": white_box, "circumstances": about}
    return Raw(scores | {"seconds": time.perf_counter() - began}, facts)


def plain_scores(comparison: MethodComparison) -> dict[str, dict[str, list[float | None]]]:
    """Every method's scores for every sample; None where a sample has none."""
    return {
        name: {score: [round(v, 5) if v == v else None for v in each.tolist()] for score, each in method.scores.items()}
        for name, method in comparison.judged.items()
    }


def more_scores(comparison: MethodComparison, victim: Victim) -> MethodComparison:
    """Add the Dice of each map cut by the rule, and deletion that fills in the sample's mean."""
    batch, judged = comparison.batch, {}
    x0 = batch.x.to(victim.device)
    assert batch.masks is not None
    for name, method in comparison.judged.items():
        maps, labels = method.explanation.maps, method.explanation.labels
        own = {
            "dice_map": overlap(threshold(maps, "otsu"), batch.masks)["dice"],
            "deletion_grey": area(curves(victim, x0, mean_fill(x0).expand_as(x0), maps, labels, STEPS)),
        }
        judged[name] = ScoredMethod(method.explanation, {**method.scores, **own})
    return replace(comparison, judged=judged)


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=int, default=1, help="pieces for each case (default: %(default)s)")
    parser.add_argument("--samples", type=int, help="samples of each case at most (default: all)")


CLAIM = Claim(
    "explain", "Explanations", __doc__ or "", RULES, quick, pieces, sections, figures, flags, (*CASES, "quantus")
)
