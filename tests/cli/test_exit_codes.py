"""Exit codes: 0 only for finished work, 3 for bugs in rlab, always with a one-line error."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from rlab.core.env import AttackEnv
from tests.auditing.cases import quick
from tests.command import Said, rlab_command

QUICK = ["--limit", 4, "--budget", 20, "--pictures", 0]
ENDS = {
    "exit": "raise SystemExit(0)",
    "sys.exit": "import sys; sys.exit()",
    "exit with a word": "raise SystemExit('done')",
    "interrupt": "raise KeyboardInterrupt",
}


def write_model(when: str, what: str) -> None:
    """A model that ends the process when it is imported, made or asked."""
    at = {"imported": what if when == "imported" else "", "made": "pass", "asked": "pass"} | {when: what}
    Path("my_ending.py").write_text(
        f"{at['imported']}\ndef model():\n    {at['made']}\n    return ask\n"
        f"def ask(x):\n    {at['asked']}\n    return x[:, 0, 0, :2]\n"
    )


@pytest.mark.parametrize("when", ["imported", "made", "asked"])
@pytest.mark.parametrize("what", ENDS)
def test_no_model_ends_an_audit_with_0(what: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(when, ENDS[what])
    Path("audit.yaml").write_text(yaml.safe_dump(quick(model="my_ending:model")))
    said = rlab_command("audit", "audit.yaml", "--out", "out")
    if when == "asked" and what != "interrupt":  # the doctor finds out, and that is a verdict
        assert said.code == 1
        assert json.loads(Path("out", "audit.json").read_text())["passed"] is False
        return
    assert said.code in (2, 130)
    assert said.err.count("\n") == 1
    assert not Path("out", "audit.json").exists()


def failing(error: BaseException, *flags: str) -> Said:
    with mock.patch("rlab.cli.show.load_report", side_effect=error):
        return rlab_command("show", "folder", *flags)


def test_a_bug_is_one_line_and_3() -> None:
    said = failing(ZeroDivisionError("of\nours"))
    assert said.code == 3
    assert said.err.count("\n") == 1
    assert "--debug" in said.err


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_debug_shows_the_traceback(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("RLAB_DEBUG", "1")
    said = failing(ZeroDivisionError("ours"), *(["--debug"] if how == "flag" else []))
    assert said.code == 3
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (MemoryError(), 2),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a"), 2),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "runs/a"), 2),
    ],
    ids=repr,
)
def test_errors_of_the_machine_are_not_bugs(error: BaseException, code: int) -> None:
    said = failing(error)
    assert (said.code, said.err.count("\n")) == (code, 1)


@pytest.mark.parametrize("words", [["nosuch"], ["attack", "--nosuch"], ["attack", "--budget", "many"], ["show"], []])
def test_bad_command_lines_are_2(words: list[str]) -> None:
    assert rlab_command(*words).code == 2


@pytest.mark.parametrize("out", [[], ["--out", "mine"]], ids=["a new folder", "a named one"])
@pytest.mark.parametrize("calls", [0, 30])
def test_ctrl_c_prints_what_is_saved_and_how_to_resume(
    out: list[str], calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer, left = AttackEnv.step, count(calls, -1)

    def stop(self: AttackEnv, *given: Any) -> Any:
        if next(left) <= 0:
            raise KeyboardInterrupt
        return answer(self, *given)

    with mock.patch.object(AttackEnv, "step", stop):
        said = rlab_command("attack", "demo:digits", "demo:digits", *QUICK, "--chunk", 1, *out)
    *progress, told = said.err.splitlines()
    assert (said.code, told[:7]) == (130, "stopped")
    assert all(line.startswith("attacking ") for line in progress)
    if not calls:
        assert not list(Path().rglob("samples.parquet"))
        assert rlab_command("attack", "demo:digits", "demo:digits", "--policy", "random", *QUICK, *out).code == 0
        return
    folder = Path("mine") if out else next(Path("runs").iterdir())
    counted = re.search(r"(\d+) of 4 samples are saved in (\S+); resume with: rlab (.*)", said.err)
    assert counted
    assert (0 < int(counted[1]) < 4, counted[2]) == (True, str(folder))
    assert shlex.split(counted[3])[-2:] == ["--out", str(folder)]
    assert rlab_command(*shlex.split(counted[3])).code == 0
    assert (folder / "samples.parquet").is_file()
