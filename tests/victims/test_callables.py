from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlab.errors import InputError, VictimError
from rlab.victims import CallableVictim

X = torch.rand(4, 2, 3)


def test_the_function_gets_float32_it_may_write_on() -> None:
    kinds = []

    def model(x: np.ndarray[Any, Any]) -> list[list[float]]:
        kinds.append((x.dtype, x.flags.c_contiguous))
        x *= 0
        answer: list[list[float]] = (x.reshape(len(x), -1)[:, :2] + [1, 2]).tolist()
        return answer

    before = X.clone()
    assert torch.allclose(CallableVictim(model)(X), torch.tensor([[1.0, 2.0]]).log_softmax(1).expand(4, 2))
    assert kinds == [(np.float32, True)]
    assert torch.equal(X, before)


def test_a_tensor_will_do_as_the_answer() -> None:
    assert CallableVictim(lambda x: torch.ones(len(x), 3, requires_grad=True))(X).shape == (4, 3)


@pytest.mark.parametrize("answer", [{"a": 1}, ["cat", "dog"], [[1, 2], [3]]])
def test_answers_that_are_no_numbers_are_refused(answer: Any) -> None:
    with pytest.raises(VictimError, match="expected the model to return an array of numbers"):
        CallableVictim(lambda x: answer)(X)


def test_only_functions_are_taken() -> None:
    with pytest.raises(InputError, match="expected a function of a numpy array, got int"):
        CallableVictim(3)  # type: ignore[arg-type]
