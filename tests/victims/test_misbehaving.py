"""Models and filters that leave the program, hang, or answer with something else than real scores."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from rlab.errors import InputError, VictimError
from rlab.guard import TimeUp, time_limit
from rlab.results.result import AttackResult
from rlab.victims import CallableVictim, TorchVictim
from tests.command import rlab_command
from tests.helpers import assert_same

X = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
MODULE = """
import os, sys, time
import torch
from rlab.victims.zoo import demo_victim

net = demo_victim("digits")

def good(x):
    return net._predict(torch.from_numpy(x)).numpy()

def raising(what):
    def function(x):
        raise what
    return lambda: function

zero, text, ended, cancelled = map(raising, (SystemExit(0), SystemExit("bye"), GeneratorExit(), BaseException("odd")))
interrupted = raising(KeyboardInterrupt())

def late():
    asked = []
    def function(x):
        asked.append(len(x))
        if len(asked) > 3:
            sys.exit(0)
        return good(x)
    return function

def factory():
    sys.exit(0)

def sleepy():
    asked = []
    def function(x):
        asked.append(len(x))
        while len(asked) > 20 and os.path.exists("sleep"):
            try:
                time.sleep(60)
            except Exception:
                pass
        return good(x)
    return function

def leaving(x, severity, generator):
    sys.exit(0)

tried = []

def sometimes(x, severity, generator):
    tried.append(severity)
    if len(tried) > 14:
        sys.exit(0)
    return (x + severity).clamp(0, 1)

def idle(x, severity, generator):
    raise ZeroDivisionError("oops")
