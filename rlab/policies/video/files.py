"""A pair of agents as one safetensors file: its header holds their shape and a card of what they were trained on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rlab.errors import InputError
from rlab.policies.video.config import PairConfig
from rlab.policies.video.encoder import read_mobilenet
from rlab.policies.video.pair import Pair
from rlab.policies.video.policy import PairPolicy

KIND, VERSION = "clips", 2


def save_pair(network: Pair, path: Path, about: dict[str, Any]) -> None:
    """In half precision, as every agent's file."""
    weights = {name: value.detach().half().cpu().contiguous() for name, value in network.state_dict().items()}
    header = {"version": VERSION, "kind": KIND, "network": asdict(network.config), "about": about}
    save_file(weights, path, metadata={"rlab": json.dumps(header)})


def is_pair(path: Path) -> bool:
    """Whether the file's header says that it holds a pair of agents; what cannot be read is left to whoever reads it."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("rlab", "null"))
    except (OSError, SafetensorError, json.JSONDecodeError):
        return False
    return isinstance(header, dict) and header.get("kind") == KIND


def read_pair(path: Path) -> tuple[Pair, dict[str, Any]]:
    """The agents in evaluation mode, and the file's card."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("rlab", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"there is no agent file {path}") from None
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the agent {path}: {error}") from error
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise InputError(f"{path} does not hold agents for clips: train some with rlab train agents/clips.yaml")
    if header.get("version") != VERSION:
        raise InputError(
            f"{path} is an agent file of version {header.get('version')}, this rlab reads version {VERSION}: train it again"
        )
    network = Pair(PairConfig(**header["network"]))
    try:
        network.load_state_dict({name: value.float() for name, value in weights.items()})
    except RuntimeError as error:
        raise InputError(f"the weights in {path} do not fit the agents its header describes") from error
    return network.eval(), header["about"]


def load_pair(path: Path, mobilenet: str | None = None, **options: Any) -> PairPolicy:
    """The agents in a file, ready to propose; `mobilenet` names the weights of the frame encoder where they use it."""
    network, _ = read_pair(path)
    encoder = None if mobilenet is None else read_mobilenet(mobilenet)
    return PairPolicy(network, name=path.stem.removeprefix("agent_"), mobilenet=encoder, **options)
