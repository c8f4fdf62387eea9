"""State dicts from files, without ever running what a file says: safetensors, or torch files of tensors alone."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rlab.errors import InputError

TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
PICKLES = (".pkl", ".pickle", ".joblib")
AROUND = "save its state dict as safetensors and name a factory, or export it to ONNX"
# Where training scripts put a state dict among other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model")


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name; pickled objects are refused."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in TORCH_FILES:
        return _tensors(_read_torch(path), path)
    raise InputError(f"expected weights as .safetensors or a torch state dict {', '.join(TORCH_FILES)}, got {path}")


def load_weights(model: nn.Module, path: Path) -> nn.Module:
    """`model` with the weights of `path`, which must fit exactly."""
    try:
        missing, unexpected = model.load_state_dict(read_state_dict(path), strict=False)
    except RuntimeError as error:  # shapes that differ: the first line is a heading
        said = str(error).strip().splitlines()[-1].strip()
        raise InputError(f"{path} does not fit the model: {said}") from error
    refuse_misfit(path, missing, unexpected)
    return model


def refuse_misfit(path: Path | str, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raises where the file lacks names of the model or has others."""
    parts = [("lacks", missing), ("has besides", unexpected)]
    if said := " and ".join(f"{verb} {_some(keys)}" for verb, keys in parts if keys):
        raise InputError(f"{path} does not fit the model: it {said}")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"cannot read {path} as safetensors: {error}") from error


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{path} holds a pickled model, which could run anything when loaded: {AROUND}") from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        said = str(error).splitlines()[0] if str(error) else "it is empty or cut short"
        raise InputError(f"cannot read {path} as a torch state dict: {said}") from error


def _tensors(found: Any, path: Path) -> dict[str, Tensor]:
    for name in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise InputError(f"expected a state dict of tensors in {path}, got {type(found).__name__}: {AROUND}")
    parallel = all(key.startswith("module.") for key in found)  # as DataParallel names them
    return {key.removeprefix("module.") if parallel else key: value for key, value in found.items()}


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more
