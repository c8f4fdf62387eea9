"""Attacks of other libraries: 'torchattacks:square@1.0', 'foolbox:salt_and_pepper', 'art:simba@0.2', ...

A recorder stands between them and the victim: it counts every row, notes each sample's flips, stops when all is decided.
"""

from __future__ import annotations

import difflib
import importlib
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlab.comparison.outcome import AttackOutcome, Contender
from rlab.core.distances import l2
from rlab.core.goals import Untargeted
from rlab.core.rng import seeded_globals
from rlab.core.trace import Improvements
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.victims.base import Victim

Until = Literal["flip", "budget"]  # when a sample is decided: at its first flip, or once its budget is spent
Ask = Callable[[Tensor], Tensor]  # (m, c, *size) in [0, 1] -> scores (m, k)
Run = Callable[[Ask, Tensor, Tensor, int], object]  # the library's attack on x (n, c, *size), y (n,) with a seed
_VALUES = 40 * 3 * 224 * 224  # at once at most: some forty photos, for the library's copies need memory
RunAttack = Callable[["LibraryCall", float, int], object]  # of a strength and a budget


class Decided(Exception):
    """Every sample is flipped or out of budget; carries the control back through the library's own loop."""


class QueryRecorder:
    """Samples x (n, c, *size) in [0, 1] that one call of a library's attack works on.

    A library that attacks several at once sends the rows of those it still works on, in order: which they are is told by
    the nearest original. Where only one sample is attacked, every row is its own.
    """

    def __init__(self, victim: Victim, x: Tensor, y: Tensor, budget: int, until: Until, scale: tuple[float, float]):
        self.victim, self.x, self.y, self.budget, self.until, self.scale = victim, x, y, budget, until, scale
        self.count = torch.zeros(len(x), dtype=torch.int64)  # queries
        self.nearest, self.l2 = x.clone(), torch.full((len(x),), torch.inf)  # flip of each sample, and its distance
        self.improvements: list[list[tuple[int, float]]] = [[] for _ in x]  # every nearer flip

    @property
    def open(self) -> Tensor:
        """(n,) bool: samples whose rows are still counted."""
        undecided = torch.isinf(self.l2) if self.until == "flip" else torch.ones_like(self.l2, dtype=torch.bool)
        return undecided & (self.count < self.budget)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (m, c, *size) in [0, 1] -> scores (m, k)."""
        if not self.open.any():
            raise Decided
        x = x.detach().to(self.x)
        if not torch.isfinite(x).all():
            raise ValueError("it asked about NaN")
        asked = len(x)
        if len(self.x) == 1:
            x = x[: self.budget - int(self.count[0])]  # nothing beyond the budget reaches the model
        samples = self._identify(x)
        scores = self.victim(x * self.scale[1] + self.scale[0], "search")
        for i, row, flipped in zip(samples.tolist(), x, Untargeted().reached(scores, self.y[samples]), strict=True):
            self._note(i, row, bool(flipped))
        if len(x) < asked or not self.open.any():
            raise Decided
        return scores

    def _note(self, i: int, row: Tensor, flipped: bool) -> None:
        if not self.open[i]:
            return
        self.count[i] += 1
        distance = (row - self.x[i]).norm().cpu()
        if flipped and distance < self.l2[i]:
            self.l2[i], self.nearest[i] = distance, row
            self.improvements[i].append((int(self.count[i]), float(distance)))

    def _identify(self, x: Tensor) -> Tensor:
        """(m,) which sample each row belongs to."""
        if len(self.x) == 1:
            return torch.zeros(len(x), dtype=torch.int64)
        nearest = torch.cdist(x.flatten(1), self.x.flatten(1)).argmin(1).cpu()
        if (nearest[1:] <= nearest[:-1]).any():
            raise InputError("cannot tell which samples the attack's rows belong to: attack one at a time, batch=1")
        return nearest


def run_recorded(
    victim: Victim, batch: Batch, budget: int, seed: int, run: Run, until: Until = "flip", together: int = 1
) -> AttackOutcome:
    """Runs a library's attack on every sample the victim has right, `together` at once, and predicts each flip again."""
    began, before, n = time.perf_counter(), victim.rows.total(), len(batch)
    low, span = _unit(batch)
    x = ((batch.x - low) / span).to(victim.device).contiguous()  # libraries view rows flat
    y = batch.y.to(victim.device)
    correct = (victim(batch.x.to(victim.device), "verify").argmax(1) == y).cpu()
    succeeded, queries = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    distances, improvements = torch.full((n,), torch.nan), list[Improvements]([()] * n)
    for rows in correct.nonzero().flatten().split(together):
        recorder = QueryRecorder(victim, x[rows], y[rows], budget, until, (low, span))
        with suppress(Decided):
            run(recorder, x[rows], y[rows], seed + int(rows[0]))
        queries[rows] = recorder.count
        for i, flips in zip(rows.tolist(), recorder.improvements, strict=True):
            improvements[i] = tuple(flips)
        flipped = torch.isfinite(recorder.l2).nonzero().flatten()
        if len(flipped):
            perturbed = recorder.nearest[flipped]
            verified = Untargeted().reached(victim(perturbed * span + low, "verify"), y[rows[flipped]]).cpu()
            won = rows[flipped][verified]
            succeeded[won] = True
            distances[won] = l2(x[rows][flipped], perturbed).cpu()[verified]
    spent, seconds = victim.rows.total() - before, time.perf_counter() - began
    return AttackOutcome(correct, succeeded, queries, distances, budget, spent, seconds, tuple(improvements))


