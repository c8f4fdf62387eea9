"""The package's functions do what the commands do, with the same options, on models and data in memory."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import rlab
from rlab.benchmarking import BenchmarkOptions
from rlab.comparison import CompareOptions
from rlab.data.load import DataOptions
from rlab.errors import InputError, OptionError
from rlab.explanation.options import ExplainOptions
from rlab.hardening.options import HardenOptions
from rlab.runs.options import RunOptions
from rlab.storage.config import Options, check
from rlab.victims.options import ModelOptions
from tests.auditing.cases import quick, undrawn
from tests.runs.test_inputs_taken import Net, X, Y
from tests.training.test_directions import TINY

DECLARED: dict[str, tuple[Callable[..., Any], type[Options]]] = {
    "attack": (rlab.attack, RunOptions),
    "compare": (rlab.compare, CompareOptions),
    "explain": (rlab.explain, ExplainOptions),
    "benchmark": (rlab.benchmark, BenchmarkOptions),
    "harden": (rlab.harden, HardenOptions),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_function_takes_every_option_of_its_declaration(name: str) -> None:
    function, kind = DECLARED[name]
    told = inspect.signature(function).parameters
    stored = set() if name == "attack" else {"keep"}  # files may set it, but only attacks use it
    stored |= {"policy"} if name == "compare" else set()  # it takes `policies`
    assert set(kind.model_fields) - {"models"} - stored <= set(told)
    assert told["limit"].default is None
    with pytest.raises(InputError, match="'seed'"):
        function(Net(), (X, Y), **({"out": "never"} if name == "benchmark" else {}), sede=1)


def digits(limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    batch = rlab.load("demo:digits", limit=limit)
    return batch.x, batch.y


def test_the_doctor_finds_the_normalisation_a_bare_module_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    net = rlab.demo_victim("digits").model
    report = rlab.doctor(net, digits(32))
    assert "no mean and std" in " ".join(capsys.readouterr().err.split())
    assert not report.healthy
    assert "mean" in str(report)
    assert "\n" not in repr(report)
    assert rlab.doctor("demo:digits", digits(32)).healthy


def test_compare(tmp_path: Path) -> None:
    comparison = rlab.compare("demo:digits", digits(4), policies="square,random", budget=20, out=tmp_path / "c")
    assert list(comparison.outcomes) == ["square", "random"]
    assert comparison.budget == 20
    assert repr(comparison) == repr(type(comparison).load(tmp_path / "c"))


def test_compare_announces_the_data_and_tells_each_attack() -> None:
    model, data = check(ModelOptions, {"name": "demo:digits"}), check(DataOptions, {"path": "demo:digits", "limit": 2})
    heard: list[object] = []
    rlab.compare(
        model, data, policies="square,random", budget=5,
        announce=lambda understood: heard.append(len(understood.samples)), tell=lambda name, outcome: heard.append(name),
    )  # fmt: skip
    assert heard == [2, "square", "random"]


def test_explain() -> None:
    victim, data = rlab.demo_victim("digits"), digits(3)
    one = rlab.explain(victim, data, method="occlusion")
    assert one.labels.tolist() == victim(data[0]).argmax(1).tolist()
    both = rlab.explain(victim, data, method="occlusion,middle", compare=True, checks=False)
    assert list(both.judged) == ["occlusion", "middle"]
    assert all("\n" not in repr(thing) for thing in (one, both))
    assert list(rlab.explain(victim, data, method="middle", compare=True, checks=False).judged) == ["middle"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rlab.compare("demo:digits", digits(4), policy="square"), "policies="),  # type: ignore[call-arg]
        (lambda: rlab.compare(Net(), (X, Y), workers=2), "by name"),
        (lambda: rlab.explain("demo:digits", digits(3), method="mask", label=5), "not predicted"),
        (lambda: rlab.explain("demo:digits", digits(3), method="occlusion,middle"), "compare=True"),
        (lambda: rlab.attack("demo:digits", digits(2), keep="flips"), "pass out="),
    ],
)
def test_unusable_options_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert words in str(refused.value)


def test_benchmark_of_several_models(tmp_path: Path) -> None:
    victim = rlab.demo_victim("digits")
    made = rlab.benchmark({"a": victim, "b": "demo:digits"}, digits(4), tmp_path / "b", budget=30, ladder="flip")
    assert [name for name, _ in made.manifest.victims] == ["a", "b"]
    assert "\n" not in repr(made)
    assert rlab.verify_benchmark(made, {"a": victim}).holds


def test_harden_leaves_the_module_as_it_was() -> None:
    net = Net().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    hardened = rlab.harden(net, (X, Y), validation=(0.9 * X, Y), epochs=1, training_batch=4, adversary_budget=3)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert hardened.model is not net
    assert "\n" not in repr(hardened)


def test_audit_of_a_file_and_of_its_content(tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text(yaml.safe_dump(quick()))
    with undrawn():
        results = [rlab.audit(file, tmp_path / "out"), rlab.audit(quick(), tmp_path / "out")]
    assert results[0].record["requirements"] == results[1].record["requirements"]
    assert "\n" not in repr(results[0])


def test_train_a_prior_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prior.yaml"
    file.write_text(yaml.safe_dump(TINY))
    told: list[dict[str, float]] = []
    prior = rlab.train(file, tmp_path / "out", minutes=0.005, tell=told.append)
    assert told
    assert prior.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert len(rlab.attack("demo:digits", digits(2), policy=str(prior), budget=8)) == 2


def umask() -> int:
    """The file mode mask of this process."""
    now = os.umask(0o022)
    os.umask(now)
    return now


def test_train_refuses_an_unknown_kind(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("kind: tree\n")
    with pytest.raises(OptionError):
        rlab.train(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
