"""Runs on disk: the files of a folder, how a run resumes after a failure, and which folders are refused."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import DataError, FolderError, Notice
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import chunk_size, run_attack
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.options import make_attack
from rlab.storage import files
from rlab.storage.names import CONFIG
from rlab.storage.resume import Resume
from rlab.storage.run_file import PARTS, RUN, read_run
from rlab.victims import Victim
from tests.helpers import PALETTE, PATCHES, RANKS, FlakyVictim, assert_same, exact_victim, labelled_by, make_batch

CONFIGURATION = {"model": {"name": "exact"}, "budget": 20, "chunk": 3}


class Case:
    """Eight samples in three chunks, the second sample wrong from the start."""

    def __init__(self, rank: int = 2) -> None:
        self.victim: Victim = exact_victim(rank)
        self.batch = labelled_by(self.victim, make_batch(rank, 8), wrong=(1,))
        self.attack: Attack = make_attack(self.batch, patch=PATCHES[rank], palette=PALETTE, budget=20, chunk=3, seed=4)

    def run(self, folder: Path, victim: Victim | None = None, **other: Any) -> AttackResult:
        return run_attack(self.attack, victim or Breaking(self.victim), self.batch, folder, {**CONFIGURATION, **other})

    def resume(self, folder: Path) -> Resume:
        """Open the folder's finished steps with the question of `run`."""
        inputs = {"the data": data_fingerprint(self.batch), **inputs_of(Breaking(self.victim), self.attack)}
        return Resume(folder, {"command": "attack", **CONFIGURATION, **inputs})


class Drifting(Victim):
    """The exact victim; what its environment changes about its answers, no digest sees."""

    def _predict(self, x: Tensor) -> Tensor:
        return exact_victim(2)._predict(x) * float(os.environ.get("DRIFT", 1))


class Breaking(Victim):
    """Queries `inner` until the `last` call and then raises; -1 never raises."""

    def __init__(self, inner: Victim, last: int = -1) -> None:
        super().__init__(outputs="logits")
        self.inner, self.left, self.unanswered = inner, last, 0

    def _predict(self, x: Tensor) -> Tensor:
        if self.left == 0:
            self.unanswered = len(x)
            raise KeyboardInterrupt
        self.left -= 1
        return self.inner._predict(x)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder) if (folder / name).is_file()}


@pytest.mark.parametrize("rank", RANKS)
def test_a_finished_folder_holds_these_files_and_no_pickle(rank: int, tmp_path: Path) -> None:
    case = Case(rank)
    result = case.run(tmp_path / "a" / "run")
    parts = [f"parts/chunk-{first:08d}.{suffix}" for first in (0, 3, 6) for suffix in ("safetensors", "step")]
    usual = ["arrays.safetensors", "config.yaml", "parts", *parts, "report.json", "run.json", "samples.parquet"]
    assert names(tmp_path / "a" / "run") == usual
    start = {path.name: path.read_bytes()[:16] for path in (tmp_path / "a" / "run").rglob("*.*")}
    assert start["samples.parquet"].startswith(b"PAR1")
    assert start["run.json"].startswith(b"{")
    tensors = {first[8:10] for name, first in start.items() if name.endswith(".safetensors")}
    assert tensors == {b'{"'}  # JSON behind its length
    assert yaml.safe_load((tmp_path / "a" / "run" / CONFIG).read_text()) == CONFIGURATION
    assert_same(AttackResult.load(tmp_path / "a" / "run"), result)
    resume = case.resume(tmp_path / "a" / "run")
    assert [name for _, rows in resume.values("chunk-") for name in rows["id"].to_pylist()] == list(result.ids)
    assert [key for key, _ in resume.values()] == [f"chunk-{first:08d}" for first in (0, 3, 6)]


def test_a_run_on_disk_is_the_run_in_memory_and_sends_no_queries_again(tmp_path: Path) -> None:
    case = Case()
    counting = Breaking(case.victim)
    stored = case.run(tmp_path / "run", counting)
    assert_same(stored, run_attack(case.attack, case.victim, case.batch))
    assert case.victim.rows == counting.rows
    again = case.run(tmp_path / "run", Breaking(case.victim, 0))
    assert_same(again, stored)


def chunk_ends(case: Case) -> list[int]:
    """The number of calls to the model by the end of every chunk."""
    counting, ends = FlakyVictim(case.victim, lambda call: None), list[int]()

    def hear(part: Any) -> None:
        ends.extend([counting.calls] if len(part) else [])

    run_attack(case.attack, counting, case.batch, progress=hear)
    return ends


