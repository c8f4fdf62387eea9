"""Functions and scikit-learn classifiers as victims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from rlab.errors import InputError
from rlab.victims import CallableVictim, SklearnVictim

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


def test_only_functions_are_taken() -> None:
    with pytest.raises(InputError, match="got int"):
        CallableVictim(3)  # type: ignore[arg-type]


DIGITS = load_digits()
IMAGES = torch.from_numpy(DIGITS.images).float()[:, None]


def test_a_fitted_pipeline_sees_the_image_as_a_row_of_values() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(
        DIGITS.data[:500], DIGITS.target[:500]
    )
    victim = SklearnVictim(model, bounds=(0, 16))
    scores = victim(IMAGES[500:800])
    assert np.array_equal(scores.argmax(1), model.predict(DIGITS.data[500:800]))
    assert np.allclose(scores.exp(), model.predict_proba(DIGITS.data[500:800]), atol=1e-4)
    assert victim.rows == {"search": 300}


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(5, random_state=0), OneVsRestClassifier(LogisticRegression(max_iter=2000))]
)
def test_several_labels_at_once(model: Any) -> None:
    labels = np.stack([DIGITS.target % 2, DIGITS.target > 4], axis=1).astype(int)
    model.fit(DIGITS.data[:300], labels[:300])
    victim = SklearnVictim(model, bounds=(0, 16), multilabel=True)
    scores = victim(IMAGES[:300])
    assert scores.shape == (300, 2)
    assert ((scores > 0).numpy() == model.predict(DIGITS.data[:300])).mean() > 0.99


X_FIT, Y_FIT = DIGITS.data[:100], DIGITS.target[:100]
UNUSABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "no probabilities": (lambda: LinearSVC().fit(X_FIT, Y_FIT), "CalibratedClassifierCV"),
    "not fitted": (LogisticRegression, "call fit first"),
    "two labels": (
        lambda: RandomForestClassifier(2).fit(X_FIT, np.stack([Y_FIT % 2, Y_FIT > 4], 1)),
        "multilabel=True",
    ),
}


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_classifiers_are_refused_with_advice(name: str) -> None:
    make, words = UNUSABLE[name]
    with pytest.raises(InputError, match=words):
        SklearnVictim(make())
