"""Every method on planted victims of every rank: places, queries, determinism, and what is refused."""

import pytest
import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.errors import DataError, InputError, ModelError, OptionError
from rlab.explanation.base import ExplanationTask
from rlab.explanation.credit import Credit
from rlab.explanation.maps import resize
from rlab.explanation.run import METHODS, MinimalMask, explain_batch, parse_method, parse_methods
from rlab.explanation.scores import MethodJudge, against_truth
from rlab.explanation.white_box import last_features
from rlab.runs.options import AttackOptions
from rlab.victims import CallableVictim, QueryMeter
from rlab.victims.torch_module import TorchVictim
from tests.helpers import CHANNELS, RANKS, SIZES

SIZE = {1: (48,), 2: (24, 24), 3: (6, 16, 16)}
SMALL = {
    "credit": Credit(sets=60, episodes=1, width=4, steps=4),
    "mask": parse_method("mask(policy='square', patch=4, budget=150)"),
    "rise": parse_method("rise(masks=200, cells=5)"),
    "occlusion": parse_method("occlusion(along=8)"),
    "captum_occlusion": parse_method("captum_occlusion(along=8)"),
}
WHITE = ["gradcam", "gradcam++", "ablationcam", "scorecam", "integrated_gradients"]


def spot(rank):
    """The deciding place: a box away from the middle."""
    return tuple(slice(length // 8, length // 8 + max(2, length // 3)) for length in SIZE[rank])


class Spotted(nn.Module):
    """Class 0 depends on the texture (changes along the last axis) of one place, through a convolution."""

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
    elif "cam" in name:
        assert explained.maps.flatten(1).std(1).min() > 0  # weights are per channel, and features look alike everywhere
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


@pytest.mark.parametrize("rank", RANKS)
def test_gradcam_agrees_with_captum(rank):
    from captum.attr import LayerGradCam

    torch.manual_seed(rank)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[rank - 1]
    net = nn.Sequential(
        conv(CHANNELS[rank], 4, 3),
        nn.ReLU(),
        conv(4, 5, 3, padding=1),
        nn.ReLU(),
        pool(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    )
    victim, x = TorchVictim(net, outputs="logits"), torch.rand(2, CHANNELS[rank], *SIZES[rank])
    none = torch.zeros(2, dtype=torch.int64)
    layer, _, _ = last_features(ExplanationTask(QueryMeter(victim, 2), x, none, none, none, (0, 1)), x)
    assert layer.module is net[3]
    explained = explain_batch(victim, Batch(x=x, y=none), "gradcam")
    theirs = LayerGradCam(net, net[3]).attribute(x, target=explained.labels, relu_attributions=True)
    torch.testing.assert_close(explained.maps, resize(theirs[:, 0], SIZES[rank]).detach(), rtol=1e-4, atol=1e-5)


class Reused(nn.Module):
    """One ReLU for the features and again in the head, where captum's Grad-CAM would read it."""

    def __init__(self):
        super().__init__()
        self.conv, self.act, self.hidden, self.out = (
            nn.Conv2d(3, 5, 3, padding=1),
            nn.ReLU(),
            nn.Linear(5, 7),
            nn.Linear(7, 3),
        )

    def forward(self, x):
        self.features = self.act(self.conv(x))
        return self.out(self.act(self.hidden(self.features.mean((2, 3)))))


def test_gradcam_reads_the_features_if_the_head_reuses_their_activation():
    torch.manual_seed(0)
    net, x = Reused(), torch.rand(2, 3, 8, 8)
    explained = explain_batch(
        TorchVictim(net, outputs="logits"), Batch(x=x, y=torch.zeros(2, dtype=torch.int64)), "gradcam"
    )
    score = net(x).gather(1, explained.labels[:, None]).sum()
    gradient = torch.autograd.grad(score, net.features)[0]
    want = (net.features * gradient.mean((2, 3), keepdim=True)).sum(1).clamp(min=0).detach()
    torch.testing.assert_close(explained.maps, want, rtol=1e-4, atol=1e-6)


def test_ablation_weights_of_a_linear_head():
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
    torch.testing.assert_close(explained.maps, resize(want[None], (8, 8)), rtol=1e-4, atol=1e-5)


def unpredicted(method, labels):
    victim, batch = case(2, n=2)
    return explain_batch(victim, batch, method, labels=torch.tensor(labels))


def judged(name):
    victim, batch = case(2, n=1)
    return MethodJudge()(victim, batch, [SMALL[name]])


def of_layers(net, method="gradcam"):
    return explain_batch(net, Batch(x=torch.rand(1, 1, 4, 4), y=torch.zeros(1, dtype=torch.int64)), method)


FLAT = TorchVictim(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), outputs="logits")
BLACK_BOX = CallableVictim(lambda x: x.reshape(len(x), -1)[:, :3], outputs="logits")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: parse_method("gradcan"), OptionError, "Did you mean 'gradcam'"),
        (lambda: parse_method("instant(policy='random')"), OptionError, "was removed: use 'belief'"),
        (lambda: parse_methods(["belief,mask"], scored=True), OptionError, "'mask' is no longer scored"),
        (lambda: judged("mask"), OptionError, "'mask' is no longer scored"),
        (lambda: parse_methods(["rise,rise(masks=3)"]), OptionError, "'rise' is named twice"),
        (lambda: parse_method("rise(maskz=3)"), InputError, "does not take the options maskz"),
        (lambda: parse_method("rise(3)"), InputError, "expected a method like"),
        (lambda: parse_method("("), InputError, "expected a method like"),
        (lambda: parse_method("rise(chance=1.0)"), OptionError, "above 0 and below 1"),
        (lambda: parse_method("rise(masks=0)"), OptionError, "from 1 to 1,000,000"),
        (lambda: parse_method("credit(sets=2)"), OptionError, "at least 6 sets"),
        (lambda: parse_method("mask(bugdet=3)"), InputError, "Did you mean 'budget'"),
        (lambda: Credit(blank="illuminate@0.2")(*case(2, n=1)), OptionError, "one filter at one severity"),
        (lambda: unpredicted("credit", [0, 2]), OptionError, r"not predicted for 1 of 2 samples, first '1'"),
        (lambda: unpredicted("middle", [0, 7]), OptionError, r"class 7 is not one of the model's 0..2"),
        (lambda: unpredicted("middle", [[0], [0]]), DataError, "one class to explain for each of 2 samples"),
        (lambda: of_layers(FLAT), ModelError, "need a convolution"),
        *[(lambda name=name: of_layers(BLACK_BOX, name), ModelError, "gradients or layers") for name in WHITE],
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
    assert not BLACK_BOX.rows


def test_any_class_can_be_explained_without_a_flip():
    assert unpredicted("occlusion", [0, 2]).labels.tolist() == [0, 2]


def test_methods_by_name():
    assert [method.name for method in parse_methods(["credit,rise(masks=10, cells=3)", "gradcam"])] == [
        "credit",
        "rise",
        "gradcam",
    ]
    assert {"credit", "mask", "rise", "occlusion", "middle"} <= set(METHODS)


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
    assert int(explanation.queries.max()) <= 301  # the attack's budget, and the clean prediction
    assert explanation.mask.view(2, 6, 4, 6, 4).float().mean((2, 4)).unique().tolist() == [0.0, 1.0]  # whole patches


@pytest.mark.parametrize("policy", ["belief", "auto"])
def test_a_policy_that_continues_after_the_flip_finds_a_smaller_mask(policy):
    """The mask touches the deciding place, and queries stay within the budget."""
    victim, batch = case(2, n=2)
    explanation = parse_method(f"mask(policy='{policy}', patch=4, budget=60)")(victim, batch)
    assert (explanation.mask & batch.masks).flatten(1).any(1).all()
    assert int(explanation.queries.max()) <= 61
    assert int(explanation.queries.sum()) == sum(victim.rows.values())
    first = parse_method(f"mask(policy='{policy}', patch=4, budget=60, until='flip')")(victim, batch)
    assert (explanation.mask.flatten(1).sum(1) <= first.mask.flatten(1).sum(1)).all()
