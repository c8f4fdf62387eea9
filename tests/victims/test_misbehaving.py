"""Models and filters that exit the program, hang, or have no values."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

import rlab
from rlab.errors import InputError, VictimError
from rlab.guard import TimeUp, time_limit
from rlab.results.result import AttackResult
from rlab.victims import CallableVictim
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


@pytest.mark.parametrize(
    ("model", "palette"),
    [
        *[(f"my_odd:{name}", []) for name in ("zero", "text", "ended", "cancelled", "late", "factory")],
        ("my_exit:model", []),
        *[("demo:digits", ["-p", f"my_odd:{name}"]) for name in ("leaving", "sometimes", "idle")],
        ("demo:digits", ["-p", "my_exit:filter"]),
    ],
)
def test_a_model_or_filter_that_exits_is_a_one_line_error(model: str, palette: list[str], folder: Path) -> None:
    said = rlab_command("attack", model, "demo:digits", *WORDS, "--limit", 8, *palette, "-o", "run")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert not (folder / "run" / "samples.parquet").exists()


AUDIT = {
    "data": {"path": "demo:digits", "limit": 3}, "palette": ["gaussian_noise@0.3"], "budget": 10,
    "doctor": False, "explain": False, "benchmark": False, "requirements": [{"metric": "clean_accuracy", "at_least": 0.0}],
}  # fmt: skip
COMMANDS = {
    "doctor": ["doctor", "MODEL", "demo:digits", "--limit", "3"],
    "compare": ["compare", "MODEL", "demo:digits", *WORDS, "--policies", "square", "-o", "out"],
    "explain": ["explain", "MODEL", "demo:digits", "--limit", "2", "--method", "occlusion", "-o", "out"],
    "benchmark": ["benchmark", "make", "MODEL", "demo:digits", *WORDS, "-o", "out"],
    "audit": ["audit", "audit.yaml", "-o", "out"],
}


@pytest.mark.parametrize("model", ["my_odd:zero", "my_odd:factory"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_succeeds_with_a_model_that_exits(command: str, model: str, folder: Path) -> None:
    (folder / "audit.yaml").write_text(yaml.safe_dump({"model": model, **AUDIT}))
    said = rlab_command(*[word.replace("MODEL", model) for word in COMMANDS[command]])
    assert said.code in (1, 2)  # the doctor reports it
    assert "Traceback" not in said.err
    assert "SystemExit" in said.err + said.out
    assert not (folder / "out" / "audit.json").exists()


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


def test_infinite_inputs_are_refused_before_they_are_sent() -> None:
    victim = CallableVictim(lambda x: x.reshape(1, -1), bounds=(float("-inf"), float("inf")))
    with pytest.raises(InputError):
        victim(torch.tensor([[[1.0, float("inf")]]]))
    assert not victim.rows


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_without_words_is_one_sentence() -> None:
    def mute(x: object) -> None:
        raise Mute

    with pytest.raises(VictimError, match=r"the model failed on inputs of shape \(3, 1, 4, 4\): Mute"):
        CallableVictim(mute)(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_may_change_the_default_dtype_and_the_working_folder(dtype: torch.dtype, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()

    def restless(x: NDArray[np.float32]) -> Tensor:
        torch.set_default_dtype(torch.float16)
        os.chdir(tmp_path / "elsewhere")
        return torch.as_tensor(x).reshape(len(x), -1)[:, :3]

    x = torch.rand(4, 1, 4, 4)
    torch.set_default_dtype(dtype)
    result = rlab.attack(restless, (x, x.flatten(1)[:, :3].argmax(1)), out="run", budget=8, patch=2, progress=False)
    assert torch.get_default_dtype() == dtype
    torch.set_default_dtype(torch.float32)
    assert Path.cwd() == tmp_path
    assert len(AttackResult.load("run")) == len(result) == 4
