"""Victims from names: module:function, timm:NAME, model.onnx, https://..."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rlab.errors import ModelError
from rlab.storage.config import check_keywords
from rlab.victims.address import HttpOptions
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, SklearnVictim
from rlab.victims.grpc import SCHEME, GrpcVictim
from rlab.victims.http import HttpVictim
from rlab.victims.named import call_function
from rlab.victims.options import ModelOptions
from rlab.victims.programs import is_torchscript, load_program
from rlab.victims.reading import UNIT, Normalise, Reading
from rlab.victims.runtimes import (
    KerasVictim,
    OnnxVictim,
    OpenVinoVictim,
    TfliteVictim,
    is_keras,
    onnx_providers,
)
from rlab.victims.template import DEFAULT, load_template
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import AROUND, HUBS, PICKLES, PROMPT, TORCH_FILES, class_names, load_clip, load_weights
from rlab.victims.zoo import demo_victim

FORMS = (
    "module:function, timm:NAME, torchvision:NAME, hf:NAME, clip:NAME, a .onnx, .tflite, .xml (OpenVINO), .pt2 or TorchScript "
    "file, a .safetensors file with a factory, http(s)://address, kserve://host:8080/MODEL or another protocol, "
    "or demo:digits"
)
_TORCH = ("device", "autocast")
# What to pass in place of objects that predict on tables of their own.
_INSTEAD = {
    ("xgboost", "Booster"): "load its file into xgboost.XGBClassifier, or pass lambda x: "
    "booster.predict(xgboost.DMatrix(x.reshape(len(x), -1)))",
    ("lightgbm", "Booster"): "pass lambda x: booster.predict(x.reshape(len(x), -1))",
}
_HTTP = tuple(HttpOptions.model_fields.keys() - Reading.model_fields.keys())


def load_victim(spec: str, **options: Any) -> Victim:
    """Load a model by name; the options are the fields of `ModelOptions`. Values are in [0, 1] without `bounds`."""
    return load_model(check_keywords(load_victim, ModelOptions, {"name": spec, **options}))


def load_model(options: ModelOptions, bounds: tuple[float, float] = UNIT) -> Victim:
    """Load a model; unless its options say otherwise, it takes the data's `bounds`."""
    if options.bounds is None and bounds != UNIT:
        options = options.model_copy(update={"bounds": bounds})
    name = options.name
    prefix, suffix = name.partition(":")[0], Path(name).suffix.lower()
    if "://" in name:
        return (
            _made(GrpcVictim, name, options, "retries", "backoff") if name.startswith(SCHEME) else _from_http(options)
        )
    if prefix in _PREFIXES:
        return _PREFIXES[prefix](options)
    if suffix in PICKLES:
        raise ModelError(f"{name} is a pickle, which can run any code when loaded: {AROUND}")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix](options)
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return wrap(call_function(name), options)
    raise ModelError(f"unknown kind of model {name!r}: expected {FORMS}")


def wrap(model: object, options: ModelOptions) -> Victim:
    """A victim around a model in memory, by its type; `options.name` is for errors."""
    if is_keras(model):
        return _made(KerasVictim, model, options)
    if isinstance(model, nn.Module):
        weights = options.weights
        fitted = model if weights is None else load_weights(model, Path(weights))
        return _made(TorchVictim, fitted, options, *_TORCH, without=("weights",))
    if isinstance(model, Victim):
        return _ready(model, options)
    from sklearn.base import BaseEstimator  # slow, and rarely needed

    if isinstance(model, BaseEstimator):
        return _made(SklearnVictim, model, options)
    if callable(model):
        return _made(CallableVictim, model, options, "pad")
    kinds = "a torch or Keras model, a Victim, a scikit-learn classifier or a function of a numpy array"
    package, name = type(model).__module__.partition(".")[0], type(model).__name__
    advice = _INSTEAD.get((package, name), "wrap it in a function")
    raise ModelError(f"expected {options.name} to be {kinds}, got {name}: {advice}")


