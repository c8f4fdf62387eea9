"""The maximum number of queries of a hardening, known before it starts."""

from __future__ import annotations

from rlab.data.batch import Batch
from rlab.hardening.evaluation import LEVELS, all_filters
from rlab.hardening.options import EvaluationOptions, HardenOptions
from rlab.hardening.trainer import FIRST, SHARES


def training_rows(samples: int, options: HardenOptions, each: int | None) -> int | None:
    """Queries for attacks, training and validation; `each` is the adversary's maximum per sample, None if unknown."""
    if each is None:
        return None
    held = round(options.validation_split * samples)
    train = samples - held
    judged = min(held, options.validation_attacked) * (each + 1)
    batches = [min(options.batch_size, train - at) for at in range(0, train, options.batch_size)]
    live = options.mode == "live"
    harder = sum(max(1, round(options.adversarial_share * size)) for size in batches) * (options.views if live else 1)
    passes = train * (2 if options.distillation_weight else 1) + harder
    epoch = passes + (len(SHARES) + 1) * held + judged
    attacked = harder * options.total_epochs if live else train * (options.rounds if options.fresh else 1)
    return FIRST + 2 * held + judged + options.total_epochs * epoch + attacked * each


def measuring_rows(test: Batch, options: EvaluationOptions) -> int:
    """Queries to one model: the declared attack, Square, PGD, and every filter at every level."""
    few = test[: options.attacked]
    budget = options.attack.build(few).budget
    filters = len(all_filters(test.rank, test.x.shape[1]))
    queried = len(few) * (budget + options.square_budget + 1)  # + 1: the samples from the original model
    return queried + len(test) * (2 + options.pgd_steps + 1 + LEVELS * filters)
