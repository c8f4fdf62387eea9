"""--dry-run, which neither queries nor writes, and --max-queries, which no command exceeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from torch import Tensor

import rlab
from rlab.errors import OptionError
from rlab.results.result import AttackResult
from rlab.victims.torch_module import TorchVictim
from tests.auditing.cases import declared
from tests.command import Said, rlab_command
from tests.helpers import assert_same

DIGITS = ["demo:digits", "demo:digits", "--limit", 3]
SMALL = [*DIGITS, "--budget", 20]
ATTACK = ["attack", *SMALL, "--policy", "random", "--chunk", 1, "--no-page"]
MAKE = ["benchmark", "make", *DIGITS, "--patch", 2, "--ladder", "times:1.5", "--steps", 5, "--budget", 60]
EXPLAIN = ["explain", *DIGITS, "--compare", "--steps", 4, "--pictures", 0, "--method", "occlusion,rise(masks=20)"]
HARDEN = ["harden", *DIGITS[:2], "--limit", 20, "--budget", 12, "--epochs", 1, "--adversary-budget", 4]
AUDIT = ["audit", "audit.yaml"]
DOCTOR = ["doctor", *DIGITS]
CORRUPT = ["corrupt", *DIGITS, "--kinds", "fog"]
COMPARE = ["compare", *SMALL, "--policies", "random,square"]
LEARN = ["learn", "demo:digits", "demo:digits", "--queries", 200]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("audit.yaml").write_text(yaml.safe_dump(declared()))


@contextmanager
def counted() -> Iterator[list[int]]:
    """Rows that torch models are asked about."""
    asked, predict = [], TorchVictim._predict

    def count(self: TorchVictim, x: Tensor) -> Tensor:
        asked.append(len(x))
        return predict(self, x)

    with mock.patch.object(TorchVictim, "_predict", count):
        yield asked


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (ATTACK, 3 * 20),
        (COMPARE, 2 * 3 * 20),
        (["compare", *SMALL, "--policies", "random", "--attacks", "foolbox:blur"], 2 * 3 * 20),
        (MAKE, None),
        (EXPLAIN, None),
        (HARDEN, None),
        (AUDIT, None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_dry_run_neither_queries_nor_writes(words: list[Any], rows: int | None) -> None:
    before = sorted(Path().rglob("*"))
    with counted() as asked:
        said = rlab_command(*words, "--out", "run", "--dry-run", "--json", "-q")
    assert said.code == 0, said.err
    assert not asked
    assert sorted(Path().rglob("*")) == before
    plan = json.loads(said.out)
    assert (plan["dry_run"], plan["out"], plan["rows_at_most"]) == (True, "run", rows)
    assert plan["samples"] > 0


def limited(words: list[Any], most: int) -> tuple[Said, int]:
    """What a command says that may send this many queries, and how many it sent."""
    out = [] if words is DOCTOR else ["--out", "run"]
    with counted() as asked:
        said = rlab_command(*words, *out, "--max-queries", most)
    return said, sum(asked)


@pytest.mark.parametrize(
    "words", [ATTACK, COMPARE, MAKE, EXPLAIN, DOCTOR, CORRUPT, LEARN, AUDIT], ids=lambda words: str(words[0])
)
def test_no_command_sends_more_queries_than_it_may(words: list[Any]) -> None:
    said, sent = limited(words, 7)
    assert sent <= 7
    assert said.code == 2, said.out
    assert said.err.splitlines()[-1].startswith("error: ")
    assert "limit of 7 queries is reached" in said.err.splitlines()[-1]


def test_the_same_command_goes_on_with_a_larger_limit() -> None:
    assert rlab_command(*ATTACK, "--out", "whole").code == 0
    whole, most = AttackResult.load("whole"), 0
    sent = 0
    for most in (25, 25, 1000):
        said, more = limited(ATTACK, most)
        assert more <= most
        sent += more
    assert said.code == 0, said.err
    assert_same(AttackResult.load("run"), whole)
    assert sent <= int(whole.queries.sum()) + 2  # the first question of a resumed run checks the model


def test_the_limit_in_python_holds_for_every_model_inside() -> None:
    x = rlab.load("demo:digits", limit=3).x

    def ask(most: int) -> None:
        with rlab.query_limit(most):
            for _ in range(4):
                rlab.demo_victim("digits")(x)

    ask(12)
    with pytest.raises(OptionError, match="limit of 10 queries is reached after 9"):
        ask(10)
    with pytest.raises(OptionError, match="at least 1"):
        ask(0)


def test_a_limit_is_no_affair_of_workers() -> None:
    said = rlab_command(*ATTACK, "--workers", 2, "--max-queries", 9, "--out", "run")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert not Path("run").exists()