def _unit(batch: Batch) -> tuple[float, float]:
    low, span = batch.bounds[0], batch.bounds[1] - batch.bounds[0]
    if batch.kind != "image" or span == float("inf"):
        raise InputError(
            f"attacks of other libraries are for images with bounds, got {batch.kind} data in {list(batch.bounds)}: "
            f"compare policies only"
        )
    return low, span


@dataclass(frozen=True)
class LibraryCall:
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
        self.on = nn.Parameter(torch.zeros(1, device=device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x)


def load_library(name: str) -> None:
    """Refuses an attack whose library cannot be imported."""
    module, package = {
        "torchattacks": ("torchattacks", "torchattacks"),
        "foolbox": ("foolbox.models.pytorch", "foolbox"),
        "art": ("art.attacks.evasion", "adversarial-robustness-toolbox"),
    }[name.partition(":")[0]]
    try:
        importlib.import_module(module)
    except ImportError as error:
        if package == "torchattacks":  # it asks for old versions of other packages, so no extra brings it
            how = "pip install --no-deps torchattacks"
            raise InputError(f"this needs the package 'torchattacks', which is not installed: {how}") from error
        raise MissingExtra(package, "attacks") from error


def _torchattacks_square(norm: str) -> RunAttack:
    def run(call: LibraryCall, eps: float, budget: int) -> object:
        from torchattacks import Square

        # One query is its clean prediction, one its first proposal, before the loop of n_queries begins.
        attack = Square(call.module(), norm=norm, eps=eps, n_queries=max(1, budget - 2), seed=call.seed)
        return attack(call.x, call.y)

    return run


def _foolbox(name: str, takes: str, **options: Any) -> RunAttack:
    """`takes`: the option that holds the number of queries or steps; '' where there is none."""

    def run(call: LibraryCall, eps: float, budget: int) -> object:
        from foolbox import attacks
        from foolbox.models.pytorch import PyTorchModel

        model = PyTorchModel(call.module(), bounds=(0, 1), device=call.x.device)
        attack = getattr(attacks, name)(**options, **({takes: budget} if takes else {}))
        return attack(model, call.x, call.y, epsilons=None if math.isinf(eps) else eps)

    return run


def _art(name: str, takes: str, **options: Any) -> RunAttack:
    def run(call: LibraryCall, eps: float, budget: int) -> object:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        shape, kind = tuple(call.x.shape[1:]), "gpu" if call.x.is_cuda else "cpu"
        net = _Module(lambda x: call.ask(x).exp(), call.x.device)  # its attacks expect probabilities
        model = PyTorchClassifier(
            net, nn.CrossEntropyLoss(), shape, call.classes, clip_values=(0.0, 1.0), device_type=kind
        )
        strength = {} if math.isinf(eps) else {"epsilon" if name == "SimBA" else "eps": eps}
        attack = getattr(evasion, name)(model, verbose=False, **options, **strength, **{takes: budget})
        return attack.generate(call.x.cpu().numpy(), one_hot(call.y, call.classes).float().cpu().numpy())

    return run


@dataclass(frozen=True)
class LibraryAttack:
    """`strength` is the default behind '@'; None where the attack has none. `together`: samples it may take at once."""

    run: RunAttack
    strength: float | None
    until: Until = "flip"
    together: int = 1


ATTACKS: dict[str, LibraryAttack] = {
    "torchattacks:square": LibraryAttack(_torchattacks_square("L2"), 1.0, together=500),
    "torchattacks:square_linf": LibraryAttack(_torchattacks_square("Linf"), 8 / 255, together=500),
    "foolbox:uniform_noise": LibraryAttack(_foolbox("LinfRepeatedAdditiveUniformNoiseAttack", "repeats"), 0.1),
    "foolbox:gaussian_noise": LibraryAttack(_foolbox("L2RepeatedAdditiveGaussianNoiseAttack", "repeats"), 5.0),
    "foolbox:salt_and_pepper": LibraryAttack(_foolbox("SaltAndPepperNoiseAttack", "steps"), None, "budget"),
    "foolbox:blur": LibraryAttack(_foolbox("GaussianBlurAttack", "steps"), None),
    "foolbox:hop_skip_jump": LibraryAttack(_foolbox("HopSkipJumpAttack", "", steps=1_000_000), None, "budget"),
    "foolbox:boundary": LibraryAttack(_foolbox("BoundaryAttack", "steps"), None, "budget"),
    "art:square": LibraryAttack(_art("SquareAttack", "max_iter", norm=2), 1.0),
    "art:square_linf": LibraryAttack(_art("SquareAttack", "max_iter"), 8 / 255),
    "art:simba": LibraryAttack(_art("SimBA", "max_iter"), 0.2),
}


@dataclass(frozen=True)
class LibraryContender(Contender):
    """An attack of `ATTACKS` at a strength, in [0, 1]. `together` 1 attacks one sample after the other."""

    name: str
    strength: float
    together: int = 1

    def check(self, batch: Batch, budget: int) -> None:
        _unit(batch)
        load_library(self.name)

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        self.check(batch, budget)
        attack = ATTACKS[self.name]

        def run(ask: Ask, x: Tensor, y: Tensor, sample_seed: int) -> None:
            assert victim.classes is not None  # known since the clean prediction
            with seeded_globals(sample_seed):
                try:
                    attack.run(LibraryCall(ask, x, y, sample_seed, victim.classes), self.strength, budget)
                except (AssertionError, IndexError, TypeError, ValueError, RuntimeError) as error:
                    if isinstance(error, InputError | VictimError):
                        raise
                    why = f"{type(error).__name__}: {error}".splitlines()[0]
                    raise InputError(
                        f"{self.name} failed on inputs of shape {tuple(x.shape)}, leave it out: {why}"
                    ) from error

        together = max(1, min(self.together, _VALUES // batch.x[0].numel()))
        return run_recorded(victim, batch, budget, seed, run, attack.until, together)


def parse_library_attack(spec: str) -> LibraryContender:
    """'library:attack' or 'library:attack@strength'."""
    name, at, text = spec.partition("@")
    if name not in ATTACKS:
        near = difflib.get_close_matches(name, ATTACKS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"unknown attack {name!r}.{hint} There are {', '.join(ATTACKS)}")
    attack = ATTACKS[name]
    if attack.strength is None:
        if at:
            raise InputError(f"the attack {name!r} finds its strength itself: leave out '@{text}'")
        return LibraryContender(name, math.inf, attack.together)
    try:
        strength = float(text) if at else attack.strength
    except ValueError:
        strength = math.nan
    if not 0 < strength < math.inf:
        raise InputError(f"expected a strength above 0 behind '@', such as {name}@{attack.strength:g}, got {spec!r}")
    return LibraryContender(name, strength, attack.together)
