"""A direction prior as one safetensors file: weights in half precision, and a header with the network's shape and its card.

The card says what the prior was trained on and with which models. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.errors import ModelError
from rlab.priors.trained import DirectionPrior, TrainedPrior
from rlab.storage.files import write_atomically
from rlab.storage.outside import checked, regular, short

VERSION = 2
PRIOR = "prior"  # a kind of file
MOST_WIDTH, MOST_LEVELS = 4096, 16  # of a network that a header describes
Network = TypeVar("Network", bound=nn.Module)
Shape = TypeVar("Shape", bound=BaseModel)


def write_weights(path: Path, kind: str, weights: Mapping[str, Tensor], shape: Mapping[str, Any], card: Any) -> None:
    """Weights with the header that `read_network` reads."""
    half = {name: value.detach().half().cpu().contiguous() for name, value in weights.items()}
    header = {"version": VERSION, "kind": kind, "network": dict(shape), "about": dict(card)}
    write_atomically(path, to_bytes(half, metadata={"rlab": json.dumps(header)}))


class Header(BaseModel):
    """The description of a network beside its weights."""

    model_config = ConfigDict(hide_input_in_errors=True)

    version: int | None = None
    kind: str = PRIOR
    network: dict[str, Any] = Field({}, validation_alias=AliasChoices("network", "card"))
    about: dict[str, Any] = {}


def read_header(path: Path) -> Header:
    """The header (version, kind, network, about) alone."""
    return _read(path, "agent file", weights=False)[0]


def read_network(
    path: Path,
    kind: str,
    shape: type[Shape],
    make: Callable[[Shape], Network],
    what: str = "agent file",
    version: int = VERSION,
) -> tuple[Network, Shape, dict[str, Any]]:
    """The network of a prior, an agent or a simulator in evaluation mode, its shape, and what its file says about it."""
    header, weights = _read(path, what)
    if header.kind != kind:
        raise ModelError(f"expected {path} to hold the kind {kind!r}, got kind {short(header.kind)}")
    if header.version != version:
        raise ModelError(
            f"the {what} {path} is of version {header.version}, this rlab reads version {version}: train it again"
        )
    try:
        arguments = shape.model_validate_json(json.dumps(header.network))
    except ValidationError as error:
        raise ModelError(f"the network in the header of {path} is not valid: {first_error(error)}") from error
    return fill(lambda: make(arguments), weights, path), arguments, header.about


def _read(path: Path, what: str, weights: bool = True) -> tuple[Header, dict[str, Tensor]]:
    """The header of a file, and its weights in single precision, all finite."""
    regular(path, what)
    try:
        with safe_open(path, framework="pt") as file:
            header = Header.model_validate(checked(json.loads((file.metadata() or {}).get("rlab", "{}"))))
            tensors = {name: file.get_tensor(name).float() for name in (file.keys() if weights else ())}
    except ValidationError as error:
        raise ModelError(f"cannot read the header of {path}: {first_error(error)}") from error
    except (OSError, SafetensorError, ValueError, TypeError, RuntimeError) as error:  # RecursionError is a RuntimeError
        raise ModelError(f"cannot read the {what} {path}: {error or type(error).__name__}") from error
    if broken := [name for name, value in tensors.items() if not value.isfinite().all()]:
        raise ModelError(f"the weights {short(broken[0])} in {path} hold NaN or infinite values: train it again")
    return header, tensors


def first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}, got {short(first['input'])}"


def fill(make: Callable[[], Network], weights: Mapping[str, Tensor], path: Path) -> Network:
    """The network that a header describes, with these weights; it is built only if they fit."""
    try:
        with torch.device("meta"):  # takes no memory, whatever the header says
            shapes = {name: value.shape for name, value in make().state_dict().items()}
        if shapes != {name: value.shape for name, value in weights.items()}:
            raise ValueError("other shapes")
        network = make()
        network.load_state_dict(dict(weights))
    except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ModelError(f"the weights in {path} do not fit the network its header describes") from error
    return network.eval()


def save_prior(network: DirectionPrior, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, PRIOR, network.state_dict(), shape_of(network).model_dump(), card)


def shape_of(network: DirectionPrior) -> PriorShape:
    return PriorShape(**{name: getattr(network, name) for name in PriorShape.model_fields})


def read_prior(path: Path) -> tuple[TrainedPrior, dict[str, Any]]:
    """The prior in a file of `rlab train`, and its card."""
    network, _, about = read_network(path, PRIOR, PriorShape, lambda shape: DirectionPrior(**shape.model_dump()))
    return TrainedPrior(network, path.stem.removeprefix("prior_").removeprefix("agent_")), about


class PriorShape(BaseModel):
    """The arguments of a `DirectionPrior`, within limits."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    rank: int = Field(ge=1, le=3)
    channels: int = Field(ge=1, le=MOST_WIDTH)
    width: int = Field(ge=1, le=MOST_WIDTH)
    heads: int = Field(ge=1, le=MOST_WIDTH)
    levels: int = Field(3, ge=0, le=MOST_LEVELS)
    shrink: int = Field(1, ge=1, le=MOST_WIDTH)
