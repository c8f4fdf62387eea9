"""Runs over a source: equal to runs in memory to the bit, resumable, and strict about data that changes."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.data.batch import Batch
from rlab.data.source import Decoded, Source
from rlab.errors import DataError, FolderError, InputError, Notice, OptionError
from rlab.results.kept import Keep
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.storage import files
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
        return run_attack(self.attack, victim or Breaking(self.victim), source or self.load(), folder, CONFIGURATION)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_streamed_run_is_the_run_of_the_same_samples_in_memory(rank: int, tmp_path: Path) -> None:
    case = Streamed(tmp_path, rank)
    assert_same(case.stream(tmp_path / "stream"), case.run(tmp_path / "memory"))
    assert_same(run_attack(case.attack, case.victim, case.load()), run_attack(case.attack, case.victim, case.batch))


@pytest.mark.parametrize(
    ("keep", "chunks", "later"), [("everything", 1, 0), ("everything", 2, 2), ("flips", 2, 1), ("assignments", 2, 1)]
)
def test_a_streamed_run_resumes_where_it_was(keep: Keep, chunks: int, later: int, tmp_path: Path) -> None:
    case = Streamed(tmp_path)

    def run(name: str, victim: Victim) -> AttackResult:
        return run_attack(case.attack, victim, case.load(), tmp_path / name, {**CONFIGURATION, "keep": keep}, keep=keep)

    killed, again = Breaking(case.victim, chunk_ends(case)[chunks - 1] + later), Breaking(case.victim)
    with pytest.raises(KeyboardInterrupt):
        run("run", killed)
    result, whole = run("run", again), run("whole", Breaking(case.victim))
    if keep == "everything":
        assert_same(result, whole)
    assert (result.status, result.ids) == (whole.status, whole.ids)
    assert torch.equal(result.assignment, whole.assignment)
    assert again.rows.pop("resume") == 1
    assert killed.rows.total() + again.rows.total() == int(result.queries.sum()) + killed.unanswered
    assert names(tmp_path / "run") == names(tmp_path / "whole")


def test_data_that_changes_ends_the_run_and_keeps_finished_chunks(tmp_path: Path) -> None:
    """Data that changed between two processes is refused as well."""
    case = Streamed(tmp_path)
    source, before = case.load(), case.path.stat().st_mtime_ns

    def changing(rows: Any) -> Decoded:
        if rows[0] == 6:
            os.utime(case.path, ns=(1, 1))
        return source.read(rows)

    with pytest.raises(InputError):
        case.stream(tmp_path / "run", source=replace(source, read=changing))
    with pytest.raises(FolderError):
        case.stream(tmp_path / "run")
    os.utime(case.path, ns=(before, before))
    assert_same(case.stream(tmp_path / "run"), case.run(tmp_path / "whole"))


def test_unreadable_samples_are_left_out_and_reported(tmp_path: Path) -> None:
    """All of the second chunk and one of the third."""
    case = Streamed(tmp_path)
    source = case.load()

    def read(rows: Any) -> Decoded:
        values, kept = source.read(rows), [i for i, row in enumerate(rows) if row not in (3, 4, 5, 7)]
        assert values.x is not None
        losses = [(source.ids[row], "is broken") for row in rows if row in (3, 4, 5, 7)]
        return Decoded(values.x[kept] if kept else None, kept, losses)

    broken = replace(source, read=read)
    with pytest.warns(Notice, match="4 left out: 4 × is broken"):
        result = case.stream(tmp_path / "run", source=broken)
    whole = case.run(tmp_path / "whole")
    assert_same(result, whole.where(torch.tensor([0, 1, 2, 6])))
    assert_same(case.stream(tmp_path / "run", Breaking(case.victim, 0), broken), result)  # no further queries
    unreadable = replace(source, read=lambda rows: Decoded(None, (), [("a", "is broken")] * len(rows)))
    with pytest.raises(InputError):
        run_attack(case.attack, case.victim, unreadable)


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


@pytest.mark.parametrize("keep", ["flips", "assignments"])
@pytest.mark.parametrize("rank", [1, 2])
def test_inputs_that_were_not_kept_are_rebuilt_to_the_bit(keep: Keep, rank: int, tmp_path: Path) -> None:
    case = Streamed(tmp_path, rank)
    whole = case.run(tmp_path / "whole")
    config = {**CONFIGURATION, "palette": PALETTE, "keep": keep}
    victim = Breaking(case.victim)
    result = run_attack(case.attack, victim, case.load(), tmp_path / "run", config, keep=keep)
    assert whole.succeeded.any()
    assert not whole.succeeded.all()
    assert (result.status, sum(victim.rows.values())) == (whole.status, int(whole.queries.sum()))
    has = [result.inputs.has(i) for i in range(len(result))]
    assert has == (whole.succeeded.tolist() if keep == "flips" else [False] * len(whole))
    assert bool(list((tmp_path / "run" / "parts").glob("*.safetensors"))) == (keep == "flips")
    if keep == "flips":
        flip = int(whole.succeeded.nonzero()[0])
        assert torch.equal(result[flip].perturbed, whole[flip].perturbed)
    with pytest.raises(FolderError):
        result.perturbed  # noqa: B018
    for data in (case.load(), case.batch):
        assert_same(AttackResult.load(tmp_path / "run", data), whole)


def test_rebuilding_from_other_data_is_refused(tmp_path: Path) -> None:
    case = Streamed(tmp_path)
    config = {**CONFIGURATION, "palette": PALETTE, "keep": "assignments"}
    result = run_attack(case.attack, Breaking(case.victim), case.load(), tmp_path / "run", config, keep="assignments")
    flip = int(result.succeeded.nonzero()[0])
    other = replace(case.batch, x=case.batch.x.flip(0))
    with pytest.raises(DataError):
        AttackResult.load(tmp_path / "run", other)[flip].perturbed  # noqa: B018
    with pytest.raises(DataError):
        AttackResult.load(tmp_path / "run", replace(other, ids=tuple("abcdefgh")))[flip].perturbed  # noqa: B018
    pixels = make_attack(case.batch, palette=["pixels"], budget=20)
    with pytest.raises(OptionError):
        run_attack(pixels, case.victim, case.batch, tmp_path / "pixels", CONFIGURATION, keep="assignments")
    assert not (tmp_path / "pixels").exists()


def test_a_run_resumes_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Streamed(tmp_path)
    write, left = files.write_arrays, [2]

    def full(*args: Any, **more: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_arrays", full)
        with pytest.raises(FolderError) as caught:
            case.stream(tmp_path / "run", first := Breaking(case.victim))
    assert f"6 of 8 samples are saved in {tmp_path / 'run'}; free some space" in str(caught.value)
    again = Breaking(case.victim)
    result = case.stream(tmp_path / "run", again)
    assert_same(result, case.run(tmp_path / "whole"))
    assert again.rows.pop("resume") == 1
    assert first.rows.total() + again.rows.total() == int(result.queries.sum())
