"""Fingerprints of data, models and files: two things share one only if they are the same."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rlab.data.batch import Batch, Samples
from rlab.data.source import Source
from rlab.errors import FolderError
from rlab.storage.digest import digest
from rlab.storage.ledger import LEDGER
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, SklearnVictim, is_jitted
from rlab.victims.graphs import GraphVictim
from rlab.victims.http import HttpVictim
from rlab.victims.template import DEFAULT, load_template
from rlab.victims.torch_module import TorchVictim

_NO_INPUTS = ("data", "test", "validation", "saliency")  # keys for data, and for files that a training writes


def data_fingerprint(batch: Samples) -> str:
    """Digest all values, labels and ids; a source uses its files instead of the values."""
    if isinstance(batch, Source):
        return batch.fingerprint()
    assert isinstance(batch, Batch)
    more = ([] if batch.target == "classes" else [batch.target]) + ([] if batch.aims is None else [batch.aims])
    return digest(batch.x, batch.y, list(batch.ids), *more)


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str:
    return digest(*(part for name, value in sorted(weights.items()) for part in (name, value)))


def model_fingerprint(name: str, victim: Victim, options: Mapping[str, Any] | None = None) -> str:
    """Digest a torch model's weights and layers, else its options and the files they name; send the model no query.

    Benchmark folders store these digests to recognise their victims, so the digested bytes must not change.
    """
    facts = {"kind": type(victim).__name__, "bounds": victim.bounds, "multilabel": victim.multilabel}
    if victim.prediction != "classes":
        facts |= {"outputs": victim.outputs, "boxes": victim.boxes}
    known = json.dumps(facts, default=str).encode()
    if isinstance(victim, TorchVictim):
        layers = f"{victim.model}{victim.normalise}{victim.layout}{victim.autocast}"
        weights = sorted(victim.model.state_dict().items())
        return digest(known, layers.encode(), *(part for name, value in weights for part in (name.encode(), value)))
    if isinstance(victim, SklearnVictim):
        import joblib  # scikit-learn brings it

        known += str(joblib.hash(victim.estimator)).encode()
    plain = {key: value for key, value in (options or {}).items() if key not in ("device", "chunk")}
    if isinstance(victim, HttpVictim) and victim.query:
        plain["query"] = victim.query
    if isinstance(victim, HttpVictim) and victim.template != load_template(DEFAULT):
        plain["template"] = victim.template.plain()
    named = [Path(value) for value in plain.values() if isinstance(value, str) and Path(value).is_file()]
    more = victim.contents() if isinstance(victim, GraphVictim) else ()
    return digest(known, plain or {"name": name}, *named, *more)


def inputs_of(victim: Victim, config: Mapping[str, Any]) -> dict[str, str]:
    """Digest what a run's configuration names: the model's weights and code, and files (see `files_of`)."""
    model = config.get("model")
    options = model if isinstance(model, Mapping) else {}
    known, code = model_fingerprint(str(options.get("name", "")), victim, options), _code_in_memory(victim, config)
    return {"the model": known if code is None else f"{known} {code_fingerprint(code)}", **files_of(config)}


def check_resumable(victim: Victim, config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a folder with finished steps if the model's code is unknown, because it may have changed."""
    code = _code_in_memory(victim, config)
    if code is not None and (folder / LEDGER).exists() and code_fingerprint(code) is None:
        raise FolderError(
            f"{folder} cannot be resumed, because Python finds no source code for the model {_code_name(code)}: define it in "
            "a file, or pass the model by name, such as 'my_module:net'"
        )


def _code_in_memory(victim: Victim, config: Mapping[str, Any]) -> Any | None:
    """Return the user's function or victim unless the configuration names it: `files_of` digests the module of a name."""
    model = config.get("model")
    code: Any = victim
    if isinstance(victim, CallableVictim):
        code = inspect.unwrap(victim.function, stop=lambda f: not is_jitted(f))
    named = isinstance(model, Mapping) and ":" in str(model.get("name"))
    return None if named or type(code).__module__.startswith("rlab.") else code


def code_fingerprint(code: Any) -> str | None:
    """Digest a function's or an object's name, source code, and the arrays and weights it uses; None without source code."""
    if isinstance(code, partial):
        known = code_fingerprint(code.func)
        return known and digest(known, *_weights({**dict(enumerate(code.args)), **code.keywords}))
    owner = getattr(code, "__self__", None) if inspect.isroutine(code) else code
    used = {"self": owner, **getattr(owner, "__dict__", {})}
    try:
        source = inspect.getsource(code if inspect.isroutine(code) else type(code))
        if inspect.isroutine(code):
            names = inspect.getclosurevars(code)
            used |= {**names.globals, **names.nonlocals}
    except (OSError, TypeError, ValueError):
        return None
    return digest(_code_name(code), source, *_weights(used))


def _code_name(code: Any) -> str:
    return str((code if inspect.isroutine(code) else type(code)).__qualname__)


def _weights(used: Mapping[Any, Any]) -> Iterator[object]:
    """Yield names and contents of arrays, tensors and modules; numbers and lists are left out, since they may count queries."""
    for name, value in sorted(used.items(), key=lambda item: str(item[0])):
        if isinstance(value, nn.Module):
            yield from (str(name), weights_fingerprint(value.state_dict()))
        elif isinstance(value, Tensor):
            yield from (str(name), value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield from (str(name), value.tobytes())


def files_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Digest the files a configuration names (weights, agents, masks) and the modules of its functions.

    Data files are left out, since `data_fingerprint` covers them.
    """
    named = {}
    for word in _words(config):
        spec = word.partition("(")[0].partition("@")[0].strip()
        for name in (word, spec, *re.findall(r"['\"]([^'\"]+)['\"]", word)):
            if os.path.isfile(name):
                named[f"the file {name}"] = digest(Path(name))
        module, _, attribute = spec.partition(":")
        if attribute and hasattr(sys.modules.get(module), attribute):
            named[f"the module {module}"] = digest(Path(sys.modules[module].__file__ or os.devnull))
    return named


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [inner for key, inner in value.items() if key not in _NO_INPUTS]
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str):
        yield value


def agent_fingerprint(policy: str) -> str:
    """Digest the files that a policy such as "belief(prior='prior.safetensors')" names; '' if it names none."""
    name, _, options = policy.partition("(")
    named = [Path(text.strip()) for text in (name, *re.findall(r"['\"]([^'\"]+)['\"]", options)) if text]
    present = [file for file in named if file.is_file()]
    return digest(*present) if present else ""
