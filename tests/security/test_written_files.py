"""Files are written under an unpredictable name and then moved, links are replaced, and no cell is a formula."""

import csv
import stat
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
import torch

from rlab.auditing.record import StageRecord
from rlab.auditing.verdicts import junit
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.storage import files
from rlab.storage.tables import write_tables
from tests.helpers import read_csv

WRITERS = {
    "atomically": lambda path: files.write_atomically(path, b"new"),
    "json": lambda path: files.write_json(path, {"new": 1}),
    "csv": lambda path: files.write_csv(path, [{"new": 1}]),
    "rows": lambda path: files.write_rows(path, [{"new": 1}], "{}"),
    "tables": lambda path: write_tables(path, [pa.table({"new": [1]})], "{}"),
    "arrays": lambda path: files.write_arrays(path, {"new": torch.zeros(2)}, "{}"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"untouched")
    return tmp_path / "outside" / "file"


@pytest.mark.parametrize("writer", WRITERS)
def test_planted_links_are_not_followed(tmp_path: Path, outside: Path, writer: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("out", "out.part", ".out.part"):
        (folder / name).symlink_to(outside)
    WRITERS[writer](folder / "out")
    assert outside.read_bytes() == b"untouched"
    assert not (folder / "out").is_symlink()
    assert (folder / "out").stat().st_size > 0
    assert sorted(path.name for path in folder.iterdir()) == [".out.part", "out", "out.part"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    names = set[str]()

    def stop_halfway() -> None:
        with files.replacing(tmp_path / "out") as file:
            names.update(path.name for path in tmp_path.iterdir())
            file.write(b"half")
            raise RuntimeError

    for _ in range(3):
        with pytest.raises(RuntimeError):
            stop_halfway()
    assert len(names) == 3
    assert not list(tmp_path.iterdir())


def test_written_files_have_the_usual_rights(tmp_path: Path) -> None:
    files.write_atomically(tmp_path / "out", b"")
    (tmp_path / "plain").touch()
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "plain")]
    assert rights[0] == rights[1]


FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\n=1", "-", "+"]
PLAIN = ["a=b", "-1.5", "+2", "-inf", "1e-3", "ordinary", "'quoted", "", "a-b"]


def test_no_cell_is_a_formula_and_all_are_read_back(tmp_path: Path) -> None:
    rows = [{"=head": cell, "n": -1.5} for cell in (*FORMULAS, *PLAIN)]
    files.write_csv(tmp_path / "t.csv", rows)
    with (tmp_path / "t.csv").open(newline="") as file:
        head, *lines = list(csv.reader(file))
    assert head == ["'=head", "n"]
    assert [line[0] for line in lines] == [*(f"'{cell}" for cell in FORMULAS), *PLAIN]
    assert {line[1] for line in lines} == {"-1.5"}
    assert read_csv(tmp_path / "t.csv")[0]["n"] == "-1.5"
    assert [row["'=head"] for row in read_csv(tmp_path / "t.csv")] == [*FORMULAS, *PLAIN]


def test_a_carriage_return_does_not_end_a_line(tmp_path: Path) -> None:
    files.write_csv(tmp_path / "t.csv", [{"a": "\r=1+1", "b": "x\r=2"}])
    assert read_csv(tmp_path / "t.csv") == [{"a": "\n=1+1", "b": "x\n=2"}]


@pytest.mark.parametrize(
    "title", ["]]>", "<b>&amp;</b>", "\x00\x08\x1b[31m", "\ud800\udfff", "\ufffe", "a\r\n\tb", "=1+1"]
)
def test_junit_is_valid_for_any_title(title: str) -> None:
    requirement = Requirement(metric="queries", at_most=3)
    verdicts = [Verdict(requirement, 2.0, note=title), Verdict(requirement, 5.0, note=title)]
    text = junit(title, {title: StageRecord(note=title)}, {title: title}, verdicts)
    suites = ElementTree.fromstring(text.encode())
    assert len(suites.findall("testsuite")) == 2
    assert len(suites.findall(".//testcase")) == 4
    assert len(suites.findall(".//failure")) == 1


def test_text_that_utf_8_cannot_encode_is_written(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"id": "a\udc80"})
    assert files.read_json(tmp_path / "a.json") == {"id": "a\udc80"}
    files.write_csv(tmp_path / "a.csv", [{"id": "a\udc80"}])
