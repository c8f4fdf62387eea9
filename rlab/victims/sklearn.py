"""A fitted scikit-learn classifier as the victim; its features are the input's values in a row."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from torch import Tensor

from rlab.errors import InputError
from rlab.victims.base import Victim
from rlab.victims.callables import as_array, as_scores


@final
class SklearnVictim(Victim):
    """`estimator` is a classifier or a pipeline that ends in one, with `predict_proba`."""

    def __init__(
        self,
        estimator: Any,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        multilabel: bool = False,
        chunk: int = 4096,
    ) -> None:
        _check(estimator, multilabel)
        super().__init__(bounds=bounds, outputs="probabilities", multilabel=multilabel, chunk=chunk)
        self.estimator = estimator

    def _predict(self, x: Tensor) -> Tensor:
        answer = self.estimator.predict_proba(as_array(x.flatten(1)))
        if isinstance(answer, list):  # one (b, 2) array a label, as forests give for several labels
            answer = np.stack([label[:, 1] for label in answer], axis=1)
        return as_scores(answer)


def _check(estimator: Any, multilabel: bool) -> None:
    kind = type(estimator).__name__
    if getattr(estimator, "predict_proba", None) is None:
        raise InputError(
            f"{kind} gives no probabilities (predict_proba), only decisions: wrap it in "
            "sklearn.calibration.CalibratedClassifierCV and fit that"
        )
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise InputError(f"expected a fitted classifier, got a {kind} without classes_: call fit first")
    each = classes if isinstance(classes, list) else [classes]
    if len(each) > 1 and not multilabel:
        raise InputError(f"{kind} was fitted on {len(each)} labels a sample: pass multilabel=True")
    for known in each:
        if not np.array_equal(known, np.arange(len(known))):
            raise InputError(
                f"expected classes 0..{len(known) - 1}, got {list(known)[:5]}: fit on labels counted from 0"
            )
        if len(each) > 1 and len(known) != 2:
            raise InputError(f"expected every label to be 0 or 1 in turn, got classes {list(known)[:5]}")
