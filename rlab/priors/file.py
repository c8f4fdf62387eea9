"""A direction prior as one safetensors file: weights in half precision, and a header with the network's shape and its card.

The card says what the prior was trained on and with which models. Nothing is pickled. Agents of rlab 0.1 (Q-maps) and the
pair for clips hold a prior too, which is read out of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from rlab.errors import InputError
from rlab.priors.trained import DirectionPrior, TrainedPrior
from rlab.runs.aliases import renamed
from rlab.runs.files import write_atomically

VERSION = 2
PRIOR, QMAP = "prior", "qmap"  # kinds of files
_SHAPE = ("rank", "channels", "width", "heads", "levels", "shrink")
_INSIDE = "compass."  # before the names of a prior's weights within an agent


def write_weights(path: Path, kind: str, weights: Mapping[str, Tensor], shape: Mapping[str, Any], card: Any) -> None:
    """Weights with the header that `read_weights` reads."""
    half = {name: value.detach().half().cpu().contiguous() for name, value in weights.items()}
    header = {"version": VERSION, "kind": kind, "network": dict(shape), "about": dict(card)}
    write_atomically(path, to_bytes(half, metadata={"rlab": json.dumps(header)}))


def read_header(path: Path) -> dict[str, Any]:
    """The header (version, kind, network, about) alone."""
    return _read(path, weights=False)[0]


def read_weights(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the weights of a prior's or an agent's file."""
    header, weights = _read(path, weights=True)
    if header["version"] != VERSION:
        raise InputError(
            f"{path} is an agent file of version {header['version']}, this rlab reads version {VERSION}: train it again"
        )
    return header, weights


def _read(path: Path, weights: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("rlab", "null"))
            tensors = {name: file.get_tensor(name).float() for name in (file.keys() if weights else ())}
    except FileNotFoundError:
        raise InputError(f"there is no agent file {path}") from None
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the agent {path}: {error}") from error
    header = header if isinstance(header, dict) else {}
    card = renamed(header.get("about", {}))
    return {"version": None, "kind": QMAP, "network": {}, **header, "about": card}, tensors


def mismatch(path: Path) -> InputError:
    return InputError(f"the weights in {path} do not fit the network its header describes")


def save_prior(network: DirectionPrior, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, PRIOR, network.state_dict(), {name: getattr(network, name) for name in _SHAPE}, card)


def read_prior(path: Path) -> tuple[TrainedPrior, dict[str, Any]]:
    """The prior of a file made by `rlab train`, or within an agent's, and its card."""
    header, weights = read_weights(path)
    name = path.stem.removeprefix("prior_").removeprefix("agent_")
    if header["kind"] == PRIOR:
        return _prior(path, header["network"], weights, name), header["about"]
    shape = renamed(header["network"])
    if not shape.get("heads"):
        raise InputError(
            f"{path} is an agent without a direction prior, and only its prior could still be used: train one with rlab train"
        )
    inner = {key: value for key, value in shape.items() if key in ("channels", "heads", "shrink")}
    inner |= {"rank": shape.get("rank", 3), "width": shape.get("prior_width"), "levels": shape.get("prior_levels")}
    part = {key.removeprefix(_INSIDE): value for key, value in weights.items() if key.startswith(_INSIDE)}
    what = "clips" if header["kind"] != QMAP else "a Q-map agent"
    name = f"{name} (the direction prior of {what})"
    return _prior(path, inner, part, name), header["about"] | {"prior": f"taken out of {what}"}


def _prior(path: Path, shape: Mapping[str, Any], weights: Mapping[str, Tensor], name: str) -> TrainedPrior:
    try:
        network = DirectionPrior(**shape)
        network.load_state_dict(dict(weights))
    except (KeyError, TypeError, RuntimeError) as error:
        raise mismatch(path) from error
    return TrainedPrior(network.eval(), name)
