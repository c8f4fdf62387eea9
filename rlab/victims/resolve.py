"""Victims from names: module:function, timm:NAME, model.onnx, https://..."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from rlab.errors import ModelError, OptionError
from rlab.guard import contained, import_named
from rlab.storage.config import check_keywords, did_you_mean
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, SklearnVictim, is_regressor
from rlab.victims.grpc import SCHEME, GrpcVictim
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.programs import is_torchscript, load_program
from rlab.victims.runtimes import (
    KerasVictim,
    OnnxVictim,
    OpenVinoVictim,
    TfliteVictim,
    is_keras,
    onnx_providers,
)
from rlab.victims.template import DEFAULT, load_template
from rlab.victims.torch_module import Normalise, TorchVictim
from rlab.victims.weights import AROUND, HUBS, PICKLES, PROMPT, TORCH_FILES, class_names, load_clip, load_weights
from rlab.victims.zoo import demo_victim

FORMS = (
    "module:function, timm:NAME, torchvision:NAME, hf:NAME, clip:NAME, a .onnx, .tflite, .xml (OpenVINO), .pt2 or TorchScript "
    "file, a .safetensors file with a factory, http(s)://address, kserve://host:8080/MODEL or another protocol, "
    "or demo:digits"
)
_UNIT = (0.0, 1.0)
_SENT = ("bounds", "outputs", "multilabel", "classes", "chunk", "timeout")
_BOXES = ("box_format", "box_scale", "box_columns", "box_layout", "box_overlap")
_READ = (*_SENT, "output", "score", *_BOXES)
_GRAPH = (*_READ, "mean", "std", "layout")
_TORCH = (*_GRAPH, "device", "autocast", "compile")
# What to pass in place of objects that predict on tables of their own.
_INSTEAD = {
    ("xgboost", "Booster"): "load its file into xgboost.XGBClassifier, or pass lambda x: "
    "booster.predict(xgboost.DMatrix(x.reshape(len(x), -1)))",
    ("lightgbm", "Booster"): "pass lambda x: booster.predict(x.reshape(len(x), -1))",
}
_ASKED = ("concurrency", "template", "rate", "price", "max_cost", "cache")
_HTTP = ("timeout", "retries", "backoff", "headers", *_ASKED)


def load_victim(spec: str, **options: Any) -> Victim:
    """Load a model by name; the options are the fields of `ModelOptions`. Values are in [0, 1] without `bounds`."""
    return load_model(check_keywords(load_victim, ModelOptions, {"name": spec, **options}))


def load_model(options: ModelOptions, bounds: tuple[float, float] = _UNIT) -> Victim:
    """Load a model; unless its options say otherwise, it takes the data's `bounds`."""
    if options.bounds is None and bounds != _UNIT:
        options = options.model_copy(update={"bounds": bounds})
    name = options.name
    prefix, suffix = name.partition(":")[0], Path(name).suffix.lower()
    if "://" in name:
        return _from_graph(GrpcVictim)(options) if name.startswith(SCHEME) else _from_http(options)
    if prefix in _PREFIXES:
        return _PREFIXES[prefix](options)
    if suffix in PICKLES:
        raise ModelError(f"{name} is a pickle, which can run any code when loaded: {AROUND}")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix](options)
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return wrap(call_function(name), options)
    raise ModelError(f"unknown kind of model {name!r}: expected {FORMS}")


def _only(options: ModelOptions, *names: str) -> dict[str, Any]:
    """The given options among `names`, with the score as a function, and the way to read boxes as one value."""
    arguments = {name: value for name, value in options.only(*names).items() if name not in _BOXES}
    arguments |= {} if options.boxes is None else {"outputs": options.boxes}
    return arguments | ({"score": find_function(arguments["score"])} if "score" in arguments else {})


def wrap(model: object, options: ModelOptions) -> Victim:
    """A victim around a model in memory, by its type; `options.name` is for errors."""
    if is_keras(model):
        return KerasVictim(model, **_only(options, *_GRAPH))
    if isinstance(model, nn.Module):
        arguments = _only(options, "weights", *_TORCH)
        weights = arguments.pop("weights", None)
        return TorchVictim(model if weights is None else load_weights(model, Path(weights)), **arguments)
    if isinstance(model, Victim):
        return _ready(model, options)
    from sklearn.base import BaseEstimator  # slow, and rarely needed

    if isinstance(model, BaseEstimator):
        arguments = options.only("bounds", "multilabel", "chunk", "timeout", "outputs")
        wanted = arguments.pop("outputs", None)
        if wanted is not None and not (wanted == "numbers" and is_regressor(model)):  # goes without saying for one
            raise OptionError(f"the model {options.name!r} does not take outputs: omit it")
        return SklearnVictim(model, **arguments)
    if callable(model):
        return CallableVictim(model, **_only(options, "layout", "pad", *_READ))
    kinds = "a torch or Keras model, a Victim, a scikit-learn classifier or a function of a numpy array"
    package, name = type(model).__module__.partition(".")[0], type(model).__name__
    advice = _INSTEAD.get((package, name), "wrap it in a function")
    raise ModelError(f"expected {options.name} to be {kinds}, got {name}: {advice}")


