"""Models called with numpy arrays: functions, and fitted models of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Unpack, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import ModelError, OptionError
from rlab.storage.config import takes
from rlab.victims.base import Victim
from rlab.victims.batches import in_sizes, sizes_below
from rlab.victims.reading import Outputs, Reading

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

Function = Callable[[NDArray[np.float32]], Any]


@runtime_checkable
class Classifier(Protocol):
    """A classifier with the interface of scikit-learn."""

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """One row of probabilities for each row of features."""


@final
class CallableVictim(Victim):
    """`function` takes float32 (b, c, *size) in `bounds` and returns scores (b, k), or what the options turn into scores.

    `pad` sends batches of 1, 8, 64 or 256 rows, for functions that compile anew for each number of rows; without it, this is
    done for functions of `jax.jit`.
    """

    @takes(Reading)
    def __init__(self, function: Function, *, pad: bool | None = None, **reading: Unpack[VictimKeywords]) -> None:
        if not callable(function):
            raise ModelError(f"expected a function of a numpy array, got {type(function).__name__}")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Classifier) and getattr(owner, "classes_", None) is not None:  # takes rows of features
            kind = type(owner).__name__
            raise ModelError(f"expected the classifier itself, got its method {function.__name__}: pass the {kind}")
        super().__init__(**reading)
        self.function, self.inputs = function, f"{self.inputs} {self.reading.normalise or ''}".rstrip()
        self.pad = is_jitted(function) if pad is None else pad

    def _about(self) -> str:
        return f"the function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def _predict(self, x: Tensor) -> Tensor:
        return in_sizes(x, sizes_below(self.chunk) if self.pad else (), self._answer)

    def _answer(self, x: Tensor) -> Tensor:
        return self._read(self.function(as_array(self.reading.arrange(x))), x, self.reading.output)


def is_jitted(function: object) -> bool:
    """Whether `jax.jit` made the function; JAX itself is not imported."""
    return type(function).__module__.partition(".")[0] in ("jax", "jaxlib")


def as_array(x: Tensor) -> NDArray[np.float32]:
    """x: (b, c, *size) -> a float32 copy that the model may modify."""
    return np.array(x.detach().cpu().float().numpy(), order="C")


@final
class SklearnVictim(Victim):
    """`estimator` is a classifier or a pipeline that ends in one, with `predict_proba`, or a regressor with `predict`.

    Labels of data that are its own classes, such as names, become positions in `estimator.classes_`.
    """

    first_chunk = 4096

    @takes(Reading)
    def __init__(self, estimator: Any, **reading: Unpack[VictimKeywords]) -> None:
        kind, outputs = type(estimator).__name__, _outputs(estimator)
        if reading.setdefault("outputs", outputs) != outputs:
            raise OptionError(f"a {kind} returns {outputs}, not {reading['outputs']}: omit outputs")
        super().__init__(**reading)
        several = (
            classes if isinstance(classes := getattr(estimator, "classes_", None), list) and len(classes) > 1 else []
        )
        if several and not self.multilabel:
            raise ModelError(f"{kind} was fitted on {len(several)} labels per sample: pass multilabel=True")
        if others := [label for label in several if not np.array_equal(label, (0, 1))]:
            raise ModelError(f"expected each label to be 0 or 1, got classes {list(others[0])[:5]}")
        self.estimator, self.own_classes = estimator, class_texts(estimator)

    def _about(self) -> str:
        return type(self.estimator).__name__

    def _predict(self, x: Tensor) -> Tensor:
        predict = self.estimator.predict if self.prediction == "numbers" else self.estimator.predict_proba
        answer = predict(as_array(self.reading.arrange(x).flatten(1)))
        if isinstance(answer, list):  # one (b, 2) array for each label, as random forests return
            answer = np.stack([label[:, 1] for label in answer], axis=1)
        return self._read(answer, x)


def is_regressor(model: object) -> bool:
    """Whether a model is a regressor of scikit-learn."""
    from sklearn.base import BaseEstimator  # slow, and rarely needed
    from sklearn.base import is_regressor as is_one

    return isinstance(model, BaseEstimator) and bool(is_one(model))


def _outputs(estimator: Any) -> Outputs:
    """What a fitted model of scikit-learn returns."""
    if is_regressor(estimator):
        return "numbers"
    kind = type(estimator).__name__
    if getattr(estimator, "predict_proba", None) is None:
        advice = "wrap it in sklearn.calibration.CalibratedClassifierCV and fit that"
        raise ModelError(f"{kind} has no predict_proba: {advice}")
    if getattr(estimator, "classes_", None) is None:
        raise ModelError(f"expected a fitted classifier, got {kind} without classes_: call fit first")
    return "probabilities"


def class_texts(estimator: object) -> tuple[str, ...]:
    """Names of a classifier's classes by column; empty without classes, with several labels, or if they count from 0."""
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or np.array_equal(classes, np.arange(len(classes))):
        return ()
    return tuple(map(class_text, classes.tolist()))


def class_text(label: object) -> str:
    """A class as text: whole numbers without a point."""
    return str(int(label)) if isinstance(label, int | float) and float(label).is_integer() else str(label)
