"""Damaged and edited run folders raise one-line errors; `rlab repair` keeps the rest, and the run resumes."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.benchmarking import Benchmark
from rlab.errors import FolderError, InputError
from rlab.folders.repair import repair_run
from rlab.folders.reports import report_run
from rlab.results.result import AttackResult, to_rows
from rlab.storage import files
from rlab.storage.ledger import LEDGER, PARTS
from rlab.storage.names import TIMES
from tests.command import rlab_command
from tests.helpers import fields_of
from tests.results.plots.fixtures import CASES, make_result
from tests.runs.killing import COMMANDS, Killed, contents, trouble, unbroken, unbroken_root

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


def noisy_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = random.Random(1).randbytes(len(content) - 4096)
    path.write_bytes(content)


DAMAGES: list[Callable[[Path], object]] = [cut, flip, noise, lambda path: path.write_bytes(b""), Path.unlink]
NAMES = ["cut", "flip", "noise", "empty", "missing"]


def finished(name: str, folder: Path) -> Path:
    """Copy a finished folder of this command."""
    unbroken(name)
    return Path(shutil.copytree(unbroken_root() / name.replace(" ", "-"), folder))


def outcome(name: str, folder: Path) -> Any:
    """What the folder says; a repair may write it as other bytes."""
    if name == "audit":
        return (folder / "audit.json").read_bytes()
    if name == "attack":
        return {field: str(value) for field, value in fields_of(AttackResult.load(folder)).items()}
    benchmark = Benchmark.load(folder)
    return benchmark.manifest.hash, benchmark.read(benchmark.originals()).tolist()


def is_same(name: str, folder: Path) -> bool:
    return bool(outcome(name, folder) == outcome(name, unbroken_root() / name.replace(" ", "-")))


def repair_and_resume(name: str, folder: Path) -> None:
    """After a repair the command ends like an unbroken one; some damage is beyond repair."""
    try:
        repair_run(folder)
    except InputError:
        return
    COMMANDS[name](folder)
    assert is_same(name, folder)
    assert contents(folder).keys() == unbroken(name)[1].keys()


@pytest.mark.parametrize("damage", DAMAGES, ids=NAMES)
@pytest.mark.parametrize("file", [files.ARRAYS, files.SAMPLES, LEDGER])
def test_a_damaged_attack_is_noticed_and_repaired(file: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    folder = finished("attack", tmp_path / "run")
    damage(folder / file)
    for look in (AttackResult.load, COMMANDS["attack"]):
        try:
            look(folder)
        except InputError:
            continue
        assert file == LEDGER or (damage is Path.unlink and file == files.SAMPLES)  # rows are in the ledger too
        assert is_same("attack", folder)
    repair_and_resume("attack", folder)


@pytest.mark.parametrize("part", ["value", "part", "noisy pages"])
def test_a_damaged_chunk_of_an_unfinished_run(part: str, tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", unbroken("attack")[0]
    with pytest.raises(Killed), trouble(folder, at=round(moments * 0.7)):
        COMMANDS["attack"](folder)
    if part == "part":
        flip(folder / PARTS / "chunk-00000000.safetensors")
    elif part == "noisy pages":
        noisy_pages(folder / LEDGER)
    else:
        with closing(sqlite3.connect(folder / LEDGER)) as db, db:
            for key, value in db.execute("select key, value from steps where finished = 1").fetchall():
                db.execute("update steps set value = ? where key = ?", (value.replace(b"succeeded", b"failed   "), key))
    with pytest.raises(FolderError) as caught:
        COMMANDS["attack"](folder)
    assert f"Run `rlab repair {folder}`" in str(caught.value)
    repair_and_resume("attack", folder)


@pytest.mark.parametrize("name", ["benchmark png", "benchmark npz"])
@pytest.mark.parametrize("pattern", ["exact/**/*.np*", "exact/**/*.png", "manifest.json", "metadata.parquet", LEDGER])
def test_a_damaged_benchmark_is_repaired(name: str, pattern: str, tmp_path: Path) -> None:
    folder = finished(name, tmp_path / "run")
    for path in sorted(folder.glob(pattern))[:1]:
        flip(path)
    repair_and_resume(name, folder)


@pytest.mark.parametrize("pattern", ["doctor/*.json", "attack/arrays.safetensors", LEDGER])
def test_damaged_stages_of_an_audit_run_again(pattern: str, tmp_path: Path) -> None:
    folder = finished("audit", tmp_path / "run")
    (path,) = folder.glob(pattern)
    noise(path) if path.name != LEDGER else cut(path)
    repair_and_resume("audit", folder)


def test_only_a_damaged_chunk_is_queried_again(tmp_path: Path) -> None:
    """A flipped bit in the arrays of the last chunk is noticed when they are read."""
    folder = finished("attack", tmp_path / "run")
    part = folder / PARTS / "chunk-00000004.safetensors"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    result = AttackResult.load(folder)  # its rows and assignments are intact
    assert torch.isfinite(result[0].perturbed).all()
    with pytest.raises(FolderError):
        result[4:].perturbed  # noqa: B018
    mended = repair_run(folder)
    assert mended.lost == ["chunk-00000004"]
    assert mended.next == f"rlab attack --config {folder / 'config.yaml'} --out {folder}"
    assert len(list((folder / PARTS).iterdir())) == 2
    repair_and_resume("attack", folder)


def test_rows_are_rewritten_from_the_ledger(tmp_path: Path) -> None:
    folder = finished("attack", tmp_path / "run")
    (folder / files.SAMPLES).unlink()
    (folder / "config.yaml").write_bytes(b"\xff: [")
    (folder / "samples.parquet.0123456789abcdef.part").write_bytes(b"half")
    run = rlab_command("repair", folder)
    assert run.code == 0, run.err
    assert is_same("attack", folder)
    assert contents(folder).keys() == unbroken("attack")[1].keys()
    assert rlab_command("repair", folder).out.count("\n") == 1  # nothing left to repair


def test_damage_beyond_repair_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEDGER).write_bytes(random.Random(0).randbytes(3000))
    for folder in (tmp_path / "run", tmp_path / "nothing"):
        run = rlab_command("repair", folder)
        assert (run.code, run.err.count("\n")) == (2, 1)


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
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [files.ARRAYS, files.SAMPLES, TIMES]


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