def _ready(victim: Victim, options: ModelOptions, *names: str) -> Victim:
    """A victim with settings of its own, which the options must not contradict."""
    bounds = options.only("bounds", "chunk", "timeout", *names).get("bounds", victim.bounds)
    if bounds != victim.bounds:
        raise ModelError(f"the model {options.name!r} takes values in {list(victim.bounds)}, not {list(bounds)}")
    victim.chunk, victim.timeout = options.chunk or victim.chunk, options.timeout or victim.timeout
    return victim


def _from_hub(options: ModelOptions) -> Victim:
    arguments = _only(options, "weights", *_TORCH)
    file, classes = arguments.pop("weights", None), arguments.pop("classes", None)
    if classes is not None and file is None:
        raise ModelError("you can set the number of classes only together with weights=")
    hub, _, name = options.name.partition(":")
    model, own = HUBS[hub](name, None if file is None else Path(file), classes, options.layout == "frames_first")
    return _normalised(model, own, options, arguments)


def _normalised(
    model: nn.Module, own: Callable[[], Normalise | None], options: ModelOptions, arguments: dict[str, Any]
) -> Victim:
    """A published model with its own normalisation, unless the options have another."""
    if options.mean is None and options.std is None:
        plain = own()
        if plain is None:
            raise ModelError(f"{options.name} has no published normalisation: pass mean and std")
        scaled = plain.within(options.bounds or _UNIT)
        arguments = arguments | {"mean": scaled.mean, "std": scaled.std}
    return TorchVictim(model, **arguments)


def _from_clip(options: ModelOptions) -> Victim:
    arguments = _only(options, "names", "prompt", *_TORCH)
    classes = class_names(arguments.pop("names", None))
    model, plain = load_clip(options.name.partition(":")[2], classes, arguments.pop("prompt", PROMPT))
    victim = _normalised(model, lambda: plain, options, arguments)
    victim.own_classes = classes
    return victim


def _from_onnx(options: ModelOptions) -> Victim:
    arguments = _only(options, "device", *_GRAPH)
    return OnnxVictim(options.name, providers=onnx_providers(arguments.pop("device", "cpu")), **arguments)


def _from_graph(kind: Callable[..., Victim], *more: str) -> Callable[[ModelOptions], Victim]:
    return lambda options: kind(options.name, **_only(options, *more, *_GRAPH))


def _from_program(options: ModelOptions) -> Victim:
    arguments = _only(options, "trust", *_TORCH)
    return TorchVictim(load_program(Path(options.name), arguments.pop("trust", False)), **arguments)


def _from_state_dict(options: ModelOptions) -> Victim:
    file = Path(options.name)
    if not file.is_file():
        raise ModelError(f"no such file: {file}")
    if options.factory is None and is_torchscript(file):
        return _from_program(options)
    arguments = _only(options, "factory", *_TORCH)
    factory = arguments.pop("factory", None)
    if factory is None:
        advice = "pass the function that builds the model, factory='module:function'"
        raise ModelError(f"{file} contains only weights: {advice}")
    model = call_function(factory)
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected the factory {factory} to return a torch module, got {type(model).__name__}")
    return TorchVictim(load_weights(model, file), **arguments)


def _from_http(options: ModelOptions) -> Victim:
    arguments = options.only("http", "names", *_ASKED, *_SENT)
    further = dict(arguments.pop("http", None) or {})
    if unknown := sorted(set(further) - set(_HTTP)):
        hint = did_you_mean(unknown[0], _HTTP, 0.6)
        raise OptionError(f"unknown option {unknown[0]!r} of an HTTP model.{hint} Expected one of {', '.join(_HTTP)}")
    given = further | arguments
    if (names := given.pop("names", None)) is not None:
        protocol = re.split(r"[+:]", options.name)[0]
        spec = given.get("template") or (DEFAULT if protocol.startswith("http") else protocol)
        given["template"] = load_template(spec).changed(classes=class_names(names))
    return HttpVictim(options.name, **given)


_PREFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    **dict.fromkeys(HUBS, _from_hub),
    "clip": _from_clip,
    "demo": lambda options: _ready(demo_victim(options.name.partition(":")[2], options.device), options, "device"),
}
_SUFFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    ".onnx": _from_onnx,
    ".xml": _from_graph(OpenVinoVictim, "device"),
    ".tflite": _from_graph(TfliteVictim),
    **dict.fromkeys((".pt2", ".ts", ".torchscript"), _from_program),
    **dict.fromkeys((".safetensors", *TORCH_FILES), _from_state_dict),
}


def find_function(spec: str) -> Callable[..., Any]:
    """'package.module:function' -> the function; the current folder is searched too."""
    module, _, name = spec.partition(":")
    try:
        with contained():
            function: object = import_named(module)
            for part in name.split("."):
                function = getattr(function, part)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ModelError(f"cannot find {spec}: {error}") from error
    except Exception as error:  # the user's module may raise anything
        raise ModelError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ModelError(f"expected {spec} to be a function, got {type(function).__name__}")
    return function


def call_function(spec: str) -> object:
    function = find_function(spec)
    try:
        with contained():
            return function()
    except Exception as error:
        advice = "; it is called without arguments and returns the model" if isinstance(error, TypeError) else ""
        raise ModelError(f"{spec}() failed: {type(error).__name__}: {error}{advice}") from error
