"""Fingerprints of data, models and files: two things share one only if they are the same."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rlab.data.batch import Batch, Samples
from rlab.data.source import Source
from rlab.storage.digest import digest
from rlab.victims.base import Victim
from rlab.victims.callables import SklearnVictim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim

_NO_INPUTS = ("data", "test", "validation", "saliency")  # keys for data, and for files that a training writes


def data_fingerprint(batch: Samples) -> str:
    """Digest all values, labels and ids; a source uses its files instead of the values."""
    if isinstance(batch, Source):
        return batch.fingerprint()
    assert isinstance(batch, Batch)
    return digest(batch.x, batch.y, list(batch.ids))


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str:
    return digest(*(part for name, value in sorted(weights.items()) for part in (name, value)))


def model_fingerprint(name: str, victim: Victim, options: Mapping[str, Any] | None = None) -> str:
    """Digest a torch model's weights and layers, else its options and the files they name; send the model no query.

    Benchmark folders store these digests to recognise their victims, so the digested bytes must not change.
    """
    facts = {"kind": type(victim).__name__, "bounds": victim.bounds, "multilabel": victim.multilabel}
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
    named = [Path(value) for value in plain.values() if isinstance(value, str) and Path(value).is_file()]
    return digest(known, plain or {"name": name}, *named)


def inputs_of(victim: Victim, config: Mapping[str, Any]) -> dict[str, str]:
    """Digest what a run's configuration names: the model's weights, and files (see `files_of`)."""
    model = config.get("model")
    options = model if isinstance(model, Mapping) else {}
    return {"the model": model_fingerprint(str(options.get("name", "")), victim, options), **files_of(config)}


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
