"""Surrogates: directions against their gradients, said in the result, free of the victim's queries; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.core.goals import Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.policies.belief import Belief
from rlab.policies.imagine import ImaginePolicy
from rlab.priors.base import Prior
from rlab.priors.surrogates import SurrogatePrior, load_surrogates
from rlab.runs.options import AttackOptions, make_attack
from rlab.storage.config import check
from rlab.victims import TorchVictim

OPTIONS: dict[str, Any] = {"palette": ["gaussian_noise@0.3", "dead_pixel@0.5"], "patch": 2, "budget": 15}


class Line(nn.Module):
    """Linear in the values, with as many classes as are asked for."""

    def __init__(self, classes: int = 3, channels: int = 1, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(channels * 16, classes, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight


class Broken(Line):
    """Its gradient is not finite, or there is none."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach() if self.how == "none" else super().forward(x) + (x * 0).sqrt().sum()


@pytest.fixture
def batch() -> Batch:
    x = 0.1 + 0.8 * torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return Batch(x=x, y=Line()(x).argmax(1))


def test_directions_go_against_the_gradient_of_the_margin(batch: Batch) -> None:
    nets = [Line(seed=1), Line(seed=2)]
    prior = load_surrogates(nets, batch)
    directions = prior.directions(batch.x, batch.y, torch.ones(5), Untargeted())
    assert directions.shape == (5, 2, 1, 4, 4)
    for number, net in enumerate(nets):
        assert torch.allclose(directions[:, number], downhill(net, batch.x, batch.y), atol=1e-4)


class Wide(Line):
    """Of 8 x 8 values; `even` of its weight is that of the mirror image too."""

    def __init__(self, even: float) -> None:
        super().__init__(channels=4, seed=1)
        with torch.no_grad():
            own = self.weight.clone().view(8, 8, 3)
            self.weight.copy_(((1 - even) * own + even * (own + own.flip(1))).view(64, 3))


@pytest.mark.parametrize(("even", "alike"), [(0.0, False), (0.8, True)])
def test_the_gradient_of_a_mirror_image_counts_where_it_agrees(even: float, alike: bool) -> None:
    net, x = Wide(even), torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    batch = Batch(x=x, y=net(x).argmax(1))
    prior = load_surrogates([net], batch)
    itself, mirrored = downhill(net, x, batch.y), downhill(net, x.flip(-1), batch.y).flip(-1)
    assert not torch.allclose(itself, mirrored, atol=0.1)
    directions = prior.directions(x, batch.y, torch.ones(6), Untargeted())[:, 0]
    assert torch.allclose(directions, (itself + mirrored) / 2 if alike else itself, atol=1e-4)
    assert not prior.alike(x, batch.y, Untargeted()).any()  # moved by one, it reads something else


def test_a_signal_is_not_mirrored() -> None:
    x = torch.rand(5, 1, 64, generator=torch.Generator().manual_seed(1))
    net = Wide(0.8)
    batch = Batch(x=x, y=net(x).argmax(1))
    prior = load_surrogates([net], batch)
    directions = prior.directions(x, batch.y, torch.ones(5), Untargeted())
    assert torch.allclose(directions[:, 0], downhill(net, x, batch.y), atol=1e-4)


def downhill(net: Line, x: Tensor, y: Tensor) -> Tensor:
    rival = net(x).detach().scatter(1, y[:, None], -torch.inf).argmax(1)
    return (net.weight[:, rival] - net.weight[:, y]).T.reshape(x.shape).detach()


def test_an_attack_says_which_surrogates_it_used_and_counts_only_the_victim(batch: Batch) -> None:
    victim, helper = TorchVictim(Line(), outputs="logits"), TorchVictim(Line(seed=3), outputs="logits")
    result = rlab.attack(victim, batch, policy="belief", surrogate=[helper, Line(seed=4)], **OPTIONS)
    assert result.setting.policy == "belief with surrogates Line, Line"
    assert int(result.queries.sum()) == sum(victim.rows.values())
    assert set(helper.rows) == {"surrogate"}
    auto = make_attack(batch, surrogate=helper, **OPTIONS)
    assert auto.label == "auto -> imagine with surrogates Line"
    assert isinstance(auto.policy, ImaginePolicy)
    assert isinstance(auto.policy.belief.prior, SurrogatePrior)


def test_surrogates_by_name_on_clips_take_the_place_of_the_pair() -> None:
    batch = rlab.load("demo:clips", limit=1)
    attack = make_attack(batch, surrogate="demo:clips", budget=10)
    assert attack.label == "auto -> imagine with surrogates demo:clips"
    options = check(AttackOptions, {"surrogate": ["demo:clips", Line()]})
    assert options.plain()["surrogate"] == ["demo:clips", "Line"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"surrogate": 3}, "a surrogate is a name, a torch module or a TorchVictim, not int"),
        ({"surrogate": "tests.priors.test_surrogates:function"}, "is not a torch model"),
        ({"surrogate": Line(channels=2)}, "the surrogate Line fails on these data"),
        ({"surrogate": Line(classes=2)}, "the surrogate Line has 2 classes and the data 3"),
        ({"surrogate": Line(classes=7)}, "the surrogate Line has 7 classes and the model 3"),
        ({"surrogate": Broken("none")}, "the surrogate Broken returns no gradient"),
        ({"surrogate": Broken("nan")}, "the gradient of the surrogate Broken is not finite"),
        ({"surrogate": Line(), "policy": "square"}, "surrogates guide the policies 'auto' and 'belief'"),
        ({"surrogate": Line(), "policy": "belief(prior='trained')"}, "has a prior, and surrogates are one"),
    ],
)
def test_surrogates_that_cannot_be_used(batch: Batch, options: dict[str, Any], why: str) -> None:
    victim = TorchVictim(Line(), outputs="logits")
    with pytest.raises(InputError, match=why):
        rlab.attack(victim, batch, **OPTIONS | {"policy": "belief"} | options)


def function() -> Any:
    """A model that is no torch module."""
    return lambda x: x.reshape(len(x), -1)[:, :3]


class Edges(Prior):
    """A prior in a few lines, as the documentation says one is written."""

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: object) -> Tensor:
        return (x - x.roll(1, -1))[:, None]


def test_a_prior_of_the_users_own(batch: Batch) -> None:
    victim = TorchVictim(Line(), outputs="logits")
    result = rlab.attack(victim, batch, policy=Belief(prior=Edges()), **OPTIONS)
    assert result.setting.policy == "belief with prior Edges"
    assert result.succeeded.any()
