"""Configuration files: read, checked, completed with defaults, written beside the results and used again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlab.core.goals import Below
from rlab.data.batch import Batch
from rlab.errors import InputError, OptionError
from rlab.results.result import AttackResult
from rlab.runs.options import RunOptions
from rlab.storage.config import check, read_config
from rlab.storage.names import CONFIG
from rlab.victims.resolve import load_model
from tests.command import rlab_command
from tests.helpers import RANKS, assert_same, make_batch

YAML = """
model: demo:digits
data:
  path: demo:digits
  limit: 6
palette: [gaussian_noise@0.3, dead_pixel@0.5]
patch: [2, 2]
goal: below:0.4
budget: 50
policy: square(share=0.2)
seed: 3
"""
TOML = """
model = "demo:digits"
palette = ["gaussian_noise@0.3", "dead_pixel@0.5"]
patch = [2, 2]
goal = "below:0.4"
budget = 50
policy = "square(share=0.2)"
seed = 3
[data]
path = "demo:digits"
limit = 6
"""


def written(folder: Path, text: str, name: str = "run.yaml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_yaml_and_toml_are_equivalent(tmp_path: Path) -> None:
    from_yaml = check(RunOptions, read_config(written(tmp_path, YAML)))
    from_toml = check(RunOptions, read_config(written(tmp_path, TOML, "run.toml")))
    assert from_yaml == from_toml
    assert from_yaml.model.name == from_yaml.data.path == "demo:digits"
    assert from_yaml.data.limit == 6
    attack = from_yaml.build(from_yaml.data.load())
    assert (attack.budget, attack.grid.patch, attack.goal) == (50, (2, 2), Below(0.4))
    assert attack.palette.names == ("gaussian_noise@0.3", "dead_pixel@0.5")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bugdet": 3}, "unknown key 'bugdet' .* Did you mean 'budget'"),
        ({"budget": "many"}, "'budget' .*is not valid: .*got 'many'"),
        ({"budget": 0}, "'budget' .*is not valid"),
        ({"budget": 1.5}, "'budget' .*is not valid"),
        ({"palette": [3]}, "'palette' .*is not valid: .*filters such as gaussian_noise@0.2 or functions, got int"),
        ({"patch": "2,x"}, "'patch' .*is not valid: .*a patch like 8 or 2,8,8"),
        ({"accept": "worst"}, "'accept' .*is not valid: .*'better' or 'always'"),
        ({"l2_penalty": -1}, "'l2_penalty' .*is not valid"),
        ({"chunk": 0}, "'chunk' .*is not valid"),
        ({"patience": 0}, "'patience' .*is not valid"),
        ({"seed": 2**63}, "'seed' .*is not valid"),
        ({"model": {"name": "x", "outputs": "votes"}}, r"'model\.outputs' .*is not valid"),
        ({"model": {"name": "x", "colour": 1}}, r"unknown key 'model\.colour' .* The keys there are name, mean"),
        ({"model": {}}, r"has no 'model\.name': add it"),
        ({"model": 3}, "'model' .*is not valid"),
        ({"data": {"path": "x", "limit": 0}}, r"'data\.limit' .*is not valid"),
        ({"data": {"path": "x", "limits": 3}}, r"unknown key 'data\.limits' .* Did you mean 'limit'"),
        ({"data": None}, "'data' .*is not valid"),
        ({"model": {"name": "https://(hidden)@host.example"}}, "secrets: give its address or headers again"),
    ],
)
def test_an_invalid_field_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        check(RunOptions, {**yaml.safe_load(YAML), **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.yaml", b"model: [", "cannot read the configuration"),
        ("a.toml", b"model = ", "cannot read the configuration"),
        ("a.yaml", b"- model", "to hold fields like 'model:' and 'data:', got list"),
        ("a.yaml", b"", "got NoneType"),
        ("a.yaml", b"!!python/object/apply:os.system ['true']", "cannot read the configuration"),
        ("a.yaml", b"\xff\xfe\x00", "cannot read the configuration file"),
        ("none.yaml", None, "there is no configuration file"),
        (".", None, "expected the configuration file .* it is a folder"),
    ],
)
def test_files_that_are_no_configuration(name: str, content: bytes | None, sentence: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        read_config(tmp_path / name)
    assert "\n" not in str(caught.value)


def bare(batch: Batch, **values: Any) -> tuple[RunOptions, dict[str, Any]]:
    return check(RunOptions, {"model": "x", "data": "y", **values}).filled(batch)


@pytest.mark.parametrize("rank", RANKS)
def test_missing_options_are_filled_and_reported(rank: int) -> None:
    batch = make_batch(rank, 3)
    filled, defaults = bare(batch)
    assert set(defaults) == {"palette", "patch", "budget"}
    assert {name: getattr(filled, name) for name in defaults} == defaults
    assert len(defaults["patch"]) == rank
    attack = filled.build(batch)
    assert attack.grid.patch == defaults["patch"]
    assert attack.distance == filled.distance == ("map" if rank == 3 else "l2")
    assert bare(batch, distance="linf")[0].build(batch).distance == "linf"
    assert bare(batch, patch=2, budget=9, chunk=1, palette=["dead_pixel"])[1] == {}
    assert set(bare(batch, budget=9)[1]) == {"palette", "patch"}


@pytest.mark.parametrize("bounds", [[0.0, 255.0], [-1.0, 1.0], [float("-inf"), float("inf")]])
def test_a_filled_configuration_survives_a_round_trip_through_yaml(bounds: list[float]) -> None:
    model = {"name": "x", "bounds": bounds, "mean": [0.5], "std": [0.25], "headers": {"Accept": "x"}}
    filled, _ = bare(make_batch(2, 3), model=model, data={"path": "y", "size": [8, 8], "bounds": bounds})
    plain = filled.plain()
    json.dumps(plain)
    assert check(RunOptions, yaml.safe_load(yaml.safe_dump(plain))) == filled


def test_secrets_are_not_stored_and_must_be_given_again() -> None:
    headers = {"Authorization": "Bearer s3cret", "X-Key": "s3cret"}
    model = {"name": "https://me:s3cret@host.example/predict", "headers": headers}
    filled, _ = bare(make_batch(2, 3), model=model)
    plain = filled.plain()
    assert "s3cret" not in json.dumps(plain) + filled.model_dump_json()
    assert set(plain["model"]["headers"]) == set(headers)
    assert filled.model.model_dump()["headers"] == headers  # the model itself gets them
    for hidden in ({"name": plain["model"]["name"]}, {"name": "x", "headers": plain["model"]["headers"]}):
        with pytest.raises(OptionError):
            check(RunOptions, {"model": hidden, "data": "y"})


def test_a_model_without_bounds_takes_those_of_the_data(tmp_path: Path) -> None:
    batch = make_batch(1, 2)
    wide = Batch(x=batch.x * 255, y=batch.y, bounds=(0.0, 255.0))
    model = check(RunOptions, {"model": "tests.storage.test_config:a_model", "data": "y"}).model
    assert load_model(model, wide.bounds).bounds == (0.0, 255.0)
    assert load_model(model, batch.bounds).bounds == (0.0, 1.0)


def a_model() -> Any:
    return lambda x: x[:, :, 0]


def test_the_effective_configuration_beside_the_results_gives_the_same_run(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--limit", 6, "--budget", 60, "--pictures", 0]
    assert rlab_command("attack", "demo:digits", "demo:digits", *options, "--out", first).code == 0
    effective = yaml.safe_load((first / CONFIG).read_text())
    assert effective["budget"] == 60
    assert effective["data"]["limit"] == 6
    assert {"palette", "patch", "seed", "policy", "goal"} <= set(effective)  # defaults, too
    assert rlab_command("attack", "--config", first / CONFIG, "--pictures", 0, "--out", second).code == 0
    assert_same(AttackResult.load(first), AttackResult.load(second))
    assert (first / CONFIG).read_text() == (second / CONFIG).read_text()


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, YAML)
    run = rlab_command("attack", "-c", file, "--seed", 5, "--limit", 3, "--pictures", 0, "--out", tmp_path / "run")
    assert run.code == 0, run.err
    setting = AttackResult.load(tmp_path / "run").setting
    assert (setting.seed, setting.budget, setting.policy) == (5, 50, "square(share=0.2)")
    assert len(AttackResult.load(tmp_path / "run")) == 3
