"""Digests: two values share one only if they are equal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor


def digest(*parts: object, length: int = 24) -> str:
    """Digest tensors, bytes, files (by content) and plain values; their order matters."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            sha.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(part, Path):
            sha.update(part.read_bytes())
        elif isinstance(part, bytes):
            sha.update(part)
        else:
            sha.update(json.dumps(part, sort_keys=True, default=str).encode())
    return sha.hexdigest()[:length]
