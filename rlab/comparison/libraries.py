"""Attacks of other libraries: 'torchattacks:square@1.0', 'foolbox:salt_and_pepper', 'art:simba@0.2', ..."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlab.comparison.outcome import Contender, Outcome
from rlab.comparison.watch import Ask, Until, watched
from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.victims.base import Victim

_VALUES = 40 * 3 * 224 * 224  # at once at most: some forty photos, for the library's copies need memory
Maker = Callable[["Attacker", float, int], object]  # (who, strength, budget); runs the attack


@dataclass(frozen=True)
class Attacker:
    """What a library needs for one call: whom to ask, samples (n, c, *size) in [0, 1], labels (n,) and a seed."""

    ask: Ask
    x: Tensor
    y: Tensor
    seed: int
    classes: int

    def module(self) -> nn.Module:
        return _Module(self.ask, self.x.device).eval()


class _Module(nn.Module):
    """The victim's answers as a module; its one parameter only tells libraries the device."""

    def __init__(self, ask: Ask, device: torch.device) -> None:
        super().__init__()
        self.ask = ask
        self.place = nn.Parameter(torch.zeros(1, device=device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x)


def _torchattacks_square(norm: str) -> Maker:
    def run(who: Attacker, eps: float, budget: int) -> object:
        try:
            from torchattacks import Square
        except ImportError as error:
            raise InputError(
                "this needs the package 'torchattacks', which is not installed: pip install --no-deps torchattacks"
            ) from error  # it asks for old versions of other packages, so no extra brings it
        # One query is its clean prediction, one its first proposal, before the loop of n_queries begins.
        attack = Square(who.module(), norm=norm, eps=eps, n_queries=max(1, budget - 2), seed=who.seed)
        return attack(who.x, who.y)

    return run


def _foolbox(name: str, takes: str, **options: Any) -> Maker:
    """`takes`: the option that holds the number of queries or steps; '' where there is none."""

    def run(who: Attacker, eps: float, budget: int) -> object:
        try:
            from foolbox import attacks
            from foolbox.models.pytorch import PyTorchModel
        except ImportError as error:
            raise MissingExtra("foolbox", "attacks") from error
        model = PyTorchModel(who.module(), bounds=(0, 1), device=who.x.device)
        attack = getattr(attacks, name)(**options, **({takes: budget} if takes else {}))
        return attack(model, who.x, who.y, epsilons=None if math.isinf(eps) else eps)

    return run


def _art(name: str, takes: str, **options: Any) -> Maker:
    def run(who: Attacker, eps: float, budget: int) -> object:
        try:
            from art.attacks import evasion
            from art.estimators.classification import PyTorchClassifier
        except ImportError as error:
            raise MissingExtra("adversarial-robustness-toolbox", "attacks") from error
        shape, kind = tuple(who.x.shape[1:]), "gpu" if who.x.is_cuda else "cpu"
        net = _Module(lambda x: who.ask(x).exp(), who.x.device)  # its attacks expect probabilities
        model = PyTorchClassifier(
            net, nn.CrossEntropyLoss(), shape, who.classes, clip_values=(0.0, 1.0), device_type=kind
        )
        strength = {} if math.isinf(eps) else {"epsilon" if name == "SimBA" else "eps": eps}
        attack = getattr(evasion, name)(model, verbose=False, **options, **strength, **{takes: budget})
        return attack.generate(who.x.cpu().numpy(), one_hot(who.y, who.classes).float().cpu().numpy())

    return run


@dataclass(frozen=True)
class Entry:
    """`strength` is the default behind '@'; None where the attack has none. `together`: samples it may take at once."""

    make: Maker
    strength: float | None
    until: Until = "flip"
    together: int = 1


ATTACKS: dict[str, Entry] = {
    "torchattacks:square": Entry(_torchattacks_square("L2"), 1.0, together=500),
    "torchattacks:square_linf": Entry(_torchattacks_square("Linf"), 8 / 255, together=500),
    "foolbox:uniform_noise": Entry(_foolbox("LinfRepeatedAdditiveUniformNoiseAttack", "repeats"), 0.1),
    "foolbox:gaussian_noise": Entry(_foolbox("L2RepeatedAdditiveGaussianNoiseAttack", "repeats"), 5.0),
    "foolbox:salt_and_pepper": Entry(_foolbox("SaltAndPepperNoiseAttack", "steps"), None, "budget"),
    "foolbox:blur": Entry(_foolbox("GaussianBlurAttack", "steps"), None),
    "foolbox:hop_skip_jump": Entry(_foolbox("HopSkipJumpAttack", "", steps=1_000_000), None, "budget"),
    "foolbox:boundary": Entry(_foolbox("BoundaryAttack", "steps"), None, "budget"),
    "art:square": Entry(_art("SquareAttack", "max_iter", norm=2), 1.0),
    "art:square_linf": Entry(_art("SquareAttack", "max_iter"), 8 / 255),
    "art:simba": Entry(_art("SimBA", "max_iter"), 0.2),
}


@dataclass(frozen=True)
class LibraryContender(Contender):
    """An attack of `ATTACKS` at a strength, in [0, 1]. `together` 1 attacks one sample after the other."""

    name: str
    strength: float
    together: int = 1

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> Outcome:
        entry = ATTACKS[self.name]

        def run(ask: Ask, x: Tensor, y: Tensor, own: int) -> None:
            assert victim.classes is not None  # known since the clean prediction
            with seeded_globals(own):
                try:
                    entry.make(Attacker(ask, x, y, own, victim.classes), self.strength, budget)
                except (AssertionError, IndexError, TypeError, ValueError, RuntimeError) as error:
                    if isinstance(error, InputError | VictimError):
                        raise
                    said = f"{type(error).__name__}: {error}".splitlines()[0]
                    shape = tuple(x.shape)
                    raise InputError(f"{self.name} failed on inputs of shape {shape}, leave it out: {said}") from error

        together = max(1, min(self.together, _VALUES // batch.x[0].numel()))
        return watched(victim, batch, budget, seed, run, entry.until, together)


def parse_library_attack(spec: str) -> LibraryContender:
    """'library:attack' or 'library:attack@strength'."""
    name, at, text = spec.partition("@")
    if name not in ATTACKS:
        near = difflib.get_close_matches(name, ATTACKS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"unknown attack {name!r}.{hint} There are {', '.join(ATTACKS)}")
    entry = ATTACKS[name]
    if entry.strength is None:
        if at:
            raise InputError(f"the attack {name!r} finds its strength itself: leave out '@{text}'")
        return LibraryContender(name, math.inf, entry.together)
    try:
        strength = float(text) if at else entry.strength
    except ValueError:
        strength = math.nan
    if not 0 < strength < math.inf:
        raise InputError(f"expected a strength above 0 behind '@', such as {name}@{entry.strength:g}, got {spec!r}")
    return LibraryContender(name, strength, entry.together)
