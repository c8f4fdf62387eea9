"""Every method on victims whose answer is known, for every rank; queries, determinism, and what is refused."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import ExplanationTask
from rlab.explanation.credit import AdversarialErasing, Credit
from rlab.explanation.minimal import Instant, MinimalMask
from rlab.explanation.run import METHODS, explain_batch, parse_method, parse_methods
from rlab.explanation.scores import against_truth
from rlab.options import AttackOptions
from rlab.policies.belief import BeliefPolicy
from rlab.victims import CallableVictim, QueryMeter
from rlab.victims.torch_module import TorchVictim
from tests.helpers import CHANNELS, RANKS, SIZES

SIZE = {1: (48,), 2: (24, 24), 3: (6, 16, 16)}
SMALL = {
    "credit": Credit(sets=60, episodes=1, erasing=AdversarialErasing(width=4, steps=4)),
    "mask": parse_method("mask(policy='square', patch=4, budget=150)"),
    "rise": parse_method("rise(masks=200, cells=5)"),
    "occlusion": parse_method("occlusion(along=8)"),
    "captum_occlusion": parse_method("captum_occlusion(along=8)"),
}
WHITE = ["gradcam", "gradcam++", "ablationcam", "scorecam", "integrated_gradients"]


def spot(rank):
    """The place that decides: a box off the middle."""
    return tuple(slice(length // 8, length // 8 + max(2, length // 3)) for length in SIZE[rank])


class Spotted(nn.Module):
    """Class 0 by how much texture (a change along the last axis) there is in one place, through a convolution."""

    def __init__(self, rank):
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        self.conv = conv(CHANNELS[rank], 2, 3, padding=1, bias=False)
        self.act = nn.ReLU()
        with torch.no_grad():
            self.conv.weight.zero_()
            middle = (slice(None),) + (1,) * (rank - 1)
            self.conv.weight[0][middle] = torch.tensor([-0.5, 1.0, -0.5])
            self.conv.weight[1][middle] = torch.tensor([0.5, -1.0, 0.5])
        self.rank, self.seen = rank, 0

    def forward(self, x):
        self.seen += len(x)
        a = self.act(self.conv(x))
        here = a[(slice(None), slice(None), *spot(self.rank))].flatten(1).mean(1)
        return torch.stack([20 * here, torch.full_like(here, 2.0), torch.zeros_like(here)], 1)


def case(rank, n=3):
    x = torch.rand(n, CHANNELS[rank], *SIZE[rank], generator=torch.Generator().manual_seed(1))
    truth = torch.zeros(n, *SIZE[rank], dtype=torch.bool)
    truth[(slice(None), *spot(rank))] = True
    victim = TorchVictim(Spotted(rank), outputs="logits")
    return victim, Batch(x=x, y=torch.zeros(n, dtype=torch.int64), masks=truth)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", [*SMALL, *WHITE])
def test_finds_the_planted_place(name, rank):
    victim, batch = case(rank, n=2)
    explained = (SMALL.get(name) or parse_method(name))(victim, batch, batch.y)
    share = float(batch.masks.float().mean())
    scores = against_truth(explained, batch.masks)
    if name == "mask":
        inside = (explained.mask & batch.masks).flatten(1).any(1)
        assert inside.all()
    elif name == "gradcam++" or name == "gradcam" or name == "ablationcam" or name == "scorecam":
        assert explained.maps.flatten(1).std(1).min() > 0  # its features look alike everywhere: weights are by channel
    else:
        assert scores["energy"].mean() > 1.2 * share
        assert scores["pointing"].mean() > 0.6


@pytest.mark.parametrize(
    "name", [*SMALL, *WHITE, "middle", "kernel_shap(samples=40, along=4)", "lime(samples=40, along=4)"]
)
def test_counts_what_the_victim_counts_and_repeats_itself(name):
    victim, batch = case(2, n=2)
    method = SMALL.get(name) or parse_method(name)
    first = method(victim, batch, seed=3)
    assert int(first.queries.sum()) == sum(victim.rows.values()) == victim.model.seen
    assert (first.queries == first.queries[0]).all() or name == "mask"
    again = method(victim, batch, seed=3)
    torch.testing.assert_close(first.maps, again.maps)
    assert torch.equal(first.mask, again.mask)


def test_a_sample_does_not_depend_on_its_batch():
    victim, batch = case(2, n=3)
    together = SMALL["credit"](victim, batch)
    alone = SMALL["credit"](victim, batch[[0]])
    torch.testing.assert_close(together.maps[:1], alone.maps, rtol=1e-3, atol=1e-3)


def test_credit_stays_within_a_fifth_of_rise():
    victim, batch = case(2, n=1)
    assert int(Credit()(victim, batch).queries.max()) <= 1600


def test_gradcam_is_captums_in_every_rank():
    from captum.attr import LayerGradCam

    from rlab.explanation.maps import resize
    from rlab.explanation.white_box import last_features

    for rank in RANKS:
        torch.manual_seed(rank)
        conv, pool = (
            (nn.Conv1d, nn.AdaptiveAvgPool1d),
            (nn.Conv2d, nn.AdaptiveAvgPool2d),
            (nn.Conv3d, nn.AdaptiveAvgPool3d),
        )[rank - 1]
        net = nn.Sequential(
            conv(CHANNELS[rank], 4, 3),
            nn.ReLU(),
            conv(4, 5, 3, padding=1),
            nn.ReLU(),
            pool(1),
            nn.Flatten(),
            nn.Linear(5, 3),
        )
        victim = TorchVictim(net, outputs="logits")
        x = torch.rand(2, CHANNELS[rank], *SIZES[rank])
        none = torch.zeros(2, dtype=torch.int64)
        layer, a, _ = last_features(ExplanationTask(QueryMeter(victim, 2), x, none, none, none, (0, 1)), x)
        assert layer.module is net[3]
        explained = explain_batch(victim, Batch(x=x, y=torch.zeros(2, dtype=torch.int64)), "gradcam")
        theirs = LayerGradCam(net, net[3]).attribute(x, target=explained.labels, relu_attributions=True)
        assert a.shape == (*theirs.shape[:1], 5, *theirs.shape[2:])
        torch.testing.assert_close(explained.maps, resize(theirs[:, 0], SIZES[rank]).detach(), rtol=1e-4, atol=1e-5)


def test_ablation_weighs_channels_by_what_they_bring():
    """With a linear head on the mean, a channel's drop is its weight times its mean."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3, bias=False)
    )
    victim = TorchVictim(net, outputs="logits")
    x = torch.rand(1, 3, 8, 8)
    explained = explain_batch(victim, Batch(x=x, y=torch.zeros(1, dtype=torch.int64)), "ablationcam")
    with torch.no_grad():
        a = net[1](net[0](x))
        score = net(x)[0, explained.labels[0]]
        weights = net.get_parameter("4.weight")[explained.labels[0]] * a.mean((2, 3))[0] / score.abs()
        want = (a[0] * weights[:, None, None]).sum(0).clamp(min=0)
    from rlab.explanation.maps import resize

    torch.testing.assert_close(explained.maps, resize(want[None], (8, 8)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", WHITE)
def test_white_box_methods_refuse_a_black_box_by_name(name):
    victim = CallableVictim(lambda x: x.reshape(len(x), -1)[:, :3], outputs="logits")
    batch = Batch(x=torch.rand(1, 1, 4, 4), y=torch.zeros(1, dtype=torch.int64))
    with pytest.raises(InputError, match=rf"'{name.replace('+', '.')}' needs the model's gradients.*CallableVictim"):
        explain_batch(victim, batch, name)
    assert not victim.rows


def test_no_convolution_is_refused():
    victim = TorchVictim(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), outputs="logits")
    with pytest.raises(InputError, match="need a convolution"):
        explain_batch(victim, Batch(x=torch.rand(1, 1, 4, 4), y=torch.zeros(1, dtype=torch.int64)), "gradcam")


def test_a_class_that_was_not_predicted_is_refused():
    victim, batch = case(2, n=2)
    with pytest.raises(InputError, match=r"class 2 was not predicted for 1 of 2 samples, first '1' \(predicted 0\)"):
        explain_batch(victim, batch, "credit", labels=torch.tensor([0, 2]))
    assert explain_batch(victim, batch, "occlusion", labels=torch.tensor([0, 2])).labels.tolist() == [0, 2]
    with pytest.raises(InputError, match=r"class 7 is not one of the model's 0..2"):
        explain_batch(victim, batch, "middle", labels=torch.tensor([0, 7]))
    with pytest.raises(InputError, match="expected one class to explain for each of 2 samples"):
        explain_batch(victim, batch, "middle", labels=torch.tensor([[0], [0]]))


@dataclass(frozen=True)
class Knowing(BeliefPolicy):
    """Values one patch above all others."""

    patch: int = 0

    def propose(self, state, memory, task):
        raise AssertionError("an instant map needs no proposal")

    def values(self, memory):
        values = torch.zeros_like(memory.geometry.lift)
        values[:, 1, self.patch] = 1.0
        return values


def test_the_instant_map_is_the_agents_own_and_costs_the_clean_prediction_alone():
    victim, batch = case(2, n=2)
    explained = Instant(Knowing(patch=3))(victim, batch)
    assert explained.queries.tolist() == [1, 1]
    assert (explained.maps.flatten(1).argmax(1) < 24 * 2).all()  # patch 3 is in the first rows


@pytest.mark.parametrize(
    ("policy", "why"), [("square", "SquarePolicy has no values"), ("random", "RandomPolicy has no values")]
)
def test_instant_refuses_policies_without_values(policy, why):
    victim, batch = case(2, n=1)
    with pytest.raises(InputError, match=why):
        Instant(policy)(victim, batch)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("gradcan", "Did you mean 'gradcam'"),
        ("rise(maskz=3)", "does not take the options maskz"),
        ("rise(3)", "expected a method like"),
        ("(", "expected a method like"),
        ("credit(sets=2)", "expected at least 6 sets"),
        ("mask(bugdet=3)", "Did you mean 'budget'"),
    ],
)
def test_specs_that_are_not_valid(spec, why):
    with pytest.raises(InputError, match=why):
        parse_method(spec)


