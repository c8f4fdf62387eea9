"""The encoders that the two agents see frames through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlab.errors import InputError
from rlab.papers.video import Pair, PairConfig, PairPolicy
from rlab.papers.video.file import save_pair
from rlab.papers.video.view import MOBILE_DEPTH, MobileNet, look, read_mobilenet
from rlab.policies import parse_policy
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from tests.papers.video.test_policy import attacked, pair
from tests.papers.video.tubes import GRID, TINY, bright_victim, tubes


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights as torchvision would write them, but at random."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "mobilenet_v2.safetensors"
    held = dict(MobileNet().state_dict()) | {"classifier.1.weight": torch.zeros(1000, 1280)}
    save_file(held, path)
    return path


def test_mobilenet_has_torchvisions_parameters(mobilenet: Path) -> None:
    """Names and the published count: 3,504,872 with the classifier's 1,281,000."""
    net = read_mobilenet(mobilenet)
    assert sum(p.numel() for p in net.parameters()) == 3_504_872 - 1_281_000
    names = set(net.state_dict())
    assert {"features.0.0.weight", "features.1.conv.0.0.weight", "features.2.conv.1.0.weight"} <= names
    assert {"features.17.conv.3.running_mean", "features.18.1.bias"} <= names
    assert not any(p.requires_grad for p in net.parameters())


def test_an_agent_that_sees_through_mobilenet(mobilenet: Path, tmp_path: Path) -> None:
    made, path = pair(replace(TINY, encoder="mobilenet")), tmp_path / "agent.safetensors"
    save_pair(made, path, {})
    policy = parse_policy(f"{path}(mobilenet={str(mobilenet)!r})")
    assert isinstance(policy, PairPolicy)
    batch, _ = tubes(2)
    frames = look(batch.x, 4, 1, policy.mobilenet)
    assert frames.shape == (2, 4, MOBILE_DEPTH)
    result = run_attack(
        make_attack(batch, palette=["dead_pixel"], patch=GRID.patch, policy=policy, budget=60), bright_victim(), batch
    )
    assert result.succeeded.any()
    assert path.stat().st_size < 1_000_000  # the encoder's own weights stay in their file


def test_weights_that_are_not_mobilenets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_mobilenet(tmp_path / "none.safetensors")
    path = tmp_path / "x.safetensors"
    save_file({"features.0.0.weight": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="not those of torchvision's MobileNet-V2"):
        read_mobilenet(path)
    path.write_bytes(b"??")
    with pytest.raises(InputError, match="cannot read"):
        read_mobilenet(path)
    pickled = tmp_path / "x.pth"
    torch.save({"net": Pair}, pickled)
    with pytest.raises(InputError, match="a pickled model"):
        read_mobilenet(pickled)


def test_hints_are_seen_where_they_were_trained_with() -> None:
    config = replace(TINY, hints=True)
    assert config.wide == PairConfig(channels=1).wide + 2
    result, rows = attacked(PairPolicy(pair(config)), n=3)
    assert result.succeeded.all()
    assert rows == int(result.queries.sum())  # no query was spent on them
