"""`harden`: from a model and its data to a model that errs less when things go wrong in places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.hardening.checkpoint import Checkpoint
from rlab.hardening.config import HardenConfig
from rlab.hardening.hardened import Hardened
from rlab.hardening.makers import Maker
from rlab.hardening.sources import Augment
from rlab.hardening.trainable import trainable, twin
from rlab.hardening.training import Step, Trainer, goal_of, make_maker
from rlab.progress import Progress, bar
from rlab.runs.config import check
from rlab.victims.base import Victim


def harden(
    model: nn.Module | Victim,
    batch: Batch,
    *,
    validation: Batch | None = None,
    config: HardenConfig | Mapping[str, Any] | None = None,
    maker: Maker | None = None,
    step: Step | None = None,
    augment: Augment | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Hardened:
    """Fine-tunes a copy of the model on samples that fool it, and on clean ones; `options` are `HardenConfig`'s fields.

    `validation` should hold samples the model was not trained on. `step(model, x, y, optimizer) -> loss` replaces the
    training step, `augment(x) -> x` comes before every attack, `out` is a folder that the same call goes on from.
    """
    chosen = as_config(config, options).filled(batch)
    victim = twin(trainable(model, batch))
    data = _split(batch, validation, chosen)
    together = min(chosen.together, len(data[0]))
    victim.chunk = max(victim.chunk, together)
    made = maker or make_maker(chosen, batch, goal_of(victim))
    trainer = Trainer(victim, data, chosen, made, step, augment)
    checkpoint = Checkpoint(None if out is None else Path(out), chosen, batch, trainer.start, _name(made))
    if progress is not None:
        state = trainer.run(checkpoint, progress)
    else:
        with bar(chosen.total, "hardening") as shown:
            state = trainer.run(checkpoint, shown)
    hardened = twin(victim)
    hardened.model.load_state_dict(state.best)
    hardened.model.eval()
    return Hardened(
        hardened, victim, chosen, tuple(state.history), state.stopped, state.found, state.rows, batch.classes
    )


def _name(maker: Maker) -> str:
    """What tells makers apart in a fingerprint; the address in memory of a user's own does not."""
    return repr(maker) if is_dataclass(maker) else type(maker).__name__


def as_config(config: HardenConfig | Mapping[str, Any] | None, options: Mapping[str, Any]) -> HardenConfig:
    base = config.model_dump(exclude_unset=True) if isinstance(config, HardenConfig) else dict(config or {})
    return check(HardenConfig, base | dict(options))


def _split(batch: Batch, validation: Batch | None, config: HardenConfig) -> tuple[Batch, Batch]:
    """Training and validation data; where none are given a share is held out, the same under the same seed."""
    if validation is not None:
        if validation.x.shape[1:] != batch.x.shape[1:] or validation.bounds != batch.bounds:
            raise InputError(
                f"expected validation data like the training data, {tuple(batch.x.shape[1:])} in {list(batch.bounds)}, "
                f"got {tuple(validation.x.shape[1:])} in {list(validation.bounds)}"
            )
        return batch, validation
    held = round(config.hold_out * len(batch))
    if held < 1 or len(batch) - held < 2:
        raise InputError(
            f"expected enough samples to hold out {config.hold_out:.0%} of them for validation, got {len(batch)}: "
            f"give more, or validation data of their own"
        )
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(config.seed)).tolist()
    return batch[order[held:]], batch[order[:held]]
