"""Any Python function on numpy arrays as the victim."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlab.errors import InputError, VictimError
from rlab.victims.base import Outputs, Victim

Function = Callable[[NDArray[np.float32]], ArrayLike | Tensor]


@final
class CallableVictim(Victim):
    """`function` takes float32 (b, c, *size) in `bounds` and returns scores (b, k)."""

    def __init__(
        self,
        function: Function,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int = 256,
    ) -> None:
        if not callable(function):
            raise InputError(f"expected a function of a numpy array, got {type(function).__name__}")
        super().__init__(bounds=bounds, outputs=outputs, multilabel=multilabel, chunk=chunk)
        self.function = function

    def _predict(self, x: Tensor) -> Tensor:
        return as_scores(self.function(as_array(x)))


def as_array(x: Tensor) -> NDArray[np.float32]:
    """x: (b, c, *size) -> a float32 copy, which the model may write on."""
    return np.array(x.detach().cpu().float().numpy(), order="C")


def as_scores(answer: ArrayLike | Tensor) -> Tensor:
    """An array of numbers, of whatever shape came -> tensor."""
    if isinstance(answer, Tensor):
        return answer.detach()
    try:
        return torch.from_numpy(np.array(answer, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise VictimError(
            f"expected the model to return an array of numbers (b, k), got {type(answer).__name__}"
        ) from error
