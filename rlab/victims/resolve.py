"""A victim from the way people name a model: module:function, timm:NAME, model.onnx, https://..."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from rlab.errors import InputError
from rlab.victims.base import Outputs, Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.http import HttpVictim
from rlab.victims.hubs import HUBS
from rlab.victims.normalise import Channels, Normalise
from rlab.victims.onnx import OnnxVictim
from rlab.victims.sklearn import SklearnVictim
from rlab.victims.torch_module import Layout, TorchVictim
from rlab.victims.weights import AROUND, PICKLES, TORCH_FILES, load_weights
from rlab.victims.zoo import clip_victim, demo_victim, is_clip_net

FORMS = (
    "module:function, timm:NAME, torchvision:NAME, hf:NAME, a .onnx file, a .safetensors file with a factory, "
    "http(s)://address or demo:digits"
)
_UNIT = (0.0, 1.0)


@dataclass(frozen=True)
class _Options:
    """What may be said about a model; a value that is not the default was said."""

    weights: str | None = None
    factory: str | None = None
    classes: int | None = None
    mean: Channels | None = None
    std: Channels | None = None
    bounds: tuple[float, float] | None = None
    outputs: Outputs = "auto"
    multilabel: bool = False
    device: str | None = None
    autocast: bool = False
    layout: Layout = "channels_first"
    chunk: int | None = None
    http: Mapping[str, Any] | None = None

    def only(self, spec: str, *names: str) -> None:
        """Refuses what was said beyond `names`: it would have no effect."""
        said = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name not in names]
        if said:
            raise InputError(f"the model {spec!r} does not take {', '.join(said)}: leave it out")

    def some(self, *names: str) -> dict[str, Any]:
        """Arguments for a victim: `names`, where they were said."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        }


_READ = ("bounds", "outputs", "multilabel", "chunk")
_TORCH = (*_READ, "mean", "std", "device", "autocast", "layout")
_HTTP = ("body", "timeout", "retries", "backoff", "rate", "headers")


def load_victim(
    spec: str,
    *,
    weights: str | None = None,
    factory: str | None = None,
    classes: int | None = None,
    mean: Channels | None = None,
    std: Channels | None = None,
    bounds: tuple[float, float] | None = None,
    outputs: Outputs = "auto",
    multilabel: bool = False,
    device: str | None = None,
    autocast: bool = False,
    layout: Layout = "channels_first",
    chunk: int | None = None,
    http: Mapping[str, Any] | None = None,
) -> Victim:
    """`bounds` None is [0, 1], or a ready victim's own; `http` holds further arguments of HttpVictim."""
    options = _Options(
        weights, factory, classes, mean, std, bounds, outputs, multilabel, device, autocast, layout, chunk, http
    )
    return _branch(spec)(spec, options)


def _branch(spec: str) -> Callable[[str, _Options], Victim]:
    prefix, suffix = spec.partition(":")[0], Path(spec).suffix.lower()
    if prefix in _PREFIXES:
        return _PREFIXES[prefix]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if re.fullmatch(r"[\w.]+:[\w.]+", spec):
        return _from_function
    raise InputError(f"cannot tell what the model {spec!r} is: expected {FORMS}")


def _from_function(spec: str, options: _Options) -> Victim:
    made = call_function(spec)
    if isinstance(made, nn.Module):
        options.only(spec, "weights", *_TORCH)
        model = made if options.weights is None else load_weights(made, Path(options.weights))
        return TorchVictim(model, **options.some(*_TORCH))
    if isinstance(made, Victim):
        return _ready(spec, made, options)
    if _is_classifier(made):
        options.only(spec, "bounds", "multilabel", "chunk")
        return SklearnVictim(made, **options.some("bounds", "multilabel", "chunk"))
    if callable(made):
        options.only(spec, *_READ)
        return CallableVictim(made, **options.some(*_READ))
    raise InputError(
        f"expected {spec} to return a torch module, a Victim, a scikit-learn classifier or a function of a numpy "
        f"array, got {type(made).__name__}"
    )


