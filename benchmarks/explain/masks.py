"""How well the patches of an attack localise: the Dice of the method `mask`, which no ranking scores, beside that of our map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from benchmarks.explain.cases import CASES, OURS, SEED
from benchmarks.harness import Piece
from benchmarks.raw import Raw, Store
from benchmarks.tables import section, table
from rlab.explanation.run import parse_method
from rlab.explanation.scores import overlap

CASE, METHOD = "masks", "mask"
ABOUT = (
    "A set of patches that flips the decision, found by an attack with the defaults of the method `mask`, is empty where no flip "
    "was found. Do not read it as an explanation: it says what suffices to change the decision, not where the model looks."
)


def pieces() -> Iterator[Piece]:
    for key in CASES:
        yield Piece(_file(key), CASE, {"case": key, "method": METHOD, "seed": SEED}, partial(make, key))


def _file(key: str) -> str:
    return f"{CASE}-{key}"


def make(key: str, device: str) -> Raw:
    victim, batch = CASES[key].load(device)
    made = parse_method(METHOD)(victim, batch, batch.y, SEED)
    assert batch.masks is not None
    dice = overlap(made.mask, batch.masks)["dice"].tolist()
    flipped = made.mask.flatten(1).any(1).tolist()
    return Raw({"dice": dice, "flipped": flipped, "queries": made.queries.tolist()}, {"ids": list(batch.ids)})


def sections(store: Store, scored: Mapping[str, Raw]) -> Iterator[str]:
    """A row for each case, over the samples of which `scored` has the Dice of our map."""
    rows = [
        (CASES[key].title, *_cells(store.read(_file(key)), raw)) for key, raw in scored.items() if _file(key) in store
    ]
    if rows:
        heads = ("", "Dice of the patches", f"Dice of {OURS}", "flipped", "queries, median", "samples")
        yield section("The patches that an attack changes", ABOUT, table(heads, rows))


def _cells(patches: Raw, scored: Raw) -> tuple[str, ...]:
    ours = dict(zip(scored.facts["ids"], scored.numbers["methods"][OURS]["dice"], strict=True))
    at = [row for row, name in enumerate(patches.facts["ids"]) if name in ours]
    dice, flipped, queries = (np.array(patches.numbers[name])[at] for name in ("dice", "flipped", "queries"))
    same = np.mean([ours[patches.facts["ids"][row]] for row in at])
    return f"{dice.mean():.3f}", f"{same:.3f}", f"{flipped.mean():.0%}", f"{np.median(queries):,.0f}", str(len(at))
