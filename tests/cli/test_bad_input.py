"""Bad input: a one-line error, exit code 2, and no files left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import wfdb
from PIL import Image

from rlab.core import defaults
from rlab.data import fields
from tests.command import Said, rlab_command

DIGITS = "demo:digits"
MODELS = """
import numpy as np
import torch

def good():
    return lambda x: np.tile([1.0, 0.0, 0.0], (len(x), 1))
def nan():
    return lambda x: np.full((len(x), 10), np.nan)
def flat():
    return lambda x: np.zeros(len(x))
def short():
    return lambda x: np.zeros((1, 10))
def one_class():
    return lambda x: np.zeros((len(x), 1))
def few():
    return lambda x: np.tile([1.0, 0.0], (len(x), 1))
def words():
    return lambda x: "seven"
def fails():
    return torch.nn.Linear(3, 10)
def raises():
    raise RuntimeError("no weights\\nsecond line")
def number():
    return 3
def wander():
    rows = iter((10, 10, 9))
    return lambda x: np.tile(np.eye(next(rows, 9))[0], (len(x), 1))

def loud(x, severity, generator):
    return x + severity
def restless(x, severity, generator):
    return torch.rand_like(x)
def bent(x, severity, generator):
    return x[..., :-1]
"""


def good_npz(folder: Path, name: str = "good.npz", **change: object) -> Path:
    arrays = {"x": np.random.default_rng(0).random((6, 1, 8, 8), np.float32), "y": np.zeros(6, np.int64)}
    np.savez(folder / name, **{**arrays, **change})  # type: ignore[arg-type]
    return folder / name


def make_files(folder: Path) -> None:
    """Everything the cases name, in one folder."""
    (folder / "my_models.py").write_text(MODELS)
    good = np.load(good_npz(folder))["x"]
    good_npz(folder, "wide.npz", x=good * 255)
    good_npz(folder, "holes.npz", x=np.where(good > 0.99, np.nan, good))
    good_npz(folder, "labels.npz", y=np.array([0, 1, 2, 0, 1, 12]))
    good_npz(folder, "negative.npz", y=np.array([0, 1, 2, 0, 1, -1]))
    good_npz(folder, "fewer.npz", y=np.zeros(5, np.int64))
    good_npz(folder, "objects.npz", x=np.array([{}], object))
    (folder / "cut.npz").write_bytes((folder / "good.npz").read_bytes()[:100])
    (folder / "empty").mkdir()
    (folder / "images" / "cat").mkdir(parents=True)
    Image.fromarray((good[0, 0] * 255).astype(np.uint8)).save(folder / "images" / "cat" / "a.png")
    (folder / "images" / "cat" / "b.png").write_bytes(b"this is no picture")
    (folder / "clips" / "run").mkdir(parents=True)
    (folder / "clips" / "run" / "a.mp4").write_bytes(b"this is no clip" * 99)
    write_record(folder / "ecg")
    (folder / "model.pkl").write_bytes(b"\x80\x04.")
    (folder / "broken.onnx").write_bytes(b"this is no graph")
    (folder / "weights.safetensors").write_bytes(b"these are no weights")
    (folder / "run.yaml").write_text("model: demo:digits\ndata: demo:digits\nbugdet: 3\n")
    (folder / "broken.yaml").write_text("model: [")
    (folder / "number.yaml").write_text("model: 3\ndata: demo:digits\n")
    (folder / "photos").mkdir()
    (folder / "photos" / "notes.txt").write_text("mine")


def write_record(folder: Path) -> None:
    """A WFDB record with beats whose signal file was cut short."""
    folder.mkdir()
    steps = np.random.default_rng(0).integers(-400, 400, (2000, 1)) / 200
    form = {"fmt": ["16"], "adc_gain": [200.0], "baseline": [0]}
    wfdb.wrsamp("100", fs=100, units=["mV"], sig_name=["MLII"], p_signal=steps, write_dir=str(folder), **form)
    wfdb.wrann("100", "atr", np.array([300, 600]), symbol=["N", "V"], write_dir=str(folder))
    (folder / "100.dat").write_bytes((folder / "100.dat").read_bytes()[:301])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below the folder, with what is in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def assert_refused(said: Said, *words: str, lines: int = 1) -> None:
    assert said.code == 2, said
    assert said.err.startswith("error: ")
    assert said.err.endswith("\n")
    assert 1 <= said.err.count("\n") <= lines, said.err
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err


@dataclass(frozen=True)
class Case:
    name: str
    arguments: str  # of `rlab attack`, words apart by spaces
    words: tuple[str, ...]  # that the sentence holds


CASES = [
    Case("missing data", f"{DIGITS} nowhere.npz", ("nowhere.npz", "check the path")),
    Case("missing model file", f"nowhere.onnx {DIGITS}", ("nowhere.onnx", "no such file")),
    Case("missing weights", f"nowhere.safetensors {DIGITS} -M factory=my_models:fails", ("no such file",)),
    Case("missing module", f"my_nowhere:model {DIGITS}", ("my_nowhere",)),
    Case("missing function", f"my_models:nothing {DIGITS}", ("nothing",)),
    Case("missing config", "--config nowhere.yaml", ("nowhere.yaml", "no configuration file")),
    Case("missing labels", f"{DIGITS} images --labels nowhere.csv", ("nowhere.csv",)),
    Case("empty folder", f"{DIGITS} empty", ("empty", "holds no")),
    Case("corrupt image", f"{DIGITS} images", ("1 of 2 images cannot be read", "b.png")),
    Case("corrupt video", "demo:clips clips", ("none of 1 samples can be read", "a.mp4")),
    Case("corrupt record", "demo:ecg ecg", ("100",)),
    Case("corrupt array", f"{DIGITS} cut.npz", ("cut.npz",)),
    Case("corrupt graph", f"broken.onnx {DIGITS}", ("broken.onnx", "ONNX")),
    Case("corrupt weights", f"weights.safetensors {DIGITS} -M factory=my_models:fails", ("weights.safetensors",)),
    Case("labels out of range", f"{DIGITS} labels.npz", ("labels run from 0 to 12", "10 classes")),
    Case("labels out of range, late", f"{DIGITS} labels.npz --chunk 1", ("labels run from 0 to 12",)),
    Case("negative labels", f"{DIGITS} negative.npz", ("-1",)),
    Case("fewer labels than samples", f"{DIGITS} fewer.npz", ("5",)),
    Case("0-255 for 0-1", f"{DIGITS} wide.npz", ("expected values in [0.0, 1.0]", "divide by 255")),
    Case("NaN in data", f"{DIGITS} holes.npz", ("hold NaN or infinite values", "first")),
    Case("NaN from the model", f"my_models:nan {DIGITS}", ("answered NaN",)),
    Case("scores without classes", f"my_models:flat {DIGITS}", ("got shape",)),
    Case("too few rows", f"my_models:short {DIGITS}", ("got shape (1, 10)",)),
    Case("a single class", f"my_models:one_class {DIGITS}", ("at least 2 scores",)),
    Case("fewer classes than labels", f"my_models:few {DIGITS}", ("the model has 2 classes",)),
    Case("classes that change", f"my_models:wander {DIGITS}", ("9 scores per row",)),
    Case("words for scores", f"my_models:words {DIGITS}", ("array of real numbers",)),
    Case("a model for other inputs", f"my_models:fails {DIGITS}", ("the model failed on inputs of shape",)),
    Case("a factory that raises", f"my_models:raises {DIGITS}", ("no weights",)),
    Case("a factory of something else", f"my_models:number {DIGITS}", ("got int",)),
    Case("patch larger than the input", f"{DIGITS} {DIGITS} --patch 9", ("larger than the input (8, 8)",)),
    Case("patch of no size", f"{DIGITS} {DIGITS} --patch 0", ("at least 1",)),
    Case("patch of too many sides", f"{DIGITS} {DIGITS} --patch 2,2,2", ("2 sides",)),
    Case("patch in words", f"{DIGITS} {DIGITS} --patch small", ("expected a patch like 8 or 2,8,8",)),
    Case("unknown filter", f"{DIGITS} {DIGITS} -p gausian_noise", ("Did you mean 'gaussian_noise'?", "rlab filters")),
    Case("filter of another rank", f"{DIGITS} {DIGITS} -p baseline_wander", ("is for signals",)),
    Case("severity in words", f"{DIGITS} {DIGITS} -p gaussian_noise@0", ("above 0",)),
    Case("filter out of range", f"{DIGITS} {DIGITS} -p my_models:loud", ("'loud' returned values up to",)),
    Case("filter without its seed", f"{DIGITS} {DIGITS} -p my_models:restless", ("two different results",)),
    Case("filter of another shape", f"{DIGITS} {DIGITS} -p my_models:bent", ("returned shape",)),
    Case("missing filter", f"{DIGITS} {DIGITS} -p my_models:nothing", ("cannot load the filter",)),
    Case("budget below one step", f"{DIGITS} {DIGITS} --budget 2", ("below the cost of one step, which is 3",)),
    Case("budget below one sweep", f"{DIGITS} {DIGITS} --budget 40 --policy greedy", ("below the cost of one step",)),
    Case("unknown policy", f"{DIGITS} {DIGITS} --policy randon", ("Did you mean 'random'?",)),
    Case("unknown goal", f"{DIGITS} {DIGITS} --goal sideways", ("expected a goal like",)),
    Case("target out of range", f"{DIGITS} {DIGITS} --goal targeted:10", ("target class", "got 10")),
    Case("goal for several labels", f"{DIGITS} {DIGITS} --goal multilabel", ("multilabel=True",)),
    Case("a folder of something else", f"{DIGITS} {DIGITS} --out photos", ("holds something else", "--out")),
    Case("a file for a folder", f"{DIGITS} {DIGITS} --out run.yaml", ("holds something else",)),
    Case("pickled model", f"model.pkl {DIGITS}", ("pickle", "safetensors")),
    Case("pickled data", f"{DIGITS} model.pkl", ("pickle",)),
    Case("pickled arrays", f"{DIGITS} objects.npz", ("objects.npz",)),
    Case("unknown model", f"resnet {DIGITS}", ("timm:NAME", "module:function")),
    Case("unknown demo", f"demo:cats {DIGITS}", ("digits",)),
    Case("no data", DIGITS, ("expected data",)),
    Case("nothing at all", "", ("expected a model",)),
    Case("unknown config field", "--config run.yaml", ("'bugdet'",)),
    Case("broken config", "--config broken.yaml", ("cannot read the configuration",)),
    Case("config of a number", "--config number.yaml", ("'model:'",)),
    Case("unknown model option", f"{DIGITS} {DIGITS} -M colour=1", ("'model.colour'",)),
    Case("data options without data", f"{DIGITS} -D limit=3", ("expected data",)),
    Case("unknown data option", f"{DIGITS} {DIGITS} -D colour=1", ("'data.colour'",)),
    Case("model option without a value", f"{DIGITS} {DIGITS} -M mean", ("expected -M name=value",)),
    Case("model option half written", f"{DIGITS} {DIGITS} -M mean=[0.5", ("cannot read the value",)),
    Case("option that is not for it", f"{DIGITS} {DIGITS} -D frames=4", ("'frames'",)),
    Case("bounds the wrong way round", f"my_models:good {DIGITS} -M bounds=[1,0]", ("low below high",)),
    Case("device that is not there", f"{DIGITS} {DIGITS} -M device=tricorder", ("tricorder",)),
    Case("seed beyond all numbers", f"{DIGITS} {DIGITS} --seed 99999999999999999999", ("'seed'",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Case, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = contents(place)
    assert_refused(rlab_command("attack", *case.arguments.split()), *case.words)
    assert contents(place) == before
    assert capfd.readouterr().err == ""  # no library wrote past Python


SAME = (
    f"{DIGITS} nowhere.npz",
    f"{DIGITS} images",
    f"nowhere.onnx {DIGITS}",
    f"{DIGITS} {DIGITS} -p gausian_noise",
    DIGITS,
)


@pytest.mark.parametrize("arguments", SAME)
def test_the_doctor_refuses_the_same(arguments: str, place: Path) -> None:
    before = contents(place)
    assert_refused(rlab_command("doctor", *arguments.split()))
    assert contents(place) == before


@pytest.mark.parametrize("folder", ["nowhere", "photos", "run.yaml"])
def test_show_refuses_other_folders(folder: str, place: Path) -> None:
    before = contents(place)
    assert_refused(rlab_command("show", folder, "--pictures", 2), "run")
    assert contents(place) == before


def test_data_larger_than_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "free_bytes", lambda: 1000)
    before = contents(place)
    assert_refused(rlab_command("attack", DIGITS, "good.npz"), "GB of memory", "pass a limit or a smaller size")
    assert contents(place) == before


def test_a_chunk_larger_than_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "free_bytes", lambda: 5000)
    before = contents(place)
    assert_refused(rlab_command("attack", DIGITS, "good.npz", "--chunk", 6), "a chunk of 6 samples", "smaller chunk")
    assert contents(place) == before


def test_a_run_folder_of_another_configuration(place: Path) -> None:
    command = ["attack", DIGITS, DIGITS, "--limit", 2, "--pictures", 0, "--out", "run"]
    assert rlab_command(*command, "--budget", 20).code == 0
    before = contents(place)
    assert_refused(rlab_command(*command, "--budget", 30), "another configuration (budget differs)")
    assert_refused(rlab_command(*command, "--budget", 20, "--seed", 1), "(seed differs)")
    assert contents(place) == before
