"""Damaged and edited run folders raise one-line errors that name the file; a deleted file is made again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from rlab.benchmarking import Benchmark
from rlab.errors import FolderError, InputError
from rlab.folders.reports import report_run
from rlab.present.report import REPORT
from rlab.results.result import AttackResult, to_rows
from rlab.storage import files
from rlab.storage.run_file import AGAIN, ELSEWHERE, PARTS, RUN
from tests.command import rlab_command
from tests.helpers import fields_of
from tests.results.plots.fixtures import CASES, make_result
from tests.runs.killing import COMMANDS, Killed, _attacked, contents, trouble, unbroken, unbroken_root

ROOT = Path(__file__).resolve().parents[2]


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path) -> None:
    """Flip one bit near the end, behind all headers."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * 0.9)] ^= 4
    path.write_bytes(content)


def noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(max(600, path.stat().st_size)))


DAMAGES: list[Callable[[Path], object]] = [cut, flip, noise, lambda path: path.write_bytes(b""), Path.unlink]
NAMES = ["cut", "flip", "noise", "empty", "missing"]


def finished(name: str, folder: Path) -> Path:
    """Copy a finished folder of this command."""
    unbroken(name)
    return Path(shutil.copytree(unbroken_root() / name.replace(" ", "-"), folder))


def outcome(name: str, folder: Path) -> Any:
    """What the folder says."""
    if name == "audit":
        return (folder / "audit.json").read_bytes()
    if name == "attack":
        return {field: str(value) for field, value in fields_of(AttackResult.load(folder)).items()}
    benchmark = Benchmark.load(folder)
    return benchmark.manifest.hash, benchmark.read(benchmark.originals()).tolist()


def is_same(name: str, folder: Path) -> bool:
    return bool(outcome(name, folder) == outcome(name, unbroken_root() / name.replace(" ", "-")))


def delete_and_resume(name: str, folder: Path, path: Path) -> None:
    """Once the damaged file is deleted, the command ends like an unbroken one."""
    path.unlink(missing_ok=True)
    COMMANDS[name](folder)
    assert is_same(name, folder)
    assert contents(folder).keys() == unbroken(name)[1].keys()


def queried(name: str, folder: Path) -> int:
    """The rows that a command sends to the model of the small attack."""
    victim = _attacked()[1]
    before = victim.rows.total()
    COMMANDS[name](folder)
    return int(victim.rows.total() - before)


