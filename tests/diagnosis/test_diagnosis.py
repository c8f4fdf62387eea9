"""A model that is known to be sound is broken in one way at a time; the doctor must name that way and no other."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor, nn

from rlab.data.batch import UNBOUNDED, Batch
from rlab.diagnosis import Diagnosis, Finding, Severity, examine
from rlab.diagnosis.inputs import CIFAR10, HALF, IMAGENET, MNIST, inverse
from rlab.diagnosis.probe import pick
from rlab.diagnosis.report import at_least, clear_rise
from rlab.errors import InputError
from rlab.filters import Filter, Palette
from rlab.filters.palette import Entry
from rlab.victims.base import Unanswered, Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.torch_module import Normalise, TorchVictim
from rlab.victims.zoo import cifar_resnet

# Every colour reversed is another one, and no two such classes are neighbours.
COLOURS = torch.tensor(
    [
        *[(0.2, 0.5, 0.8), (0.2, 0.2, 0.8), (0.5, 0.2, 0.8), (0.2, 0.8, 0.5)],
        *[(0.8, 0.5, 0.2), (0.8, 0.2, 0.2), (0.8, 0.2, 0.5), (0.5, 0.8, 0.2)],
    ]
)
SIZES = {1: (24,), 2: (6, 5), 3: (4, 5, 6)}
BYTES = Normalise((0.0,), (1 / 255,))


class Nearest(nn.Module):
    """The nearest prototype wins, or the last class, "none", where all are far: (b, c, *size) -> (b, k + 1)."""

    def __init__(self, prototypes: Tensor, radius: float) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(prototypes)
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        apart = (x[:, None] - self.prototypes).square().flatten(2).mean(2)
        none = torch.full_like(apart[:, :1], self.radius)
        return -8 / self.radius * torch.cat([apart, none], 1)


class After(nn.Module):
    """`change`, then the model."""

    def __init__(self, change: Callable[[Tensor], Tensor], model: nn.Module) -> None:
        super().__init__()
        self.change, self.model = change, model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.change(x))


def prototypes(rank: int, channels: int = 3) -> Tensor:
    """(8, c, *size) in [0, 1]."""
    shape = (-1, channels, *(1,) * rank)
    colours = COLOURS if channels == 3 else torch.linspace(0.1, 0.9, 8)[:, None].expand(8, channels)
    return colours.reshape(shape).repeat(1, 1, *SIZES[rank])


def samples(rank: int, channels: int = 3, count: int = 48, bounds: tuple[float, float] = (0.0, 1.0)) -> Batch:
    y = torch.arange(count) % 8
    noise = torch.randn(count, channels, *SIZES[rank], generator=Generator().manual_seed(1))
    spread = 0.05 if channels == 3 else 0.02
    x = (prototypes(rank, channels)[y] + spread * noise).clamp(0, 1)
    return Batch(bounds[0] + x * (bounds[1] - bounds[0]), y, bounds=bounds)


def sound(rank: int, trained_on: Normalise | None = None, channels: int = 3) -> nn.Module:
    """A model that is right on `samples` of the rank as long as it sees them normalised as it was trained."""
    at = prototypes(rank, channels)
    width = 0.02 if channels == 3 else 0.002
    if trained_on is None:
        return Nearest(at, width)
    return Nearest(trained_on(at), width / (sum(trained_on.std) / len(trained_on.std)) ** 2)


def names(report: Diagnosis, least: Severity = Severity.WARNING) -> list[str]:
    order = list(Severity)
    return [found.name for found in report.findings if order.index(found.level) <= order.index(least)]


def only(report: Diagnosis) -> Finding:
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def counted(victim: Victim, batch: Batch, palette: Palette | None = None, size: int = 16) -> Diagnosis:
    """Examines, and holds the doctor to its word on queries."""
    victim.rows["search"] = 5
    report = examine(victim, batch, palette, samples=size)
    assert report.queries == victim.rows["doctor"] == victim.rows.total() - 5
    assert report.queries <= 12 * size
    assert report.healthy == ("error" not in {found.level.value for found in report.findings})
    assert all(found.what and found.change for found in report.findings)
    return report


@pytest.mark.parametrize("rank", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("trained_on", [None, HALF, BYTES])
def test_a_sound_model_is_healthy(rank: int, channels: int, trained_on: Normalise | None) -> None:
    mean, std = (None, None) if trained_on is None else (trained_on.mean, trained_on.std)
    report = counted(TorchVictim(sound(rank, trained_on, channels), mean=mean, std=std), samples(rank, channels))
    assert report.findings == ()
    assert report.accuracy == 1
    assert report.healthy
    assert report.queries <= 16 * 4


@pytest.mark.parametrize("rank", SIZES)
@pytest.mark.parametrize(
    ("trained_on", "name", "said"),
    [
        (BYTES, "bounds", "0 to 255"),
        (HALF, "bounds", "mean=0.5, std=0.5"),
        (IMAGENET, "normalisation", "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225) to TorchVictim"),
        (CIFAR10, "normalisation", "mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616) to TorchVictim"),
    ],
)
def test_a_missing_normalisation_is_named(rank: int, trained_on: Normalise, name: str, said: str) -> None:
    found = only(counted(TorchVictim(sound(rank, trained_on)), samples(rank)))
    assert (found.level, found.name) == (Severity.ERROR, name)
    assert said in found.what + found.change


def test_taking_the_advice_cures() -> None:
    victim = TorchVictim(sound(2, IMAGENET), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert counted(victim, samples(2)).findings == ()


def test_a_missing_normalisation_of_grey_images_is_named() -> None:
    found = only(counted(TorchVictim(sound(2, MNIST, 1)), samples(2, 1)))
    assert found.name == "normalisation"
    assert "mean=0.1307, std=0.3081" in found.change


def test_the_advice_is_in_the_units_of_the_data() -> None:
    batch = samples(2, bounds=(0.0, 255.0))
    victim = TorchVictim(sound(2, IMAGENET), mean=IMAGENET.mean, std=IMAGENET.std, bounds=(0.0, 255.0))
    found = only(counted(victim, batch))
    assert found.name == "normalisation"
    assert "mean=(123.7, 116.3, 103.5), std=(58.4, 57.12, 57.38)" in found.change
    cured = IMAGENET.within((0.0, 255.0))
    victim = TorchVictim(sound(2, IMAGENET), mean=cured.mean, std=cured.std, bounds=(0.0, 255.0))
    assert counted(victim, batch).findings == ()


def test_bytes_where_the_model_wants_zero_to_one() -> None:
    found = only(counted(TorchVictim(sound(2), bounds=(0.0, 255.0)), samples(2, bounds=(0.0, 255.0))))
    assert found.name == "bounds"
    assert "pass mean=0, std=255" in found.change


@pytest.mark.parametrize("rank", SIZES)
def test_a_double_normalisation_in_victim_and_model(rank: int) -> None:
    model = After(IMAGENET, sound(rank, IMAGENET))
    found = only(counted(TorchVictim(model, mean=IMAGENET.mean, std=IMAGENET.std), samples(rank)))
    assert (found.level, found.name) == (Severity.ERROR, "normalisation")
    assert "leave mean and std out of TorchVictim" in found.change
    assert counted(TorchVictim(model), samples(rank)).findings == ()


def test_a_double_normalisation_inside_a_function() -> None:
    model = sound(2, IMAGENET)
    broken = CallableVictim(lambda x: model(IMAGENET(IMAGENET(torch.from_numpy(x)))).detach().numpy())
    found = only(counted(broken, samples(2)))
    assert found.name == "normalisation"
    assert "twice" in found.what
    whole = CallableVictim(lambda x: model(IMAGENET(torch.from_numpy(x))).detach().numpy())
    assert counted(whole, samples(2)).findings == ()


def test_advice_for_a_function_does_not_speak_of_arguments_it_lacks() -> None:
    model = sound(2, IMAGENET)
    found = only(counted(CallableVictim(lambda x: model(torch.from_numpy(x)).detach().numpy()), samples(2)))
    assert found.name == "normalisation"
    assert "before the model" in found.change


@pytest.mark.parametrize("rank", SIZES)
def test_reversed_channels_are_named(rank: int) -> None:
    found = only(counted(TorchVictim(After(lambda x: x.flip(1), sound(rank))), samples(rank)))
    assert (found.level, found.name) == (Severity.ERROR, "channel-order")


def test_reversed_channels_under_another_scale_are_two_findings() -> None:
    """The scale alone brings back the four colours that read the same from both ends."""
    same = torch.tensor([(0.2, 0.5, 0.2), (0.5, 0.2, 0.5), (0.8, 0.5, 0.8), (0.5, 0.8, 0.5)])
    at = torch.cat([COLOURS[:4], same])[:, :, None, None].repeat(1, 1, *SIZES[2])
    y = torch.arange(48) % 8
    batch = Batch(at[y] + 0.05 * torch.randn(48, 3, *SIZES[2], generator=Generator().manual_seed(1)).clamp(-3, 3), y)
    model = Nearest(255 * at, 0.02 * 255**2)
    report = counted(TorchVictim(After(lambda x: x.flip(1), model)), batch)
    assert names(report) == ["bounds", "channel-order"]
    assert names(counted(TorchVictim(model), batch)) == ["bounds"]


class _Surer(nn.Module):
    """Right with either order of the channels, and surer of itself where red, or what it takes for red, is weak."""

    def __init__(self, reverse: bool) -> None:
        super().__init__()
        self.near, self.reverse = sound(2), reverse

    def forward(self, x: Tensor) -> Tensor:
        means = x.flatten(2).mean(2)
        heat = 0.05 + (means[:, 2:] if self.reverse else 1 - means[:, 2:])
        order = means[:, :1] < means[:, 2:]
        upright = torch.where(order.view(-1, 1, 1, 1), x, x.flip(1))
        return self.near(upright) * heat


def test_a_preference_for_reversed_channels_without_errors_is_a_warning() -> None:
    batch = samples(2)
    blue = batch[[i for i, y in enumerate(batch.y.tolist()) if y < 4]]
    found = only(counted(TorchVictim(_Surer(reverse=False)), blue))
    assert (found.level, found.name) == (Severity.WARNING, "channel-order")
    assert "24 of 24" in found.what
    assert counted(TorchVictim(_Surer(reverse=True)), blue).findings == ()


@pytest.mark.parametrize(("unit", "said"), [(1000.0, "std=0.001"), (0.001, "std=1000")])
def test_a_signal_in_another_unit(unit: float, said: str) -> None:
    batch = _signals()
    model = Nearest(_waves() * unit, 0.02 * unit**2)
    found = only(counted(TorchVictim(model, bounds=UNBOUNDED), batch))
    assert found.name == "bounds"
    assert said in found.change
    assert counted(TorchVictim(Nearest(_waves(), 0.02), bounds=UNBOUNDED), batch).findings == ()


def _waves() -> Tensor:
    """(8, 1, 64): sines of eight frequencies."""
    time = torch.linspace(0, 2 * math.pi, 64)
    return torch.stack([torch.sin(f * time) for f in range(1, 9)])[:, None]


def _signals(gain: float = 1.0, offset: float = 0.0) -> Batch:
    y = torch.arange(32) % 8
    noise = 0.05 * torch.randn(32, 1, 64, generator=Generator().manual_seed(2))
    return Batch(gain * (_waves()[y] + noise) + offset, y, bounds=UNBOUNDED, unit="mV")


def test_a_signal_that_wants_standardising() -> None:
    model = Nearest(_waves() / _waves().std(2, keepdim=True), 0.1)
    found = only(counted(TorchVictim(model, bounds=UNBOUNDED), _signals(gain=3, offset=7)))
    assert found.name == "normalisation"
    assert "standardise every sample" in found.change
    assert counted(TorchVictim(model, bounds=UNBOUNDED), _signals(gain=math.sqrt(2))).findings == ()


def test_softmax_twice() -> None:
    softmax = nn.Softmax(1)
    for rank in SIZES:
        found = only(counted(TorchVictim(nn.Sequential(sound(rank), softmax, softmax)), samples(rank)))
        assert (found.level, found.name) == (Severity.ERROR, "softmax-twice")
        assert counted(TorchVictim(nn.Sequential(sound(rank), softmax)), samples(rank)).findings == ()


def test_an_unsure_model_is_not_taken_for_softmax_twice() -> None:
    model = After(lambda x: x, sound(2))
    unsure = nn.Sequential(model, _Times(0.02), nn.Softmax(1))
    report = counted(TorchVictim(unsure), samples(2))
    chances = unsure(samples(2).x)
    assert chances.max() < math.e / (math.e + 8)  # within the bound, but not at it
    assert report.findings == ()


class _Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_outputs_that_contradict_what_is_declared() -> None:
    probabilities = nn.Sequential(sound(2), nn.Softmax(1))
    report = counted(TorchVictim(probabilities, outputs="logits"), samples(2))
    assert "outputs='probabilities'" in only(report).change
    assert report.accuracy == 1
    report = counted(TorchVictim(sound(2), outputs="probabilities"), samples(2))
    assert (only(report).name, report.accuracy) == ("outputs", 1)
    assert "outputs='logits'" in only(report).change
    assert counted(TorchVictim(probabilities, outputs="probabilities"), samples(2)).findings == ()
    assert counted(TorchVictim(sound(2), outputs="logits"), samples(2)).findings == ()


def test_sigmoids_of_exclusive_classes() -> None:
    model = nn.Sequential(_Shifted(sound(2)), nn.Sigmoid())
    found = only(counted(TorchVictim(model), samples(2)))
    assert (found.level, found.name) == (Severity.WARNING, "outputs")


class _Shifted(nn.Module):
    """Logits around zero."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + 5


