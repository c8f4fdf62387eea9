"""Outputs and labels that are wrong: the doctor must find each fault and no other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from rlab.data.batch import Batch
from rlab.diagnosis import examine
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.failures import Unanswered
from rlab.victims.torch_module import TorchVictim
from tests.diagnosis.cases import (
    IMAGENET,
    RANKS,
    Case,
    by_noise,
    chain,
    check,
    function,
    only_classes,
    parameters,
    plain,
    relabelled,
    samples,
    several_labels,
    sound,
    strong,
    torch_victim,
)

SOFTMAX, SIGMOID = nn.Softmax(1), nn.Sigmoid()
RENAMED = torch.tensor([5, 3, 6, 1, 0, 2, 7, 4])
GENERATOR = Generator().manual_seed(0)


def in_training(*steps: Any, part: nn.Module) -> Victim:
    victim = TorchVictim(chain(*steps))
    part.train()
    return victim


def random_scores(x: Tensor) -> Tensor:
    answer: Tensor = sound(2)(x).softmax(1)
    return answer * 0.8 + 0.2 * torch.rand(answer.shape, generator=GENERATOR).softmax(1)


def centred(scores: Tensor) -> Tensor:
    return scores - scores.mean(0) / 2


def nan_for_class_3(scores: Tensor) -> Tensor:
    return torch.where(scores.argmax(1, keepdim=True) == 3, math.nan, scores)


class Down(Victim):
    remote, retries, backoff = True, 2, 0.0

    def _predict(self, x: Tensor) -> Tensor:
        raise Unanswered("the server is down")


def half_right(y: Tensor) -> Tensor:
    random = torch.randint(0, 8, (32,), generator=Generator().manual_seed(4))
    return torch.cat([y[:16], random])


CASES: dict[str, Case] = {
    # --- sound
    "probabilities": Case(lambda r: TorchVictim(chain(sound(r), SOFTMAX)), ranks=RANKS),
    "declared probabilities": Case(lambda r: TorchVictim(chain(sound(r), SOFTMAX), outputs="probabilities")),
    "declared logits": Case(lambda r: TorchVictim(sound(r), outputs="logits")),
    # its largest probabilities could come from two softmaxes, but not its others
    "uncertain": Case(lambda r: TorchVictim(chain(sound(r), lambda s: 0.02 * s, SOFTMAX))),
    "dropout": Case(lambda r: TorchVictim(chain(sound(r), nn.Dropout(0.5)))),
    "batch normalisation": Case(lambda r: TorchVictim(chain(sound(r), nn.BatchNorm1d(9, affine=False, momentum=0.0)))),
    "two classes": Case(lambda r: torch_victim(chain(sound(r), lambda s: s[:, :2])), batch=lambda r: only_classes(2)),
    "large logits": Case(lambda r: torch_victim(chain(sound(r), lambda s: 1e4 * s))),
    "a few wrong labels": Case(
        plain, batch=lambda r: relabelled(lambda y: torch.where(torch.arange(48) % 8 == 0, 7, y)),
        accuracy=lambda a: a is not None and a > 0.7,
    ),
    "several labels": Case(lambda r: torch_victim(strong, multilabel=True), batch=several_labels, ranks=RANKS),
    "several labels, probabilities": Case(
        lambda r: torch_victim(chain(strong, SIGMOID), multilabel=True), batch=several_labels, ranks=RANKS
    ),
    # --- outputs
    "two softmaxes": Case(lambda r: TorchVictim(chain(sound(r), SOFTMAX, SOFTMAX)), "error softmax-twice", ranks=RANKS),
    "probabilities as logits": Case(
        lambda r: TorchVictim(chain(sound(r), SOFTMAX), outputs="logits"), "error outputs",
        "-M outputs=probabilities", accuracy=lambda a: a == 1,
    ),
    "logits as probabilities": Case(
        lambda r: TorchVictim(sound(r), outputs="probabilities"), "error outputs", "-M outputs=logits", accuracy=lambda a: a == 1
    ),
    "sigmoids of exclusive classes": Case(
        lambda r: torch_victim(chain(sound(r), lambda s: s + 5, SIGMOID)), "warning outputs"
    ),
    "exactly 0 and 1": Case(
        lambda r: torch_victim(chain(sound(r), lambda s: 1e4 * s, SOFTMAX)), "warning saturated"
    ),
    "random": Case(lambda r: function(random_scores), "error random"),
    "depends on the batch": Case(
        lambda r: function(sound(r), centred), "error batch", "in a batch", ranks=RANKS
    ),
    "refuses a single sample": Case(
        lambda r: function(sound(r), nn.BatchNorm1d(9, affine=False, momentum=0.0)), "error batch", "single sample"
    ),
    "dropout in training mode": Case(
        lambda r: in_training(sound(r), part := nn.Dropout(0.5), part=part), "error training-mode", "1 (Dropout)"
    ),
    "identity in training mode": Case(
        lambda r: in_training(part := nn.Identity(), sound(r, IMAGENET), part=part),
        "error normalisation, note training-mode",
    ),
    "NaN": Case(lambda r: function(sound(r), nan_for_class_3), "error nan", "2 of 16", queries=32),
    "constant": Case(lambda r: torch_victim(chain(lambda x: 0 * x, sound(r))), "error constant"),
    "raises": Case(lambda r: CallableVictim(lambda x: 1 / 0), "error model", "ZeroDivisionError", accuracy=lambda a: a is None),
    "one score": Case(lambda r: CallableVictim(lambda x: x.reshape(len(x), -1)[:, :1]), "error model"),
    "no axis of classes": Case(lambda r: CallableVictim(lambda x: x.reshape(len(x), -1)[:, 0]), "error model"),
    "a server that is down": Case(
        lambda r: Down(), "error model", "the server is down", ranks=(3,), queries=3 * 16
    ),
    # --- labels
    "labels from 1": Case(
        plain, "error labels", "subtract 1", batch=lambda r: relabelled(lambda y: y + 1)
    ),
    "labels from 1, the last of them": Case(
        plain, "error labels", "subtract 1", batch=lambda r: relabelled(lambda y: torch.cat([y[:-1] + 1, y[:1] + 9]))
    ),
    "a background class": Case(
        lambda r: torch_victim(chain(sound(r), lambda s: torch.cat([0 * s[:, :1] - 50, s], 1))), "error labels", "add 1"
    ),
    "labels out of range": Case(
        plain, "error labels", batch=lambda r: relabelled(lambda y: y + 2), accuracy=lambda a: a is None
    ),
    "renamed classes": Case(plain, "error labels", "renumber", batch=lambda r: relabelled(lambda y: RENAMED[y])),
    "two swapped classes": Case(
        lambda r: torch_victim(chain(sound(r), lambda s: s[:, :2])), "error labels", "renumber",
        batch=lambda r: relabelled(lambda y: 1 - y, only_classes(2)),
    ),
    "guessing": Case(lambda r: torch_victim(by_noise), "error accuracy", "guessing among 9 classes gets 1.8 of 16 right"),
    "poor": Case(
        plain, "warning accuracy", batch=lambda r: relabelled(half_right),
        accuracy=lambda a: a is not None and 0.2 < a < 0.5,
    ),
    # --- several labels
    "two sigmoids": Case(
        lambda r: TorchVictim(chain(strong, SIGMOID, SIGMOID), multilabel=True),
        "error softmax-twice, error normalisation", batch=several_labels, ranks=RANKS,
    ),
    "sigmoids as logits": Case(
        lambda r: TorchVictim(chain(strong, SIGMOID), multilabel=True, outputs="logits"), "error outputs",
        batch=several_labels, ranks=RANKS,
    ),
    "several labels for exclusive classes": Case(
        lambda r: torch_victim(strong), "error labels", batch=several_labels, ranks=RANKS
    ),
    "one label for several": Case(lambda r: torch_victim(strong, multilabel=True), "error labels", ranks=RANKS),
    "several labels, worse than guessing": Case(
        lambda r: torch_victim(lambda x: by_noise(x)[:, :2], multilabel=True), "warning accuracy",
        "the same answer to every sample gets 84% right",
        batch=lambda r: relabelled(lambda y: torch.stack([y > 0, y > 1], 1).long()),
        accuracy=lambda a: a is not None and a < 0.5,  # of the samples; 62% of the labels are right
    ),
    "several labels, reversed channels": Case(
        lambda r: torch_victim(chain(lambda x: x.flip(1), strong), multilabel=True), "error channel-order",
        batch=several_labels, ranks=RANKS,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "rank"), parameters(CASES))
def test_each_fault_has_its_finding(case: Case, rank: int) -> None:
    check(case, rank)


@pytest.mark.parametrize(
    ("say", "flag"),
    [
        (lambda scores: scores.argmax(1), "-M outputs=labels -M classes=9"),
        (lambda scores: scores.topk(3, 1).indices, "-M outputs=topk -M classes=9"),
        (lambda scores: nn.functional.one_hot(scores.argmax(1), 9).float(), "-M outputs=labels"),
    ],
)
def test_a_model_that_returns_only_classes(say: Callable[[Tensor], Tensor], flag: str) -> None:
    """No label shows the ninth class, "none"."""
    batch = Batch(samples(2).x, samples(2).y, classes=tuple("abcdefghi"))
    (found,) = examine(TorchVictim(chain(sound(2), say)), batch).findings
    assert found.flag == flag
    settings = dict(one.removeprefix("-M ").split("=") for one in flag.split(" -M "))
    options: dict[str, Any] = {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    report = examine(TorchVictim(chain(sound(2), say), **options), batch)
    assert (report.findings, report.accuracy) == ((), 1.0)