@pytest.mark.parametrize("damage", DAMAGES, ids=NAMES)
@pytest.mark.parametrize("file", [files.ARRAYS, files.SAMPLES])
def test_a_damaged_attack_names_the_file_and_a_deleted_one_costs_nothing(
    file: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = finished("attack", tmp_path / "run")
    damage(folder / file)
    if damage is not Path.unlink:
        for look in (AttackResult.load, COMMANDS["attack"]):
            with pytest.raises(FolderError) as caught:
                look(folder)
            assert str(folder / file) in str(caught.value)
            assert f"delete it and {AGAIN}" in str(caught.value)
    (folder / file).unlink(missing_ok=True)
    assert queried("attack", folder) == 0
    assert is_same("attack", folder)
    assert contents(folder).keys() == unbroken("attack")[1].keys()


@pytest.mark.parametrize("damage", [cut, noise, flip])
def test_a_damaged_run_file_is_refused(damage: Callable[[Path], object], tmp_path: Path) -> None:
    folder = finished("attack", tmp_path / "run")
    damage(folder / RUN)
    with pytest.raises(FolderError) as caught:
        COMMANDS["attack"](folder)
    assert f"{folder / RUN} is damaged" in str(caught.value)
    assert ELSEWHERE in str(caught.value)
    (folder / RUN).unlink()
    assert is_same("attack", folder)  # the other files are enough to read the results


@pytest.mark.parametrize("part", ["rows", "arrays", "run"])
def test_a_damaged_chunk_of_an_unfinished_run(part: str, tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", unbroken("attack")[0]
    with pytest.raises(Killed), trouble(folder, at=round(moments * 0.7)):
        COMMANDS["attack"](folder)
    names = {"rows": "chunk-00000000.step", "arrays": "chunk-00000000.safetensors"}
    damaged = folder / RUN if part == "run" else folder / PARTS / names[part]
    flip(damaged)
    with pytest.raises(FolderError) as caught:
        COMMANDS["attack"](folder)
    assert f"{damaged} is damaged" in str(caught.value)
    assert (ELSEWHERE if part == "run" else AGAIN) in str(caught.value)
    if part != "run":
        delete_and_resume("attack", folder, damaged)


@pytest.mark.parametrize("name", ["benchmark png", "benchmark npz"])
@pytest.mark.parametrize("pattern", ["exact/**/*.np*", "exact/**/*.png", "manifest.json", "metadata.parquet"])
def test_a_deleted_file_of_a_benchmark_is_made_again(name: str, pattern: str, tmp_path: Path) -> None:
    folder = finished(name, tmp_path / "run")
    for path in sorted(folder.glob(pattern))[:1]:
        flip(path)
        if path.parent == folder:
            with pytest.raises(FolderError, match=path.name):
                COMMANDS[name](folder)
        delete_and_resume(name, folder, path)


def test_a_deleted_manifest_of_joined_samples_costs_nothing(tmp_path: Path) -> None:
    folder = finished("benchmark npz", tmp_path / "run")
    for name in ("manifest.json", "metadata.parquet"):
        (folder / name).unlink()
        with mock.patch("rlab.benchmarking.make.chunk_work", side_effect=AssertionError):
            COMMANDS["benchmark npz"](folder)
        assert is_same("benchmark npz", folder)


@pytest.mark.parametrize("pattern", ["doctor/*.json", "attack/arrays.safetensors", "attack/parts/*.safetensors"])
def test_a_stage_of_an_audit_whose_file_was_deleted_runs_again(pattern: str, tmp_path: Path) -> None:
    folder = finished("audit", tmp_path / "run")
    path = sorted(folder.glob(pattern))[0]
    noise(path)
    if "parts" not in pattern:
        with pytest.raises(FolderError, match=path.name):
            COMMANDS["audit"](folder)
    delete_and_resume("audit", folder, path)


def test_only_a_damaged_chunk_is_queried_again(tmp_path: Path) -> None:
    """A flipped bit in the arrays of the last chunk is noticed when they are read."""
    folder = finished("attack", tmp_path / "run")
    part = folder / PARTS / "chunk-00000004.safetensors"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    result = AttackResult.load(folder)  # its rows and assignments are intact
    assert torch.isfinite(result[0].perturbed).all()
    with pytest.raises(FolderError, match=r"chunk-00000004\.safetensors is damaged.*delete it"):
        result[4:].perturbed  # noqa: B018
    part.unlink()
    with pytest.raises(FolderError, match=r"chunk-00000004\.safetensors is missing"):
        AttackResult.load(folder)[4:].perturbed  # noqa: B018
    whole = int(result.queries.sum())
    assert 0 < queried("attack", folder) <= int(result.queries[4:].sum()) + 1 < whole  # one checks the model
    assert is_same("attack", folder)


def test_deleted_parts_of_a_finished_run(tmp_path: Path) -> None:
    """Without their rows, the arrays stay; without both, a chunk is attacked again."""
    folder = finished("attack", tmp_path / "run")
    rows, arrays = (folder / PARTS / f"chunk-00000002.{suffix}" for suffix in ("step", "safetensors"))
    rows.unlink()
    assert queried("attack", folder) == 0
    assert is_same("attack", folder)
    arrays.unlink()
    assert queried("attack", folder) > 0
    assert is_same("attack", folder)
    assert contents(folder) == unbroken("attack")[1]


EDITS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "unknown status": lambda rows: rows[0].update(status="won"),
    "label beyond the classes": lambda rows: rows[0].update(label=99),
    "negative label": lambda rows: rows[0].update(label=-1),
    "no label": lambda rows: rows[0].update(label=None),
    "no id": lambda rows: rows[0].update(id=None),
    "ragged scores": lambda rows: rows[0].update(scores_after=[1.0]),
    "no scores": lambda rows: rows[0].update(scores_after=None),
    "negative count": lambda rows: rows[0].update(queries_search=-3),
    "a count beyond numbers": lambda rows: rows[0].update(queries_search=2**63 - 1, seed=None),
    "a missing column": lambda rows: [row.pop("final_l2") for row in rows],
    "a row more": lambda rows: rows.append(rows[0]),
    "improvements that do not pair": lambda rows: rows[0].update(improved_at=[1, 2, 3], improved_to=[0.5]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_rows_edited_by_hand(edit: str, tmp_path: Path) -> None:
    result = make_result(CASES["image digits"])
    result.save(tmp_path / "run")
    rows = to_rows(result)
    EDITS[edit](rows)
    files.write_rows(tmp_path / "run" / files.SAMPLES, rows, result.setting.to_json())
    for command in ("show", "report"):
        run = rlab_command(command, tmp_path / "run")
        assert (run.code, run.err.count("\n")) == (2, 1), run.err
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [files.ARRAYS, REPORT, files.SAMPLES]


@pytest.mark.parametrize("name", ["audit", "benchmark png", "harden"])
def test_a_report_of_a_damaged_folder_raises_at_most_an_input_error(name: str, tmp_path: Path) -> None:
    """It may also succeed, if the page does not need the damaged file."""
    folder, draw = finished(name, tmp_path / "run"), random.Random(0)
    inputs = [path for path in folder.iterdir() if path.suffix in (".json", ".parquet")]
    for path in inputs:
        content = path.read_bytes()
        for damage in (cut, noise, lambda path: path.write_text("{}")):
            damage(path)
            with suppress(InputError):
                report_run(folder, tmp_path / f"{draw.random()}.html", samples=0)
            path.write_bytes(content)
