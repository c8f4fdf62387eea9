"""A victim from the way people name a model: module:function, timm:NAME, model.onnx, https://..."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from rlab.errors import InputError
from rlab.guard import contained, import_named
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, OnnxVictim, SklearnVictim
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import AROUND, HUBS, PICKLES, TORCH_FILES, load_weights
from rlab.victims.zoo import demo_victim

FORMS = (
    "module:function, timm:NAME, torchvision:NAME, hf:NAME, a .onnx file, a .safetensors file with a factory, "
    "http(s)://address or demo:digits"
)
_UNIT = (0.0, 1.0)
_SENT = ("bounds", "outputs", "multilabel", "classes", "chunk", "timeout")
_READ = (*_SENT, "output", "score")
_TORCH = (*_READ, "mean", "std", "device", "autocast", "compile", "layout")
_HTTP = ("body", "timeout", "retries", "backoff", "rate", "headers")


def load_victim(spec: str, **options: Any) -> Victim:
    """A model by its name; the options are the fields of `ModelOptions`. Without `bounds` values are in [0, 1]."""
    return load_model(check(ModelOptions, {"name": spec, **options}, f"the model {spec!r}"))


def load_model(options: ModelOptions, bounds: tuple[float, float] = _UNIT) -> Victim:
    """The model for data in these bounds: values other than 0..1 are taken to be meant for it."""
    if options.bounds is None and bounds != _UNIT:
        options = options.model_copy(update={"bounds": bounds})
    return _branch(options.name)(options)


def _only(options: ModelOptions, *names: str) -> dict[str, Any]:
    """What was said of `names`, the score as the function that is named."""
    arguments = options.only(*names)
    return arguments | ({"score": find_function(arguments["score"])} if "score" in arguments else {})


def _branch(name: str) -> Callable[[ModelOptions], Victim]:
    prefix, suffix = name.partition(":")[0], Path(name).suffix.lower()
    if prefix in _PREFIXES:
        return _PREFIXES[prefix]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return _from_function
    raise InputError(f"cannot tell what the model {name!r} is: expected {FORMS}")


def _from_function(options: ModelOptions) -> Victim:
    return wrap(call_function(options.name), options)


def wrap(model: object, options: ModelOptions) -> Victim:
    """A victim around what somebody has in memory, by what it is; `options.name` is for the errors."""
    if isinstance(model, nn.Module):
        arguments = _only(options, "weights", *_TORCH)
        weights = arguments.pop("weights", None)
        return TorchVictim(model if weights is None else load_weights(model, Path(weights)), **arguments)
    if isinstance(model, Victim):
        return _ready(model, options)
    from sklearn.base import BaseEstimator  # takes a second, and only models of no other kind need it

    if isinstance(model, BaseEstimator):
        return SklearnVictim(model, **options.only("bounds", "multilabel", "chunk", "timeout"))
    if callable(model):
        return CallableVictim(model, **_only(options, *_READ))
    kinds = "a torch module, a Victim, a scikit-learn classifier or a function of a numpy array"
    raise InputError(f"expected {options.name} to be {kinds}, got {type(model).__name__}")


def _ready(victim: Victim, options: ModelOptions, *names: str) -> Victim:
    """A victim that comes with its own settings; those said besides must not contradict them."""
    bounds = options.only("bounds", "chunk", "timeout", *names).get("bounds", victim.bounds)
    if bounds != victim.bounds:
        raise InputError(f"the model {options.name!r} takes values in {list(victim.bounds)}, not {list(bounds)}")
    victim.chunk, victim.timeout = options.chunk or victim.chunk, options.timeout or victim.timeout
    return victim


def _from_demo(options: ModelOptions) -> Victim:
    return _ready(demo_victim(options.name.partition(":")[2], options.device), options, "device")


def _from_hub(options: ModelOptions) -> Victim:
    arguments = _only(options, "weights", *_TORCH)
    file, classes = arguments.pop("weights", None), arguments.pop("classes", None)
    if classes is not None and file is None:
        raise InputError("the number of classes can only be set with weights=: published weights come with their own")
    hub, _, name = options.name.partition(":")
    model, own = HUBS[hub](name, None if file is None else Path(file), classes, options.layout == "frames_first")
    if options.mean is None and options.std is None:
        plain = own()
        if plain is None:
            raise InputError(f"{options.name} does not say how its inputs are normalised: pass mean and std")
        scaled = plain.within(options.bounds or _UNIT)
        arguments |= {"mean": scaled.mean, "std": scaled.std}
    return TorchVictim(model, **arguments)


def _from_onnx(options: ModelOptions) -> Victim:
    arguments = _only(options, "device", "mean", "std", "layout", *_READ)
    on_gpu = str(arguments.pop("device", "cpu")).startswith("cuda")
    provider = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
    return OnnxVictim(options.name, providers=(provider,), **arguments)


def _from_state_dict(options: ModelOptions) -> Victim:
    arguments, file = _only(options, "factory", *_TORCH), Path(options.name)
    if not file.is_file():
        raise InputError(f"no such file: {file}")
    factory = arguments.pop("factory", None)
    if factory is None:
        advice = "name the function that makes it, factory='module:function'"
        raise InputError(f"{file} holds weights without a model: {advice}")
    model = call_function(factory)
    if not isinstance(model, nn.Module):
        raise InputError(f"expected the factory {factory} to return a torch module, got {type(model).__name__}")
    return TorchVictim(load_weights(model, file), **arguments)


def _from_http(options: ModelOptions) -> Victim:
    arguments = options.only("http", "concurrency", *_SENT)
    further = dict(arguments.pop("http", None) or {})
    if unknown := sorted(set(further) - set(_HTTP)):
        raise InputError(f"unknown option {unknown[0]!r} of an HTTP model: expected {', '.join(_HTTP)}")
    return HttpVictim(options.name, **further | arguments)


def _refuse_pickle(options: ModelOptions) -> Victim:
    raise InputError(f"{options.name} is a pickle, which could run anything when loaded, and is not opened: {AROUND}")


_PREFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    **dict.fromkeys(HUBS, _from_hub),
    **dict.fromkeys(("http", "https"), _from_http),
    "demo": _from_demo,
}
_SUFFIXES: dict[str, Callable[[ModelOptions], Victim]] = {
    ".onnx": _from_onnx,
    **dict.fromkeys((".safetensors", *TORCH_FILES), _from_state_dict),
    **dict.fromkeys(PICKLES, _refuse_pickle),
}


def find_function(spec: str) -> Callable[..., Any]:
    """'package.module:function' -> the function; modules of the current folder are found."""
    module, _, name = spec.partition(":")
    try:
        with contained():
            function: object = import_named(module)
            for part in name.split("."):
                function = getattr(function, part)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise InputError(f"cannot find {spec}: {error}") from error
    except Exception as error:  # whatever the user's module does when it is imported
        raise InputError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise InputError(f"expected {spec} to be a function, got {type(function).__name__}")
    return function


def call_function(spec: str) -> object:
    """What the function returns."""
    function = find_function(spec)
    try:
        with contained():
            return function()
    except Exception as error:
        raise InputError(f"{spec}() failed: {type(error).__name__}: {error}") from error
