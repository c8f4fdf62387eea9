"""Digests: short names that two values share only if they are equal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor


def digest(*parts: object, length: int = 24) -> str:
    """The digest of tensors, bytes, files (by their content) and plain values, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            whole.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(part, Path):
            whole.update(part.read_bytes())
        elif isinstance(part, bytes):
            whole.update(part)
        else:
            whole.update(json.dumps(part, sort_keys=True, default=str).encode())
    return whole.hexdigest()[:length]