def test_a_part_left_in_training_mode() -> None:
    dropout = nn.Dropout(0.5)
    victim = TorchVictim(nn.Sequential(sound(2), dropout))
    assert counted(victim, samples(2)).findings == ()
    victim = TorchVictim(nn.Sequential(sound(2), dropout))
    dropout.train()
    found = only(counted(victim, samples(2)))
    assert (found.level, found.name) == (Severity.ERROR, "training-mode")
    assert "1 (Dropout)" in found.what


def test_training_mode_without_effect_is_a_note_and_hides_nothing() -> None:
    idle = nn.Identity()
    victim = TorchVictim(nn.Sequential(idle, sound(2, IMAGENET)))
    idle.train()
    report = counted(victim, samples(2))
    assert names(report, Severity.NOTE) == ["normalisation", "training-mode"]


def test_random_answers() -> None:
    generator = Generator().manual_seed(0)
    model = sound(2)

    def noisy(x):
        answer = model(torch.from_numpy(x)).softmax(1).detach()
        return (answer * 0.8 + 0.2 * torch.rand(answer.shape, generator=generator).softmax(1)).numpy()

    found = only(counted(CallableVictim(noisy), samples(2)))
    assert found.name == "random"


@pytest.mark.parametrize("rank", SIZES)
def test_answers_that_depend_on_the_company(rank: int) -> None:
    model = sound(rank)

    def centred(x):
        answer = model(torch.from_numpy(x)).detach()
        return (answer - answer.mean(0) / 2).numpy()

    found = only(counted(CallableVictim(centred), samples(rank)))
    assert (found.level, found.name) == (Severity.ERROR, "batch")
    assert "alone and among others" in found.what


