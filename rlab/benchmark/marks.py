"""Telling models apart: a mark that changes when the model does, made without asking it anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim


def model_mark(name: str, victim: Victim, config: Mapping[str, Any] | None = None) -> str:
    """A torch model's weights and layers, the files a configuration names, else the name it goes by."""
    digest = hashlib.sha256()
    known = {"kind": type(victim).__name__, "bounds": victim.bounds, "multilabel": victim.multilabel}
    digest.update(json.dumps(known, default=str).encode())
    if isinstance(victim, TorchVictim):
        digest.update(f"{victim.model}{victim.normalise}{victim.layout}{victim.autocast}".encode())
        for key, value in sorted(victim.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    else:
        plain = {key: value for key, value in (config or {}).items() if key not in ("device", "chunk")}
        digest.update(json.dumps(plain or {"name": name}, sort_keys=True, default=str).encode())
        for value in plain.values():
            if isinstance(value, str) and Path(value).is_file():
                digest.update(Path(value).read_bytes())
    return digest.hexdigest()[:24]


def file_mark(policy: str) -> str:
    """Of the agent's file a policy like 'agent.safetensors(most=2)' names; '' where it is no file."""
    file = Path(policy.partition("(")[0].strip())
    return hashlib.sha256(file.read_bytes()).hexdigest()[:24] if policy and file.is_file() else ""
