"""What the doctor tells on the command line: checks that passed, no all-clear after warnings, and flags that cure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.diagnosis import examine
from rlab.diagnosis.report import Check, Diagnosis, error, note, warning
from rlab.filters import Palette
from rlab.victims.torch_module import TorchVictim
from tests.command import Said, rlab_command
from tests.diagnosis.test_diagnosis import samples, sound

MODELS = """
from tests.diagnosis.test_diagnosis import BYTES, CIFAR10, HALF, IMAGENET, MNIST, sound
imagenet, cifar, half, bytes_, plain = (lambda at=at: sound(2, at) for at in (IMAGENET, CIFAR10, HALF, BYTES, None))
grey = lambda: sound(2, MNIST, 1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODELS)
    for name, batch in (("colour", samples(2)), ("grey", samples(2, 1))):
        np.savez(tmp_path / f"{name}.npz", x=batch.x.numpy(), y=batch.y.numpy())
    same = samples(2, count=48)
    order = torch.argsort(same.y, stable=True)
    np.savez(tmp_path / "sorted.npz", x=same.x[order].numpy(), y=same.y[order].numpy())
    return tmp_path


def told(said: Said, name: str) -> list[str]:
    """The words of the flag that a finding is followed by."""
    (flag,) = re.findall(rf"^{name}: add (.+)$", said.out, re.MULTILINE)
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
        ("plain", "sorted", "one-class", ["--limit", "6"]),
    ],
)
def test_the_flag_that_is_told_cures(folder: Path, model: str, data: str, name: str, more: list[str]) -> None:
    words = ["doctor", f"my_models:{model}", f"{data}.npz", "-D", "kind=image"]
    flag = told(rlab_command(*words, *more), name)
    cured = rlab_command(*words, *more, *flag)
    assert cured.code == 0, cured.out
    assert re.search(rf"passed\s+│ {name}\s", cured.out), cured.out


def test_the_palette_that_is_told_leaves_out_what_changes_nothing(folder: Path) -> None:
    words, weak = ["doctor", "my_models:plain", "colour.npz", "-D", "kind=image"], "gaussian_blur@0.0001"
    flag = told(
        rlab_command(*words, "-p", weak, "-p", "dead_pixel@0.5*2", "-p", "illuminate@0.2"), "filter:gaussian_blur"
    )
    cured = rlab_command(*words, *flag)
    assert cured.code == 0, cured.out
    filters = re.findall(r"passed\s+│ filter:(\S+)", cured.out)
    assert filters == ["dead_pixel", "illuminate+", "illuminate-"]


def test_no_all_clear_after_warnings() -> None:
    found = {level("x", "seen", "change") for level in (error, warning, note)}
    clear = {level.level.value: "Nothing stands" in Diagnosis((level,), 0, None).sentence for level in found}
    assert clear == {"error": False, "warning": False, "note": True}


def test_a_warning_on_the_command_line_is_no_all_clear(folder: Path) -> None:
    said = rlab_command("doctor", "my_models:plain", "sorted.npz", "-D", "kind=image", "--limit", "6")
    assert said.code == 0
    assert "Nothing stands" not in said.out
    assert "1 warning" in said.out


def test_checks_that_passed_are_listed_and_those_with_findings_are_not() -> None:
    palette = Palette.of(["gaussian_blur@0.0001", "gaussian_noise@0.2"], 2, 3)
    report = examine(TorchVictim(sound(2)), samples(2), palette)
    passed = [check.name for check in report.passed]
    assert {"bounds", "duplicates", "nan", "steady", "labels", "channel-order", "accuracy"} <= set(passed)
    assert "filter:gaussian_noise" in passed
    assert "filter:gaussian_blur" not in passed
    assert len(passed) == len(set(passed))
    assert all(isinstance(check, Check) and check.seen for check in report.passed)
    assert "passed: accuracy" in str(report)


def test_a_check_that_was_not_made_has_not_passed() -> None:
    """NaN answers: nobody knows about normalisation, channel order or accuracy."""

    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_full((len(x), 9), torch.nan)

    report = examine(TorchVictim(Broken()), samples(2))
    assert not {"nan", "steady", "normalisation", "accuracy", "channel-order"} & {c.name for c in report.passed}
    assert "bounds" in {check.name for check in report.passed}
