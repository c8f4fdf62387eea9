"""The data and the model that a command names."""

from __future__ import annotations

from typing import Any

from rlab.cli.declared import tell_data
from rlab.data.batch import Samples
from rlab.runs.executor import place
from rlab.runs.inputs import relabelled
from rlab.runs.options import RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.runs.understood import Understood
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model


def prepare(options: RunOptions, stream: bool = False) -> tuple[Any, Any, Victim]:
    """Load data and model and fill in defaults, and print them; with `stream`, large data stay on disk."""
    model = here = options.model
    if isinstance(options, WorkerOptions):
        model, here = place(options, options.model)
    data = options.suited_data()
    batch: Samples = data.open() if stream else data.load()
    filled, defaulted = options.filled(batch)
    victim = load_model(here, batch.bounds)
    batch = relabelled(batch, victim.own_classes)
    tell_data(Understood(batch, (victim,), defaulted))
    return filled.model_copy(update={"model": model, "data": data}), batch, victim
