"""Flags generated from declarations: one per field, over the file, with the same attack from flags, file and keywords."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
import yaml
from pydantic import Field
from typer.testing import CliRunner

from rlab.cli.build import declared
from rlab.cli.fields import pairs
from rlab.cli.harden import TRAINING
from rlab.core.attack import Attack
from rlab.data.load import DataOptions
from rlab.errors import OptionError
from rlab.hardening.options import HardenRunOptions
from rlab.runs.options import AttackOptions, RunOptions, make_attack
from rlab.storage.config import Options, check, read_config
from tests.command import rlab_command

DATA_FLAGS = ("labels", "size", "limit")


def flags_of(kind: type[Options], **how: Any) -> dict[str, Any]:
    """Every generated parameter as Typer gets it."""

    def command(options: Any) -> None: ...

    command.__annotations__["options"] = kind
    command = declared(**how)(command)
    return {name: get_args(p.annotation)[1] for name, p in inspect.signature(command).parameters.items()}


def parsed(kind: type[Options], *words: str, **how: Any) -> Any:
    """The options that a command gets for these arguments."""
    seen: list[Any] = []
    app = typer.Typer()

    def command(options: Any, depth: Annotated[int, typer.Option()] = 1) -> None:
        seen.append(options)

    command.__annotations__["options"] = kind
    app.command()(declared(**how)(command))
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen[0]


@pytest.fixture(scope="module")
def attack_help() -> str:
    return rlab_command("attack", "--help").out


@pytest.mark.parametrize("name", AttackOptions.model_fields)
def test_every_field_is_a_flag_whose_help_is_its_description(name: str, attack_help: str) -> None:
    flag = flags_of(RunOptions)[name]
    description = AttackOptions.model_fields[name].description or ""
    assert description
    assert flag.help.lower() == description.lower()
    assert flag.default.startswith(f"--{name.replace('_', '-')}")  # where Typer keeps the first of them
    assert flag.default.partition("/")[0] in attack_help


def test_model_and_data_are_arguments_with_flags_of_their_own() -> None:
    flags = flags_of(RunOptions, queries=True)
    assert set(flags) == {
        *AttackOptions.model_fields, *AttackOptions.removed, *DATA_FLAGS,
        "device", "batch_size", "timeout", "model", "data", "config",
        "rate", "price", "max_cost", "max_queries",
        "model_option", "data_option", "as_json", "quiet", "keep",
    }  # fmt: skip
    for name in DATA_FLAGS:
        assert flags[name].help.lower() == (DataOptions.model_fields[name].description or "").lower()


def test_fields_without_a_flag() -> None:
    assert {"patch", "goal"}.isdisjoint(flags_of(RunOptions, without=("patch", "goal")))

    class Sections(Options):
        attack: AttackOptions = AttackOptions()
        further: dict[str, int] = Field({}, description="only in a file")
        names: tuple[str, ...] = Field((), description="words")

    assert set(flags_of(Sections)) == {"config", "names", "as_json", "quiet"}


def described(attack: Attack) -> dict[str, Any]:
    """Everything an attack is made of; policies are told by their text."""
    return vars(attack) | {"policy": str(attack.policy), "palette": attack.palette.names}


def test_the_attack_of_a_file_of_keywords_and_of_flags_is_the_same(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {
        "palette": ["gaussian_noise@0.3", "dead_pixel@0.5"], "patch": [2, 2], "goal": "below:0.4", "budget": 50,
        "policy": "square(share=0.2)", "accept": "always", "l2_penalty": 0.1, "cleanup": False, "patience": 4, "chunk": 3,
        "seed": 3, "until": "flip", "distance": "map", "noisy": True,
        "quantize": False, "channels": "each", "threads": 2,
    }  # fmt: skip
    guides = {"surrogate", "simulator", "learn"}  # they need the belief search
    assert set(keywords) == set(AttackOptions.model_fields) - guides
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({"model": "demo:digits", "data": {"path": "demo:digits", "limit": 6}, **keywords})
    )
    from_file: Any = check(RunOptions, read_config(tmp_path / "run.yaml"))
    words = "--palette gaussian_noise@0.3 -p dead_pixel@0.5 --patch 2,2 --goal below:0.4 --budget 50 --policy square(share=0.2)"
    words += " --accept always --l2-penalty 0.1 --no-cleanup --patience 4 --chunk 3 --seed 3 --until flip --distance map --noisy"
    words += " --no-quantize --channels each --threads 2"
    from_flags = parsed(RunOptions, "demo:digits", "demo:digits", "--limit", "6", *words.split())
    batch = from_file.data.load()
    attack = make_attack(batch, **keywords)
    assert described(from_file.build(batch)) == described(attack)
    assert described(from_flags.build(batch)) == described(attack)
    assert from_flags.data == from_file.data
    assert parsed(RunOptions, "--config", str(tmp_path / "run.yaml")) == from_file


def test_flags_override_the_file_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: {name: demo:digits, chunk: 9}\ndata: {path: demo:ecg, limit: 6, seed: 2}\nbudget: 50\nseed: 3\n"
    )
    words = ["--seed", "5", "--limit", "2", "-M", "outputs=logits", "-D", "shuffle=true"]
    options = parsed(RunOptions, "-c", str(file), *words)
    assert (options.seed, options.budget) == (5, 50)
    assert (options.model.name, options.model.chunk, options.model.outputs) == ("demo:digits", 9, "logits")
    assert (options.data.path, options.data.limit, options.data.seed, options.data.shuffle) == ("demo:ecg", 2, 2, True)
    words = ["timm:resnet18", "photos", "--device", "cpu", "--batch-size", "7", "--cleanup"]
    other = parsed(RunOptions, "-c", str(file), *words)
    assert (other.model.name, other.model.chunk, other.data.path) == ("timm:resnet18", 7, "photos")
    assert (other.model.device, other.cleanup) == ("cpu", True)


def test_the_flags_of_a_section_override_the_file_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    values = {
        "model": "demo:digits", "data": "demo:digits", "test": "demo:ecg",
        "harden": {"epochs": 4, "learning_rate": 0.1, "views": 2},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(values))
    words = ["--epochs", "2", "--max-clean-drop", "2%", "--from-scratch", "--training-batch", "5"]
    words += ["--batch-size", "7", "-T", "limit=3"]
    options = parsed(HardenRunOptions, "-c", str(file), *words, section=TRAINING)
    training = options.harden
    assert (training.epochs, training.learning_rate, training.views) == (2, 0.1, 2)
    assert (training.max_clean_drop, training.from_scratch, training.training_batch) == (0.02, True, 5)
    assert (options.model.chunk, options.test.path, options.test.limit) == (7, "demo:ecg", 3)
    words = ["--patience", "6", "--test", "demo:digits"]
    other = parsed(HardenRunOptions, "demo:digits", "demo:digits", *words, section=TRAINING)
    assert (other.harden.patience, other.patience, other.test.path) == (6, None, "demo:digits")


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        ({"harden": 3}, ["--epochs", "2"], "'harden:'"),
        ({}, ["-T", "limit=3"], "has no 'test.path': add it"),
        ({}, ["--epochs", "0"], "'harden.epochs'"),
    ],
)
def test_a_wrong_section_is_named(tmp_path: Path, content: dict[str, Any], words: list[str], sentence: str) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"model": "m", "data": "d", **content}))
    with pytest.raises(OptionError, match=sentence):
        parsed(HardenRunOptions, "-c", str(tmp_path / "run.yaml"), *words, section=TRAINING)


def test_the_commands_own_parameters_stay_and_go_before_generated_ones() -> None:
    seen: list[tuple[Any, int, str]] = []
    app = typer.Typer()

    @app.command()
    @declared()
    def command(options: RunOptions, depth: int = 2, policy: Annotated[str, typer.Option()] = "mine") -> None:
        """What it does."""
        seen.append((options, depth, policy))

    done = CliRunner().invoke(app, ["m", "d", "--depth", "4"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert seen[0][1:] == (4, "mine")
    assert "What it does." in CliRunner().invoke(app, ["--help"]).output


@dataclass(frozen=True)
class Depths:
    depth: Annotated[int, typer.Option(help="How deep")] = 2
    names: Annotated[list[str] | None, typer.Option("--name", "-n")] = None


def test_a_dataclass_of_flags_is_one_flag_per_field() -> None:
    seen: list[object] = []

    def command(word: Annotated[str, typer.Argument()], depths: Depths, wide: bool = False) -> None:
        seen.extend((word, depths, wide))

    app = typer.Typer()
    app.command()(declared()(command))
    done = CliRunner().invoke(app, ["a", "--depth", "4", "-n", "b", "-n", "c", "--wide"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert seen == ["a", Depths(4, ["b", "c"]), True]
    assert "How deep" in CliRunner().invoke(app, ["--help"]).output


def test_pairs() -> None:
    assert pairs(["size=[16, 24]", "name=a=b", "rate=.5", "none=", "on=true"], "-D") == {
        "size": [16, 24], "name": "a=b", "rate": 0.5, "on": True
    }  # fmt: skip
