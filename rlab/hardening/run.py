"""`rlab.harden`: from a model and its data to a model that errs less when things go wrong in places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.hardening.hardened import Hardened
from rlab.hardening.options import HardenOptions
from rlab.hardening.trainable import trainable, twin
from rlab.hardening.trainer import HardeningTrainer
from rlab.progress import Progress, bar
from rlab.runs.config import check
from rlab.runs.fingerprint import data_fingerprint, weights_fingerprint
from rlab.runs.resume import Resume
from rlab.victims.base import Victim


def harden(
    model: nn.Module | Victim,
    batch: Batch,
    options: HardenOptions | Mapping[str, Any] | None = None,
    *,
    validation: Batch | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **fields: Any,
) -> Hardened:
    """Fine-tunes a copy of the model on samples that fool it, and on clean ones; `fields` are those of `HardenOptions`.

    `validation` should hold samples the model was not trained on. `out` is a folder that the same call goes on from.
    """
    chosen = options if isinstance(options, HardenOptions) else check(HardenOptions, options or {})
    chosen = chosen.updated(fields).filled(batch)
    original = twin(trainable(model, batch))
    train, judged_on = _split(batch, validation, chosen)
    original.chunk = max(original.chunk, min(chosen.batch_size, len(train)))
    trainer = HardeningTrainer(original, train, judged_on, chosen)
    asked = {
        "command": "harden",
        **chosen.plain(),
        "the model": weights_fingerprint(trainer.start),
        "the data": [data_fingerprint(part) for part in (batch, validation) if part is not None],
    }
    resume = None if out is None else Resume(Path(out), asked)
    if progress is not None:
        state = trainer.run(resume, progress)
    else:
        with bar(chosen.total_epochs, "hardening") as shown:
            state = trainer.run(resume, shown)
    hardened = twin(original)
    hardened.model.load_state_dict(state.best)
    hardened.model.eval()
    history = tuple(state.history)
    return Hardened(hardened, original, chosen, history, state.stopped, state.flipped, state.rows, batch.classes)


def _split(batch: Batch, validation: Batch | None, options: HardenOptions) -> tuple[Batch, Batch]:
    """Training and validation data; where none are given a share is held out, the same under the same seed."""
    if validation is not None:
        if validation.x.shape[1:] != batch.x.shape[1:] or validation.bounds != batch.bounds:
            raise InputError(
                f"expected validation data like the training data, {tuple(batch.x.shape[1:])} in {list(batch.bounds)}, "
                f"got {tuple(validation.x.shape[1:])} in {list(validation.bounds)}"
            )
        return batch, validation
    count = round(options.validation_split * len(batch))
    if count < 1 or len(batch) - count < 2:
        raise InputError(
            f"expected enough samples to hold out {options.validation_split:.0%} of them for validation, got {len(batch)}: "
            f"give more, or validation data of their own"
        )
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
    return batch[order[count:]], batch[order[:count]]