@pytest.mark.parametrize(
    ("chunks", "later"),
    [(2, 2), *(pytest.param(*at, marks=pytest.mark.slow) for at in ((1, 0), (1, 1), (1, 3), (2, 0), (3, -1)))],
)
def test_a_stopped_run_resumes_where_it_was(chunks: int, later: int, tmp_path: Path) -> None:
    """Stopped `later` calls after a number of finished chunks; -1 stops at the verification."""
    case = Case()
    whole = case.run(tmp_path / "whole")
    killed, resumed = Breaking(case.victim, chunk_ends(case)[chunks - 1] + later), Breaking(case.victim)
    with pytest.raises(KeyboardInterrupt):
        case.run(tmp_path / "run", killed)
    finished = [0, 3, 6][: chunks if later >= 0 else chunks - 1]
    assert [key for key, _ in case.resume(tmp_path / "run").values()] == [f"chunk-{first:08d}" for first in finished]
    assert_same(case.run(tmp_path / "run", resumed), whole)
    assert resumed.rows.pop("resume") == 1
    sent = killed.rows.total() + resumed.rows.total()
    assert sent == int(whole.queries.sum()) + killed.unanswered  # no answer was paid twice
    assert names(tmp_path / "run") == names(tmp_path / "whole")


def stopped(case: Case, folder: Path) -> None:
    """A run that is stopped after its first chunk."""
    with pytest.raises(KeyboardInterrupt):
        case.run(folder, Breaking(case.victim, chunk_ends(case)[0] + 1))


