"""Runs over a source: the bits of the same samples in memory, going on after a stop, and refusing data that changed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.data.source import Source, Values
from rlab.errors import InputError, Notice
from rlab.options import make_attack
from rlab.runs.attack import run_attack
from rlab.victims import Victim
from tests.helpers import PALETTE, PATCHES, assert_same
from tests.runs.test_attack import CONFIGURATION, Breaking, Case, chunk_ends, names


class Streamed(Case):
    """The samples of `Case`, in a file."""

    def __init__(self, folder: Path, rank: int = 2) -> None:
        super().__init__(rank)
        self.path, patch = folder / "data.npz", PATCHES[rank]
        self.attack = make_attack(self.batch, patch=patch, palette=PALETTE, budget=20, chunk=3, seed=4, policy="square")
        np.savez(self.path, x=self.batch.x.numpy(), y=self.batch.y.numpy(), ids=list(self.batch.ids))

    def load(self, **options: Any) -> Source:
        kind = self.batch.kind
        return rlab.load(self.path, stream=True, bounds=self.batch.bounds, kind=kind, **options)

    def stream(self, folder: Path, victim: Victim | None = None, source: Source | None = None) -> AttackResult:
        asked = victim or Breaking(self.victim)
        return run_attack(self.attack, asked, source or self.load(), folder, CONFIGURATION)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_streamed_run_is_the_run_of_the_same_samples_in_memory(rank: int, tmp_path: Path) -> None:
    case = Streamed(tmp_path, rank)
    assert_same(case.stream(tmp_path / "stream"), case.run(tmp_path / "memory"))
    assert_same(case.attack(case.victim, case.load()), case.attack(case.victim, case.batch))


@pytest.mark.parametrize(("chunks", "later"), [(1, 0), (2, 2)])
def test_it_goes_on_where_it_was_stopped(chunks: int, later: int, tmp_path: Path) -> None:
    case = Streamed(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        case.stream(tmp_path / "run", Breaking(case.victim, chunk_ends(case)[chunks - 1] + later))
    again = Breaking(case.victim)
    result = case.stream(tmp_path / "run", again)
    assert_same(result, case.run(tmp_path / "whole"))
    assert sum(again.rows.values()) == int(result.queries[3 * chunks :].sum())
    assert names(tmp_path / "run") == names(tmp_path / "whole")


def test_data_that_changed_between_two_processes_are_refused(tmp_path: Path) -> None:
    case = Streamed(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        case.stream(tmp_path / "run", Breaking(case.victim, chunk_ends(case)[0] + 1))
    os.utime(case.path, ns=(1, 1))
    with pytest.raises(InputError, match="the data differs"):
        case.stream(tmp_path / "run")


def test_data_that_change_during_the_run_end_it_with_what_is_finished_kept(tmp_path: Path) -> None:
    case = Streamed(tmp_path)
    source, before = case.load(), case.path.stat().st_mtime_ns

    def changing(rows: Any) -> Values:
        if rows[0] == 6:
            os.utime(case.path, ns=(1, 1))
        return source.read(rows)

    with pytest.raises(InputError, match="changed after the run had begun"):
        case.stream(tmp_path / "run", source=replace(source, read=changing))
    os.utime(case.path, ns=(before, before))
    assert_same(case.stream(tmp_path / "run"), case.run(tmp_path / "whole"))


def test_samples_that_cannot_be_read_are_left_out_and_told(tmp_path: Path) -> None:
    """Of the second chunk all, of the third one."""
    case = Streamed(tmp_path)
    source = case.load()

    def read(rows: Any) -> Values:
        values, kept = source.read(rows), [i for i, row in enumerate(rows) if row not in (3, 4, 5, 7)]
        assert values.x is not None
        losses = [(source.ids[row], "is broken") for row in rows if row in (3, 4, 5, 7)]
        return Values(values.x[kept] if kept else None, kept, losses)

    broken = replace(source, read=read)
    with pytest.warns(Notice, match="4 left out: 4 × is broken"):
        result = case.stream(tmp_path / "run", source=broken)
    whole = case.run(tmp_path / "whole")
    assert_same(result, whole.where(torch.tensor([0, 1, 2, 6])))
    assert_same(case.stream(tmp_path / "run", Breaking(case.victim, 0), broken), result)  # nothing is asked again
    with pytest.raises(InputError, match="samples can be read"):
        case.attack(case.victim, replace(source, read=lambda rows: Values(None, (), [("a", "is broken")] * len(rows))))


def test_attack_takes_a_source_and_a_folder(tmp_path: Path) -> None:
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6)
    np.savez(tmp_path / "a.npz", x=x.numpy(), y=y.numpy())
    options: dict[str, Any] = {"budget": 6, "policy": "random", "palette": "dead_pixel", "patch": 4}
    source = rlab.load(tmp_path / "a.npz", stream=True)
    with pytest.warns(Notice):
        streamed = rlab.attack("demo:digits", source, out=tmp_path / "run", limit=4, **options)
    with pytest.warns(Notice):
        held = rlab.attack("demo:digits", Batch(x, y), limit=4, **options)
    assert_same(streamed, held)
    assert_same(AttackResult.load(tmp_path / "run"), held)
