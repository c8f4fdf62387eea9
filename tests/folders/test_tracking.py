"""Runs in experiment trackers: TensorBoard's files are read back; stand-ins replace MLflow and W&B."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import yaml
from PIL import Image

from rlab.errors import InputError
from rlab.folders.records import read_record
from rlab.folders.tracking import track_run
from rlab.results.result import AttackResult
from tests.command import rlab_command
from tests.results.plots.fixtures import Recipe, make_result
from tests.training.test_directions import TINY


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_result(Recipe((16, 16), (4, 4), 3, n=8)).save(tmp_path / "run")
    (folder / "pictures").mkdir()
    Image.new("RGB", (6, 4), "red").save(folder / "pictures" / "sample-0.png")
    (folder / "report.html").write_text("<p>page</p>")
    return folder


def test_tensorboard_holds_figures_curve_settings_and_pictures(run: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    track_run(run, "tensorboard")
    read = events.EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    figures = read_record(run).values
    assert read.Scalars("figures/flipped verified")[0].value == pytest.approx(figures["flipped, verified"])
    curve = read.Scalars("curves/flipped within")
    assert [point.step for point in curve] == sorted({point.step for point in curve})
    assert curve[-1].value == pytest.approx(figures["flipped, verified"])
    assert read.Tags()["images"] == ["sample-0"]
    (settings,) = read.Tensors("settings/text_summary")
    assert b"| budget | 1000 |" in settings.tensor_proto.string_val[0]


class Recorder:
    """Keeps what was logged, with the signatures of the calls that MLflow and W&B document."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.figures: dict[str, float] = {}
        self.steps: list[int] = []
        self.files: list[str] = []
        self.closed = False
        self.summary = self.figures
        self.name, self.info = "named", SimpleNamespace(run_id="r1")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True


def mlflow_like(kept: Recorder) -> Any:
    def log_metrics(metrics: dict[str, float], step: int | None = None) -> None:
        assert all(set(name) <= set(ALLOWED) for name in metrics)
        if step is None:
            kept.figures.update(metrics)
        else:
            kept.steps.append(step)

    def start_run(run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None) -> Recorder:
        return kept

    return SimpleNamespace(
        start_run=start_run, log_params=lambda params: kept.settings.update(params), log_metrics=log_metrics,
        log_artifact=lambda local_path, artifact_path=None: kept.files.append(Path(local_path).name),
        get_tracking_uri=lambda: "file:mlruns",
    )  # fmt: skip


ALLOWED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. /"


def wandb_like(kept: Recorder) -> Any:
    def init(project: str, name: str, config: dict[str, str]) -> Recorder:
        kept.settings.update(config)
        return kept

    def log(values: dict[str, Any], step: int | None = None) -> None:
        assert step is None or step >= max(kept.steps, default=0)  # W&B drops what comes late
        kept.steps += [] if step is None else [step]
        kept.files += [value for name, value in values.items() if name.startswith("pictures/")]
        kept.files += ["report.html"] if "page" in values else []

    kept.log = log  # type: ignore[attr-defined]
    return SimpleNamespace(
        init=init, Image=lambda data_or_path: Path(data_or_path).name, Html=lambda data, inject: data
    )


@pytest.mark.parametrize(("name", "like"), [("mlflow", mlflow_like), ("wandb", wandb_like)])
def test_other_trackers_get_the_same(run: Path, name: str, like: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Recorder()
    monkeypatch.setitem(sys.modules, name, like(kept))
    said = rlab_command("report", run, "--track", name)
    assert said.code == 0, said.err
    assert kept.closed
    assert kept.settings["budget"] == "1000"
    assert kept.figures["flipped verified"] == pytest.approx(read_record(run).values["flipped, verified"])
    assert kept.steps == sorted(kept.steps)
    assert kept.steps
    assert sorted(kept.files) == ["report.html", "sample-0.png"]


@pytest.mark.slow
def test_a_training_is_tracked_line_by_line(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "prior.yaml").write_text(yaml.safe_dump(TINY))
    said = rlab_command("train", tmp_path / "prior.yaml", "--out", tmp_path / "run", "--track", "tensorboard")
    assert said.code == 0, said.err
    read = events.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    read.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines
    curve = [(point.step, point.value) for point in read.Scalars("curves/median_l2")]
    assert curve == [(k, pytest.approx(line["median_l2"])) for k, line in enumerate(lines) if "median_l2" in line]
    (settings,) = read.Tensors("settings/text_summary")
    assert b"| data.path | demo:digits |" in settings.tensor_proto.string_val[0]


def test_hardenings_are_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"evaluation": {"square_budget": 4, "pgd_steps": 1}, "test": {"path": "demo:digits", "limit": 2}}
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(quick))
    asked: list[Any] = ["harden", "demo:digits", "demo:digits", "--config", tmp_path / "quick.yaml", "--limit", 20]
    asked += ["-D", "split=train"]
    asked += ["--epochs", 1, "--adversary-budget", 2, "--budget", 6, "--policy", "random"]
    kept = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow_like(kept))
    said = rlab_command(*asked, "--adversary", "random", "--out", tmp_path / "one", "--track", "mlflow")
    assert said.code == 0, said.err
    assert kept.settings["command"] == "harden"
    assert kept.settings["epochs"] == "1"
    assert 0 <= kept.figures["clean after"] <= 1
    assert kept.steps == [0, 1]  # the model as it came, and its epoch
    assert kept.files == ["report.html"]
    kept = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", wandb_like(kept))
    said = rlab_command(*asked, "--method", "fgsm@0.01", "--out", tmp_path / "two", "--track", "wandb")
    assert said.code == 0, said.err
    assert kept.settings["method"] == "fgsm@0.01"
    assert "clean after" in kept.figures


DIGITS = ("demo:digits", "demo:digits", "--limit", "1")


@pytest.mark.parametrize(
    ("name", "asked"),
    [("mlflow", ("attack", *DIGITS)), ("wandb", ("harden", *DIGITS)), ("tensorboard", ("train", "agents/images.yaml"))],
)
def test_a_tracker_that_is_not_installed_costs_nothing(
    name: str, asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    said = rlab_command(*asked, "--out", tmp_path / "run", "--track", name)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"rlab-robustness[{name}]" in said.err
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_fails_leaves_the_run_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(start_run=mock.Mock(side_effect=OSError("no server")))
    monkeypatch.setitem(sys.modules, "mlflow", broken)
    with pytest.raises(InputError, match="no server"):
        track_run(run, "mlflow")
    assert len(AttackResult.load(run)) == 8
    said = rlab_command("report", run, "--track", "paper")
    assert (said.code, said.err.count("\n")) == (2, 1)
