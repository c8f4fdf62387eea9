"""The doctor as a whole: what it reports on the command line, its checks, its flags that solve the problem, real images."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from benchmarks.victims.residual import cifar_resnet
from rlab.data.batch import Batch
from rlab.diagnosis import Diagnosis, Severity, examine
from rlab.diagnosis.inputs import inverse
from rlab.diagnosis.probe import pick
from rlab.diagnosis.report import at_least, clear_rise, error, note, warning
from rlab.errors import InputError
from rlab.filters import Filter, Palette
from rlab.filters.palette import Entry
from rlab.victims.reading import Normalise
from rlab.victims.torch_module import TorchVictim
from tests.command import rlab_command
from tests.diagnosis.cases import HALF, IMAGENET, RANKS, chain, counted, normalised, plain, samples, sound, summary

MODELS = """
from tests.diagnosis.cases import BYTES, CIFAR10, HALF, IMAGENET, MNIST, sound
imagenet, cifar, half, bytes_, plain = (lambda at=at: sound(2, at) for at in (IMAGENET, CIFAR10, HALF, BYTES, None))
grey = lambda: sound(2, MNIST, 1)
"""
SOUND = ["doctor", "my_models:plain", "colour.npz", "-D", "kind=image"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODELS)
    for name, batch in (("colour", samples(2)), ("grey", samples(2, 1))):
        np.savez(tmp_path / f"{name}.npz", x=batch.x.numpy(), y=batch.y.numpy())
    order = torch.argsort(samples(2).y, stable=True)
    np.savez(tmp_path / "sorted.npz", x=samples(2).x[order].numpy(), y=samples(2).y[order].numpy())
    return tmp_path


def advised(name: str, *words: str) -> list[str]:
    """The words of the flag that follows a finding of this name."""
    (flag,) = re.findall(rf"^{name}: add (.+)$", rlab_command(*words).out, re.MULTILINE)
    return shlex.split(flag)


@pytest.mark.parametrize(
    ("model", "data", "name", "more"),
    [
        ("imagenet", "colour", "normalisation", []),
        ("cifar", "colour", "normalisation", []),
        ("half", "colour", "bounds", []),
        ("bytes_", "colour", "bounds", []),
        ("grey", "grey", "normalisation", []),
        ("plain", "colour", "outputs", ["-M", "outputs=probabilities"]),
        ("plain", "sorted", "one-class", ["--limit", "6", "-D", "order=first"]),
    ],
)
def test_the_advised_flag_solves_the_problem(folder: Path, model: str, data: str, name: str, more: list[str]) -> None:
    words = ["doctor", f"my_models:{model}", f"{data}.npz", "-D", "kind=image", *more]
    solved = rlab_command(*words, *advised(name, *words))
    assert solved.code == 0, solved.out
    assert re.search(rf"│ {name}\s+│ passed\s", solved.out), solved.out


def test_the_advised_palette_omits_a_filter_without_effect(folder: Path) -> None:
    palette = ["-p", "gaussian_blur@0.0001", "-p", "dead_pixel@0.5*2", "-p", "illuminate@0.2"]
    solved = rlab_command(*SOUND, *advised("filter:gaussian_blur", *SOUND, *palette))
    assert solved.code == 0, solved.out
    assert re.findall(r"│ filter:(\S+)\s+│ passed", solved.out) == ["dead_pixel", "illuminate+", "illuminate-"]


def test_no_all_clear_after_warnings(folder: Path) -> None:
    found = {level("x", "seen", "change") for level in (error, warning, note)}
    clear = {one.level.value: "No problems" in Diagnosis((one,), 0, None).sentence for one in found}
    assert clear == {"error": False, "warning": False, "note": True}
    said = rlab_command(
        "doctor", "my_models:plain", "sorted.npz", "-D", "kind=image", "-D", "order=first", "--limit", "6"
    )
    assert said.code == 0
    assert "1 warning" in said.out


def test_passed_checks_are_listed_and_those_with_findings_are_not() -> None:
    palette = Palette.of(["gaussian_blur@0.0001", "gaussian_noise@0.2"], 2, 3)
    report = examine(plain(2), samples(2), palette)
    passed = [check.name for check in report.passed]
    assert {"bounds", "duplicates", "nan", "steady", "labels", "channel-order", "accuracy"} <= set(passed)
    assert "filter:gaussian_noise" in passed
    assert "filter:gaussian_blur" not in passed
    assert len(passed) == len(set(passed))
    assert all(check.level is Severity.PASSED and check.what for check in report.passed)
    assert "passed: accuracy" in str(report)


def test_a_check_that_was_not_made_has_not_passed() -> None:
    """With NaN, nothing is known about normalisation, channel order or accuracy."""
    report = examine(TorchVictim(chain(lambda x: x.new_full((len(x), 9), torch.nan))), samples(2))
    passed = {check.name for check in report.passed}
    assert not {"nan", "steady", "normalisation", "accuracy", "channel-order"} & passed
    assert "bounds" in passed


@pytest.mark.parametrize("rank", RANKS)
def test_filters(rank: int) -> None:
    good = Palette.of(["gaussian_noise", "gaussian_blur"], rank, 3)
    assert counted(plain(rank), samples(rank), good).findings == ()
    lawless = Filter(
        "lawless", lambda x, severity, generator: (x + severity * torch.rand(x.shape)).clamp(0, 1), (0.1, 0.2)
    )
    brighten = Filter("brighten", lambda x, severity, generator: torch.where(x > 2 - severity, 1.0, x), (0.1, 1.9))
    palette = Palette((*good.entries, Entry(lawless, 0.2), Entry(brighten, 0.1), Entry(brighten, 1.9)))
    report = counted(plain(rank), samples(rank), palette)
    assert summary(report) == ["error filter:lawless", "warning filter:brighten"]
    assert "brighten@0.1" in report.findings[1].what


def test_few_samples_are_a_note() -> None:
    report = counted(TorchVictim(sound(2, IMAGENET)), samples(2)[[0, 1, 2]])
    assert summary(report) == ["note samples"]
    assert report.healthy
    with pytest.raises(InputError, match="at least 1 sample"):
        examine(plain(2), samples(2), samples=0)


def test_the_victim_is_left_unchanged() -> None:
    victim = TorchVictim(nn.Sequential(sound(2), nn.Softmax(1)), outputs="logits")
    before = copy.copy(vars(victim))
    examine(victim, samples(2))
    assert {key: vars(victim)[key] for key in before} == before


def test_samples_are_chosen_in_pairs_over_classes_and_by_seed() -> None:
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


def test_the_inverse_of_a_normalisation() -> None:
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
    assert examine(normalised(model, IMAGENET), batch, seed=seed).findings == ()
    (missing,) = examine(TorchVictim(model), batch, seed=seed).findings
    assert missing.name in ("normalisation", "bounds")  # (x - 0.5) / 0.5 comes near for some seeds
    assert "std=(0.229, 0.224, 0.225)" in missing.change
    twice = normalised(chain(IMAGENET, model), IMAGENET)
    assert summary(examine(twice, batch, seed=seed)) == ["error normalisation"]
    softmax = normalised(nn.Sequential(model, nn.Softmax(1), nn.Softmax(1)), IMAGENET)
    assert summary(examine(softmax, batch, seed=seed)) == ["error softmax-twice"]
