"""Every method on planted victims of every rank: places, queries, determinism, and what is refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.errors import DataError, InputError, ModelError, OptionError
from rlab.explanation.base import ExplanationTask
from rlab.explanation.explanation import Explanation
from rlab.explanation.maps import resize
from rlab.explanation.run import METHODS, explain_batch, parse_method, parse_methods
from rlab.explanation.scores import MethodJudge, against_truth
from rlab.explanation.subject import ClassSubject
from rlab.explanation.white_box import last_features
from rlab.explanation.words import ATTACK_MASK
from rlab.present.page import Text
from rlab.runs.options import AttackOptions
from rlab.victims import CallableVictim, QueryMeter
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim
from tests.helpers import CHANNELS, RANKS, SIZES

SIZE = {1: (48,), 2: (24, 24), 3: (6, 16, 16)}
PEERS = ["kernel_shap", "lime"]
SPECS = [
    "kernel_shap(samples=150, along=4)",
    "lime(samples=150, along=4)",
    "mask(policy='square', patch=4, budget=150)",
    "rise(masks=200, cells=5)",
    "drise(masks=200, cells=5)",
    "occlusion(along=8)",
]
SMALL = {method.name: method for method in parse_methods(SPECS)}
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


def small(name):
    return SMALL.get(name) or parse_method(name)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", [*SMALL, *WHITE])
def test_finds_the_planted_place(name, rank):
    victim, batch = case(rank, n=2)
    method, inside = small(name), batch.masks
    explained = method(victim, batch, batch.y)
    if name == "mask":
        assert (explained.mask & inside).flatten(1).any(1).all()
    elif "cam" in name:
        assert explained.maps.flatten(1).std(1).min() > 0  # weights are per channel, and features look alike everywhere
    elif name in PEERS:
        assert explained.queries.tolist() == [151] * 2
        assert explained.maps[inside].mean() > 1.5 * explained.maps[~inside].mean()
    else:
        scores = against_truth(explained, inside)
        assert scores["energy"].mean() > 1.2 * inside.float().mean()
        assert scores["pointing"].mean() > 0.6


@pytest.mark.parametrize("name", [*SMALL, *WHITE, "middle"])
def test_counts_what_the_victim_counts_and_repeats_itself(name):
    victim, batch = case(2, n=2)
    method = small(name)
    first = method(victim, batch, seed=3)
    assert int(first.queries.sum()) == sum(victim.rows.values()) == victim.model.seen
    assert (first.queries == first.queries[0]).all() or name == "mask"
    again = method(victim, batch, seed=3)
    torch.testing.assert_close(first.maps, again.maps)
    assert torch.equal(first.mask, again.mask)


def test_a_sample_does_not_depend_on_its_batch():
    victim, batch = case(2, n=3)
    together, alone = (parse_method("belief(queries=131)")(victim, some) for some in (batch, batch[[0]]))
    torch.testing.assert_close(together.maps[:1], alone.maps, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rank", RANKS)
def test_gradcam_agrees_with_captum(rank):
    from captum.attr import LayerGradCam

    torch.manual_seed(rank)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[rank - 1]
    features = [conv(CHANNELS[rank], 4, 3), nn.ReLU(), conv(4, 5, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*features, pool(1), nn.Flatten(), nn.Linear(5, 3))
    victim, x = TorchVictim(net, outputs="logits"), torch.rand(2, CHANNELS[rank], *SIZES[rank])
    none = torch.zeros(2, dtype=torch.int64)
    batch = Batch(x=x, y=none)
    layer, _, _ = last_features(ExplanationTask(QueryMeter(victim, 2), x, ClassSubject(none), none, none, batch), x)
    assert layer.module is net[3]
    explained = explain_batch(victim, batch, "gradcam")
    theirs = LayerGradCam(net, net[3]).attribute(x, target=explained.labels, relu_attributions=True)
    torch.testing.assert_close(explained.maps, resize(theirs[:, 0], SIZES[rank]).detach(), rtol=1e-4, atol=1e-5)


class Reused(nn.Module):
    """One ReLU for the features and again in the head, where captum's Grad-CAM would read it."""

    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 5, 3, padding=1), nn.ReLU()
        self.hidden, self.out = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x):
        self.features = self.act(self.conv(x))
        return self.out(self.act(self.hidden(self.features.mean((2, 3)))))


def test_gradcam_reads_the_features_if_the_head_reuses_their_activation():
    torch.manual_seed(0)
    net, x = Reused(), torch.rand(2, 3, 8, 8)
    explained = of_layers(TorchVictim(net, outputs="logits"), x=x)
    score = net(x).gather(1, explained.labels[:, None]).sum()
    gradient = torch.autograd.grad(score, net.features)[0]
    want = (net.features * gradient.mean((2, 3), keepdim=True)).sum(1).clamp(min=0).detach()
    torch.testing.assert_close(explained.maps, want, rtol=1e-4, atol=1e-6)