@pytest.mark.parametrize(("drift", "same"), [(1.0, True), (1 + 1e-5, True), (1.2, False)])
def test_a_resumed_run_notices_another_model_by_one_query(
    drift: float, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case()
    case.victim = Drifting(outputs="logits")
    stopped(case, tmp_path / "run")
    before, resumed = contents(tmp_path / "run"), Breaking(case.victim)
    monkeypatch.setenv("DRIFT", str(drift))
    if same:
        with pytest.warns(Notice, match="1 query has checked"):
            case.run(tmp_path / "run", resumed)
    else:
        with pytest.raises(FolderError, match="begun with another model: its answer to the unchanged sample"):
            case.run(tmp_path / "run", resumed)
        assert resumed.rows == {"resume": 1}
        assert contents(tmp_path / "run") == before
    assert resumed.rows["resume"] == 1
    if same:
        finished = Breaking(case.victim)
        case.run(tmp_path / "run", finished)
        assert not finished.rows  # a finished run is only returned


def test_a_resumed_run_says_why_it_cannot_check_the_model(tmp_path: Path) -> None:
    case = Case()
    for folder, attack, why in (
        (tmp_path / "noisy", replace(case.attack, noisy=True), "declared noisy"),
        (tmp_path / "spent", replace(case.attack, until="budget"), "no finished sample has a query left"),
    ):
        case.attack = attack
        case.batch.y[1] = case.batch.y[1] if attack.noisy else exact_victim(2)(case.batch.x[1:2])[0].argmax()
        with pytest.raises(KeyboardInterrupt):
            case.run(folder, Breaking(case.victim, chunk_ends(case)[0]))
        resumed = Breaking(case.victim)
        with pytest.warns(Notice, match=why):
            case.run(folder, resumed)
        assert "resume" not in resumed.rows


def test_a_run_that_another_version_goes_on_with_says_so(tmp_path: Path) -> None:
    case = Case()
    stopped(case, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run is not None
    run.model_copy(update={"versions": run.versions | {"torch": "1.0"}}).write(tmp_path / "run")
    with pytest.warns(Notice, match=r"torch 1\.0"):
        case.run(tmp_path / "run")
    with warnings.catch_warnings(action="error"):
        case.run(tmp_path / "run")


def test_a_run_may_be_stopped_repeatedly(tmp_path: Path) -> None:
    """Each process lives a little longer than the longest chunk takes."""
    case = Case()
    whole = case.run(tmp_path / "whole")
    ends, stops = chunk_ends(case), 0
    longest = max(end - begin for begin, end in zip([0, *ends], ends, strict=False))
    for _ in range(9):
        try:
            result = case.run(tmp_path / "run", Breaking(case.victim, longest + 1))
        except KeyboardInterrupt:
            stops += 1
        else:
            break
    assert stops
    assert_same(result, whole)


def test_a_run_that_fails_in_its_first_chunk_leaves_nothing(tmp_path: Path) -> None:
    case = Case()
    case.batch.y[7] = 9
    with pytest.raises(DataError):
        case.run(tmp_path / "below" / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_killed_in_its_first_chunk_reads_its_answers_back(tmp_path: Path) -> None:
    case, folder = Case(), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        case.run(folder, Breaking(case.victim, 1))
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, PARTS, RUN]
    with pytest.warns(Notice, match="3 answers of the stopped run are read back"):
        result = case.run(folder)
    assert_same(result, case.run(tmp_path / "whole"))


def test_answers_of_another_configuration_are_discarded_and_the_run_says_so(tmp_path: Path) -> None:
    case, folder = Case(), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        case.run(folder, Breaking(case.victim, 1))
    case.attack = replace(case.attack, seed=5)
    with pytest.warns(Notice, match="3 answers of a stopped run of another configuration"):
        result = run_attack(case.attack, case.victim, case.batch, folder, {**CONFIGURATION, "seed": 5})
    assert_same(result, run_attack(case.attack, case.victim, case.batch))


@pytest.mark.parametrize(
    "state",
    [
        "half a file",
        "no chunk",
        *(pytest.param(state, marks=pytest.mark.slow) for state in ("empty folder", "no config")),
    ],
)
def test_a_run_killed_while_creating_its_folder_resumes(state: str, tmp_path: Path) -> None:
    case, folder = Case(), tmp_path / "run"
    folder.mkdir()
    if state == "half a file":
        (folder / f"{RUN}.0123456789abcdef.part").write_text("{")
    elif state != "empty folder":
        case.resume(folder).create()
        if state == "no chunk":
            (folder / CONFIG).write_text(yaml.safe_dump(CONFIGURATION))
    result = case.run(folder)
    assert_same(result, Case().run(tmp_path / "whole"))
    assert names(folder) == names(tmp_path / "whole")
    with pytest.raises(FolderError):
        case.run(folder, budget=41)


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_another_configuration_is_refused(finished: bool, tmp_path: Path) -> None:
    case = Case()
    if finished:
        case.run(tmp_path / "run")
    else:
        with pytest.raises(KeyboardInterrupt):
            case.run(tmp_path / "run", Breaking(case.victim, chunk_ends(case)[0] + 1))
        with pytest.raises(FolderError):
            AttackResult.load(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(FolderError):
        case.run(tmp_path / "run", budget=41, policy="greedy")
    case.batch.x[0] = 0.5
    with pytest.raises(FolderError):
        case.run(tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_verification_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that are stored wrongly do not count as flips."""
    case = Case()
    write = files.write_arrays

    def forget(path: Path, arrays: dict[str, Tensor], setting: str) -> None:
        instead = {"perturbed": arrays["original"].clone()} if "original" in arrays else {}
        write(path, {**arrays, **instead}, setting)

    monkeypatch.setattr(files, "write_arrays", forget)
    result = case.run(tmp_path / "run")
    assert Status.UNVERIFIED in result.status
    assert Status.SUCCEEDED not in result.status


def test_progress_reports_every_finished_chunk(tmp_path: Path) -> None:
    case = Case()
    with pytest.raises(KeyboardInterrupt):
        case.run(tmp_path / "run", Breaking(case.victim, chunk_ends(case)[0] + 1))
    seen: list[int] = []

    def hear(part: Any) -> None:
        seen.append(len(part))

    run_attack(case.attack, Breaking(case.victim), case.batch, tmp_path / "run", CONFIGURATION, hear)
    assert [length for length in seen if length] == [3, 3, 2]  # parts without a length are unfinished chunks


def test_different_data_have_different_fingerprints() -> None:
    first = data_fingerprint(Case().batch)
    assert first == data_fingerprint(Case().batch)
    for change in ("x", "y", "ids"):
        other = Case().batch
        if change == "ids":
            object.__setattr__(other, "ids", ("z", *other.ids[1:]))
        else:
            getattr(other, change)[0] = 2
        assert data_fingerprint(other) != first


@pytest.mark.parametrize(
    ("size", "budget", "chunk", "expected"),
    [
        ((8,), 200, None, 64),
        ((32, 32), 200, None, 16),
        ((32, 32), 20_000, None, 8),
        ((32, 32), 200, 50, 50),
        ((224, 224), 200, None, 2),
        ((224, 224), 1000, None, 1),
    ],
)
def test_large_inputs_and_budgets_are_saved_more_often(
    size: tuple[int, ...], budget: int, chunk: int | None, expected: int
) -> None:
    batch = Batch(torch.zeros(100, 3, *size), torch.zeros(100, dtype=torch.long))
    attack = make_attack(batch, budget=budget, chunk=chunk, policy="random", palette=["dead_pixel"], patch=2)
    victim = exact_victim(1)
    assert chunk_size(attack, victim, batch) == expected
    victim.device = torch.device("cuda")  # a GPU is as fast with many rows as with few
    assert chunk_size(attack, victim, batch) == (chunk or 64)
