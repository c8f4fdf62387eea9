"""Models called with numpy arrays: functions, fitted scikit-learn classifiers and ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Unpack, final, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import MissingExtra, ModelError
from rlab.storage.config import named_keywords
from rlab.victims.base import Common, Outputs, Victim
from rlab.victims.torch_module import Channels, Layout, Normalise, arrange, known_layout, preprocessing

Function = Callable[[NDArray[np.float32]], Any]


@runtime_checkable
class Classifier(Protocol):
    """A classifier with the interface of scikit-learn."""

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """One row of probabilities for each row of features."""


@final
@named_keywords
class CallableVictim(Victim):
    """`function` takes float32 (b, c, *size) in `bounds` and returns scores (b, k), or what the options turn into scores."""

    def __init__(self, function: Function, **common: Unpack[Common]) -> None:
        if not callable(function):
            raise ModelError(f"expected a function of a numpy array, got {type(function).__name__}")
        _refuse_method(function)
        super().__init__(**common)
        self.function = function

    def _about(self) -> str:
        return f"the function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def _predict(self, x: Tensor) -> Tensor:
        return self._read(self.function(as_array(x)), x, self.output)


def _refuse_method(function: Function) -> None:
    """Refuse clf.predict_proba, which takes rows of features: the classifier itself can be used."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Classifier) and hasattr(owner, "classes_"):
        name = f"{type(owner).__name__}.{getattr(function, '__name__', 'method')}"
        raise ModelError(f"expected the classifier itself, got its method {name}: pass the {type(owner).__name__}")


def as_array(x: Tensor) -> NDArray[np.float32]:
    """x: (b, c, *size) -> a float32 copy that the model may modify."""
    return np.array(x.detach().cpu().float().numpy(), order="C")


@final
@named_keywords
class SklearnVictim(Victim):
    """`estimator` is a classifier or a pipeline that ends in one, with `predict_proba`, or a regressor with `predict`.

    Labels of data that are its own classes, such as names, become positions in `estimator.classes_`.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        multilabel: bool = False,
        chunk: int = 4096,
        timeout: float | None = None,
    ) -> None:
        outputs: Outputs = "numbers" if is_regressor(estimator) else "probabilities"
        if outputs == "probabilities":
            _check(estimator, multilabel)
        super().__init__(bounds=bounds, outputs=outputs, multilabel=multilabel, chunk=chunk, timeout=timeout)
        self.estimator = estimator
        self.own_classes = class_texts(estimator)

    def _about(self) -> str:
        return type(self.estimator).__name__

    def _predict(self, x: Tensor) -> Tensor:
        if self.prediction == "numbers":
            return self._read(self.estimator.predict(as_array(x.flatten(1))), x)
        answer = self.estimator.predict_proba(as_array(x.flatten(1)))
        if isinstance(answer, list):  # one (b, 2) array for each label, as random forests return
            answer = np.stack([label[:, 1] for label in answer], axis=1)
        return self._read(answer, x)


def is_regressor(model: object) -> bool:
    """Whether a model is a regressor of scikit-learn."""
    from sklearn.base import BaseEstimator  # slow, and rarely needed
    from sklearn.base import is_regressor as is_one

    return isinstance(model, BaseEstimator) and bool(is_one(model))


def _check(estimator: Any, multilabel: bool) -> None:
    kind = type(estimator).__name__
    if getattr(estimator, "predict_proba", None) is None:
        advice = "wrap it in sklearn.calibration.CalibratedClassifierCV and fit that"
        raise ModelError(f"{kind} has no predict_proba: {advice}")
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise ModelError(f"expected a fitted classifier, got {kind} without classes_: call fit first")
    each = classes if isinstance(classes, list) else [classes]
    if len(each) > 1 and not multilabel:
        raise ModelError(f"{kind} was fitted on {len(each)} labels per sample: pass multilabel=True")
    for label in each if len(each) > 1 else ():
        if not np.array_equal(label, (0, 1)):
            raise ModelError(f"expected each label to be 0 or 1, got classes {list(label)[:5]}")


def class_texts(estimator: object) -> tuple[str, ...]:
    """Names of a classifier's classes by column; empty without classes, with several labels, or if they count from 0."""
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or np.array_equal(classes, np.arange(len(classes))):
        return ()
    return tuple(map(class_text, classes.tolist()))


def class_text(label: object) -> str:
    """A class as text: whole numbers without a point."""
    return str(int(label)) if isinstance(label, int | float) and float(label).is_integer() else str(label)


_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


@final
@named_keywords
class OnnxVictim(Victim):
    """`model` is a path or an onnxruntime.InferenceSession; a graph with a fixed batch of 1 gets one input at a time."""

    def __init__(
        self,
        model: str | Path | Any,
        *,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        mean: Channels | None = None,
        std: Channels | None = None,
        layout: Layout = "channels_first",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        self.session = _session(Path(model), providers) if isinstance(model, str | Path) else model
        self.input = _input(self.session)
        self.names = _outputs(self.session, self.output, self.score is not None or self.prediction == "boxes")
        self.normalise = Normalise.of(mean, std)
        self.inputs = preprocessing(self.normalise)
        self.layout = known_layout(layout)

    def _about(self) -> str:
        return "an ONNX model"

    def _predict(self, x: Tensor) -> Tensor:
        array = as_array(arrange(x, self.normalise, self.layout)).astype(_TYPES[self.input.type], copy=False)
        if self.input.shape[0] != 1:
            return self._feed(array, x)
        return torch.cat([self._feed(array[row : row + 1], x[row : row + 1]) for row in range(len(array))])

    def _feed(self, array: np.ndarray[Any, Any], x: Tensor) -> Tensor:
        answers = self.session.run(self.names, {self.input.name: array})
        answer = answers[0] if len(answers) == 1 else dict(zip(self.names, answers, strict=True))
        return self._read(answer, x)


def _session(path: Path, providers: Sequence[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    available = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in available]:
        raise ModelError(f"ONNX Runtime has no {missing[0]} here: choose one of {', '.join(available)}")
    try:
        return onnxruntime.InferenceSession(str(path), providers=list(providers))
    except Exception as error:  # ONNX Runtime's own errors share no base class
        raise ModelError(f"cannot read {path} as an ONNX model: {str(error).splitlines()[0]}") from error


def _input(session: Any) -> Any:
    """The graph's only input: .name, .type and .shape, in which free axes have names."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(each.name for each in inputs)
        raise ModelError(f"expected an ONNX model with one input, got {len(inputs)}: {names}")
    kind, batch = inputs[0].type, inputs[0].shape[0] if inputs[0].shape else None
    if kind not in _TYPES:
        raise ModelError(f"expected an ONNX model with floating-point input, got {kind}: convert it inside the graph")
    if isinstance(batch, int) and batch > 1:
        raise ModelError(f"the ONNX model takes exactly {batch} inputs at a time: export it with a dynamic batch axis")
    return inputs[0]


def _outputs(session: Any, wanted: str | int | None, scored: bool) -> list[str]:
    """The name of the output with the scores, or all names if `scored` by a function or read as boxes."""
    names = [str(each.name) for each in session.get_outputs()]
    named = names[wanted] if isinstance(wanted, int) and -len(names) <= wanted < len(names) else wanted
    if named is not None and named not in names:
        raise ModelError(f"the ONNX model has no output {named!r}: choose one of {', '.join(names)}")
    if named is None and len(names) > 1 and not scored:
        raise ModelError(f"the ONNX model has several outputs: pass output=, one of {', '.join(names)}")
    return names if named is None else [str(named)]
