from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from rlab.errors import InputError, VictimError
from rlab.victims import TorchVictim
from rlab.victims.torch_module import Normalise

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
def test_a_mean_or_std_that_makes_no_sense_is_refused(mean: float, std: float) -> None:
    with pytest.raises(InputError, match="std above 0"):
        Normalise.of(mean, std)


def test_as_many_means_as_channels() -> None:
    victim = TorchVictim(Means(), mean=(0.1, 0.2), std=1.0)
    with pytest.raises(InputError, match="mean has 2 values but the inputs have 3 channels"):
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


def test_answers_with_logits_are_read() -> None:
    victim = TorchVictim(Through(lambda x: SimpleNamespace(logits=Means()(x), loss=None)))
    assert torch.allclose(victim(X), Means()(X).log_softmax(1))


@pytest.mark.parametrize("answer", [{"out": 1}, (torch.ones(1), 2), None])
def test_other_answers_are_refused(answer: object) -> None:
    with pytest.raises(VictimError, match=f"or an answer with logits, got {type(answer).__name__}"):
        TorchVictim(Through(lambda x: answer))(X)


def test_half_precision_models_and_autocast_give_nearly_the_same() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 4))
    exact = TorchVictim(model)(X)
    mixed = TorchVictim(model, autocast=True)(X)
    assert mixed.dtype == torch.float32
    assert not torch.equal(mixed, exact)
    assert torch.allclose(mixed, exact, atol=0.05)
    assert torch.allclose(TorchVictim(model.bfloat16())(X), exact, atol=0.05)


def test_the_chunk_finds_its_size_when_memory_runs_out() -> None:
    asked = []

    def model(x: Tensor) -> Tensor:
        asked.append(len(x))
        if len(x) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return x.flatten(1)[:, :2]

    x = torch.rand(300, 1, 4)
    victim = TorchVictim(Through(model))
    scores = victim(x)
    assert torch.allclose(scores, x[:, 0, :2].log_softmax(1))
    assert asked[:4] == [256, 128, 64, 32]
    assert victim.chunk == 16
    assert victim.rows == {"search": sum(asked)}


def test_what_is_no_module_device_or_layout_is_refused() -> None:
    with pytest.raises(InputError, match="wrap a function in CallableVictim"):
        TorchVictim(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot put the model on device 'gpu'"):
        TorchVictim(nn.Linear(2, 2), device="gpu")
    with pytest.raises(InputError, match="one of channels_first, frames_first, got 'nhwc'"):
        TorchVictim(nn.Linear(2, 2), layout="nhwc")  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(InputError, match="cannot put the model on device 'cuda'"):
        TorchVictim(nn.Linear(2, 2), device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_scores_come_back_to_the_inputs() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 4))
    want = TorchVictim(model)(X)
    scores = TorchVictim(model, device="cuda", mean=0.0, std=1.0)(X)
    assert scores.device == X.device
    assert torch.allclose(scores, want, atol=1e-4)


def test_a_compiled_model_is_the_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []

    def compile(model: nn.Module) -> nn.Module:
        compiled.append(model)
        return model

    monkeypatch.setattr(torch, "compile", compile)
    first, other = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    first(X), other(X)
    victim = TorchVictim(first, compile=True)
    answers = [victim(X), victim(X[:1])]
    assert compiled == [first]  # once, whatever the number of rows
    victim.model = other  # as a sanity check puts a copy in its place
    assert not torch.equal(victim(X), answers[0])
    assert compiled == [first, other]
    TorchVictim(first)(X)
    assert len(compiled) == 2