def _ready(spec: str, victim: Victim, options: _Options, *names: str) -> Victim:
    """A victim that comes with its own settings; those said besides must not contradict them."""
    options.only(spec, "bounds", "chunk", *names)
    if options.bounds not in (None, victim.bounds):
        raise InputError(f"the model {spec!r} takes values in {list(victim.bounds)}, not {list(options.bounds or ())}")
    victim.chunk = options.chunk or victim.chunk
    return victim


def _from_demo(spec: str, options: _Options) -> Victim:
    return _ready(spec, demo_victim(spec.partition(":")[2], options.device), options, "device")


def _from_hub(spec: str, options: _Options) -> Victim:
    options.only(spec, "weights", "classes", *_TORCH)
    if options.classes is not None and options.weights is None:
        raise InputError("the number of classes can only be set with weights=: published weights come with their own")
    hub, _, name = spec.partition(":")
    weights = None if options.weights is None else Path(options.weights)
    model, own = HUBS[hub](name, weights, options.classes, options.layout == "frames_first")
    arguments = options.some(*_TORCH)
    if options.mean is None and options.std is None:
        arguments |= _own_normalisation(spec, own(), options.bounds or _UNIT)
    return TorchVictim(model, **arguments)


def _own_normalisation(spec: str, own: Normalise | None, bounds: tuple[float, float]) -> dict[str, Any]:
    if own is None:
        raise InputError(f"{spec} does not say how its inputs are normalised: pass mean and std")
    scaled = own.within(bounds)
    return {"mean": scaled.mean, "std": scaled.std}


def _from_onnx(spec: str, options: _Options) -> Victim:
    names = (*_READ, "mean", "std", "layout")
    options.only(spec, "device", *names)
    on_gpu = (options.device or "cpu").startswith("cuda")
    provider = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
    return OnnxVictim(spec, providers=(provider,), **options.some(*names))


def _from_state_dict(spec: str, options: _Options) -> Victim:
    options.only(spec, "factory", *_TORCH)
    if not Path(spec).is_file():
        raise InputError(f"no such file: {spec}")
    if options.factory is None and is_clip_net(Path(spec)):
        return _ready(spec, clip_victim(spec, options.device), options, "device")
    if options.factory is None:
        raise InputError(
            f"{spec} holds weights without a model: name the function that makes it, factory='module:function'"
        )
    made = call_function(options.factory)
    if not isinstance(made, nn.Module):
        raise InputError(f"expected the factory {options.factory} to return a torch module, got {type(made).__name__}")
    return TorchVictim(load_weights(made, Path(spec)), **options.some(*_TORCH))


def _from_http(spec: str, options: _Options) -> Victim:
    options.only(spec, "http", *_READ)
    further = dict(options.http or {})
    if unknown := sorted(set(further) - set(_HTTP)):
        raise InputError(f"unknown option {unknown[0]!r} of an HTTP model: expected {', '.join(_HTTP)}")
    return HttpVictim(spec, **further, **options.some(*_READ))


def _refuse_pickle(spec: str, options: _Options) -> Victim:
    raise InputError(f"{spec} is a pickle, which could run anything when loaded, and is not opened: {AROUND}")


_PREFIXES: dict[str, Callable[[str, _Options], Victim]] = {
    **dict.fromkeys(HUBS, _from_hub),
    **dict.fromkeys(("http", "https"), _from_http),
    "demo": _from_demo,
}
_SUFFIXES: dict[str, Callable[[str, _Options], Victim]] = {
    ".onnx": _from_onnx,
    **dict.fromkeys((".safetensors", *TORCH_FILES), _from_state_dict),
    **dict.fromkeys(PICKLES, _refuse_pickle),
}


def call_function(spec: str) -> object:
    """'package.module:function' -> what the function returns; modules of the current folder are found."""
    module, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(f"cannot find {spec}: {error}") from error
    except Exception as error:  # whatever the user's module does when it is imported
        raise InputError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InputError(f"expected {spec} to be a function that returns a model, got {type(found).__name__}")
    try:
        return found()
    except Exception as error:
        raise InputError(f"{spec}() failed: {type(error).__name__}: {error}") from error


def _is_classifier(made: object) -> bool:
    from sklearn.base import BaseEstimator

    return isinstance(made, BaseEstimator)
