"""The commands: their output, their files and their exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlab
from rlab.filters import FAMILIES
from rlab.folders.demo import SCENES
from rlab.results.result import AttackResult
from tests.command import rlab_command

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["module:function", "timm:NAME", "torchvision:NAME", "hf:NAME", ".onnx", ".safetensors", "http(s)://"]
MODELS += ["demo:digits", "demo:ecg", "demo:clips"]
OPTIONS = ["--palette", "--patch", "--goal", "--budget", "--policy", "--seed", "--out", "--config"]
QUICK = ["--limit", 4, "--budget", 60, "--pictures", 0]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of four digits."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    said = rlab_command("attack", "demo:digits", "demo:digits", *QUICK, "--out", folder)
    assert said.code == 0, said.err
    return folder


@pytest.mark.slow
def test_demo_attacks_all_three_ranks(tmp_path: Path) -> None:
    said = rlab_command("demo", "--samples", 2, "--out", tmp_path / "demo")
    assert said.code == 0, said.err
    assert names(tmp_path / "demo") == ["clips", "digits", "ecg", "report.html", "run.json"]
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert all(title in page for title, _ in SCENES.values())
    assert said.out.splitlines()[-1] == f"Page: {tmp_path / 'demo' / 'report.html'}"
    for scene, rank in {"ecg": 1, "digits": 2, "clips": 3}.items():
        result = AttackResult.load(tmp_path / "demo" / scene)
        assert len(result) == 2
        assert result.setting.grid.rank == rank
        assert (tmp_path / "demo" / scene / "config.yaml").is_file()
    assert "simulated" in said.out
    assert "real, from scikit-learn" in said.out
    assert "flipped" in said.out
    assert str(tmp_path / "demo") in said.out


@pytest.mark.parametrize(
    ("scene", "policy"), [("ecg", "random"), ("digits", "random"), ("digits", "square(share=0.2)"), ("clips", "random")]
)
def test_attack_on_every_rank(scene: str, policy: str, tmp_path: Path) -> None:
    pictures = ["pictures"] if policy == "random" else []
    options = ["--limit", 2, "--budget", 40, "--pictures", len(pictures), "--policy", policy, "--out", tmp_path / "run"]
    said = rlab_command("attack", f"demo:{scene}", f"demo:{scene}", *options)
    assert said.code == 0, said.err
    kept = ["arrays.safetensors", "config.yaml", "parts", *pictures, "report.html", "report.json", "run.json"]
    assert names(tmp_path / "run") == [*kept, "samples.parquet"]
    assert re.search(
        r"defaults palette (gaussian_noise|baseline_wander@0.3,1mV) (.|\n)*; patch\s+\d", said.out
    )  # what was not said is told
    assert "budget" not in said.out.split("defaults ")[1].split("┏")[0]  # what was said is not
    assert len(AttackResult.load(tmp_path / "run")) == 2


def test_attack_with_every_option(tmp_path: Path) -> None:
    options = ["--palette", "gaussian_noise@0.3 dead_pixel@0.5", "--palette", "illuminate", "--patch", "4,2"]
    options += ["--goal", "below:0.5", "--policy", "random", "--accept", "always", "--no-cleanup"]
    options += ["--seed", "7", "--chunk", "3"]
    said = rlab_command("attack", "demo:digits", "demo:digits", *QUICK, *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    result = AttackResult.load(tmp_path / "run")
    assert result.setting.patch == (4, 2)
    assert result.setting.palette[:2] == ("gaussian_noise@0.3", "dead_pixel@0.5")
    assert len(result.setting.palette) > 2
    assert result.setting.seed == 7
    assert (result.queries[:, 1] == 0).all()
    assert "defaults" not in said.out


@pytest.mark.parametrize(
    "words",
    [
        ("attack", "demo:digits", "demo:digits", *QUICK),
        ("attack", "demo:digits", "demo:digits", *QUICK, "--keep", "assignments"),
        ("compare", "demo:digits", "demo:digits", "--limit", 3, "--budget", 20, "--policies", "random,square"),
    ],
    ids=["attack", "attack that keeps no inputs", "compare"],
)
def test_a_run_ends_in_a_page_unless_you_switch_it_off(
    words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = rlab_command(*words, "--out", "run")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == f"Page: {Path('run', 'report.html')}"
    page = Path("run", "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "were not kept" not in page
    assert json.loads(rlab_command(*words, "--out", "run", "--json", "-q").out)["page"] == "run/report.html"
    said = rlab_command(*words, "--out", "bare", "--no-page")
    assert "Page:" not in said.out
    assert not Path("bare", "report.html").exists()


def test_a_new_folder_below_runs_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rlab_command("attack", "demo:digits", "demo:digits", *QUICK).code == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("attack-")
    assert len(AttackResult.load(made)) == 4


def test_the_same_command_again_queries_nothing_and_prints_the_same(finished: Path) -> None:
    before = (finished / "run.json").read_bytes()
    said = rlab_command("attack", "demo:digits", "demo:digits", *QUICK, "--out", finished)
    assert said.code == 0
    assert (finished / "run.json").read_bytes() == before


def test_custom_models_and_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parts.py").write_text(
        "import rlab\n"
        "def model():\n    return rlab.demo_victim('digits').model\n"
        "def invert(x, severity, generator):\n    return x + severity * (1 - 2 * x)\n"
    )
    mean_and_std = ["-M", "mean=[0.3]", "-M", "std=[0.4]"]
    command = ["attack", "my_parts:model", "demo:digits", *QUICK, "--palette", "my_parts:invert@0.5", *mean_and_std]
    said = rlab_command(*command, "--out", "run")
    assert said.code == 0, said.err
    assert AttackResult.load("run").setting.palette == ("invert@0.5",)


def test_show_prints_the_results(finished: Path) -> None:
    said = rlab_command("show", finished)
    assert said.code == 0
    for name in AttackResult.load(finished).ids:
        assert name in said.out
    assert "flipped" in said.out
    few = rlab_command("show", finished, "--samples", 1)
    assert AttackResult.load(finished).ids[1] not in few.out


@pytest.mark.slow
def test_show_draws_pictures(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert not (tmp_path / "run" / "pictures").exists()  # as was asked
    said = rlab_command("show", tmp_path / "run", "--pictures", 2)
    assert said.code == 0
    assert str(tmp_path / "run" / "pictures") in said.out.replace("\n", "")
    assert len(names(tmp_path / "run" / "pictures")) == 1 + 2


def test_a_prior_of_an_impossible_width_is_a_one_line_error(tmp_path: Path) -> None:
    config = tmp_path / "any.yaml"
    config.write_text(
        "models: [demo:digits]\ndata: demo:digits\npalettes: [[gaussian_blur]]\npatches: [1]\nprior_width: 12\n"
    )
    said = rlab_command("train", config, "--out", tmp_path / "agent")
    assert said.code == 2
    assert "prior_width" in said.err
    assert not (tmp_path / "agent").exists()


def test_filters_lists_every_filter_by_rank() -> None:
    said = rlab_command("filters")
    assert said.code == 0
    for name in FAMILIES:
        assert name in said.out
    signals = rlab_command("filters", "--rank", 1).out
    assert "baseline_wander" in signals
    assert "jpeg" not in signals


def test_doctor_finds_nothing_wrong_with_the_demo() -> None:
    said = rlab_command("doctor", "demo:digits", "demo:digits", "--samples", 8)
    assert said.code == 0, said.out
    assert "No problems found" in said.out
    assert re.search(r"queries +│ +\d+", said.out)


def test_doctor_exits_with_1_if_results_would_be_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits' model given its mean and std a second time, and labels shifted by one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(
        "import numpy as np, rlab, torch\n"
        "victim = rlab.demo_victim('digits')\n"
        "def wrong():\n    return lambda x: np.roll(victim(torch.from_numpy(x)).numpy(), 1, axis=1)\n"
    )
    said = rlab_command("doctor", "my_model:wrong", "demo:digits", "--samples", 16)
    assert said.code == 1, said.out
    assert "error" in said.out
    assert not said.err


def test_version() -> None:
    assert rlab_command("--version").out.strip() == f"rlab {rlab.__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["demo", "attack", "doctor", "show", "filters"]),
        (["--help"], ["demo", "attack", "doctor", "show", "filters", "rlab doctor MODEL DATA"]),
        (["attack", "--help"], [*MODELS, "Image folder", ".npz", "WFDB", *OPTIONS, "resume", "targeted:CLASS"]),
        (["doctor", "--help"], ["normalisation", "--samples"]),
        (["show", "--help"], ["Run folder"]),
        (["filters", "--help"], ["--rank"]),
        (["demo", "--help"], ["--samples", "no network"]),
    ],
)
def test_help_teaches(arguments: list[str], words: list[str]) -> None:
    said = rlab_command(*arguments)
    shown = " ".join((said.out + said.err).replace("│", " ").split())
    for word in words:
        assert word in shown


def process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rlab", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_process_has_the_exit_code(tmp_path: Path) -> None:
    done = process("attack", "demo:digits", "photos", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: there is no file or folder 'photos': check the path\n"
    assert not list(tmp_path.iterdir())


def test_a_closed_pipe_prints_no_traceback(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m rlab filters | true"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_agents_lists_what_ships_and_shows_a_card():
    listed = rlab_command("agents")
    assert listed.code == 0
    for name in ("images", "signals"):
        assert name in listed.out
    shown = rlab_command("agents", "images")
    assert "CIFAR-10 training images" in shown.out
    lost = rlab_command("agents", "clip")
    assert lost.code == 2
    assert "there is no agent 'clip': there are video, images, signals" in lost.err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("rlab att", {"attack"}),
        ("rlab attack demo:d", {"demo:digits"}),
        ("rlab attack --policy s", {"square"}),
        ("rlab compare --palette gaussian_n", {"gaussian_noise"}),
        ("rlab explain --until s", {"steady"}),
    ],
)
def test_shell_completion(words: str, offered: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RLAB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert set(rlab_command().out.split()) == offered
