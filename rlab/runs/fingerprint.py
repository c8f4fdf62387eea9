"""What decides a result: a model with its reading, data, and what a configuration names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlab.core.attack import Attack
from rlab.data.batch import Batch, Samples
from rlab.data.source import Source
from rlab.storage.contents import Contents, parts_of
from rlab.storage.digest import digest
from rlab.victims.base import Victim
from rlab.victims.graphs import GraphVictim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim

_NO_INPUTS = ("data", "test", "validation", "saliency")  # keys for data, and for files that a training writes
_FACTS = ("bounds", "classes", "unit", "rate", "leads", "eight_bit", "target", "aims")  # of samples
# Of a victim: where and how fast it runs, and what its first answer tells; what was declared stands for that.
_PASSING = (
    "device",
    "chunk",
    "timeout",
    "retries",
    "backoff",
    "concurrency",
    "inputs",
    "rows",
    "width",
    "reading",
    "declared",
)
_TORCH = ("dtype", "half")
_RUNTIME = ("session", "interpreter", "model", "client", "triton", "allocated", "path")  # of graphs


@parts_of.register
def _victim(victim: Victim) -> Mapping[str, object]:
    own = {name: value for name, value in sorted(vars(victim).items()) if name not in _PASSING}
    return own | {"reading": victim.declared.model_dump(exclude={"chunk", "timeout"})}


@parts_of.register
def _torch(victim: TorchVictim) -> Mapping[str, object]:
    victim.model.eval()  # as before every query; it may have been trained since
    return {name: value for name, value in _victim(victim).items() if name not in _TORCH}


@parts_of.register
def _graph(victim: GraphVictim) -> Mapping[str, object]:
    read = {name: value for name, value in _victim(victim).items() if name not in _RUNTIME}
    return read | {"contents": [digest(part) if isinstance(part, Path) else part for part in victim.contents()]}


@parts_of.register
def _http(victim: HttpVictim) -> Mapping[str, object]:
    facts = {name: getattr(victim, name) for name in ("name", "query", "headers")}
    return facts | {"reading": _victim(victim)["reading"], "template": victim.template.plain()}


@parts_of.register
def _batch(batch: Batch) -> Mapping[str, object]:
    return {name: getattr(batch, name) for name in (*_FACTS, "x", "y", "ids", "masks", "r_peaks")}


@parts_of.register
def _source(source: Source) -> Mapping[str, object]:
    """The names, sizes and modification times of the files stand for the values, which are not read."""
    facts = {name: getattr(source, name) for name in (*_FACTS, "shape", "y", "ids", "options")}
    return facts | {"files": [(path.name, *source.stamps[path]) for path in source.paths(range(len(source)))]}


def model_fingerprint(victim: Victim) -> str:
    """Tells whether another process has loaded the same model."""
    return Contents(victim).likeness


def data_fingerprint(samples: Samples) -> str:
    """Digest values, labels, ids and everything that is known of the samples; a source uses its files instead of values."""
    return Contents(samples).mark()


def inputs_of(victim: Victim, attack: Attack) -> dict[str, Contents]:
    """The model and all parts of an attack that may be objects of the user."""
    parts = {"model": victim, "policy": attack.policy, "filters": attack.palette, "goal": attack.goal}
    return {f"the {name}": Contents(part) for name, part in parts.items()}


def named_in(config: Mapping[str, Any]) -> dict[str, Contents]:
    """The files that a configuration names (weights, agents, masks), and its functions, such as 'my_module:net'.

    Data files are left out, since `data_fingerprint` covers them.
    """
    named = dict[str, Contents]()
    for word in _words(config):
        spec = word.partition("(")[0].partition("@")[0].strip()
        for name in (word, spec, *re.findall(r"['\"]([^'\"]+)['\"]", word)):
            if os.path.isfile(name):
                named[f"the file {name}"] = Contents(digest(Path(name)))
        module, _, attribute = spec.partition(":")
        if attribute and hasattr(sys.modules.get(module), attribute):
            named[f"the function {spec}"] = Contents(getattr(sys.modules[module], attribute))
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
