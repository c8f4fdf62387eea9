"""Attacks from other libraries: 'torchattacks:square@1.0', 'foolbox:salt_and_pepper', 'art:simba@0.2', ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlab.comparison.outcome import FREE_PIXELS
from rlab.comparison.recorder import QueryRecorder, RecordedContender, Until
from rlab.errors import MissingExtra, OptionError, optional
from rlab.storage.config import did_you_mean

RunAttack = Callable[[QueryRecorder, float], object]  # the samples under attack, and a strength


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
    if library == "foolbox":
        optional("foolbox.models.pytorch", MissingExtra("foolbox", "attacks"))
    elif library == "art":
        optional("art.attacks.evasion", MissingExtra("adversarial-robustness-toolbox", "attacks"))
    elif find_spec("torchattacks") is None:  # it pins old versions of other packages, so no extra installs it
        how = "pip install --no-deps torchattacks"
        raise OptionError(f"this needs the package 'torchattacks', which is not installed: {how}")


def _torchattacks_square(norm: str) -> RunAttack:
    def run(recorder: QueryRecorder, eps: float) -> object:
        from torchattacks import Square

        # It makes two queries, the clean prediction and a first proposal, before its loop of n_queries.
        attack = Square(
            _Module(recorder), norm=norm, eps=eps, n_queries=max(1, recorder.budget - 2), seed=recorder.seed
        )
        return attack(recorder.x, recorder.y)

    return run


def _foolbox(name: str, takes: str, **options: Any) -> RunAttack:
    """`takes`: the option for the number of queries or steps; '' if there is none. All of them use only labels."""

    def run(recorder: QueryRecorder, eps: float) -> object:
        from foolbox import attacks
        from foolbox.models.pytorch import PyTorchModel

        model = PyTorchModel(_Module(recorder), bounds=(0, 1), device=recorder.x.device)
        attack = getattr(attacks, name)(**options, **({takes: recorder.budget} if takes else {}))
        return attack(model, recorder.x, recorder.y, epsilons=None if math.isinf(eps) else eps)

    return run


def _art(name: str, takes: str = "eps", **options: Any) -> RunAttack:
    """`takes`: the option for the strength."""

    def run(recorder: QueryRecorder, eps: float) -> object:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        x, classes, kind = recorder.x, recorder.clean.shape[1], "gpu" if recorder.x.is_cuda else "cpu"
        net, loss = _Module(recorder, torch.exp), nn.CrossEntropyLoss()  # its attacks expect probabilities
        model = PyTorchClassifier(net, loss, tuple(x.shape[1:]), classes, clip_values=(0.0, 1.0), device_type=kind)
        attack = getattr(evasion, name)(model, verbose=False, max_iter=recorder.budget, **options, **{takes: eps})
        return attack.generate(x.cpu().numpy(), one_hot(recorder.y, classes).float().cpu().numpy())

    return run


@dataclass(frozen=True)
class LibraryAttack:
    """An attack of a library on images; `strength` is its usual one, None if the attack finds it."""

    run: RunAttack
    strength: float | None
    until: Until = "flip"


ATTACKS = {
    "torchattacks:square": LibraryAttack(_torchattacks_square("L2"), 1.0),
    "torchattacks:square_linf": LibraryAttack(_torchattacks_square("Linf"), 8 / 255),
    "foolbox:uniform_noise": LibraryAttack(_foolbox("LinfRepeatedAdditiveUniformNoiseAttack", "repeats"), 0.1),
    "foolbox:gaussian_noise": LibraryAttack(_foolbox("L2RepeatedAdditiveGaussianNoiseAttack", "repeats"), 5.0),
    "foolbox:salt_and_pepper": LibraryAttack(_foolbox("SaltAndPepperNoiseAttack", "steps"), None, "budget"),
    "foolbox:blur": LibraryAttack(_foolbox("GaussianBlurAttack", "steps"), None),
    "foolbox:hop_skip_jump": LibraryAttack(_foolbox("HopSkipJumpAttack", "", steps=1_000_000), None, "budget"),
    "foolbox:boundary": LibraryAttack(_foolbox("BoundaryAttack", "steps"), None, "budget"),
    "art:square": LibraryAttack(_art("SquareAttack", norm=2), 1.0),
    "art:square_linf": LibraryAttack(_art("SquareAttack"), 8 / 255),
    "art:simba": LibraryAttack(_art("SimBA", "epsilon"), 0.2),
}
LIBRARIES = {name.partition(":")[0] for name in ATTACKS}
_TOGETHER = {"torchattacks": 500}  # samples that a library can attack at once; the others attack one at a time


def parse_library(spec: str, reduce: bool = False) -> RecordedContender:
    """'art:simba' or 'art:simba@0.2'."""
    name, at, text = spec.partition("@")
    if name not in ATTACKS:
        known = f"Known attacks: {', '.join(ATTACKS)}, and functions of yours as my_module:my_attack"
        raise OptionError(f"unknown attack {name!r}.{did_you_mean(name, ATTACKS)} {known}")
    default = ATTACKS[name].strength
    if at and default is None:
        raise OptionError(f"the attack {name!r} finds its own strength: omit '@{text}'")
    try:
        strength = float(text) if at else default or math.inf
    except ValueError:
        strength = math.nan
    if at and not 0 < strength < math.inf:
        raise OptionError(f"expected a strength above 0 after '@', such as {name}@{default:g}, got {spec!r}")
    attack, library = ATTACKS[name], name.partition(":")[0]
    return RecordedContender(
        name, lambda recorder, rows: attack.run(recorder, strength),
        uses=("labels" if library == "foolbox" else "scores", FREE_PIXELS), until=attack.until,
        together=_TOGETHER.get(library, 1), images_only=True, reduces=reduce and attack.until == "flip",
        prepare=lambda: load_library(library),
    )  # fmt: skip
