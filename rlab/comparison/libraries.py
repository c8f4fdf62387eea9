"""Attacks from other libraries: 'torchattacks:square@1.0', 'foolbox:salt_and_pepper', 'art:simba@0.2', ..."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlab.comparison.outcome import FREE_PIXELS, AttackOutcome, Contender
from rlab.comparison.recorder import REDUCED, VALUES, QueryRecorder, Until, check_unit, run_recorded
from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import DataError, InputError, MissingExtra, OptionError, VictimError
from rlab.progress import Progress, quiet
from rlab.storage.config import did_you_mean
from rlab.victims.base import Victim

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


def load_library(name: str) -> None:
    """Import the library of an attack, or raise an error that says how to install it."""
    module, package = {
        "torchattacks": ("torchattacks", "torchattacks"),
        "foolbox": ("foolbox.models.pytorch", "foolbox"),
        "art": ("art.attacks.evasion", "adversarial-robustness-toolbox"),
    }[name.partition(":")[0]]
    try:
        importlib.import_module(module)
    except ImportError as error:
        if package == "torchattacks":  # it pins old versions of other packages, so no extra installs it
            how = "pip install --no-deps torchattacks"
            raise OptionError(f"this needs the package 'torchattacks', which is not installed: {how}") from error
        raise MissingExtra(package, "attacks") from error


@dataclass(frozen=True)
class LibraryAttack:
    """`strength` is the default after '@'; None if the attack has none. `together`: samples it can attack at once."""

    run: RunAttack
    strength: float | None
    until: Until = "flip"
    together: int = 1
    answers: Literal["scores", "labels"] = "scores"  # what it uses


def _torchattacks_square(norm: str, strength: float) -> LibraryAttack:
    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from torchattacks import Square

        # It makes two queries, the clean prediction and a first proposal, before its loop of n_queries.
        attack = Square(_Module(recorder), norm=norm, eps=eps, n_queries=max(1, recorder.budget - 2), seed=seed)
        return attack(recorder.x, recorder.y)

    return LibraryAttack(run, strength, together=500)


def _foolbox(
    name: str, takes: str, strength: float | None = None, until: Until = "flip", **options: Any
) -> LibraryAttack:
    """`takes`: the option for the number of queries or steps; '' if there is none. All of them use only labels."""

    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from foolbox import attacks
        from foolbox.models.pytorch import PyTorchModel

        model = PyTorchModel(_Module(recorder), bounds=(0, 1), device=recorder.x.device)
        attack = getattr(attacks, name)(**options, **({takes: recorder.budget} if takes else {}))
        return attack(model, recorder.x, recorder.y, epsilons=None if math.isinf(eps) else eps)

    return LibraryAttack(run, strength, until, answers="labels")


def _art(name: str, strength: float, takes: str = "eps", **options: Any) -> LibraryAttack:
    """`takes`: the option for the strength."""

    def run(recorder: QueryRecorder, eps: float, seed: int) -> object:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        x, classes, kind = recorder.x, recorder.clean.shape[1], "gpu" if recorder.x.is_cuda else "cpu"
        net, loss = _Module(recorder, torch.exp), nn.CrossEntropyLoss()  # its attacks expect probabilities
        model = PyTorchClassifier(net, loss, tuple(x.shape[1:]), classes, clip_values=(0.0, 1.0), device_type=kind)
        attack = getattr(evasion, name)(model, verbose=False, max_iter=recorder.budget, **options, **{takes: eps})
        return attack.generate(x.cpu().numpy(), one_hot(recorder.y, classes).float().cpu().numpy())

    return LibraryAttack(run, strength)


ATTACKS: dict[str, LibraryAttack] = {
    "torchattacks:square": _torchattacks_square("L2", 1.0),
    "torchattacks:square_linf": _torchattacks_square("Linf", 8 / 255),
    "foolbox:uniform_noise": _foolbox("LinfRepeatedAdditiveUniformNoiseAttack", "repeats", 0.1),
    "foolbox:gaussian_noise": _foolbox("L2RepeatedAdditiveGaussianNoiseAttack", "repeats", 5.0),
    "foolbox:salt_and_pepper": _foolbox("SaltAndPepperNoiseAttack", "steps", until="budget"),
    "foolbox:blur": _foolbox("GaussianBlurAttack", "steps"),
    "foolbox:hop_skip_jump": _foolbox("HopSkipJumpAttack", "", until="budget", steps=1_000_000),
    "foolbox:boundary": _foolbox("BoundaryAttack", "steps", until="budget"),
    "art:square": _art("SquareAttack", 1.0, norm=2),
    "art:square_linf": _art("SquareAttack", 8 / 255),
    "art:simba": _art("SimBA", 0.2, takes="epsilon"),
}


@dataclass(frozen=True)
class LibraryContender(Contender):
    """An attack of `ATTACKS` at a strength in [0, 1]; `together` samples at once."""

    name: str
    strength: float
    together: int = 1
    reduce: bool = False  # bisect towards the original in attacks that stop at the flip

    @property
    def needs(self) -> tuple[str, ...]:
        return (ATTACKS[self.name].answers, FREE_PIXELS, *((REDUCED,) if self._reduces else ()))

    @property
    def _reduces(self) -> bool:
        return self.reduce and ATTACKS[self.name].until == "flip"

    def check(self, batch: Batch, budget: int) -> None:
        check_unit(batch, images_only=True)
        load_library(self.name)

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        self.check(batch, budget)
        attack = ATTACKS[self.name]

        def run(recorder: QueryRecorder, rows: Tensor) -> None:
            with seeded_globals(seed + int(rows[0])):
                try:
                    attack.run(recorder, self.strength, seed + int(rows[0]))
                except (AssertionError, IndexError, TypeError, ValueError, RuntimeError) as error:
                    if isinstance(error, InputError | VictimError):
                        raise
                    why = f"{type(error).__name__}: {error}".splitlines()[0]
                    shape = tuple(recorder.x.shape)
                    raise DataError(f"{self.name} failed on inputs of shape {shape}, omit it: {why}") from error

        together = max(1, min(self.together, VALUES // batch.x[0].numel()))
        return run_recorded(victim, batch, budget, run, attack.until, together, self._reduces, progress)


def parse_library_attack(spec: str, reduce: bool = False) -> LibraryContender:
    """'library:attack' or 'library:attack@strength'."""
    name, strength = parse_strength(spec, {name: attack.strength for name, attack in ATTACKS.items()})
    return LibraryContender(name, strength, ATTACKS[name].together, reduce)


def parse_strength(spec: str, usual: Mapping[str, float | None]) -> tuple[str, float]:
    """'name' or 'name@strength'; `usual` holds default strengths, None for attacks without one (infinity)."""
    name, at, text = spec.partition("@")
    if name not in usual:
        raise OptionError(f"unknown attack {name!r}.{did_you_mean(name, usual)} Known attacks: {', '.join(usual)}")
    default = usual[name]
    if default is None:
        if at:
            raise OptionError(f"the attack {name!r} finds its own strength: omit '@{text}'")
        return name, math.inf
    try:
        strength = float(text) if at else default
    except ValueError:
        strength = math.nan
    if not 0 < strength < math.inf:
        raise OptionError(f"expected a strength above 0 after '@', such as {name}@{default:g}, got {spec!r}")
    return name, strength
