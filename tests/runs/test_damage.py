"""Damaged and edited run folders: one sentence, never a traceback; what can be mended is mended, and the run goes on."""

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

from rlab.errors import InputError
from rlab.folders.repair import repair_run
from rlab.folders.reports import report_run
from rlab.results.result import AttackResult, to_rows
from rlab.storage import files
from rlab.storage.ledger import LEDGER, PARTS
from tests.command import rlab_command
from tests.results.plots.fixtures import CASES, make_result
from tests.runs.killing import COMMANDS, Killed, names, trouble, unbroken

ROOT = Path(__file__).resolve().parents[2]


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path) -> None:
    """One bit near the end, where no header is."""
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


def made(name: str, folder: Path) -> Path:
    """A finished folder of this command, to do anything with."""
    unbroken(name)
    from tests.runs.killing import _unbroken_root

    return Path(shutil.copytree(_unbroken_root() / name.replace(" ", "-"), folder))


def goes_on(name: str, folder: Path) -> None:
    """Repaired, the command ends as if nothing had been; what cannot be helped is said."""
    command, (_, outcome, left) = COMMANDS[name], unbroken(name)
    try:
        repair_run(folder)
    except InputError:
        return
    command.run(folder)
    assert command.outcome(folder) == outcome
    assert names(folder) == left


@pytest.mark.parametrize("damage", DAMAGES, ids=NAMES)
@pytest.mark.parametrize("file", [files.ARRAYS, files.SAMPLES, LEDGER])
def test_a_damaged_attack_is_noticed_and_mended(file: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    folder = made("attack", tmp_path / "run")
    damage(folder / file)
    for look in (AttackResult.load, COMMANDS["attack"].run):
        try:
            look(folder)
        except InputError:
            continue
        assert file == LEDGER or (damage is Path.unlink and file == files.SAMPLES)  # rows are in the ledger too
        assert COMMANDS["attack"].outcome(folder) == unbroken("attack")[1]
    goes_on("attack", folder)


@pytest.mark.parametrize("part", ["value", "part", "noisy pages"])
def test_a_damaged_chunk_of_a_run_under_way(part: str, tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", unbroken("attack")[0]
    with pytest.raises(Killed), trouble(folder, at=round(moments * 0.7)):
        COMMANDS["attack"].run(folder)
    if part == "part":
        flip(folder / PARTS / "chunk-00000000.safetensors")
    elif part == "noisy pages":
        noisy_pages(folder / LEDGER)
    else:
        with closing(sqlite3.connect(folder / LEDGER)) as db, db:
            for key, value in db.execute("select key, value from steps where finished = 1").fetchall():
                db.execute("update steps set value = ? where key = ?", (value.replace(b"succeeded", b"failed   "), key))
    with pytest.raises(InputError, match="rlab repair"):
        COMMANDS["attack"].run(folder)
    goes_on("attack", folder)


@pytest.mark.parametrize("name", ["benchmark png", "benchmark npz"])
@pytest.mark.parametrize("pattern", ["exact/**/*.np*", "exact/**/*.png", "manifest.json", "metadata.parquet", LEDGER])
def test_a_damaged_benchmark_is_made_whole(name: str, pattern: str, tmp_path: Path) -> None:
    folder = made(name, tmp_path / "run")
    for path in sorted(folder.glob(pattern))[:1]:
        flip(path)
    goes_on(name, folder)


@pytest.mark.parametrize("pattern", ["doctor/*.json", "attack/arrays.safetensors", "explain/scores.csv", LEDGER])
def test_a_damaged_audit_is_run_again_where_it_is_damaged(pattern: str, tmp_path: Path) -> None:
    folder = made("audit", tmp_path / "run")
    (path,) = folder.glob(pattern)
    noise(path) if path.name != LEDGER else cut(path)
    goes_on("audit", folder)


def test_a_damaged_chunk_alone_is_asked_again(tmp_path: Path) -> None:
    """Of three chunks the bit was flipped in the arrays of the last; that shows when they are read."""
    folder = made("attack", tmp_path / "run")
    part = folder / PARTS / "chunk-00000004.safetensors"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    result = AttackResult.load(folder)  # its rows and assignments are whole
    assert torch.isfinite(result[0].perturbed).all()
    with pytest.raises(InputError, match="rlab repair"):
        result[4:].perturbed  # noqa: B018
    mended = repair_run(folder)
    assert mended.lost == ["chunk-00000004"]
    assert mended.next == f"rlab attack --config {folder / 'config.yaml'} --out {folder}"
    assert len(list((folder / PARTS).iterdir())) == 2
    goes_on("attack", folder)


def test_rows_are_written_anew_from_the_ledger(tmp_path: Path) -> None:
    folder = made("attack", tmp_path / "run")
    (folder / files.SAMPLES).unlink()
    (folder / "config.yaml").write_bytes(b"\xff: [")
    (folder / "samples.parquet.0123456789abcdef.part").write_bytes(b"half")
    said = rlab_command("repair", folder)
    assert said.code == 0, said.err
    assert COMMANDS["attack"].outcome(folder) == unbroken("attack")[1]
    assert names(folder) == unbroken("attack")[2]
    assert rlab_command("repair", folder).out.count("\n") == 1  # nothing is left to be done


def test_what_cannot_be_helped_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEDGER).write_bytes(random.Random(0).randbytes(3000))
    for folder in (tmp_path / "run", tmp_path / "nothing"):
        said = rlab_command("repair", folder)
        assert (said.code, said.err.count("\n")) == (2, 1)


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
        said = rlab_command(command, tmp_path / "run")
        assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [files.ARRAYS, files.SAMPLES]


@pytest.mark.parametrize("name", ["audit", "benchmark png", "harden"])
def test_reports_of_damaged_folders_are_one_sentence(name: str, tmp_path: Path) -> None:
    """Or a page, where what is damaged is not needed for it."""
    folder, draw = made(name, tmp_path / "run"), random.Random(0)
    inputs = [path for path in folder.iterdir() if path.suffix in (".json", ".parquet")]
    for path in inputs:
        content = path.read_bytes()
        for damage in (cut, noise, lambda path: path.write_text("{}")):
            damage(path)
            with suppress(InputError):
                report_run(folder, tmp_path / f"{draw.random()}.html", samples=0)
            path.write_bytes(content)
