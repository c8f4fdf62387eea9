"""A run folder never gives the result of something else: refused or run anew. The same again costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rlab
from rlab.errors import FolderError, Notice
from tests.runs.changes import CHANGES, REPEATS, Change, samples
from tests.runs.stale import CELLS, queries, stale

QUICK = ("a line of forward", "a number in a closure")  # in every verb; of other changes, only attacks are quick


def cell(change: Change, verb: str) -> Any:
    quick = verb == "attack" or change.name in QUICK
    return pytest.param(change, verb, id=f"{verb}: {change.name}", marks=[] if quick else pytest.mark.slow)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_table_is_large_enough() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES) >= 40
    assert len(CELLS) >= 100


@pytest.mark.parametrize(("change", "verb"), [cell(*each) for each in CELLS])
def test_same_folder_something_changed(change: Change, verb: str, tmp_path: Path) -> None:
    assert not stale(change, verb, tmp_path)


@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        *((kind, "attack") for kind in REPEATS),
        *(
            pytest.param("a callable", verb, marks=pytest.mark.slow)
            for verb in ("corrupt", "compare", "benchmark", "run")
        ),
        *(
            pytest.param("a module", verb, marks=pytest.mark.slow)
            for verb in ("corrupt", "compare", "benchmark", "run")
        ),
    ],
)
def test_the_same_again_costs_nothing(kind: str, verb: str, tmp_path: Path) -> None:
    """Though the models count their calls, and the module is imported anew."""
    first, again = (queries(REPEATS[kind], verb, tmp_path) for _ in range(2))
    assert first
    assert again == 0


@pytest.mark.slow
def test_a_new_process_recognises_the_same_and_refuses_others(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]

    def run(change: str) -> dict[str, int | None]:
        code = "import json, pathlib, sys; from tests.runs.stale import repeats\n"
        code += "print(json.dumps(repeats(pathlib.Path(sys.argv[1]), sys.argv[2])))"
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        call = [sys.executable, "-c", code, str(tmp_path / "runs"), change]
        done = subprocess.run(call, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
        found: dict[str, int | None] = json.loads(done.stdout.splitlines()[-1])
        return found

    first, again = run(""), run("")
    assert all(first.values())
    assert again == dict.fromkeys(REPEATS, 0)
    code, model = run("code"), run("model")
    assert [name for name in REPEATS if code[name] is not None and model[name] is not None] == ["an estimator"]


def test_what_cannot_be_recognised_is_said_once_and_refused(tmp_path: Path) -> None:
    numbers = iter_of()

    def scores(x: Any) -> Any:
        return x.reshape(len(x), -1)[:, :2] + next(numbers)

    victim = rlab.CallableVictim(scores, outputs="logits")
    options: dict[str, Any] = {"policy": "random", "palette": ["gaussian_noise@0.5"], "patch": 2, "budget": 6}
    with pytest.warns(Notice) as told:
        rlab.attack(victim, samples(), out=tmp_path / "run", **options)
    assert len([each for each in told if "numbers (generator)" in str(each.message)]) == 1
    sent = victim.rows.total()
    with pytest.raises(FolderError, match="numbers"):
        rlab.attack(victim, samples(), out=tmp_path / "run", **options)
    assert victim.rows.total() == sent


def iter_of() -> Any:
    while True:
        yield 0.0


def test_explanations_of_other_inputs_are_refused_before_they_replace_the_old_ones(tmp_path: Path) -> None:
    net = rlab.demo_victim("digits")
    first, other = rlab.load("demo:digits", limit=2), rlab.load("demo:digits")[4:6]
    rlab.explain(net, first, method="middle", out=tmp_path, progress=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    with pytest.raises(FolderError):
        rlab.explain(net, other, method="occlusion", out=tmp_path, progress=False)
    with pytest.raises(FolderError):
        rlab.explain(net, other, method="middle").save(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before
    with pytest.raises(FolderError):
        rlab.explain(net, first, method="occlusion", out=tmp_path, progress=False)
    rlab.explain(net, first, method="middle", out=tmp_path, progress=False)
