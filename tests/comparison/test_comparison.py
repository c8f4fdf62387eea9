"""Whole comparisons: options, tables, files, resuming, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import rlab
from rlab.comparison import ATTACKS, CompareOptions, Comparison, Contender, PolicyContender, run_comparison
from rlab.comparison.recorder import QueryRecorder
from rlab.data.batch import Batch
from rlab.errors import FolderError, InputError, ModelError, Notice, OptionError
from rlab.policies.random import Random
from rlab.present.table import terminal
from rlab.runs.options import AttackOptions, RunOptions
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim
from tests.command import rlab_command
from tests.comparison.planted import PLANTED, Brightness, Fixed, bright, greys, outcome, plant

BUDGET = 60
COMPARE = ["compare", "demo:digits", "demo:digits", "--limit", 5, "--budget", BUDGET]
FILE: dict[str, Any] = {
    "model": "demo:digits", "data": {"path": "demo:digits", "limit": 2}, "palette": ["dead_pixel"], "patch": 2,
    "budget": 99, "policy": "square", "accept": "always", "l2_penalty": 0.3, "patience": 2, "cleanup": False, "seed": 4,
}  # fmt: skip
RANDOM: dict[str, Any] = {"policies": "random", "palette": "illuminate@0.3", "patch": 1, "budget": 10}


def test_a_policy_reports_what_the_victim_counted() -> None:
    victim, digits = demo_victim("digits"), rlab.load("demo:digits")[:8]
    result = PolicyContender(AttackOptions.model_validate({"policy": "random", "patch": 2}))(victim, digits, BUDGET, 0)
    assert result.rows == sum(victim.rows.values())
    assert int(result.queries.sum()) == victim.rows["search"] + victim.rows["cleanup"]
    assert (result.queries[~result.attacked] == 1).all()  # the clean prediction
    assert torch.isnan(result.l2[~result.succeeded]).all()
    assert (result.l2[result.succeeded] > 0).all()
    assert result.best_within(BUDGET)[result.succeeded].tolist() == pytest.approx(result.l2[result.succeeded].tolist())
    assert max(len(flips) for flips in result.improvements) > 1  # cleanup comes nearer step by step


def test_no_column_is_cut_in_a_narrow_terminal() -> None:
    named: dict[str, Contender] = {
        f"square(share=0.{i}25)": Fixed(outcome([1000 + i, 2345], [2.125, 10.75])) for i in range(3)
    }
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in run_comparison(bright(), greys(0.1, 0.2), named, 10_000).tables():
        console.print(terminal(table))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "in all" in "".join(lines)
    assert "200 queries" in "".join(lines)
    assert all(line.rstrip()[-1] in "┓┃┩│┘" for line in lines)


def test_rows_and_curves_are_saved(tmp_path: Path) -> None:
    named: dict[str, Contender] = {
        "ours": Fixed(outcome([10, 20], [2.0, 2.0])),
        "other@1": Fixed(outcome([100, 80], [None, 1.0])),
        "other@4": Fixed(outcome([40, 40], [4.0, 4.0])),
    }
    heard: list[str] = []
    made = run_comparison(bright(), greys(0.1, 0.2), named, 100, tell=lambda name, one: heard.append(name))
    assert heard == list(named)
    made.save(tmp_path / "out")
    table = Comparison.load(tmp_path / "out").records()
    with (tmp_path / "out" / "results.csv").open() as file:
        text = list(csv.DictReader(file))
    assert len(table) == len(text) == 6
    assert table[2] | {"l2": None} == {
        "attack": "other@1", "id": "0", "attacked": True, "succeeded": False, "queries": 100, "l2": None,
        "within_5": math.inf, "within_20": math.inf, "within_50": math.inf, "within_200": math.inf,
        "improved_at": [], "improved_to": [],
    }  # fmt: skip
    assert (table[0]["improved_at"], table[0]["improved_to"]) == ([10], [2.0])
    assert [row["within_20"] for row in text] == ["2.0", "2.0", "inf", "inf", "inf", "inf"]
    assert [row["queries"] for row in text] == ["10", "20", "100", "80", "40", "40"]
    assert Comparison.load(tmp_path / "out").tables() == made.tables()
    section = Comparison.load(tmp_path / "out").view().sections[0]
    assert [type(block).__name__ for block in section.blocks] == ["Charts", "Table", "Table", "Table", "Text"]
    assert "other@4" in made._repr_html_()


def test_curves_end_at_the_success_rate() -> None:
    flips = (((4, 3.0), (10, 1.0)), ())
    named: dict[str, Contender] = {
        "half": Fixed(replace(outcome([10, 100], [1.0, None]), improvements=flips)),
        "both": Fixed(replace(outcome([20, 40], [1.0, 2.0]), improvements=(((8, 4.0), (20, 1.0)), ((40, 2.0),)))),
        "none": Fixed(outcome([100, 100], [None, None])),
    }
    figure = run_comparison(bright(), greys(0.1, 0.2), named, 100).plot()
    left, right = [ax for ax in figure.axes if ax.get_gid() != "header"]
    (x, y), (_, both), (_, none) = (np.asarray(line.get_data(), float) for line in left.lines)
    assert x.tolist() == [1, 4, 10, 100]
    assert y.tolist() == [0, 0.5, 0.5, 0.5]
    assert both.tolist() == [0, 0.5, 0.5, 1, 1]
    assert not none.any()
    half, medians, never = (np.asarray(line.get_ydata(), float) for line in right.lines)
    assert (never > right.get_ylim()[1]).all()
    assert (half > right.get_ylim()[1]).all()  # one of two is never flipped, so the median stays above the axis
    assert medians[-2:].tolist() == [1.5, 1.5]
    assert (medians[:-2] > right.get_ylim()[1]).all()


def test_a_stopped_comparison_resumes(tmp_path: Path) -> None:
    """Finished attacks do not run again unless a setting, the budget or the seed changes."""
    first, second = Fixed(outcome([10, 20], [2.0, 1 / 3])), Fixed(outcome([30, 40], [1.0, None]))
    named: dict[str, Contender] = {"first": first, "second": second}

    def run(settings: dict[str, Any], seed: int = 0, folder: Path = tmp_path / "out") -> Comparison:
        return run_comparison(bright(), greys(0.1, 0.2), named, 100, seed, folder, settings)

    with pytest.raises(KeyboardInterrupt):
        run_comparison(
            bright(), greys(0.1, 0.2), named | {"second": Stopped()}, 100, folder=tmp_path / "out", settings={}
        )
    assert not (tmp_path / "out" / "report.json").exists()
    run({})
    assert (first.calls, second.calls) == (1, 1)
    run({}, folder=tmp_path / "whole")
    for name in ("report.json", "results.csv", "arrays.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for changed in ({"settings": {}, "seed": 1}, {"settings": {"patch": 2}}):
        before = first.calls
        run(**changed)
        assert first.calls == before + 1


class Stopped(Fixed):
    """An attack that the user stops."""

    def __init__(self) -> None:
        super().__init__(outcome([1, 1], [1.0, 1.0]))

    def __call__(self, *arguments: Any) -> Any:
        raise KeyboardInterrupt


def test_the_command_and_the_function_resume(tmp_path: Path) -> None:
    words = [*COMPARE, "--policies", "random", "--out", tmp_path / "out", "--no-page"]
    assert rlab_command(*words).code == 0
    with mock.patch.object(PolicyContender, "__call__", side_effect=AssertionError("ran again")):
        assert rlab_command(*words).code == 0
    assert rlab_command(*words, "--seed", 1).code == 0
    victim, digits = demo_victim("digits"), rlab.load("demo:digits", limit=3)
    made = [rlab.compare(victim, digits, policies="random", budget=9, out=tmp_path / "python") for _ in "ab"]
    assert victim.rows.total() == made[0].outcomes["random"].rows == made[1].outcomes["random"].rows


def dark(bias: float) -> Any:
    """A function that always predicts class 0."""
    return lambda x: np.stack([bias + x.reshape(len(x), -1).mean(1), np.zeros(len(x), x.dtype)], 1)


@pytest.mark.parametrize(
    "changed",
    [
        [(dark(bias), {}) for bias in (1.0, 2.0)],
        [
            (bright(), {"policies": "auto", "surrogate": surrogate})
            for surrogate in (Brightness(), nn.Sequential(Brightness()))
        ],
        [
            (bright(), {"palette": [function]})
            for function in (lambda x, severity, generator: x * 0.9, lambda x, severity, generator: x * 0.8)
        ],
    ],
)
@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
def test_what_changed_is_never_read_back(changed: Any, tmp_path: Path) -> None:
    run, calls = PolicyContender.__call__, list[PolicyContender]()

    def noting(self: PolicyContender, *arguments: Any) -> Any:
        calls.append(self)
        return run(self, *arguments)

    with mock.patch.object(PolicyContender, "__call__", noting):
        for model, options in changed:
            rlab.compare(model, greys(0.1, 0.2), **{**RANDOM, "out": tmp_path / "out", **options})
    assert len(calls) == 2


def test_policies_say_what_they_need() -> None:
    options = {"palette": ["illuminate@0.3"], "policies": "auto,random", "surrogate": (Brightness(),)}
    contenders = CompareOptions.model_validate({"model": "a", "data": "b"} | options).contenders()
    assert {name: contender.needs for name, contender in contenders.items()} == {
        "auto": ("scores", "surrogates' gradients", "a palette"),
        "random": ("scores", "a palette"),
    }
    assert "a trained prior if one ships" in PolicyContender(AttackOptions()).needs


def test_names_become_contenders() -> None:
    digits = rlab.load("demo:digits")[:8]
    assert CompareOptions.model_validate(FILE).build(digits) == RunOptions.model_validate(FILE).build(digits)
    attacks = ["torchattacks:square@1.0,art:simba", "foolbox:blur"]
    options = CompareOptions.model_validate(FILE | {"policies": "random, square(share=0.2,grow=2)", "attacks": attacks})
    assert options.policies == ("random", "square(share=0.2,grow=2)")
    options = CompareOptions.model_validate(FILE | {"policies": "random, square(share=0.2)", "attacks": attacks})
    contenders = options.contenders()
    assert list(contenders) == ["random", "square(share=0.2)", "torchattacks:square@1.0", "art:simba", "foolbox:blur"]
    random = contenders["random"]
    assert isinstance(random, PolicyContender)
    assert random.options == options.attack_options().model_copy(update={"policy": random.options.policy})
    assert list(CompareOptions.model_validate(FILE).contenders()) == ["auto", "square", "random"]


@pytest.mark.parametrize(
    ("data", "options", "error", "words"),
    [
        (greys(0.1), {**RANDOM, "policies": ()}, OptionError, "at least one attack"),
        (greys(0.6), RANDOM, ModelError, "rlab doctor"),
        (greys(0.1), {**RANDOM, "policies": "rando"}, InputError, "unknown policy"),
        (greys(0.1), {**RANDOM, "attacks": "art:simba", "goal": "targeted:1"}, OptionError, "attacks or the goal"),
        (greys(0.1), {**RANDOM, "attacks": "art:simba", "distance": "linf"}, OptionError, "attacks or the distance"),
        (greys(0.1), {**RANDOM, "attacks": "art:simbo"}, OptionError, "Did you mean 'art:simba'"),
    ],
)
def test_comparisons_that_are_refused(data: Batch, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        rlab.compare(bright(), data, **options)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = list(ATTACKS)
    plant(monkeypatch)
    run = rlab_command(
        *COMPARE, "--policies", "random,square", "--attacks", f"{PLANTED}@1 {PLANTED}@4", "--out", tmp_path / "out"
    )
    assert run.code == 0, run.err
    for words in ("random", f"{PLANTED}@4", "success", "the whole budget", "at most half flipped"):
        assert words in " ".join(run.out.split())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "arrays.safetensors", "parts", "report.html", "report.json", "results.csv", "run.json",
    ]  # fmt: skip
    help_ = rlab_command("compare", "--help").out
    assert all(name in help_ for name in offered)


def test_on_free_pixels_auto_is_the_only_policy_by_default(tmp_path: Path) -> None:
    words = ["--limit", 2, "--budget", 8, "--palette", "pixels"]
    run = rlab_command(
        *COMPARE[:3], *words, "--attacks", f"{__name__}:lighten", "--out", tmp_path / "free", "--json", "-q"
    )
    assert run.code == 0, run.err
    assert list(json.loads(run.out)["attacks"]) == ["auto", f"{__name__}:lighten"]
    assert rlab_command(*COMPARE[:3], *words, "--policies", "auto,square").code == 2


@pytest.mark.parametrize(("attack", "words"), [("foolbox:blur", "foolbox"), ("pgd", "unknown")])
def test_an_attack_that_cannot_run_is_refused_before_the_first_query(attack: str, words: str, tmp_path: Path) -> None:
    with (
        mock.patch.dict(sys.modules, {"foolbox": None, "foolbox.models.pytorch": None}),
        mock.patch.object(TorchVictim, "_predict", side_effect=AssertionError("queried")),
    ):
        run = rlab_command(*COMPARE, "--attacks", attack, "--out", tmp_path / "out")
    assert run.code == 2
    assert words in " ".join(run.err.split())
    assert "Traceback" not in run.err
    assert not (tmp_path / "out").exists()


def lighten(recorder: QueryRecorder, rows: Tensor) -> None:
    for step in (0.1, 0.2, 0.3):
        recorder.ask((recorder.x + step).clamp(0, 1), torch.arange(len(rows)))


def broken(recorder: QueryRecorder, rows: Tensor) -> None:
    recorder.ask(recorder.x, torch.arange(len(rows)))
    raise ValueError("its query is not finite")


@dataclass(frozen=True)
class First(Random):
    """A policy of a user."""


def test_own_attacks_run_as_objects_and_by_name(tmp_path: Path) -> None:
    options: dict[str, Any] = {"palette": "illuminate@0.3", "patch": 1, "budget": 10}
    named = f"{__name__}:lighten"
    with pytest.warns(Notice, match=r"broken failed .* 3 queries"):
        made = rlab.compare(
            bright(), greys(0.36, 0.42), policies=First(), attacks=[lighten, named, f"{__name__}:First", broken],
            out=tmp_path / "out", progress=False, **options,
        )  # fmt: skip
    assert list(made.outcomes) == ["First()", "lighten", named, f"{__name__}:First"]
    for name in ("lighten", named):
        assert made.outcomes[name].queries.tolist() == [4, 4]
        assert [at for at, _ in made.outcomes[name].improvements[1]] == [2]
    loaded = Comparison.load(str(tmp_path / "out"))
    assert str(loaded) == str(made)
    assert "lighten" in str(made)
    assert "broken failed" in str(made)
    with pytest.raises(FolderError, match="a folder of rlab compare"):
        Comparison.load(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attacks": [3]}, "expected names, policies or functions, got int"),
        ({"attacks": lambda x: x}, "recorder, rows"),
        ({"attacks": "my_nothing:attack"}, "cannot import"),
        ({"policies": f"{__name__}:lighten"}, "name it among the attacks"),
    ],
)
def test_own_attacks_that_are_refused(options: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        rlab.compare(bright(), greys(0.1), **options)
