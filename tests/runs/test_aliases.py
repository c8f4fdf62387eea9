"""Files written under old names: configurations, and run folders stored from before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import Field

from rlab.errors import InputError
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions, RunOptions
from rlab.storage.aliases import RENAMED, renamed
from rlab.storage.config import Options, check, read_config
from rlab.storage.names import CONFIG
from rlab.victims import demo_victim
from tests.command import rlab_command

STORED = Path(__file__).resolve().parents[1] / "fixtures"


class Trained(Options):
    """Options some of which had other names."""

    learning_rate: float = Field(1.0, description="step")
    buffer_size: int = Field(1, description="transitions")


def test_old_names_become_todays_where_only_those_are_known() -> None:
    assert renamed({"price": 1, "seed": 2}) == {"l2_penalty": 1, "seed": 2}
    assert renamed({"price": 1}, {"l2_penalty": 0}) == {"l2_penalty": 1}
    assert renamed({"rate": 360.0}, {"rate": None}) == {"rate": 360.0}  # of signals, not of learning
    assert renamed({"guide": 1}, {"seed": 0}) == {"guide": 1}  # unknown under either name: refused as it was written
    assert not set(RENAMED) & set(RENAMED.values())


@pytest.mark.parametrize(("old", "new", "value"), [("rate", "learning_rate", 0.5), ("replay", "buffer_size", 7)])
def test_declarations_take_old_keys(old: str, new: str, value: float) -> None:
    assert getattr(check(Trained, {old: value}), new) == value


def test_an_old_key_is_checked_like_todays() -> None:
    assert check(AttackOptions, {"price": 0.25}).l2_penalty == 0.25
    with pytest.raises(InputError, match=r"'l2_penalty' .*is not valid"):
        check(AttackOptions, {"price": -1})
    with pytest.raises(InputError, match="unknown key 'prise'"):
        check(AttackOptions, {"prise": 1})


@pytest.mark.parametrize("file", [STORED / "attack.yaml", STORED / "run_digits" / CONFIG])
def test_a_configuration_from_before_is_the_same_attack(file: Path) -> None:
    options: Any = check(RunOptions, read_config(file))
    assert (options.l2_penalty, options.seed, options.budget, options.data.limit) == (0.05, 3, 60, 3)
    attack = options.build(options.data.load())
    assert (attack.l2_penalty, attack.seed, attack.chunk, attack.grid.patch) == (0.05, 3, 2, (2, 2))


def test_a_run_from_before_is_read_whole() -> None:
    result = AttackResult.load(STORED / "run_ecg")
    assert result.ids == ("simulated-0000", "simulated-0001")
    assert result.status == (Status.SUCCEEDED, Status.SPENT)
    assert result.r_peaks == ((143,), (133,))  # written as marks
    assert result.queries.tolist() == [[5, 2, 1, 0], [59, 0, 0, 0]]
    assert result.summary()["median_l2"] == pytest.approx(0.9104, abs=1e-4)


def test_a_run_from_before_still_flips_the_model_and_comes_out_the_same_today(tmp_path: Path) -> None:
    stored = AttackResult.load(STORED / "run_digits")
    options: Any = check(RunOptions, read_config(STORED / "attack.yaml"))
    batch = options.data.load()
    today = run_attack(options.build(batch), demo_victim("digits"), batch, tmp_path / "run", options.plain())
    assert torch.equal(today.assignment, stored.assignment)
    assert torch.equal(today.queries, stored.queries)
    torch.testing.assert_close(today.perturbed, stored.perturbed)


@pytest.mark.parametrize("name", ["run_digits", "run_ecg"])
def test_a_run_from_before_is_shown(name: str) -> None:
    printed = rlab_command("show", STORED / name)
    assert printed.code == 0, printed.err
    for sample in AttackResult.load(STORED / name).ids:
        assert sample in printed.out


def test_a_folder_begun_before_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(STORED / "run_digits", folder)
    ledger = (folder / "ledger.sqlite").read_bytes()
    printed = rlab_command("attack", "--config", folder / CONFIG, "--pictures", 0, "--out", folder)
    assert printed.code == 2
    assert "older rlab" in printed.err
    assert (folder / "ledger.sqlite").read_bytes() == ledger