"""
WORDS = ["--limit", "3", "--budget", "10", "--patch", "4", "-p", "gaussian_noise@0.3"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_odd.py").write_text(MODULE)
    (tmp_path / "my_exit.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("model", ["zero", "text", "ended", "cancelled", "late", "factory", "my_exit:model"])
def test_a_model_that_leaves_is_one_sentence(model: str, folder: Path) -> None:
    said = rlab_command("attack", model if ":" in model else f"my_odd:{model}", "demo:digits", *WORDS, "-o", "run")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert not (folder / "run" / "samples.parquet").exists()


COMMANDS = {
    "doctor": ["doctor", "MODEL", "demo:digits", "--limit", "3"],
    "compare": ["compare", "MODEL", "demo:digits", *WORDS, "--policies", "square", "-o", "out"],
    "explain": ["explain", "MODEL", "demo:digits", "--limit", "2", "--method", "occlusion", "-o", "out"],
    "benchmark": ["benchmark", "make", "MODEL", "demo:digits", *WORDS, "-o", "out"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_ends_well_by_a_model_that_leaves(command: str) -> None:
    said = rlab_command(*[word.replace("MODEL", "my_odd:zero") for word in COMMANDS[command]])
    assert said.code in (1, 2)  # the doctor finds it out and says so
    assert "Traceback" not in said.err
    assert "SystemExit" in said.err + said.out


@pytest.mark.parametrize("model", ["my_odd:zero", "my_odd:factory"])
def test_an_audit_does_not_pass_by_a_model_that_leaves(model: str, folder: Path) -> None:
    values = {
        "model": model, "data": {"path": "demo:digits", "limit": 3}, "palette": ["gaussian_noise@0.3"], "budget": 10,
        "doctor": False, "explain": False, "benchmark": False, "requirements": [{"metric": "success", "below": 2}],
    }  # fmt: skip
    (folder / "audit.yaml").write_text(yaml.safe_dump(values))
    said = rlab_command("audit", "audit.yaml", "-o", "audit")
    assert said.code == 2
    assert not (folder / "audit" / "audit.json").exists()


@pytest.mark.parametrize("filter_", ["leaving", "sometimes", "idle", "my_exit:filter"])
def test_a_filter_that_leaves_is_one_sentence(filter_: str) -> None:
    name = filter_ if ":" in filter_ else f"my_odd:{filter_}"
    said = rlab_command("attack", "demo:digits", "demo:digits", "--limit", 8, "--budget", 10, "-p", name, "-o", "run")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_an_interrupt_stops_whoever_raised_it() -> None:
    assert rlab_command("attack", "my_odd:interrupted", "demo:digits", *WORDS, "-o", "run").code == 130


def test_a_model_that_hangs_ends_in_time_and_the_run_goes_on(folder: Path) -> None:
    words = ["attack", "my_odd:sleepy", "demo:digits", *WORDS, "--chunk", 1, "--pictures", 0]
    (folder / "sleep").touch()
    began = time.monotonic()
    said = rlab_command(*words, "--timeout", 0.3, "-o", "run")
    assert said.code == 2
    assert "did not answer within 0.3 s" in said.err
    assert time.monotonic() - began < 20
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    (folder / "sleep").unlink()
    assert list((folder / "run" / "parts").iterdir())  # what was finished is kept
    for out in ("run", "whole"):
        assert rlab_command(*words, "-o", out).code == 0
    assert_same(AttackResult.load("run"), AttackResult.load("whole"))


def test_a_limit_that_is_swallowed_comes_again() -> None:
    def stubborn() -> None:
        try:
            time.sleep(60)
        except BaseException:
            time.sleep(60)

    with pytest.raises(TimeUp), time_limit(0.05):
        stubborn()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_limit_in_another_thread_is_refused() -> None:
    caught: list[Exception] = []

    def ask() -> None:
        try:
            CallableVictim(lambda x: x.reshape(3, -1), timeout=1.0)(X)
        except InputError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert caught


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "x", True])
def test_timeouts_that_make_no_sense_are_refused(timeout: Any) -> None:
    with pytest.raises(InputError, match="expected a timeout"):
        CallableVictim(lambda x: x, timeout=timeout)


class Answering(nn.Module):
    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(x * self.weight)


LOGITS = torch.linspace(-1, 1, 9).view(3, 3)
WORKS: dict[str, Callable[[Tensor], Any]] = {
    "half": lambda x: LOGITS.half(),
    "double": lambda x: LOGITS.double(),
    "whole numbers": lambda x: (LOGITS * 4).long(),
    "a mapping": lambda x: {"logits": LOGITS, "loss": None},
    "not contiguous": lambda x: LOGITS.T.contiguous().T,
    "writes on its input": lambda x: (x.zero_(), LOGITS)[1],
}
FAILS: dict[str, Callable[[Tensor], Any]] = {
    "complex": lambda x: LOGITS.to(torch.complex64),
    "meta": lambda x: LOGITS.to("meta"),
    "sparse": lambda x: LOGITS.to_sparse(),
    "a tuple": lambda x: (LOGITS, LOGITS),
    "nothing": lambda x: None,
    "one row too few": lambda x: LOGITS[:2],
    "no axis": lambda x: torch.tensor(1.0),
    "a deep call": lambda x: FAILS["a deep call"](x),
}


@pytest.mark.parametrize("kind", WORKS)
def test_scores_of_other_kinds_are_read(kind: str) -> None:
    for victim in (TorchVictim(Answering(WORKS[kind])), CallableVictim(lambda x: WORKS[kind](torch.from_numpy(x)))):
        before = X.clone()
        assert victim(X).shape == (3, 3)
        assert torch.equal(X, before)


@pytest.mark.parametrize("kind", FAILS)
def test_answers_that_are_no_scores_are_one_sentence(kind: str) -> None:
    for victim in (TorchVictim(Answering(FAILS[kind])), CallableVictim(lambda x: FAILS[kind](torch.from_numpy(x)))):
        with pytest.raises(VictimError):
            victim(X)
        assert victim.rows["search"] == 3
        if isinstance(victim, TorchVictim):
            with pytest.raises(VictimError):
                victim.scores_with_grad(X, "train")


@pytest.mark.parametrize("answer", [[["1", "2"]] * 3, [[1j, 2]] * 3, [[None, 1]] * 3, {"scores": LOGITS}, "abc", b"ab"])
def test_arrays_that_are_no_real_numbers_are_one_sentence(answer: Any) -> None:
    with pytest.raises(VictimError, match="all real"):
        CallableVictim(lambda x: answer)(X)


def test_models_without_values_are_refused() -> None:
    with torch.device("meta"):
        empty = nn.Linear(4, 3)
    for model in (empty, nn.LazyLinear(3), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3).to("meta"))):
        with pytest.raises(InputError, match="no values"):
            TorchVictim(model)
    with pytest.raises(InputError, match="device 'meta'"):
        TorchVictim(nn.Linear(4, 3), device="meta")


def test_infinite_inputs_are_refused_before_they_are_sent() -> None:
    victim = CallableVictim(lambda x: x.reshape(1, -1), bounds=(float("-inf"), float("inf")))
    with pytest.raises(InputError):
        victim(torch.tensor([[[1.0, float("inf")]]]))
    assert not victim.rows
