from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.victims import TorchVictim
from rlab.victims.reading import Normalise

X = torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))


class Means(nn.Module):
    """Channel means as scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


class Through(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)  # type: ignore[operator]


def test_mean_and_std_are_applied_by_channel_in_the_units_of_the_data() -> None:
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    want = ((Means()(X) - mean) / std).log_softmax(1)
    assert torch.allclose(TorchVictim(Means(), mean=mean.tolist(), std=std.tolist())(X), want, atol=1e-5)
    scaled = TorchVictim(Means(), mean=(255 * mean).tolist(), std=(255 * std).tolist(), bounds=(0, 255))
    assert torch.allclose(scaled(X * 255), want, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 3, 4, 4), (2, 3, 2, 4, 4)])
def test_normalise_takes_any_rank(shape: tuple[int, ...]) -> None:
    done = Normalise.of(0.5, (0.1, 0.2, 0.5))
    assert done is not None
    assert torch.allclose(done(torch.ones(shape)).flatten(2)[0, :, 0], torch.tensor([5.0, 2.5, 1.0]))


def test_a_missing_mean_is_0_and_a_missing_std_is_1() -> None:
    assert Normalise.of(None, None) is None
    assert Normalise.of(0.5, None) == Normalise((0.5,), (1.0,))
    assert Normalise.of(None, 2) == Normalise((0.0,), (2.0,))


@pytest.mark.parametrize(("mean", "std"), [(float("nan"), 1.0), (0.0, 0.0), (0.0, (1.0, -1.0))])
def test_an_invalid_mean_or_std_is_refused(mean: float, std: float) -> None:
    with pytest.raises(InputError, match="std above 0"):
        Normalise.of(mean, std)


def test_means_must_fit_the_channels() -> None:
    victim = TorchVictim(Means(), mean=(0.1, 0.2), std=1.0)
    with pytest.raises(InputError, match="3 channels"):
        victim(X)
    assert victim.rows.total() == 0  # nothing reached the model


def test_normalisation_for_unit_range_moves_to_other_bounds() -> None:
    assert Normalise((0.5,), (0.25,)).within((0.0, 255.0)) == Normalise((127.5,), (63.75,))
    with pytest.raises(InputError, match="pass mean and std"):
        Normalise((0.5,), (0.25,)).within((-float("inf"), float("inf")))


def test_the_model_is_always_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(90, 4)).train()
    victim = TorchVictim(model)
    assert not model.training
    first = victim(X)
    model.train()
    assert torch.equal(victim(X), first)


def test_no_gradients_are_kept_and_scores_may_be_trained_on() -> None:
    scores = TorchVictim(nn.Sequential(nn.Flatten(), nn.Linear(90, 4)), multilabel=True, outputs="logits")(X)
    assert not scores.requires_grad
    (scores * torch.ones(4, requires_grad=True)).sum().backward()


def test_a_model_may_write_on_its_input() -> None:
    before = X.clone()
    TorchVictim(Through(lambda x: x.mul_(0).flatten(1)[:, :3]))(X)
    assert torch.equal(X, before)


def test_frames_come_first_where_the_model_wants_them() -> None:
    shapes = []

    def model(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x.mean((1, 3, 4))

    clips = torch.rand(2, 3, 7, 4, 5)
    scores = TorchVictim(Through(model), layout="frames_first", mean=(0.1, 0.2, 0.3), std=1.0)(clips)
    assert shapes == [(2, 7, 3, 4, 5)]
    want = (clips.mean((2, 3, 4)) - torch.tensor([0.1, 0.2, 0.3])).log_softmax(1)
    assert torch.allclose(scores, want, atol=1e-6)


def test_half_precision_models_and_autocast_give_nearly_the_same() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 4))
    exact = TorchVictim(model)(X)
    mixed = TorchVictim(model, autocast=True)(X)
    assert mixed.dtype == torch.float32
    assert not torch.equal(mixed, exact)
    assert torch.allclose(mixed, exact, atol=0.05)
    assert torch.allclose(TorchVictim(model.bfloat16())(X), exact, atol=0.05)


def without_values() -> list[nn.Module]:
    with torch.device("meta"):
        empty = nn.Linear(4, 3)
    return [empty, nn.LazyLinear(3), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3).to("meta"))]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (lambda x: x, {}, "CallableVictim"),
        (nn.Linear(2, 2), {"device": "gpu"}, "device 'gpu'"),
        (nn.Linear(2, 2), {"device": "meta"}, "device 'meta'"),
        (nn.Linear(2, 2), {"device": f"cuda:{torch.cuda.device_count()}"}, "device 'cuda"),
        (nn.Linear(2, 2), {"layout": "nhwc"}, "'nhwc'"),
        *[(model, {}, "no values") for model in without_values()],
    ],
)
def test_what_cannot_be_a_victim_is_refused(model: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TorchVictim(model, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_scores_come_back_to_the_inputs() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 4))
    want = TorchVictim(model)(X)
    scores = TorchVictim(model, device="cuda", mean=0.0, std=1.0)(X)
    assert scores.device == X.device
    assert torch.allclose(scores, want, atol=1e-4)
