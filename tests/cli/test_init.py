"""`rlab init` and `rlab examples`: what they write, that it runs as it is, and that nothing is overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import rlab
from rlab.auditing import AuditOptions
from rlab.cli.lists import FOLDERS, example_files
from rlab.runs.options import RunOptions
from rlab.storage.config import check, read_config
from tests.command import rlab_command
from tests.data.test_physionet import make as make_ptbxl

NET = """
from torch import nn

def net():
    return nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(48, 5))
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(file: str = "rlab.yaml") -> RunOptions:
    return check(RunOptions, read_config(Path(file)))


def image(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(value).integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(path)


@pytest.mark.parametrize("name", ["demo:digits", "demo:ecg", "demo:clips"])
def test_what_init_writes_says_what_would_be_done_without_it(name: str, here: Path):
    assert rlab_command("init", name, "--limit", 3).code == 0
    written, batch = options(), rlab.load(name, limit=3)
    usual, _ = check(RunOptions, {"model": name, "data": {"path": name, "limit": 3}}).filled(batch)
    assert written.model_copy(update={"chunk": usual.chunk}) == usual


def test_every_option_of_an_attack_stands_in_the_file(here: Path):
    assert rlab_command("init", "demo:digits").code == 0
    text = Path("rlab.yaml").read_text(encoding="utf-8")
    for name, field in RunOptions.model_fields.items():
        assert f"\n{name}:" in text or f"\n# {name}:" in text
        assert name in ("model", "data") or str(field.description) in text


def test_init_never_overwrites(here: Path):
    Path("rlab.yaml").write_text("mine")
    said = rlab_command("init", "demo:digits")
    assert said.code == 2
    assert "Traceback" not in said.err
    assert Path("rlab.yaml").read_text() == "mine"


def test_init_takes_a_sample_of_all_classes_without_a_limit(here: Path):
    np.savez("many.npz", x=np.random.default_rng(0).random((90, 1, 8, 8), np.float32), y=np.arange(90) // 30)
    assert rlab_command("init").code == 0  # the one .npz file here
    assert options_of_data() == {"path": "many.npz", "limit": 32, "shuffle": True}
    assert "# classes: numbers up to 2," in Path("rlab.yaml").read_text()


def options_of_data() -> dict[str, object]:
    written: dict[str, dict[str, object]] = yaml.safe_load(Path("rlab.yaml").read_text(encoding="utf-8"))
    return written["data"]


def test_without_a_model_the_command_line_can_name_it(here: Path):
    for number in range(6):
        image(here / "photos" / "ab"[number % 2] / f"{number}.png", number)
    assert rlab_command("init", "photos", "--size", 8).code == 0
    assert options_of_data() == {"path": "photos", "limit": 32, "shuffle": True, "size": 8}
    assert "model" not in yaml.safe_load(Path("rlab.yaml").read_text(encoding="utf-8"))
    assert rlab_command("attack", "--config", "rlab.yaml").code == 2
    uncommented = Path("rlab.yaml").read_text(encoding="utf-8").replace("# model:", "model:").replace("#   ", "  ")
    Path("named.yaml").write_text(uncommented, encoding="utf-8")
    assert options("named.yaml").model.name == "my_module:function"


def test_several_labels_at_once_are_the_goal(here: Path):
    make_ptbxl(here / "ptbxl")
    assert rlab_command("init", "ptbxl", "--model", "my_net:net").code == 0
    assert (options().goal, options().model.multilabel) == ("multilabel", True)


def test_an_ecg_gets_an_audit_that_runs_as_it_is(here: Path):
    make_ptbxl(here / "ptbxl", fast=False)
    Path("my_ecg_net.py").write_text(NET)
    said = rlab_command("init", "ptbxl", "--model", "my_ecg_net:net")
    assert "rlab audit rlab-audit.yaml" in said.out
    text, batch = Path("rlab-audit.yaml").read_text(encoding="utf-8"), rlab.load("ptbxl")
    required = check(AuditOptions, yaml.safe_load(text)).requirements
    asked = [one for one in required if one.metric == "detection"]
    labels = batch.y.any(0).nonzero().flatten().tolist()
    assert [one.class_ for one in asked] == [batch.label_name(label) for label in labels]
    assert {(one.distortion, *(one.at or {}).items()) for one in asked} == {("muscle_noise", ("snr", "12dB"))}
    audited = rlab_command("audit", "rlab-audit.yaml", "--out", "audited")
    assert audited.code in (0, 1), audited.err
    stages = json.loads(Path("audited/audit.json").read_text(encoding="utf-8"))["stages"]
    assert stages["detect"]["rows"]["model"] % 4 == 0  # four groups of leads
    assert (
        check(AuditOptions, yaml.safe_load(text.replace("  # - {", "  - {"))).conditions[1].distortion == "lead_dropout"
    )


def test_other_data_get_no_audit_and_neither_file_is_overwritten(here: Path):
    assert rlab_command("init", "demo:digits").code == 0
    assert sorted(path.name for path in here.iterdir()) == ["rlab.yaml"]
    Path("rlab.yaml").unlink()
    Path("rlab-audit.yaml").write_text("mine")
    assert rlab_command("init", "demo:ecg").code == 2
    assert [path.name for path in here.iterdir()] == ["rlab-audit.yaml"]


def test_a_class_with_a_strange_name_stays_within_its_comment(here: Path):
    for number, name in enumerate(("a\nbudget: 3", "b\x07\u2028c")):
        image(here / "photos" / name / f"{number}.png", number)
    assert rlab_command("init", "photos", "--model", "my_net:net").code == 0
    assert options().budget == 1000


@pytest.mark.parametrize(
    "words", [["nowhere"], [], ["demo:cats"], ["bad.npz"]], ids=["absent", "empty", "demo", "file"]
)
def test_bad_data_are_one_sentence_and_no_file(words: list[str], here: Path):
    if words == ["bad.npz"]:
        Path("bad.npz").write_bytes(b"no archive")
    before = sorted(here.iterdir())
    said = rlab_command("init", *words)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert sorted(here.iterdir()) == before


def test_options_of_the_model_are_in_both_files(here: Path):
    given = ("init", "demo:ecg", "--model", "model.onnx", "-M", "output=logits", "-M", "mean=[0.5]")
    assert rlab_command(*given).code == 0
    audited = yaml.safe_load(Path("rlab-audit.yaml").read_text(encoding="utf-8"))["model"]
    assert audited == {"name": "model.onnx", "output": "logits", "mean": [0.5]}
    assert (options().model.output, options().model.mean) == ("logits", [0.5])
    assert not options().model.multilabel


@pytest.mark.parametrize(
    "words", [["-M", "output=logits"], ["--model", "m:net", "-M", "no_such=1"], ["--model", "m:net", "-M", "output"]]
)
def test_options_without_a_model_and_unknown_ones_are_one_sentence(words: list[str], here: Path):
    np.savez("data.npz", x=np.zeros((2, 1, 4, 4), np.float32), y=[0, 1])
    said = rlab_command("init", "data.npz", *words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert not Path("rlab.yaml").exists()


def test_no_secret_of_a_model_is_written(here: Path):
    secret = ("--model", "http://me:hush@host:8000/predict", "-M", "headers={Authorization: hush}")
    assert rlab_command("init", "demo:digits", *secret).code == 0
    assert "hush" not in Path("rlab.yaml").read_text(encoding="utf-8")


def test_several_files_are_asked_about(here: Path):
    for name in "ab":
        np.savez(f"{name}.npz", x=np.zeros((1, 1, 4, 4), np.float32), y=[0])
    assert rlab_command("init").code == 2
    assert not Path("rlab.yaml").exists()


def test_examples_are_those_of_the_repository():
    assert sorted(example_files()) == sorted(
        f"{path.parent.name}/{path.name}" for f in FOLDERS for path in (ROOT / f).glob("*.*")
    )
    listed = rlab_command("examples").out
    assert [name for name in example_files() if name not in listed] == []


@pytest.mark.parametrize("name", ["audit", "audit.yaml", "examples/audit.yaml"])
def test_an_example_is_written_where_the_pages_name_it(name: str, here: Path):
    assert rlab_command("examples", name).code == 0
    assert (here / "examples/audit.yaml").read_bytes() == (ROOT / "examples/audit.yaml").read_bytes()


def test_an_example_is_written_where_it_is_asked_for_but_not_over_a_file(here: Path):
    assert rlab_command("examples", "images", "--out", "mine.yaml").code == 0
    assert Path("mine.yaml").read_bytes() == (ROOT / "agents/images.yaml").read_bytes()
    Path("mine.yaml").write_text("changed")
    assert rlab_command("examples", "images", "--out", "mine.yaml").code == 2
    assert Path("mine.yaml").read_text() == "changed"


def test_an_unknown_example_is_told(here: Path):
    said = rlab_command("examples", "audti")
    assert said.code == 2
    assert "audit.yaml" in said.err
    assert not list(here.iterdir())


def test_init_on_numbers_names_the_goal_and_the_outputs(here: Path):
    np.savez("ages.npz", x=np.random.default_rng(0).random((6, 3, 8, 8), np.float32), y=np.array([3.5, 2, 8, 1, 9, 4]))
    assert rlab_command("init", "ages.npz", "-D", "target=numbers", "--model", "my_module:net").code == 0
    written = options()
    assert (str(written.goal).partition(":")[0], written.model.outputs, written.model.multilabel) == (
        "deviate",
        "numbers",
        False,
    )
