"""Workers under every command that attacks, and from Python: the same bits as one process finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlab
import tests.conftest  # noqa: F401  (see `digits`)
from rlab.benchmarking import Benchmark
from rlab.comparison import Comparison
from rlab.results.result import AttackResult
from rlab.runs.executor import Workers
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check
from rlab.victims.options import ModelOptions
from rlab.victims.torch_module import TorchVictim
from tests.command import rlab_command
from tests.helpers import assert_same

WORDS = ["--limit", 8, "--chunk", 3, "--budget", 25, "-p", "gaussian_noise@0.3", "-p", "dead_pixel", "--patch", 2]
OPTIONS: dict[str, Any] = {
    "limit": 8, "chunk": 3, "budget": 25, "palette": ["gaussian_noise@0.3", "dead_pixel"], "patch": 2,
}  # fmt: skip
DIGITS = ["tests.test_shared_work:digits", "demo:digits"]


def digits() -> TorchVictim:
    """The demo's model under a name whose module workers import, and with it the switches of `tests.conftest`."""
    return rlab.demo_victim("digits")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def without_seconds(comparison: Comparison) -> Any:
    return repr([comparison.records(), {name: outcome.rows for name, outcome in comparison.outcomes.items()}])


@pytest.mark.slow
def test_compare_by_workers(tmp_path: Path) -> None:
    def run(folder: str, *who: object) -> Comparison:
        said = rlab_command(
            "compare", *DIGITS, *WORDS, "--policies", "square,auto", "--attacks", "tests.comparison.planted:own_noise",
            "-o", tmp_path / folder, *who,
        )  # fmt: skip
        assert said.code == 0, said.err
        return Comparison.load(tmp_path / folder)

    assert without_seconds(run("two", "--workers", 2)) == without_seconds(run("one"))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(["--ladder", "times:1.5"], marks=pytest.mark.slow),
        pytest.param(["--ladder", "severity:1..5", "--format", "npz"], marks=pytest.mark.slow),
    ],
)
def test_a_benchmark_by_workers(how: list[str], tmp_path: Path) -> None:
    def make(folder: str, *who: object) -> Benchmark:
        said = rlab_command("benchmark", "make", *DIGITS, *WORDS, *how, "-o", tmp_path / folder, *who)
        assert said.code == 0, said.err
        return Benchmark.load(tmp_path / folder)

    one, two = make("one"), make("two", "--workers", 2)
    assert repr(two.rows) == repr(one.rows)
    assert two.manifest == one.manifest
    names = [sorted(path.relative_to(made.folder) for path in made.folder.rglob("*")) for made in (one, two)]
    assert names[0] == names[1]
    for name in names[0]:
        if (one.folder / name).is_file() and name.suffix not in (
            ".json",
            ".lock",
            ".html",
        ):  # a page has the name of its folder
            assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes(), name


def test_sets_without_a_model_take_no_workers(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(yaml.safe_dump({"data": {"path": "demo:digits", "limit": 4}}))
    words = ["--config", tmp_path / "set.yaml", "--sets", "free", "--ladder", "severity:1..5"]
    said = rlab_command("benchmark", "make", *words, "--workers", 2, "-o", tmp_path / "never")
    assert said.code == 2
    assert "workers" in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "never").exists()
    assert rlab_command("benchmark", "make", *words, "--dry-run", "-o", tmp_path / "never").code == 0


@pytest.mark.slow
def test_an_audit_by_workers(tmp_path: Path) -> None:
    declared = {
        "model": "demo:digits", "data": {"path": "demo:digits", "limit": 8}, "explain": False,
        **{key: value for key, value in OPTIONS.items() if key != "limit"},
        "requirements": [{"metric": "clean_accuracy", "at_least": "10%"}],
    }  # fmt: skip
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(declared))
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(declared | {"workers": 2}))
    codes = [
        rlab_command("audit", tmp_path / "one.yaml", "-o", tmp_path / "one").code,
        rlab_command("audit", tmp_path / "two.yaml", "-o", tmp_path / "two").code,
        rlab_command("audit", tmp_path / "one.yaml", "-o", tmp_path / "flag", "--workers", 2).code,
    ]
    assert codes == [0, 0, 0]
    results = [AttackResult.load(tmp_path / name / "attack") for name in ("one", "two", "flag")]
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])
    sets = [Benchmark.load(tmp_path / name / "benchmark") for name in ("one", "two", "flag")]
    assert sets[0].manifest.hash == sets[1].manifest.hash == sets[2].manifest.hash
    records = [json.loads((tmp_path / name / "audit.json").read_text()) for name in ("one", "two", "flag")]
    assert records[0]["requirements"] == records[1]["requirements"] == records[2]["requirements"]


SCRIPT = """
import rlab
result = rlab.attack("demo:digits", "demo:digits", workers=2, **{options})
result.save("{folder}")
"""


@pytest.mark.slow
def test_attack_by_workers_from_a_script_without_a_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(options=OPTIONS, folder=tmp_path / "run"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert_same(AttackResult.load(tmp_path / "run"), rlab.attack("demo:digits", "demo:digits", **OPTIONS))


def test_workers_take_models_by_name(tmp_path: Path) -> None:
    victim = rlab.demo_victim("digits")
    calls: list[Callable[..., object]] = [rlab.attack, rlab.compare, partial(rlab.benchmark, out=tmp_path / "never")]
    for call in calls:
        with pytest.raises(rlab.InputError, match="name"):
            call(victim, "demo:digits", workers=2, **OPTIONS)
    assert not (tmp_path / "never").exists()


def test_a_model_that_is_another_each_time_is_refused() -> None:
    victim, model = rlab.demo_victim("digits"), check(ModelOptions, {"name": "demo:digits"})
    crew = Workers.of(check(WorkerOptions, {"workers": 2}), model, victim)
    assert crew is not None
    start = crew._start(lambda victim: victim, (), 0, 2)
    assert start.make(*start.arguments).bounds == victim.bounds  # type: ignore[attr-defined]
    other = replace(crew, fingerprint="another")._start(lambda victim: victim, (), 0, 2)
    with pytest.raises(rlab.InputError, match="seed"):
        other.make(*other.arguments)
