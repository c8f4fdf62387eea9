"""Steps that are made once: recorded, read back, refused, begun again."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from rlab import __version__
from rlab.errors import FolderError, InputError
from rlab.redact import remember
from rlab.storage import files
from rlab.storage.ledger import LEDGER, PARTS, check_files, current_versions, read_versions, sha256
from rlab.storage.resume import Resume

ASKED = {"model": "demo:digits", "budget": 40, "patch": (2, 2)}


class Counting:
    """A step that counts how often it is made."""

    def __init__(self, value: Any) -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.value


def stop() -> Any:
    raise KeyboardInterrupt


def open_again(folder: Path, **other: Any) -> Resume:
    return Resume(folder, {**ASKED, **other})


VALUES: dict[str, Any] = {
    "a number": 3,
    "nothing": None,
    "a table": pa.table({"id": ["ä"], "scores": [[0.5, 1e-9]]}).replace_schema_metadata({"left_out": "[]"}),
    "rows": [{"id": "ä", "l2": math.inf, "scores": [0.5, 1e-9]}],
    "tensors": {"weights": torch.arange(6.0).reshape(2, 3), "steps": [1, 2], "names": {"3": torch.tensor([True])}},
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_step_is_made_once_and_read_back(kind: str, tmp_path: Path) -> None:
    make = Counting(VALUES[kind])
    first = open_again(tmp_path / "run").step("train/first step", "f", make)
    resume = open_again(tmp_path / "run")
    again = resume.step("train/first step", "f", make)
    assert make.calls == 1
    assert files._without_tensors(again, {}) == files._without_tensors(first, {})
    if kind == "tensors":
        assert torch.equal(again["weights"], first["weights"])
        assert again["names"]["3"].dtype is torch.bool
    assert len(list((tmp_path / "run").rglob("*.safetensors"))) == (kind == "tensors")


def test_not_a_number_comes_back_as_such(tmp_path: Path) -> None:
    open_again(tmp_path / "run").step("a", "", lambda: {"l2": math.nan})
    assert math.isnan(open_again(tmp_path / "run").step("a", "", stop)["l2"])


def test_another_fingerprint_is_refused_or_made_again(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.step("model", "weights 1", Counting(1))
    with pytest.raises(InputError, match="holds another model: name another folder with --out"):
        resume.step("model", "weights 2", Counting(2))
    assert resume.recall("model", "weights 2") is None
    assert resume.step("model", "weights 2", Counting(2), stale="remake") == 2
    assert open_again(tmp_path / "run").recall("model", "weights 2") == 2
    assert open_again(tmp_path / "run").fingerprint("model") == "weights 2"


def test_a_step_made_again_may_be_of_another_kind(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.step("a", "1", Counting({"x": torch.ones(2)}))
    resume.step("a", "2", Counting("plain"), stale="remake")
    assert open_again(tmp_path / "run").recall("a", "2") == "plain"


def test_another_question_is_refused_and_named(tmp_path: Path) -> None:
    open_again(tmp_path / "run").step("a", "", Counting(1))
    with pytest.raises(InputError, match=r"another configuration \(budget, policy differs\): take --to"):
        Resume(tmp_path / "run", {**ASKED, "budget": 41, "policy": "greedy"}, "take --to")
    assert open_again(tmp_path / "run", patch=[2, 2]).recall("a", "") == 1  # as JSON has it


def test_nothing_is_written_before_the_first_step_is_made(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "below" / "run")
    assert resume.recall("a", "") is None
    assert list(resume.values()) == []
    assert (resume.interrupted, resume.begun("a")) == (0, 0)
    with pytest.raises(KeyboardInterrupt):
        resume.step("a", "", stop)
    assert not list(tmp_path.iterdir())
    resume.step("a", "", Counting(1))
    assert [path.name for path in (tmp_path / "below" / "run").iterdir()] == [LEDGER]


def test_what_was_begun_and_not_finished_counts_as_interrupted(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.step("a", "", Counting(1))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            open_again(tmp_path / "run").step("b", "", stop)
    assert (resume.interrupted, resume.begun("b"), resume.fingerprint("b")) == (2, 2, None)
    assert [key for key, _ in resume.values()] == ["a"]
    assert resume.step("b", "", Counting(2)) == 2
    assert (resume.interrupted, resume.begun("b"), resume.begun("a")) == (2, 3, 1)


@pytest.mark.parametrize("moment", ["while the file is written", "between file and ledger"])
def test_a_kill_at_the_record_leaves_the_step_unfinished(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again(tmp_path / "run").step("before", "", Counting(0))
    write: Callable[..., None] = files.write_tree

    def killed(path: Path, tree: Any) -> None:
        if moment == "between file and ledger":
            write(path, tree)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            open_again(tmp_path / "run").step("weights", "", Counting({"x": torch.zeros(3)}))
    resume, make = open_again(tmp_path / "run"), Counting({"x": torch.ones(3)})
    assert resume.recall("weights", "") is None
    assert torch.equal(resume.step("weights", "", make)["x"], torch.ones(3))
    assert torch.equal(open_again(tmp_path / "run").recall("weights", "")["x"], torch.ones(3))  # type: ignore[index]
    assert (make.calls, resume.interrupted) == (1, 1)


def test_a_table_is_kept_without_secrets(tmp_path: Path) -> None:
    remember("a-secret-of-a-table")
    resume = open_again(tmp_path / "run")
    resume.record("rows", "", pa.table({"id": ["of a-secret-of-a-table", "b"], "n": [1, 2]}))
    assert resume.recall("rows", "") == pa.table({"id": ["of (hidden)", "b"], "n": [1, 2]})
    assert b"a-secret-of-a-table" not in (tmp_path / "run" / LEDGER).read_bytes()


def test_a_table_that_was_edited_is_one_sentence(tmp_path: Path) -> None:
    """Whatever byte it is, with a digest that fits."""
    resume = open_again(tmp_path / "run")
    resume.record("rows", "", pa.table({"id": ["a", "b"], "scores": [[0.5, 1.0], [0.0]]}))
    ((whole,),) = resume.ask("select value from steps")
    refused = 0
    for at in range(0, len(whole), 3):
        edited = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        resume._write("update steps set value = ?, digest = ?", edited, sha256(edited))
        try:
            resume.recall("rows", "").to_pylist()  # type: ignore[union-attr]  # of another table that holds
        except InputError:
            refused += 1
    assert refused > 10


def test_values_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    for key in ("chunk-2", "chunk-10", "chunk-1", "page"):
        resume.record(key, "", key.upper())
    assert list(resume.values("chunk-")) == [(key, key.upper()) for key in ("chunk-1", "chunk-10", "chunk-2")]
    assert dict(resume.values())["page"] == "PAGE"


def test_a_record_replaces_what_stood_there(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.record("state", "step 1", {"x": torch.zeros(2)})
    resume.record("state", "step 2", {"x": torch.ones(2)})
    assert resume.recall("state", "step 1") is None
    assert torch.equal(resume.recall("state", "step 2")["x"], torch.ones(2))  # type: ignore[index]


def test_a_kill_between_file_and_ledger_never_passes_the_new_for_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = open_again(tmp_path / "run")
    resume.record("state", "model 1", {"x": torch.zeros(2)})
    write: Callable[..., None] = files.write_tree

    def killed(path: Path, tree: Any) -> None:
        write(path, tree)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        resume.record("state", "model 2", {"x": torch.ones(2)})
    again = open_again(tmp_path / "run")
    again.clean()
    old = again.recall("state", "model 1")
    assert old is not None
    assert old["x"].tolist() == [0, 0]
    assert len(list((tmp_path / "run" / PARTS).iterdir())) == 1


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / LEDGER).write_text("no database, but quite a few words " * 50)
    for name in ("photos", "file"):
        with pytest.raises(InputError, match="holds something else"):
            open_again(tmp_path / name)
    with pytest.raises(InputError, match=r"cannot read .*ledger"):
        open_again(tmp_path / "broken")
    (tmp_path / "empty").mkdir()
    open_again(tmp_path / "empty").step("a", "", Counting(1))


@pytest.mark.parametrize("tables", ["chunks (first integer)", "asked (value text not null)"])
def test_a_folder_of_an_earlier_version_is_refused_and_left_alone(tables: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / LEDGER) as db:
        db.execute(f"create table {tables}")
    before = (tmp_path / LEDGER).read_bytes()
    for read in (open_again, check_files, read_versions):
        with pytest.raises(
            FolderError, match=r"made by rlab 0\.2\.0 or earlier: run the command again with this version$"
        ):
            read(tmp_path)
    assert (tmp_path / LEDGER).read_bytes() == before


def test_a_run_continues_with_another_patch_version_and_not_with_another_minor_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again(tmp_path / "run").step("a", "", Counting(1))
    versions = read_versions(tmp_path / "run")
    assert versions == current_versions()
    assert versions.keys() == {"rlab", "Python", "torch", "device"}
    major, minor, *_ = __version__.split(".")
    monkeypatch.setattr("rlab.storage.resume.__version__", f"{major}.{minor}.99")
    monkeypatch.setattr("torch.__version__", "99.0")
    assert open_again(tmp_path / "run").step("a", "", stop) == 1
    monkeypatch.setattr("rlab.storage.resume.__version__", f"{major}.{int(minor) + 1}.0")
    with pytest.raises(FolderError, match=f"begun by rlab {__version__}"):
        open_again(tmp_path / "run")
    assert read_versions(tmp_path / "run") == versions


def test_keys_that_are_no_file_names_have_a_file_of_their_own(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    keys = ["a/b", "a-b", "a b", "../up"]
    for number, key in enumerate(keys):
        resume.record(key, "", {"x": torch.tensor([number])})
    assert [int(open_again(tmp_path / "run").recall(key, "")["x"]) for key in keys] == list(range(len(keys)))  # type: ignore[index]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
