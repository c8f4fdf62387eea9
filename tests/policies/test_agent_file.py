"""Policies from files: round trips, and files that hold no policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlab.errors import InputError, ModelError
from rlab.policies import load_policy, parse_policy
from rlab.policies.belief import Belief
from rlab.priors.file import read_prior, save_prior
from rlab.priors.trained import DirectionPrior


def make_network(rank: int = 2, channels: int = 3) -> DirectionPrior:
    torch.manual_seed(0)
    return DirectionPrior(rank, channels, 8, 2, levels=1)


def test_a_prior_file_round_trip_by_name(tmp_path: Path) -> None:
    network, path = make_network(), tmp_path / "prior_mine.safetensors"
    save_prior(network, path, {"trained": "never"})
    back, card = read_prior(path)
    assert (card, str(back), back.network.heads) == ({"trained": "never"}, "mine", 2)
    for name, value in network.state_dict().items():
        assert torch.equal(value.half().float(), back.network.state_dict()[name])
    policy = parse_policy(f"{path}(bold=2)")
    assert isinstance(policy, Belief)
    assert (policy.bold, str(policy)) == (2, "belief with prior mine")
    for wrong in ("most=2", "prior='none'"):
        with pytest.raises(InputError, match="does not take the options"):
            parse_policy(f"{path}({wrong})")


def test_files_that_are_no_agents(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match="there is no agent file"):
        load_policy(path)
    path.write_bytes(b"not weights at all")
    with pytest.raises(InputError, match="cannot read the agent"):
        load_policy(path)
    save_file({"w": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="is of version None"):
        load_policy(path)
    save_file({"w": torch.zeros(1)}, path, metadata={"rlab": json.dumps({"version": 99})})
    with pytest.raises(InputError, match="of version 99, this rlab reads version 2"):
        load_policy(path)
    save_file({"w": torch.zeros(1)}, path, metadata={"rlab": json.dumps({"version": 2, "kind": "qmap"})})
    with pytest.raises(ModelError, match="got kind 'qmap'"):
        load_policy(path)


@pytest.mark.parametrize("kind", ["prior", "two_agents"])
@pytest.mark.parametrize("shape", [{"rank": 2, "heads": 2, "depth": 3}, {"rank": 4, "heads": 1}, {"heads": 2}])
def test_a_header_that_describes_no_network(tmp_path: Path, kind: str, shape: dict[str, object]) -> None:
    path = tmp_path / "x.safetensors"
    header = {"rlab": json.dumps({"version": 2, "kind": kind, "network": shape, "about": {}})}
    save_file({"w": torch.zeros(1)}, path, metadata=header)
    with pytest.raises(InputError, match=r"network (its|in the) header"):
        load_policy(path)
