"""Runs the attacks of a comparison, in memory or in a folder where a stopped comparison resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rlab.comparison.comparison import Comparison, open_comparison
from rlab.comparison.outcome import AttackOutcome, Contender
from rlab.data.batch import Batch
from rlab.errors import ModelError, OptionError
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.storage.digest import digest
from rlab.storage.resume import Resume
from rlab.victims.base import Victim


def run_comparison(
    victim: Victim,
    batch: Batch,
    contenders: Mapping[str, Contender],
    budget: int,
    seed: int = 0,
    folder: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    tell: Callable[[str, AttackOutcome], None] = lambda name, outcome: None,
) -> Comparison:
    """Run every attack on the same victim, samples and budget; call `tell` after each.

    With a `folder`, each finished attack is stored there, and a later call reads it back instead of running it again if its
    name, `settings` (the options that the contenders were made with), model, data, budget and seed are the same.
    """
    if not contenders:
        raise OptionError("expected at least one attack to compare, got none")
    if victim.multilabel:
        raise ModelError("expected a model with one label per sample to compare attacks on, got a multi-label model")
    for contender in contenders.values():
        contender.check(batch, budget)

    def run(name: str, resume: Resume | None) -> AttackOutcome:
        if resume is None:
            return contenders[name](victim, batch, budget, seed)
        config = {**(settings or {}), "name": name}
        fingerprint = digest(config, budget, seed, data_fingerprint(batch), inputs_of(victim, config))
        values = resume.step(f"attack {name}", fingerprint, lambda: run(name, None).plain(digits=None), stale="remake")
        return AttackOutcome.from_plain(values)

    outcomes, needs = {}, {name: contender.needs for name, contender in contenders.items()}
    with nullcontext() if folder is None else open_comparison(folder) as resume:
        for name in contenders:
            outcomes[name] = run(name, resume)
            tell(name, outcomes[name])
        if not next(iter(outcomes.values())).attacked.any():
            raise ModelError("the model classifies no sample correctly, so nothing was attacked: try `rlab doctor`")
        comparison = Comparison(batch.ids, budget, seed, outcomes, needs)
        if folder is not None:
            comparison.save(folder)
    return comparison
