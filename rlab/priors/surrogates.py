"""Directions from models that you have: the gradients of their margins, which cost no queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rlab.core.goals import Goal
from rlab.core.vectors import wide
from rlab.data.batch import Samples
from rlab.data.kinds import kind_of
from rlab.errors import InputError, ModelError, VictimError
from rlab.predictions.kinds import WORDS
from rlab.priors.base import Prior
from rlab.priors.copies import ITSELF, MIRRORED, MOVED, Copy, agree
from rlab.victims.options import ModelOptions
from rlab.victims.reading import Outputs
from rlab.victims.resolve import load_model
from rlab.victims.torch_module import TorchVictim

Surrogate = str | nn.Module | TorchVictim
_VALUES = 64 * 3 * 224 * 224  # the most values that a surrogate gets at once: about sixty photos


@dataclass(frozen=True)
class SurrogatePrior(Prior):
    """One direction per surrogate: against the gradient of its margin, averaged with that of the mirror image."""

    local: ClassVar[bool] = True

    surrogates: Sequence[TorchVictim]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"surrogates {', '.join(map(self._name, range(len(self.surrogates))))}"

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor:
        own = self.gradients(x, (y,), goal.margin)[1]
        if kind_of(x.shape[2:]) == "signal":
            return -own
        mirrored = self._of_copy(MIRRORED, x, y, goal)
        return -torch.where(wide(_agree(own, mirrored), own), (own + mirrored) / 2, own)

    def scores(self, x: Tensor) -> list[Tensor]:
        """Scores (n, k) of each surrogate."""
        rows = max(1, _VALUES // x[0].numel())
        return [torch.cat([net(part, "surrogate").to(x.device) for part in x.split(rows)]) for net in self.surrogates]

    def mean_scores(self, x: Tensor) -> Tensor:
        """(n, k): the mean of the surrogates' scores; boxes and maps have no mean, so that the first surrogate answers."""
        if self.surrogates[0].prediction in ("boxes", "map"):
            return SurrogatePrior(self.surrogates[:1]).scores(x)[0]
        return torch.stack(self.scores(x)).mean(0)

    def alike(self, x: Tensor, y: Tensor, goal: Goal) -> Tensor:
        """(n, s) bool: whether each surrogate's gradient at copies of a picture is similar to that at the picture."""
        own = self.gradients(x, (y,), goal.margin)[1]
        tried = () if kind_of(x.shape[2:]) == "signal" else (MIRRORED, MOVED)
        agreed = [_agree(own, self._of_copy(copy, x, y, goal)) for copy in tried]
        return torch.stack([torch.ones_like(own.flatten(2)[..., 0], dtype=torch.bool), *agreed]).all(0)

    def _of_copy(self, copy: Copy, x: Tensor, y: Tensor, goal: Goal) -> Tensor:
        """(n, s, c, *size): gradients at a copy, moved back."""
        return self.gradients(x, (y,), goal.margin, [(copy,)] * len(self.surrogates))[1]

    def gradients(
        self,
        x: Tensor,
        columns: Sequence[Tensor],
        of: Callable[..., Tensor],
        copies: Sequence[Sequence[Copy]] | None = None,
        allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`of(scores, *columns)` (n,) of each surrogate, (n, s), and its gradients (n, s, c, *size), both averaged over the
        copies of x that each surrogate sees, where these are `allowed` (n, s) bool."""
        values, gradients = [], []
        for number in range(len(self.surrogates)):
            shown = (ITSELF,) if copies is None else copies[number]
            where = torch.ones(len(x), dtype=torch.bool, device=x.device) if allowed is None else allowed[:, number]
            pairs = [self.differentiate(number, copy.make(x, where), of, *columns) for copy in shown]
            undone = [copy.undo(gradient, where) for copy, (_, gradient) in zip(shown, pairs, strict=True)]
            values.append(torch.stack([value for value, _ in pairs]).mean(0))
            gradients.append(torch.stack(undone).mean(0))
        return torch.stack(values, 1), torch.stack(gradients, 1)

    def check_classes(self, classes: int) -> None:
        for number, surrogate in enumerate(self.surrogates):
            if surrogate.width not in (None, classes):
                raise ModelError(
                    f"the surrogate {self._name(number)} has {surrogate.width} classes and the model {classes}: "
                    "name one trained for the same classes"
                )

    def differentiate(
        self, number: int, x: Tensor, of: Callable[..., Tensor], *columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`of(scores, *columns)` (n,) of a surrogate and its gradient (n, c, *size); columns (n, ...) are split like x."""
        surrogate, values = self.surrogates[number], list[Tensor]()

        def gradient_of(x: Tensor, *columns: Tensor) -> Tensor:
            here = [column.to(surrogate.device) for column in columns]

            def value(scores: Tensor) -> Tensor:
                values.append(of(scores, *here))
                return values[-1]

            return surrogate.input_gradient(x, value, "surrogate")

        rows = max(1, _VALUES // x[0].numel())
        try:
            parts = zip(*(whole.split(rows) for whole in (x, *columns)), strict=True)
            gradient = torch.cat([gradient_of(*part) for part in parts])
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"the surrogate {self._name(number)} returns no gradient on these data: {reason}"
            ) from error
        if not torch.isfinite(gradient).all():
            raise ModelError(
                f"the gradient of the surrogate {self._name(number)} is not finite on these data: leave it out"
            )
        return torch.cat(values).detach().to(x.device), gradient

    def _name(self, number: int) -> str:
        return self.names[number] if self.names else f"{number + 1}"


def _agree(own: Tensor, other: Tensor) -> Tensor:
    """(n, s, c, *size) -> (n, s) bool"""
    return agree(own.flatten(0, 1), other.flatten(0, 1)).view(own.shape[:2])


def load_surrogates(named: Sequence[Surrogate], batch: Samples) -> SurrogatePrior:
    """Models by name (as for `rlab.load_victim`), torch modules or victims; each is queried once on the data."""
    outputs: Outputs = "auto" if batch.target == "classes" else batch.target
    surrogates = [_load(model, batch.bounds, outputs) for model in named]
    prior = SurrogatePrior(surrogates, tuple(surrogate_name(model) for model in named))
    for name, surrogate in zip(prior.names, surrogates, strict=True):
        check_surrogate(name, surrogate, batch)
    return prior


def surrogate_name(model: Surrogate) -> str:
    """The name of a surrogate in results."""
    inner = model.model if isinstance(model, TorchVictim) else model
    return inner if isinstance(inner, str) else type(inner).__name__


def _load(model: Surrogate, bounds: tuple[float, float], outputs: Outputs) -> TorchVictim:
    if isinstance(model, nn.Module):
        return TorchVictim(model, bounds=bounds, outputs=outputs)
    loaded = load_model(ModelOptions(name=model, outputs=outputs), bounds) if isinstance(model, str) else model
    if not isinstance(loaded, TorchVictim):
        raise ModelError(
            f"the surrogate {model!r} is not a torch model and has no gradients: name a torch model, "
            "such as timm:resnet18 or my_module:function"
        )
    return loaded


def check_surrogate(name: str, surrogate: TorchVictim, batch: Samples) -> None:
    """Query a surrogate once on the data; raise an error if it fails or has another number of classes."""
    try:
        classes = surrogate(batch[:1].x, "surrogate").shape[1]
    except (InputError, VictimError) as error:
        raise ModelError(f"the surrogate {name} fails on these data: {error}") from error
    if surrogate.prediction != batch.target:
        both = f"predicts {WORDS[surrogate.prediction]} and the model {WORDS[batch.target]}"
        raise ModelError(f"the surrogate {name} {both}: name one for the same task")
    if batch.target != "classes":
        return
    wanted = batch.y.shape[1] if batch.y.dim() > 1 else max(int(batch.y.max()) + 1, len(batch.classes))
    if classes < wanted or (batch.classes and classes != wanted):
        raise ModelError(f"the surrogate {name} has {classes} classes and the data {wanted}: name one trained for them")