def test_methods_by_name():
    assert [method.name for method in parse_methods(["credit,rise(masks=10, cells=3)", "gradcam"])] == [
        "credit",
        "rise",
        "gradcam",
    ]
    with pytest.raises(InputError, match="'rise' is named twice"):
        parse_methods(["rise,rise(masks=3)"])
    assert {"credit", "mask", "instant", "rise", "occlusion", "middle"} <= set(METHODS)


def test_the_mask_takes_its_attack_from_the_run():
    run = AttackOptions.model_validate({"policy": "random", "patch": 4, "palette": "gaussian_blur@2", "budget": 300})
    method = parse_methods(["mask"], run)[0]
    assert isinstance(method, MinimalMask)
    assert method.attack == run
    fewer = parse_method("mask(budget=200)", run)
    assert isinstance(fewer, MinimalMask)
    assert fewer.attack == run.model_copy(update={"budget": 200})
    victim, batch = case(2, n=2)
    explanation = method(victim, batch)
    assert int(explanation.queries.max()) <= 301  # the attack's, and the prediction that says which class it is
    assert explanation.mask.view(2, 6, 4, 6, 4).float().mean((2, 4)).unique().tolist() == [0.0, 1.0]  # whole patches


@pytest.mark.parametrize("policy", ["belief", "auto"])
def test_the_mask_of_a_policy_that_goes_on_after_the_flip_is_smaller(policy):
    """The place that decides is explained, and queries stay within the budget, whoever proposes."""
    victim, batch = case(2, n=2)
    explanation = parse_method(f"mask(policy='{policy}', patch=4, budget=60)")(victim, batch)
    assert (explanation.mask & batch.masks).flatten(1).any(1).all()
    assert int(explanation.queries.max()) <= 61
    assert int(explanation.queries.sum()) == sum(victim.rows.values())
    first = parse_method(f"mask(policy='{policy}', patch=4, budget=60, until='flip')")(victim, batch)
    assert (explanation.mask.flatten(1).sum(1) <= first.mask.flatten(1).sum(1)).all()


def test_a_blank_of_several_filters_is_refused():
    victim, batch = case(2, n=1)
    with pytest.raises(InputError, match="expected one filter at one severity"):
        Credit(blank="illuminate@0.2")(victim, batch)