def test_a_sample_that_is_not_answered_alone() -> None:
    model = nn.Sequential(sound(2), nn.BatchNorm1d(9, affine=False, momentum=0.0))
    ask = CallableVictim(lambda x: model(torch.from_numpy(x)).detach().numpy())
    found = only(counted(ask, samples(2)))
    assert (found.level, found.name) == (Severity.ERROR, "batch")
    assert "not answered alone" in found.what
    model.eval()
    assert counted(CallableVictim(ask.function), samples(2)).findings == ()


def test_labels_that_count_from_one() -> None:
    batch = samples(2)
    late = Batch(batch.x, batch.y + 1)
    found = only(counted(TorchVictim(sound(2)), late))
    assert (found.level, found.name) == (Severity.ERROR, "labels")
    assert "subtract 1" in found.change
    background = TorchVictim(After(lambda x: x, _Background(sound(2))))
    assert "add 1" in only(counted(background, batch)).change


class _Background(nn.Module):
    """A class that is never seen before all others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        scores = self.model(x)
        return torch.cat([scores[:, :1] * 0 - 50, scores], 1)


def test_labels_out_of_range() -> None:
    batch = samples(2)
    report = counted(TorchVictim(sound(2)), Batch(batch.x, batch.y + 2))
    assert (only(report).name, report.accuracy) == ("labels", None)
    one_based = torch.cat([batch.y[:-1] + 1, torch.tensor([9])])
    assert "subtract 1" in only(counted(TorchVictim(sound(2)), Batch(batch.x, one_based))).change


@pytest.mark.parametrize("classes", [2, 8])
def test_renamed_classes(classes: int) -> None:
    batch = samples(2)
    rows = [i for i, y in enumerate(batch.y.tolist()) if y < classes]
    order = torch.tensor([1, 0] if classes == 2 else [5, 3, 6, 1, 0, 2, 7, 4])
    batch = batch[rows]
    model = _Only(sound(2), classes)
    found = only(counted(TorchVictim(model), Batch(batch.x, order[batch.y])))
    assert (found.level, found.name) == (Severity.ERROR, "labels")
    assert "names them otherwise" in found.what
    assert counted(TorchVictim(model), batch).findings == ()


class _Only(nn.Module):
    """The first `classes` scores."""

    def __init__(self, model: nn.Module, classes: int) -> None:
        super().__init__()
        self.model, self.classes = model, classes

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[:, : self.classes]


class _Fixed(nn.Module):
    """Scores that follow the sample's noise and not its class."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return torch.stack([(flat[:, 3 * j] * 1000).frac() for j in range(9)], 1) * 9 - 2