def _made(
    kind: Callable[..., Victim],
    model: object,
    options: ModelOptions,
    *own: str,
    without: Sequence[str] = (),
    **more: object,
) -> Victim:
    """A victim of this kind around a model or a file; it takes its `own` options, and those `without` which it is made."""
    given = options.only(*Reading.model_fields, *own, *without)
    return kind(model, **more | {name: value for name, value in given.items() if name not in without})


def _ready(victim: Victim, options: ModelOptions, *names: str) -> Victim:
    """A victim with settings of its own, which the options must not contradict."""
    bounds = options.only("bounds", "chunk", "timeout", *names).get("bounds", victim.bounds)
    if bounds != victim.bounds:
        raise ModelError(f"the model {options.name!r} takes values in {list(victim.bounds)}, not {list(bounds)}")
    victim.chunk, victim.timeout = options.chunk or victim.chunk, options.timeout or victim.timeout
    return victim


def _from_hub(options: ModelOptions) -> Victim:
    if options.classes is not None and options.weights is None:
        raise ModelError("you can set the number of classes only together with weights=")
    hub, _, name = options.name.partition(":")
    file = None if options.weights is None else Path(options.weights)
    model, own = HUBS[hub](name, file, options.classes, options.layout == "frames_first")
    return _normalised(model, own, options, "weights", "classes")


def _normalised(model: nn.Module, own: Callable[[], Normalise | None], options: ModelOptions, *without: str) -> Victim:
    """A published model with its own normalisation, unless the options have another."""
    more: dict[str, object] = {}
    if options.mean is None and options.std is None:
        plain = own()
        if plain is None:
            raise ModelError(f"{options.name} has no published normalisation: pass mean and std")
        scaled = plain.within(options.bounds or UNIT)
        more = {"mean": scaled.mean, "std": scaled.std}
    return _made(TorchVictim, model, options, *_TORCH, without=without, **more)


def _from_clip(options: ModelOptions) -> Victim:
    classes = class_names(options.names)
    model, plain = load_clip(options.name.partition(":")[2], classes, options.prompt or PROMPT)
    victim = _normalised(model, lambda: plain, options, "names", "prompt")
    victim.own_classes = classes
    return victim


def _from_onnx(options: ModelOptions) -> Victim:
    providers = onnx_providers(options.device or "cpu")
    return _made(OnnxVictim, options.name, options, without=("device",), providers=providers)


def _from_program(options: ModelOptions) -> Victim:
    model = load_program(Path(options.name), options.trust)
    return _made(TorchVictim, model, options, *_TORCH, without=("trust",))


def _from_weights(options: ModelOptions) -> Victim:
    file, factory = Path(options.name), options.factory
    if not file.is_file():
        raise ModelError(f"no such file: {file}")
    if factory is None and is_torchscript(file):
        return _from_program(options)
    if factory is None:
        advice = "pass the function that builds the model, factory='module:function'"
        raise ModelError(f"{file} contains only weights: {advice}")
    model = call_function(factory)
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected the factory {factory} to return a torch module, got {type(model).__name__}")
    return _made(TorchVictim, load_weights(model, file), options, *_TORCH, without=("factory",))


def _from_http(options: ModelOptions) -> Victim:
    if options.names is None:
        return _made(HttpVictim, options.name, options, *_HTTP)
    protocol = re.split(r"[+:]", options.name)[0]
    template = load_template(options.template or (DEFAULT if protocol.startswith("http") else protocol))
    named = template.changed(classes=class_names(options.names))
    return _made(HttpVictim, options.name, options, *_HTTP, without=("names", "template"), template=named)


_PREFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    **dict.fromkeys(HUBS, _from_hub),
    "clip": _from_clip,
    "demo": lambda options: _ready(demo_victim(options.name.partition(":")[2], options.device), options, "device"),
}
_SUFFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    ".onnx": _from_onnx,
    ".xml": lambda options: _made(OpenVinoVictim, options.name, options, "device"),
    ".tflite": lambda options: _made(TfliteVictim, options.name, options),
    **dict.fromkeys((".pt2", ".ts", ".torchscript"), _from_program),
    **dict.fromkeys((".safetensors", *TORCH_FILES), _from_weights),
}