def test_ablation_weights_of_a_linear_head():
    """With a linear head on the mean, a channel's drop is its weight times its mean."""
    torch.manual_seed(0)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3, bias=False)
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *head), torch.rand(1, 3, 8, 8)
    explained = of_layers(TorchVictim(net, outputs="logits"), "ablationcam", x)
    with torch.no_grad():
        a = net[1](net[0](x))
        score = net(x)[0, explained.labels[0]]
        weights = net.get_parameter("4.weight")[explained.labels[0]] * a.mean((2, 3))[0] / score.abs()
        want = (a[0] * weights[:, None, None]).sum(0).clamp(min=0)
    torch.testing.assert_close(explained.maps, resize(want[None], (8, 8)), rtol=1e-4, atol=1e-5)


def unpredicted(method, labels):
    victim, batch = case(2, n=2)
    return explain_batch(victim, batch, method, labels=torch.tensor(labels))


def judged(*names):
    victim, batch = case(2, n=1)
    return MethodJudge()(victim, batch, [small(name) for name in names])


def of_layers(victim, method="gradcam", x=None):
    x = torch.rand(1, 1, 4, 4) if x is None else x
    return explain_batch(victim, Batch(x=x, y=torch.zeros(len(x), dtype=torch.int64)), method)


FLAT = TorchVictim(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), outputs="logits")
BLACK_BOX = CallableVictim(lambda x: x.reshape(len(x), -1)[:, :3], outputs="logits")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: parse_method("gradcan"), OptionError, "Did you mean 'gradcam'"),
        (lambda: parse_methods(["belief,mask"], scored=True), OptionError, "'mask' cannot be scored"),
        (lambda: judged("mask"), OptionError, "'mask' cannot be scored"),
        (judged, OptionError, "at least one method"),
        (lambda: parse_methods(["rise,rise(masks=3)"]), OptionError, "'rise' is named twice"),
        (
            lambda: parse_method("rise(maskz=3)"),
            InputError,
            "unknown key 'maskz' in the method 'rise'. Did you mean 'masks'",
        ),
        (lambda: parse_method("rise(3)"), InputError, "expected a method like"),
        (lambda: parse_method("("), InputError, "expected a method like"),
        (lambda: parse_method("rise(chance=1.0)"), OptionError, "less than 1, got 1.0"),
        (lambda: parse_method("rise(masks=0)"), OptionError, "greater than or equal to 1, got 0"),
        (lambda: parse_method("mask(bugdet=3)"), InputError, "Did you mean 'budget'"),
        (lambda: parse_method("belief(q=3)"), InputError, "unknown key 'q' in the method 'belief'"),
        (lambda: parse_method("belief(candidates=0)"), OptionError, "greater than or equal to 1, got 0"),
        (lambda: parse_method("belief(queries=3)")(*case(2, n=1)), OptionError, "at least 129 queries"),
        (lambda: parse_method("belief(remove='nothing')")(*case(2, n=1)), InputError, "unknown filter 'nothing'"),
        (
            lambda: parse_method("rise(remove='illuminate@0.2')")(*case(2, n=1)),
            OptionError,
            "one filter at one severity",
        ),
        (lambda: unpredicted("mask", [0, 2]), OptionError, r"not predicted for 1 of 2 samples, first '1'"),
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


def test_any_class_can_be_explained_without_a_flip_and_the_default_is_the_predicted_one():
    assert unpredicted("occlusion", [0, 2]).labels.tolist() == [0, 2]
    victim, batch = case(1, n=2)
    assert explain_batch(victim, batch, "middle").labels.tolist() == [0, 0]


def test_methods_by_name():
    listed = parse_methods(["occlusion,rise(masks=10, cells=3)", "gradcam"])
    assert [method.name for method in listed] == ["occlusion", "rise", "gradcam"]
    assert {*SMALL, *WHITE, "belief", "middle", "waves"} == set(METHODS)


def test_the_mask_takes_its_attack_from_the_run():
    run = AttackOptions.model_validate({"policy": "random", "patch": 4, "palette": "gaussian_blur@2", "budget": 300})
    method = parse_methods(["mask"], run)[0]
    assert method.options["attack"] == run
    assert parse_method("mask(budget=200)", run).options["attack"] == run.model_copy(update={"budget": 200})
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


@pytest.mark.parametrize("name", ["mask", "belief"])
def test_the_page_warns_of_an_attacks_patches_as_an_explanation(name):
    explained = Explanation(
        name, torch.ones(1, 8, 8), torch.ones(1, 8, 8).bool(), torch.zeros(1).long(), torch.ones(1), "all", 0.0
    )
    warned = [block for section in explained.view().sections for block in section.blocks]
    assert (Text(ATTACK_MASK) in warned) == (name == "mask")


def test_the_attack_of_mask_knows_the_unit_of_the_data():
    batch = replace(load("demo:ecg", limit=2), unit="mV")
    explained = parse_method("mask(palette='gaussian_noise@0.1mV', policy='square', budget=40)")(
        demo_victim("ecg"), batch
    )
    assert explained.mask.shape == batch.x[:, 0].shape