def test_guessing_is_an_error_and_poor_is_a_warning() -> None:
    found = only(counted(TorchVictim(_Fixed()), samples(2)))
    assert (found.level, found.name) == (Severity.ERROR, "accuracy")
    batch = samples(2)
    mixed = batch.y.clone()
    mixed[16:] = torch.randint(0, 8, (32,), generator=Generator().manual_seed(4))
    report = counted(TorchVictim(sound(2)), Batch(batch.x, mixed))
    assert report.accuracy is not None
    assert 0.2 < report.accuracy < 0.5
    assert (only(report).level, only(report).name) == (Severity.WARNING, "accuracy")
    few = batch.y.clone()
    few[::8] = 7
    assert counted(TorchVictim(sound(2)), Batch(batch.x, few)).findings == ()


def test_a_constant_model() -> None:
    found = only(counted(TorchVictim(nn.Sequential(_Times(0.0), sound(2))), samples(2)))
    assert (found.level, found.name) == (Severity.ERROR, "constant")


def test_nan_in_the_answers() -> None:
    model = sound(2)

    def sometimes(x):
        answer = model(torch.from_numpy(x)).detach()
        answer[:, 0] = torch.where(answer.argmax(1) == 3, math.nan, answer[:, 0])
        return answer.numpy()

    report = counted(CallableVictim(sometimes), samples(2))
    assert (only(report).level, only(report).name) == (Severity.ERROR, "nan")
    assert "2 of 16" in only(report).what
    assert report.queries == 32


