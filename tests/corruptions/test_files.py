"""Files of CIFAR-10-C in, files of RobustBench out: planted images and models with known answers."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.corruptions import KINDS, LEVELS
from rlab.corruptions.robustbench import write_robustbench
from rlab.corruptions.run import VALIDATION, tally_of
from rlab.data.batch import Batch
from rlab.errors import DataError, InputError, OptionError
from tests.command import rlab_command
from tests.corruptions.test_run import QUIET, Mean, grey

LIGHT = (20, 20, 200, 200)  # of four images: the first two are class 0, the others class 1


def write_files(folder: Path, *kinds: str, light: tuple[int, ...] = LIGHT) -> str:
    """Images of 8 x 8 pixels in which level 5 alone turns class 0 bright; returns the name of the data."""
    folder.mkdir(parents=True)
    pixels = np.array(light * 4 + (200,) * len(light), np.uint8)[:, None, None, None] * np.ones((8, 8, 3), np.uint8)
    for kind in kinds:
        np.save(folder / f"{kind}.npy", pixels)
    np.save(folder / "labels.npy", (np.array(light * 5) > 127).astype(np.uint8))
    return f"cifar10c:{folder}"


def test_each_level_is_a_block_of_the_file(tmp_path: Path) -> None:
    data = write_files(tmp_path / "c", "fog", "glass", *VALIDATION)
    report = rlab.corrupt(Mean(), data, **QUIET)
    assert list(report.kinds) == ["fog", "glass"]  # the published order first, no kinds for validation
    assert [tally.accuracy.value for tally in report.kinds["fog"]] == [1, 1, 1, 1, 0.5]
    assert report.accuracy == pytest.approx(0.9)
    assert (report.rows, report.clean.samples) == (4 * 2 * 5, 0)
    assert [row[0] for row in report.table().rows] == ["fog", "glass", "mean"]
    few = rlab.corrupt(Mean(), data, limit=2, kinds="saturate", levels=[5], out=tmp_path / "run", **QUIET)
    assert (few.accuracy, few.rows) == (0.5, 2)  # one of each class
    base = str(few.save(tmp_path / "base"))
    beside = rlab.corrupt(Mean(), data, limit=2, kinds="saturate", levels=[5], baseline=base, **QUIET)
    assert beside.mce == 1.0
    assert math.isnan(beside.relative_mce)  # no clean images


def test_one_level_is_data_like_any_other(tmp_path: Path) -> None:
    batch = rlab.load(write_files(tmp_path / "c", "fog") + "/fog@5", limit=2)
    assert batch.shape == (3, 8, 8)
    assert batch.y.tolist() == [0, 1]
    assert torch.allclose(batch.x, torch.tensor(200 / 255))
    assert batch.classes[0] == "airplane"


def _without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_without("labels.npy"), "no labels.npy"),
        (_without("fog.npy"), "no images"),
        (lambda folder: np.save(folder / "fog.npy", np.zeros((3, 8, 8, 3), np.uint8)), r"shape \(3, 8, 8, 3\)"),
        (lambda folder: np.save(folder / "fog.npy", np.zeros((20, 8, 8, 3))), "float64"),
        (lambda folder: np.save(folder / "labels.npy", np.arange(20)), "the same labels 5 times"),
        (lambda folder: np.save(folder / "labels.npy", np.zeros(19, np.uint8)), "19 labels"),
    ],
)
def test_another_folder_is_refused_in_one_sentence(tmp_path: Path, spoil: Any, said: str) -> None:
    data, victim = write_files(tmp_path / "c", "fog"), Mean()
    spoil(tmp_path / "c")
    with pytest.raises(DataError, match=said):
        rlab.corrupt(victim, data, **QUIET)
    assert not victim.rows.total()


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ("cifar10c:nowhere", {}, "no folder"),
        ("cifar10c:{folder}", {"kinds": "fogg"}, "'fog'"),
        ("cifar10c:{folder}", {"robustbench": "cifar10", "out": "run"}, "fifteen kinds"),
        (grey(0.2, 0.8), {"robustbench": "cifar10"}, "pass out"),
        (
            Batch(torch.rand(1, 3, 2, 8, 8), torch.tensor([0])),
            {"robustbench": "cifar10", "out": "run"},
            "three channels",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, data: Any, options: dict[str, Any], said: str) -> None:
    write_files(tmp_path / "c", "fog")
    data = data.format(folder=tmp_path / "c") if isinstance(data, str) else data
    with pytest.raises(InputError, match=said):
        rlab.corrupt(Mean(), data, **options, **QUIET)
    with pytest.raises(DataError, match="name both"):
        rlab.load(f"cifar10c:{tmp_path / 'c'}")


def test_commands(tmp_path: Path) -> None:
    data = write_files(tmp_path / "c", "fog")
    graded = rlab_command("benchmark", "run", data, "--model", "demo:digits")
    assert graded.code == 2
    assert f"rlab corrupt MODEL {data}" in graded.err.replace("\n", " ")
    wrong = rlab_command("corrupt", "demo:digits", f"cifar10c:{tmp_path}", "--out", tmp_path / "run")
    assert wrong.code == 2
    assert not (tmp_path / "run").exists()


class Normalised(nn.Module):
    """A network as RobustBench has them: it takes images in [0, 1] and normalises them with buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.mu, self.sigma = nn.Buffer(torch.zeros(1, 3, 1, 1)), nn.Buffer(torch.ones(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(((x - self.mu) / self.sigma).mean((2, 3)))
        return scores


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x.mean((2, 3)))
        return scores


def robustbench_results(path: Path) -> dict[str, dict[tuple[str, int], float]]:
    """Its unaggregated_results.csv: two lines of headings, kind and severity, then a line for each model."""
    kinds, levels, *models = csv.reader(path.read_text().splitlines())
    heads = list(zip(kinds[1:], map(int, levels[1:]), strict=True))
    return {name: dict(zip(heads, map(float, cells), strict=True)) for name, *cells in models}


def test_the_files_of_robustbench(tmp_path: Path) -> None:
    torch.manual_seed(0)
    victim = rlab.TorchVictim(Plain(), mean=[0.4, 0.5, 0.6], std=0.2, bounds=(0, 1))
    data = write_files(tmp_path / "c", *KINDS, *VALIDATION)
    report = rlab.corrupt(victim, data, out=tmp_path / "Ours", robustbench="cifar10", **QUIET)
    root = tmp_path / "Ours" / "robustbench"
    about = root / "model_info" / "cifar10" / "corruptions"
    rows = robustbench_results(about / "unaggregated_results.csv")
    assert rows == {
        "Ours": {(kind, level): report.kinds[kind][level - 1].accuracy.value for kind in KINDS for level in LEVELS}
    }
    info = json.loads((about / "Ours.json").read_text())
    assert (info["dataset"], info["architecture"], info["clean_acc"]) == ("cifar10", "Plain", None)
    assert float(info["corruptions_acc"]) == pytest.approx(100 * np.mean(list(rows["Ours"].values())), abs=0.01)
    assert "4 samples" in info["footnote"]
    loaded, x = Normalised(), torch.rand(5, 3, 8, 8)
    loaded.load_state_dict(torch.load(root / "models" / "cifar10" / "corruptions" / "Ours.pt", weights_only=True))
    torch.testing.assert_close(loaded(x).log_softmax(1), victim(x, "search"))


def test_a_model_without_weights_has_no_checkpoint_and_clean_images_give_an_accuracy(tmp_path: Path) -> None:
    tally = tally_of(torch.tensor([0.9, 0.3]), torch.tensor([True, False]))
    report = rlab.CorruptionReport(tally, dict.fromkeys(KINDS, (tally,) * 5), LEVELS, "", 2)
    write_robustbench(report, "cifar100", "", Mean(), tmp_path / "run")
    assert not (tmp_path / "run" / "robustbench" / "models").exists()
    info = tmp_path / "run" / "robustbench" / "model_info" / "cifar100" / "corruptions" / "run.json"
    assert json.loads(info.read_text())["clean_acc"] == "50.00"
    with pytest.raises(OptionError, match="cifar10"):
        rlab.corrupt(Mean(), grey(0.2), robustbench="mnist", **QUIET)  # type: ignore[arg-type]
