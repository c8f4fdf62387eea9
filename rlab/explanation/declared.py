"""Run what `ExplainOptions` declare, for `rlab.explain`, `rlab explain` and the server; a folder gets the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation, Method
from rlab.explanation.options import ExplainOptions
from rlab.explanation.page import PICTURES, REPORT, maps_page, open_explanation, save_comparison, save_explanation
from rlab.explanation.pictures import save_overlays
from rlab.explanation.scores import MethodComparison
from rlab.present.page import write_page
from rlab.runs.inputs import Data, Model, taken
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

PICTURED = 12  # samples to draw
Announce = Callable[[Batch, Mapping[str, Any]], None]  # called with the samples before the first query
Tell = Callable[[Explanation, Batch], None]  # called after each method


class Shown(TypedDict, total=False):
    """The number of samples to draw, and what to call after each method."""

    pictures: int
    tell: Tell


def explain_declared(
    options: ExplainOptions,
    model: Model,
    data: Data,
    compare: bool,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    announce: Announce = lambda batch, defaulted: None,
    **shown: Unpack[Shown],
) -> list[Explanation] | MethodComparison:
    """Explain the data with every named method, or compare the methods."""
    options.methods(compare)  # refuse unknown names before loading anything
    with taken(model, data, limit) as (victim, batch):
        announce(batch, {})
        batch, methods = options.with_masks(batch), options.methods(compare, isinstance(victim, TorchVictim))
        folder = None if out is None else Path(out)
        with nullcontext() if folder is None else open_explanation(folder):
            run = _compare if compare else explain_each
            return run(options, victim, batch, methods, folder, **shown)


def explain_each(
    options: ExplainOptions,
    victim: Victim,
    batch: Batch,
    methods: Sequence[Method],
    folder: Path | None,
    pictures: int = PICTURED,
    tell: Tell = lambda explanation, batch: None,
) -> list[Explanation]:
    """An explanation by each method; the folder gets arrays, tables, pictures and a page."""
    explained = []
    for method in methods:
        explained.append(method(victim, batch, options.labels(batch), options.seed, options.rule))
        if folder is not None:
            save_explanation(explained[-1], batch, folder, pictures)
            save_overlays(explained[-1], batch, folder / PICTURES, pictures)
        tell(explained[-1], batch)
    if folder is not None:
        write_page(maps_page(folder), folder / REPORT)
    return explained


def _compare(
    options: ExplainOptions,
    victim: Victim,
    batch: Batch,
    methods: Sequence[Method],
    folder: Path | None,
    pictures: int = PICTURED,
    tell: Tell = lambda explanation, batch: None,
) -> MethodComparison:
    """The methods scored on the same samples; the folder gets arrays, scores and a gallery."""
    judge = options.judge(lambda name, scored: tell(scored.explanation, batch))
    comparison = judge(victim, batch, methods, options.labels(batch), options.seed)
    if folder is not None:
        save_comparison(comparison, folder, f"Where {options.model.name} looks", pictures)
    return comparison
