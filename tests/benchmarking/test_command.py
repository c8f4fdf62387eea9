"""`rlab benchmark make | verify | run` as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlab
from rlab.benchmarking import Benchmark, BenchmarkReport
from tests.cli.test_init import NET
from tests.command import Said, rlab_command
from tests.data.test_physionet import make as make_ptbxl

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    *("--limit", 6, "--patch", 2, "--policy", "square", "--budget", 200, "--steps", 6, "--ladder", "times:1.5"),
    *("--palette", "dead_pixel illuminate@0.5"),
]


def command(*words: object) -> Said:
    return rlab_command("benchmark", *words)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "bench"
    run = command("make", "demo:digits", "demo:digits", *SMALL, "--out", folder)
    assert run.code == 0, run.err
    assert "6 of 6" in run.out
    return folder


def test_make_verify_run_and_make_again(digits: Path, tmp_path: Path):
    checked = command("verify", digits)
    assert checked.code == 0
    assert "all checks passed" in checked.out
    graded = command("run", digits, "-m", "digits=demo:digits", "--require", "original=0.9", "--out", tmp_path / "r")
    assert graded.code == 0, graded.err
    assert "Ranking" in graded.out
    assert (tmp_path / "r" / "results.csv").exists()
    config = yaml.safe_load((digits / "config.yaml").read_text())
    assert config["format"] == "png"
    again = command("make", "--config", digits / "config.yaml", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert Benchmark.load(tmp_path / "again").manifest.hash == Benchmark.load(digits).manifest.hash


@pytest.mark.parametrize("more", [("--dry-run",), ("--limit", 1, "--palette", "lead_dropout@1", "--budget", 4)])
def test_a_model_with_one_label_gets_the_records_with_one(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    make_ptbxl(tmp_path / "ptbxl")
    Path("my_one_label_net.py").write_text(NET)
    said = command("make", "my_one_label_net:net", "ptbxl", *more)
    assert "one per sample, as the model has" in said.out


def test_python_and_the_command_make_and_grade_the_same(digits: Path, tmp_path: Path):
    options: dict[str, Any] = {"patch": 2, "policy": "square", "budget": 200, "steps": 6, "ladder": "times:1.5"}
    palette = "dead_pixel illuminate@0.5"
    made = rlab.benchmark("demo:digits", "demo:digits", tmp_path / "b", limit=6, palette=palette, **options)
    assert made.manifest.hash == Benchmark.load(digits).manifest.hash
    assert (made.folder / "config.yaml").read_text() == (digits / "config.yaml").read_text()
    assert rlab.verify_benchmark(made, trust=True).unasked == ()
    report = rlab.run_benchmark([made], {"digits": "demo:digits"})
    again = command("run", made.folder, "-m", "other=demo:digits", "--json", "-q")
    assert report.asked["digits"] > 0
    assert json.loads(again.out)["rows"] == {"other": 0}  # known by its weights and options


def test_a_file_of_an_attack_makes_a_benchmark_and_its_victim_is_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_digits.py").write_text(
        "import rlab, torch\n"
        "def model():\n"
        "    victim = rlab.demo_victim('digits')\n"
        "    return lambda x: victim(torch.from_numpy(x)).exp().numpy()\n"
    )
    data = {"path": "demo:digits", "limit": 2}
    values = {"model": "my_digits:model", "data": data, "policy": "square", "patch": 2, "budget": 60, "l2_penalty": 0.0}
    (tmp_path / "attack.yaml").write_text(yaml.safe_dump(values))
    assert command("make", "--config", "attack.yaml", "--ladder", "flip", "--out", "bench").code == 0
    assert Benchmark.load("bench").victims == ("my_digits-model",)
    graded = command("run", "bench", "-m", "mine=my_digits:model", "-m", "demo:digits")
    assert graded.code == 0, graded.err
    report = BenchmarkReport.load(tmp_path / "bench" / "results" / "report")
    assert {(row["model"], row["own"]) for row in report.levels} == {("mine", True), ("demo-digits", False)}


def test_a_missed_requirement_is_exit_code_1(digits: Path):
    run = command("run", digits, "-m", "digits=demo:digits", "--require", "flip=0.5")
    assert run.code == 1
    assert "fails: accuracy of digits at flip" in run.out


def test_an_edited_file_is_named_with_exit_code_1(digits: Path, tmp_path: Path):

    copy = shutil.copytree(digits, tmp_path / "copy")
    row = next(row for row in Benchmark.load(copy).rows if row["level"] == "flip" and row["reached"])
    (copy / row["file"]).write_bytes((copy / row["file"]).read_bytes() + b"!")
    run = command("verify", copy)
    assert run.code == 1
    assert Path(row["file"]).name in run.out
    graded = command("run", copy, "-m", "digits=demo:digits", "--fresh")
    assert graded.code == 2
    assert Path(row["file"]).name in graded.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("make",), "rlab benchmark make MODEL DATA"),
        (("make", "demo:digits"), "'data:'"),
        (("make", "demo:digits", "demo:digits", "--goal", "targeted:77", "--limit", 4), "got 77"),
        (("make", "demo:digits", "demo:digits", "--palette", "dead_pixle"), "Did you mean 'dead_pixel'"),
        (
            ("make", "demo:digits", "demo:digits", "-m", "demo-digits=demo:digits"),
            "two models are called 'demo-digits'",
        ),
        (("verify", "nowhere"), "is not a benchmark folder"),
        (("run", "nowhere", "-m", "demo:digits"), "is not a benchmark folder"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: tuple[object, ...], sentence: str, tmp_path: Path):
    more = ("--out", tmp_path / "x") if words[0] == "make" else ()
    run = command(*words, *more)
    assert run.code == 2
    assert sentence in run.err
    assert run.err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_requirement_about_something_unknown_costs_no_query(tmp_path: Path):
    folder = tmp_path / "bench"
    assert command("make", "demo:digits", "demo:digits", *SMALL, "--limit", 1, "--out", folder).code == 0
    filters = {
        "dead_pixel",
        "illuminate+",
        "illuminate-",
    }  # one sample has two levels, so one filter is the main one of none
    absent = min(filters - {row["distortion"] for row in Benchmark.load(folder).rows})
    for name, sentence in (
        ("fog", "unknown main distortion 'fog': the models are d; the levels are original, flip, x1.5;"),
        ("x9", "unknown level 'x9'"),
        (absent, f"unknown main distortion '{absent}'"),
        ("m:flip", "names an unknown model 'm': the models are d;"),
    ):
        run = command("run", folder, "-m", "d=demo:digits", "--require", f"{name}=0.5")
        assert run.code == 2
        assert sentence in run.err
        assert not (folder / "results").exists()


def test_the_folder_of_another_command_is_called_that(tmp_path: Path):
    rlab_command("attack", "demo:digits", "demo:digits", "--limit", 2, "--budget", 20, "--out", tmp_path / "a")
    for words in (("verify", tmp_path / "a"), ("run", tmp_path / "a", "-m", "demo:digits")):
        run = command(*words)
        assert run.code == 2
        assert "is a folder of `rlab attack`, not a benchmark folder: name one of `rlab benchmark make`" in run.err


def test_bad_input_to_run_names_the_choices(digits: Path):
    for words, sentence in (
        ((), "at least one model to grade"),
        (("-m", "d=demo:digits", "--require", "fog=0.5"), "unknown main distortion 'fog'"),
        (("-m", "d=demo:ecg"), "the inputs have 1 channels"),
    ):
        run = command("run", digits, *words)
        assert run.code == 2
        assert sentence in run.err
