"""Attacks from other libraries: 'torchattacks:square@1.0', 'foolbox:salt_and_pepper', 'art:simba@0.2', ..."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlab.comparison.recorder import QueryRecorder, Until, failing
from rlab.comparison.trial import Peer, Trial
from rlab.core.rng import seeded_globals
from rlab.errors import MissingExtra, OptionError

RunAttack = Callable[[QueryRecorder, float, int], object]  # the samples under attack, a strength and a seed


class _Module(nn.Module):
    """The victim as a module; its only parameter shows libraries the device."""

    def __init__(self, recorder: QueryRecorder, answer: Callable[[Tensor], Tensor] = lambda scores: scores) -> None:
        super().__init__()
        self.recorder, self.answer = recorder, answer
        self.on = nn.Parameter(torch.zeros(1, device=recorder.x.device), requires_grad=False)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.recorder(x))


def load_library(library: str) -> None:
    """Import a library, or raise an error that says how to install it."""
    module, package = {
        "torchattacks": ("torchattacks", "torchattacks"),
        "foolbox": ("foolbox.models.pytorch", "foolbox"),
        "art": ("art.attacks.evasion", "adversarial-robustness-toolbox"),
    }[library]
    try:
        importlib.import_module(module)
    except ImportError as error:
        if package == "torchattacks":  # it pins old versions of other packages, so no extra installs it
            how = "pip install --no-deps torchattacks"
            raise OptionError(f"this needs the package 'torchattacks', which is not installed: {how}") from error
        raise MissingExtra(package, "attacks") from error


def _torchattacks_square(norm: str) -> RunAttack:
    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from torchattacks import Square

        # It makes two queries, the clean prediction and a first proposal, before its loop of n_queries.
        attack = Square(_Module(recorder), norm=norm, eps=eps, n_queries=max(1, recorder.budget - 2), seed=seed)
        return attack(recorder.x, recorder.y)

    return run


def _foolbox(name: str, takes: str, **options: Any) -> RunAttack:
    """`takes`: the option for the number of queries or steps; '' if there is none. All of them use only labels."""

    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from foolbox import attacks
        from foolbox.models.pytorch import PyTorchModel

        model = PyTorchModel(_Module(recorder), bounds=(0, 1), device=recorder.x.device)
        attack = getattr(attacks, name)(**options, **({takes: recorder.budget} if takes else {}))
        return attack(model, recorder.x, recorder.y, epsilons=None if math.isinf(eps) else eps)

    return run


def _art(name: str, takes: str = "eps", **options: Any) -> RunAttack:
    """`takes`: the option for the strength."""

    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        x, classes, kind = recorder.x, recorder.clean.shape[1], "gpu" if recorder.x.is_cuda else "cpu"
        net, loss = _Module(recorder, torch.exp), nn.CrossEntropyLoss()  # its attacks expect probabilities
        model = PyTorchClassifier(net, loss, tuple(x.shape[1:]), classes, clip_values=(0.0, 1.0), device_type=kind)
        attack = getattr(evasion, name)(model, verbose=False, max_iter=recorder.budget, **options, **{takes: eps})
        return attack.generate(x.cpu().numpy(), one_hot(recorder.y, classes).float().cpu().numpy())

    return run


def _peer(name: str, run: RunAttack, strength: float | None, until: Until = "flip") -> tuple[str, Peer]:
    def attack(trial: Trial) -> None:
        seed = int(trial.seeds[0]) % 2**31
        with seeded_globals(seed), failing(name, trial.x):
            run(trial.recorder, trial.strength, seed)

    library = name.partition(":")[0]
    return name, Peer(
        attack, strength, None, False, until, images_only=True, answers="labels" if library == "foolbox" else "scores",
        together=500 if library == "torchattacks" else 1, library=library,
    )  # fmt: skip


ATTACKS: dict[str, Peer] = dict([
    _peer("torchattacks:square", _torchattacks_square("L2"), 1.0),
    _peer("torchattacks:square_linf", _torchattacks_square("Linf"), 8 / 255),
    _peer("foolbox:uniform_noise", _foolbox("LinfRepeatedAdditiveUniformNoiseAttack", "repeats"), 0.1),
    _peer("foolbox:gaussian_noise", _foolbox("L2RepeatedAdditiveGaussianNoiseAttack", "repeats"), 5.0),
    _peer("foolbox:salt_and_pepper", _foolbox("SaltAndPepperNoiseAttack", "steps"), None, "budget"),
    _peer("foolbox:blur", _foolbox("GaussianBlurAttack", "steps"), None),
    _peer("foolbox:hop_skip_jump", _foolbox("HopSkipJumpAttack", "", steps=1_000_000), None, "budget"),
    _peer("foolbox:boundary", _foolbox("BoundaryAttack", "steps"), None, "budget"),
    _peer("art:square", _art("SquareAttack", norm=2), 1.0),
    _peer("art:square_linf", _art("SquareAttack"), 8 / 255),
    _peer("art:simba", _art("SimBA", "epsilon"), 0.2),
])  # fmt: skip
