"""Fingerprints: short digests that two things share only if they are the same."""

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

_NO_INPUTS = (
    "data",
    "test",
    "validation",
    "saliency",
)  # of a configuration: the data, and what a training itself writes


def data_fingerprint(batch: Samples) -> str:
    """Of all values, labels and ids; of a source, of its files as they are found in place of the values."""
    if isinstance(batch, Source):
        return batch.fingerprint()
    assert isinstance(batch, Batch)
    return digest(batch.x, batch.y, list(batch.ids))


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str:
    return digest(*(part for name, value in sorted(weights.items()) for part in (name, value)))


def model_fingerprint(name: str, victim: Victim, options: Mapping[str, Any] | None = None) -> str:
    """A torch model's weights and layers, the files its options name, else the name it goes by; asks the model nothing.

    Benchmark folders hold these: the bytes that are digested stay as they are, so that a model is known to be their victim.
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
    """What stands behind the names in a run's configuration: the model's weights, and the files; see `files_of`."""
    model = config.get("model")
    options = model if isinstance(model, Mapping) else {}
    return {"the model": model_fingerprint(str(options.get("name", "")), victim, options), **files_of(config)}


def files_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the files a configuration names (weights, agents, masks), and of the modules of its functions.

    Those of the data are left out: what was read of them has a digest of its own.
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
    """Of the files a policy like 'agent.safetensors(adapt=2)' or "belief(prior='prior.safetensors')" names; '' where none is."""
    name, _, options = policy.partition("(")
    named = [Path(text.strip()) for text in (name, *re.findall(r"['\"]([^'\"]+)['\"]", options)) if text]
    found = [file for file in named if file.is_file()]
    return digest(*found) if found else ""
