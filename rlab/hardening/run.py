"""`rlab.harden`: fine-tune a model on samples that fool it, and measure it before and after on data it was not trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import torch

from rlab.core.checks import need_classes
from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.hardening.before_after import AFTER, BEFORE
from rlab.hardening.evaluation import RobustnessMeasurement, measure_robustness, measured_once
from rlab.hardening.options import EvaluationOptions, HardenOptions, HardenRunOptions
from rlab.hardening.report import Hardened
from rlab.hardening.trainable import trainable, twin
from rlab.hardening.trainer import HardeningTrainer
from rlab.progress import Progress, showing, shown
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.inputs import Data, Model, as_batch, relabelled, taken
from rlab.runs.threads import fitting_threads, use_threads
from rlab.runs.understood import Announce, Understood, show
from rlab.storage.config import check, check_keywords, takes
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model

if TYPE_CHECKING:
    from rlab.keywords import HardenKeywords

_HELD_OUT = 5  # every fifth sample is held out if there are no test data


class Splits(NamedTuple):
    """Data for training, testing and validation; without validation data, a share of the training data is held out."""

    train: Batch
    test: Batch | None
    validation: Batch | None = None


@takes(HardenOptions)
def harden(
    model: Model,
    data: Data | Splits,
    options: HardenOptions | Mapping[str, Any] | None = None,
    *,
    validation: Data | None = None,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | bool = True,
    announce: Announce = show,
    **fields: Unpack[HardenKeywords],
) -> Hardened:
    """Fine-tune a copy of the model on clean samples and on samples that fool it; `fields` override `options`.

    `validation` should contain samples that the model was not trained on. With `Splits` as data, the model is also measured before
    and after on the test data. With a folder `out`, the same call resumes a stopped run. Your own model does not change.
    `progress` is called after each epoch; True shows a bar, False nothing.
    """
    chosen = options if isinstance(options, HardenOptions) else check(HardenOptions, options or {})
    check_keywords(harden, HardenOptions, fields)
    train, test, unseen = data if isinstance(data, Splits) else (data, None, validation)
    with showing(progress is not False):
        with taken(model, train, limit) as (victim, batch):
            need_classes(victim, "harden")
            announce(Understood(batch, (victim,)))
            other = None if unseen is None else as_batch(unseen, bounds=batch.bounds)
            splits = Splits(batch, test, other and relabelled(other, victim.own_classes))
            copy = twin(trainable(victim, batch))
        return run_hardening(copy, splits, chosen.updated(fields), out=out, progress=progress)


def load_hardening(
    options: HardenRunOptions, announce: Announce
) -> tuple[Victim, Splits, HardenOptions, EvaluationOptions]:
    """Load the declared model and data; announces the samples and the defaults that were filled in."""
    options = options.model_copy(update={"data": options.suited_data()})
    batch = options.data.load()
    options, defaulted = options.filled(batch)
    victim = load_model(options.model, batch.bounds)
    batch = relabelled(batch, victim.own_classes)
    announce(Understood(batch, (victim,), defaulted))
    test = None if options.test is None else relabelled(options.test.load(), victim.own_classes)
    if test is None:
        count = max(2, len(batch) // _HELD_OUT)
        train, test = _held_out(batch, count, 0)
    else:
        refuse_shared(batch, test, "test")
        train = batch
    return victim, Splits(train, test), options.harden.following(options), options.evaluation_options()


def run_hardening(
    model: Victim,
    data: Splits,
    options: HardenOptions,
    evaluation: EvaluationOptions | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | bool = True,
) -> Hardened:
    """Harden a copy of the model and, with test data, measure it before and after; the same call resumes a stopped run."""
    original, chosen = twin(trainable(model, data.train)), options.filled(data.train)
    trainer = HardeningTrainer(original, *_validated(data, chosen), chosen)
    question = {
        "command": Hardened.verb,
        **chosen.plain(),
        "the model": Contents(original),
        "the options": Contents(chosen),
        "the data": [data_fingerprint(part) for part in (data.train, data.validation) if part is not None],
        **named_in(chosen.plain()),
    }
    with ExitStack() as stack:
        stack.enter_context(use_threads(fitting_threads(original, data.train)))
        resume = None if out is None else stack.enter_context(open_run(Path(out), question))
        with shown(progress, chosen.epochs, "hardening", "epochs") as advance:
            state = trainer.run(resume, advance)
        hardened = twin(original)
        hardened.model.load_state_dict(state.best)
        hardened.model.eval()
        report = Hardened(
            chosen, tuple(state.history), state.stopped, state.flipped, state.rows, data.train.classes,
            models=(original, hardened),
        )  # fmt: skip
        if data.test is not None:
            report = _measured(report, data.test, evaluation or check(EvaluationOptions, {}), resume)
        if resume is not None:
            report.write(resume.folder)
    return report


def _measured(report: Hardened, test: Batch, options: EvaluationOptions, resume: Resume | None) -> Hardened:
    """The report with figures on the test data, before and after."""
    about = [options, {name: each.mark() for name, each in named_in(options.plain()).items()}, test]
    found: dict[str, RobustnessMeasurement] = {}
    for when, victim in ((BEFORE, report.original), (AFTER, report.victim)):
        first = found[BEFORE].attack if found else None
        make = partial(measure_robustness, victim, test, options, first)
        found[when] = measured_once(resume, when, make, [*about, victim])
    measured = {when: each.robustness(found[BEFORE]) for when, each in found.items()}
    return replace(report, measured=measured, attacks={when: each.attack for when, each in found.items()})


def _validated(data: Splits, options: HardenOptions) -> tuple[Batch, Batch]:
    """Training and validation data; without validation data, the seed decides which share is held out."""
    batch, validation = data.train, data.validation
    if validation is not None:
        if validation.x.shape[1:] != batch.x.shape[1:] or validation.bounds != batch.bounds:
            expected, got = (f"{tuple(part.x.shape[1:])} in {list(part.bounds)}" for part in (batch, validation))
            raise DataError(f"expected validation data like the training data, {expected}, got {got}")
        refuse_shared(batch, validation, "validation")
        return batch, validation
    count = round(options.validation_split * len(batch))
    if count < 1 or len(batch) - count < 2:
        few = f"expected enough samples to hold out {options.validation_split:.0%} of them for validation, got {len(batch)}"
        raise DataError(f"{few}: provide more, or pass validation data")
    return _held_out(batch, count, options.seed)


def _held_out(batch: Batch, count: int, seed: int) -> tuple[Batch, Batch]:
    """All but `count` samples, and these."""
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed)).tolist()
    return batch[order[count:]], batch[order[:count]]


def refuse_shared(train: Batch, other: Batch, name: str) -> None:
    """Refuse validation or test data that contain training samples: a memorised sample looks robust."""
    known = set(map(digest, train.x))
    shared = [label for label, x in zip(other.ids, other.x, strict=True) if digest(x) in known]
    if shared:
        count = f"{len(shared)} of the {len(other)} {name} samples"
        raise DataError(f"{count} are also training samples, first {shared[0]!r}: remove them from one of the two")