def test_saturated_probabilities() -> None:
    model = nn.Sequential(sound(2), _Times(1e4), nn.Softmax(1))
    found = only(counted(TorchVictim(model), samples(2)))
    assert (found.level, found.name) == (Severity.WARNING, "saturated")
    assert counted(TorchVictim(nn.Sequential(sound(2), _Times(1e4))), samples(2)).findings == ()


@pytest.mark.parametrize(
    ("say", "flag"),
    [
        (lambda scores: scores.argmax(1), "-M outputs=labels -M classes=9"),
        (lambda scores: scores.topk(3, 1).indices, "-M outputs=topk -M classes=9"),
        (lambda scores: nn.functional.one_hot(scores.argmax(1), 9).float(), "-M outputs=labels"),
    ],
)
def test_a_model_that_tells_only_classes(say: Callable[[Tensor], Tensor], flag: str) -> None:
    """The flag is the one that makes it sound; the ninth class, of none, is known from no label."""
    batch = samples(2)
    batch = Batch(batch.x, batch.y, classes=tuple("abcdefghi"))
    found = only(examine(TorchVictim(After(lambda x: x, _Said(sound(2), say))), batch))
    assert found.flag == flag
    settings = dict(one.removeprefix("-M ").split("=") for one in flag.split(" -M "))
    told: dict[str, Any] = {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    report = examine(TorchVictim(_Said(sound(2), say), **told), batch)
    assert report.findings == ()
    assert report.accuracy == 1.0


class _Said(nn.Module):
    def __init__(self, model: nn.Module, say: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.say = model, say

    def forward(self, x: Tensor) -> Tensor:
        return self.say(self.model(x))


def test_frames_before_channels() -> None:
    model = Nearest(prototypes(3).transpose(1, 2).contiguous(), 0.02)
    report = counted(TorchVictim(model), samples(3))
    assert (only(report).level, only(report).name) == (Severity.ERROR, "layout")
    assert "layout='frames_first' to TorchVictim" in only(report).change
    assert report.accuracy is None
    assert report.queries <= 17
    assert counted(TorchVictim(model, layout="frames_first"), samples(3)).findings == ()
    normalised = TorchVictim(model, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    assert "layout='frames_first'" in only(counted(normalised, samples(3))).change
    wrong = TorchVictim(sound(3), layout="frames_first")
    assert "leave layout='frames_first' out" in only(counted(wrong, samples(3))).change
    function = CallableVictim(lambda x: model(torch.from_numpy(x)).detach().numpy())
    assert "swapaxes" in only(counted(function, samples(3))).change


class _Viewing(nn.Module):
    """Takes (b, t, c, h, w) and views it as frames, as TSN and TSM are published: any order of t and c goes through."""

    def __init__(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.model, self.shape = model, shape

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(x.reshape(-1, *self.shape))
        return scores


def test_frames_before_channels_where_both_orders_go_through() -> None:
    first = prototypes(3).transpose(1, 2).contiguous()
    model = _Viewing(Nearest(first, 0.02), tuple(first.shape[1:]))
    report = counted(TorchVictim(model), samples(3))
    assert (only(report).level, only(report).name) == (Severity.ERROR, "layout")
    assert only(report).change == "pass layout='frames_first' to TorchVictim"
    assert counted(TorchVictim(model, layout="frames_first"), samples(3)).findings == ()
    shuffled = _Viewing(sound(3), tuple(prototypes(3).shape[1:]))
    wrong = TorchVictim(shuffled, layout="frames_first")
    assert only(counted(wrong, samples(3))).change == "pass layout='channels_first' to TorchVictim"


@pytest.mark.parametrize("rank", [1, 2])
def test_channels_last(rank: int) -> None:
    model = Nearest(prototypes(rank).movedim(1, -1).contiguous(), 0.02)
    found = only(counted(TorchVictim(model, mean=IMAGENET.mean, std=IMAGENET.std), samples(rank)))
    assert found.name == "layout"
    assert "movedim(1, -1)" in found.change


def test_the_wrong_number_of_channels() -> None:
    colour = TorchVictim(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(48, 9)))
    assert "in colour" in only(counted(colour, samples(2, 1))).change
    grey = TorchVictim(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(48, 9)))
    assert "in grey" in only(counted(grey, samples(2))).change


def test_a_model_that_fails_or_answers_in_a_wrong_shape() -> None:
    for function in (lambda x: 1 / 0, lambda x: x.reshape(len(x), -1)[:, 0], lambda x: x.reshape(len(x), -1)[:, :1]):
        report = counted(CallableVictim(function), samples(2))
        assert (only(report).level, only(report).name, report.accuracy) == (Severity.ERROR, "model", None)


def test_a_server_that_is_down_is_not_asked_about_layouts() -> None:
    class Down(Victim):
        retries, backoff = 2, 0.0

        def _predict(self, x: Tensor) -> Tensor:
            raise Unanswered("the server is down")

    report = counted(Down(), samples(3))
    assert "the server is down" in only(report).what
    assert report.queries == 3 * 16


def test_data_that_were_divided_twice_or_declared_too_wide() -> None:
    batch = samples(2)
    report = counted(TorchVictim(sound(2)), Batch(batch.x / 255, batch.y))
    assert (only(report).level, only(report).name, report.queries) == (Severity.ERROR, "bounds", 0)
    wide = counted(TorchVictim(sound(2), bounds=(0.0, 255.0)), Batch(batch.x, batch.y, bounds=(0.0, 255.0)))
    assert "bounds=(0, 1)" in only(wide).change
    narrow = counted(TorchVictim(sound(2)), Batch(batch.x * 0.04, batch.y))
    assert narrow.findings[-1].name == "bounds"
    assert narrow.findings[-1].level is Severity.WARNING


def test_bounds_of_data_and_model_that_differ() -> None:
    refused = counted(TorchVictim(sound(1)), Batch(samples(1).x, samples(1).y, bounds=UNBOUNDED))
    assert (only(refused).level, only(refused).name, refused.queries) == (Severity.ERROR, "bounds", 0)
    assert "bounds=(-inf, inf)" in only(refused).change
    cut = counted(TorchVictim(sound(1), bounds=(-1.0, 2.0)), samples(1))
    assert (only(cut).level, only(cut).name) == (Severity.WARNING, "bounds")
    assert counted(TorchVictim(sound(1), bounds=UNBOUNDED), samples(1)).findings == ()


def test_data_that_repeat_or_say_nothing() -> None:
    batch, victim = samples(2), TorchVictim(sound(2))
    assert names(counted(victim, batch[[i for i in range(48) if batch.y[i] == 2]])) == ["one-class"]
    twice = Batch(torch.cat([batch.x, batch.x[:5]]), torch.cat([batch.y, batch.y[:5]]))
    found = only(counted(TorchVictim(sound(2)), twice))
    assert found.name == "duplicates"
    assert "5 of 53" in found.what
    x = batch.x.clone()
    x[7] = 0.5
    flat = counted(TorchVictim(sound(2)), Batch(x, batch.y, ids=tuple(f"s{i}" for i in range(48))))
    assert "s7" in next(found for found in flat.findings if found.name == "flat").what
    x = batch.x.clone()
    x[7, 1] = 0.5
    assert names(counted(TorchVictim(sound(2)), Batch(x, batch.y)), Severity.NOTE) == ["flat"]


def _unseeded(x: Tensor, severity: float, generator: Generator) -> Tensor:
    return (x + severity * torch.rand(x.shape)).clamp(0, 1)


@pytest.mark.parametrize("rank", SIZES)
def test_filters(rank: int) -> None:
    good = Palette.of(["gaussian_noise", "gaussian_blur"], rank, 3)
    assert counted(TorchVictim(sound(rank)), samples(rank), good).findings == ()
    lawless = Filter("lawless", _unseeded, (0.1, 0.2))
    brighten = Filter("brighten", lambda x, severity, generator: torch.where(x > 2 - severity, 1.0, x), (0.1, 1.9))
    palette = Palette((*good.entries, Entry(lawless, 0.2), Entry(brighten, 0.1), Entry(brighten, 1.9)))
    report = counted(TorchVictim(sound(rank)), samples(rank), palette)
    assert [(f.level, f.name) for f in report.findings] == [
        (Severity.ERROR, "filter:lawless"),
        (Severity.WARNING, "filter:brighten"),
    ]
    assert "brighten@0.1" in report.findings[1].what


def _several(rank: int) -> Batch:
    """Two labels a sample: red is strong, blue is strong."""
    batch = samples(rank)
    return Batch(batch.x, (COLOURS[batch.y][:, [0, 2]] > 0.4).long())


class _Strong(nn.Module):
    """(b, 3, *size) -> log-odds (b, 2) that red and blue are strong."""

    def forward(self, x: Tensor) -> Tensor:
        return 30 * (x.flatten(2).mean(2)[:, [0, 2]] - 0.4)


@pytest.mark.parametrize("rank", SIZES)
def test_several_labels_a_sample(rank: int) -> None:
    batch = _several(rank)
    report = counted(TorchVictim(_Strong(), multilabel=True), batch)
    assert (report.findings, report.accuracy) == ((), 1)
    twice = nn.Sequential(_Strong(), nn.Sigmoid(), nn.Sigmoid())
    assert "softmax-twice" in names(counted(TorchVictim(twice, multilabel=True), batch))
    once = nn.Sequential(_Strong(), nn.Sigmoid())
    assert counted(TorchVictim(once, multilabel=True), batch).findings == ()
    declared = counted(TorchVictim(once, multilabel=True, outputs="logits"), batch)
    assert only(declared).name == "outputs"
    assert names(counted(TorchVictim(_Strong()), batch)) == ["labels"]
    assert names(counted(TorchVictim(_Strong(), multilabel=True), samples(rank))) == ["labels"]
    assert names(counted(TorchVictim(After(lambda x: x.flip(1), _Strong()), multilabel=True), batch)) == [
        "channel-order"
    ]


def test_few_samples_are_said_to_be_few() -> None:
    report = counted(TorchVictim(sound(2, IMAGENET)), samples(2)[[0, 1, 2]])
    assert names(report, Severity.NOTE) == ["samples"]
    assert report.healthy
    with pytest.raises(InputError, match="at least 1 sample"):
        examine(TorchVictim(sound(2)), samples(2), samples=0)


def test_the_victim_is_left_as_it_was() -> None:
    victim = TorchVictim(nn.Sequential(sound(2), nn.Softmax(1)), outputs="logits")
    before = copy.copy(vars(victim))
    examine(victim, samples(2))
    assert {key: vars(victim)[key] for key in before} == before


def test_samples_are_picked_in_pairs_over_classes_and_by_seed() -> None:
    y = torch.arange(1000) % 100
    rows = pick(y, 16, 0)
    assert len(set(rows)) == 16
    assert sorted(torch.bincount(y[rows]).tolist())[-8:] == [2] * 8
    assert rows == pick(y, 16, 0) != pick(y, 16, 1)
    assert len(pick(torch.arange(10), 16, 0)) == 10
    assert len(pick(torch.arange(30), 16, 0)) == 16


def test_chances_by_hand() -> None:
    assert at_least(2, 3, 0.5) == pytest.approx(0.5)
    assert at_least(0, 0, 0.5) == 1
    wrong, right = torch.zeros(16), torch.ones(16)
    assert clear_rise(wrong, right) is Severity.ERROR
    assert clear_rise(wrong[:4], right[:4]) is Severity.WARNING  # 1 in 16 by chance
    assert clear_rise(wrong[:3], right[:3]) is None
    assert clear_rise(wrong, torch.cat([right[:4], wrong[:12]])) is None


def test_inverse_undoes() -> None:
    x = samples(2).x
    for one in (IMAGENET, HALF, Normalise((0.1, 0.2, 0.3), (2.0,)), Normalise((0.1,), (1.0, 2.0, 3.0))):
        assert torch.allclose(inverse(one)(one(x)), x, atol=1e-6)


@pytest.fixture(scope="module")
def cifar(real: Path) -> tuple[nn.Module, Batch]:
    with np.load(real / "cifar10" / "test_0_4999.npz", allow_pickle=False) as arrays:
        x, y = torch.from_numpy(arrays["x"][:200]), torch.from_numpy(arrays["y"][:200]).long()
    model = cifar_resnet(20)
    model.load_state_dict(load_file(real / "cifar10" / "resnet20.safetensors"))
    return model, Batch(x.permute(0, 3, 1, 2) / 255, y)


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_a_published_model_on_real_images(cifar: tuple[nn.Module, Batch], seed: int) -> None:
    model, batch = cifar
    whole = examine(TorchVictim(model, mean=IMAGENET.mean, std=IMAGENET.std), batch, seed=seed)
    assert whole.findings == ()
    missing = only(examine(TorchVictim(model), batch, seed=seed))
    assert missing.name in ("normalisation", "bounds")  # (x - 0.5) / 0.5 comes near on some draws
    assert "std=(0.229, 0.224, 0.225)" in missing.change
    twice = TorchVictim(After(IMAGENET, model), mean=IMAGENET.mean, std=IMAGENET.std)
    assert names(examine(twice, batch, seed=seed)) == ["normalisation"]
    softmax = nn.Sequential(model, nn.Softmax(1), nn.Softmax(1))
    assert names(examine(TorchVictim(softmax, mean=IMAGENET.mean, std=IMAGENET.std), batch, seed=seed)) == [
        "softmax-twice"
    ]
