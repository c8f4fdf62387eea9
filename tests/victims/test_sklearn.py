from __future__ import annotations

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
from rlab.victims import SklearnVictim

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


def test_what_cannot_serve_is_refused_with_the_way_out() -> None:
    x, y = DIGITS.data[:100], DIGITS.target[:100]
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        SklearnVictim(LinearSVC().fit(x, y))
    with pytest.raises(InputError, match="call fit first"):
        SklearnVictim(LogisticRegression())
    with pytest.raises(InputError, match=r"expected classes 0..9, got \["):
        SklearnVictim(LogisticRegression(max_iter=1000).fit(x, y + 1))
    with pytest.raises(InputError, match="fit on labels counted from 0"):
        SklearnVictim(LogisticRegression(max_iter=1000).fit(x, np.where(y > 4, "big", "small")))
    with pytest.raises(InputError, match="pass multilabel=True"):
        SklearnVictim(RandomForestClassifier(2).fit(x, np.stack([y % 2, y > 4], axis=1)))
