"""A step runs once: it is recorded, read back, refused or begun again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
import torch

from rlab import __version__
from rlab.errors import FolderError, VictimError
from rlab.redact import remember
from rlab.storage import steps
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS, RUN, check_files, current_versions, read_versions
from rlab.storage.sealed import UNSEALED, sealed

QUESTION = {"model": "demo:digits", "budget": 40, "patch": (2, 2)}


class Counting:
    """A step that counts how often it runs."""

    def __init__(self, value: Any) -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.value


def stop() -> Any:
    raise KeyboardInterrupt


def open_again(folder: Path, **other: Any) -> Resume:
    return Resume(folder, {**QUESTION, **other})


VALUES: dict[str, Any] = {
    "a number": 3,
    "nothing": None,
    "a table": pa.table({"id": ["ä"], "scores": [[0.5, 1e-9]]}).replace_schema_metadata({"left_out": "[]"}),
    "rows": [{"id": "ä", "l2": math.inf, "scores": [0.5, 1e-9]}],
    "NaN": [math.nan],
    "tensors": {"weights": torch.arange(6.0).reshape(2, 3), "steps": [1, 2], "names": {"3": torch.tensor([True])}},
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_step_runs_once_and_is_read_back(kind: str, tmp_path: Path) -> None:
    make = Counting(VALUES[kind])
    first = open_again(tmp_path / "run").step("train/first step", "f", make)
    resume = open_again(tmp_path / "run")
    again = resume.step("train/first step", "f", make)
    assert make.calls == 1
    if kind == "tensors":
        assert list(again) == list(first)
        assert torch.equal(again["weights"], first["weights"])
        assert again["steps"] == first["steps"]
        assert again["names"]["3"].dtype is torch.bool
    else:
        assert again == first or str(again) == str(first) == "[nan]"
    (path,) = (tmp_path / "run" / PARTS).iterdir()
    assert path.suffix == steps.STEP


def test_another_fingerprint_is_refused_or_runs_again(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.step("model", "weights 1", Counting(1))
    with pytest.raises(FolderError):
        resume.step("model", "weights 2", Counting(2))
    assert resume.recall("model", "weights 2") is None
    assert resume.step("model", "weights 2", Counting(2), stale="remake") == 2
    assert open_again(tmp_path / "run").recall("model", "weights 2") == 2
    assert open_again(tmp_path / "run").fingerprint("model") == "weights 2"
    resume.step("model", "weights 3", Counting({"x": torch.ones(2)}), stale="remake")  # another kind of value
    resume.record("model", "weights 4", {"x": torch.zeros(2)})
    again = open_again(tmp_path / "run")
    assert again.recall("model", "weights 3") is None
    assert torch.equal(again.recall("model", "weights 4")["x"], torch.zeros(2))  # type: ignore[index]
    resume.step("model", "weights 5", Counting("plain"), stale="remake")
    assert open_again(tmp_path / "run").recall("model", "weights 5") == "plain"


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {"budget": 41, "policy": "greedy"},
            "of another configuration (budget, policy differ): name another folder with --out",
        ),
        ({"command": "train"}, "belongs to `rlab None`, not to `rlab train`: name another folder with --out"),
    ],
)
def test_another_question_is_refused(other: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    open_again(tmp_path / "run").step("a", "", Counting(1))
    with pytest.raises(FolderError) as caught:
        open_again(tmp_path / "run", **other)
    assert str(caught.value).endswith(sentence)
    assert open_again(tmp_path / "run", patch=[2, 2]).recall("a", "") == 1  # JSON turns tuples into lists


@pytest.mark.parametrize(("error", "left"), [(KeyboardInterrupt, True), (VictimError, False)])
def test_a_run_that_is_stopped_at_its_first_step_leaves_its_file_and_one_that_fails_nothing(
    error: type[BaseException], left: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "below" / "run"
    with pytest.raises(error), open_run(folder, QUESTION) as resume:
        resume.step("a", "", mock.Mock(side_effect=error))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [RUN] * left
    with open_run(folder, {**QUESTION, "budget": 41}) as resume:  # there is nothing to protect
        resume.step("a", "", Counting(1))
    with pytest.raises(FolderError), open_run(folder, QUESTION):
        pass


def test_an_unfinished_step_is_made_again(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.step("a", "", Counting(1))
    with pytest.raises(KeyboardInterrupt):
        open_again(tmp_path / "run").step("b", "", stop)
    assert resume.fingerprint("b") is None
    assert [key for key, _ in resume.values()] == ["a"]
    assert resume.step("b", "", Counting(2)) == 2


@contextmanager
def killed() -> Iterator[None]:
    """End the process while the file of a step is written."""
    with mock.patch.object(steps, "write_atomically", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        yield


def test_a_kill_at_the_record_leaves_the_step_unfinished(tmp_path: Path) -> None:
    open_again(tmp_path / "run").step("before", "", Counting(0))
    with killed():
        open_again(tmp_path / "run").step("weights", "", Counting({"x": torch.zeros(3)}))
    resume, make = open_again(tmp_path / "run"), Counting({"x": torch.ones(3)})
    assert resume.recall("weights", "") is None
    assert torch.equal(resume.step("weights", "", make)["x"], torch.ones(3))
    assert torch.equal(open_again(tmp_path / "run").recall("weights", "")["x"], torch.ones(3))  # type: ignore[index]
    assert make.calls == 1


def test_a_table_is_stored_without_secrets(tmp_path: Path) -> None:
    remember("a-secret-of-a-table")
    resume = open_again(tmp_path / "run")
    resume.record("rows", "", pa.table({"id": ["of a-secret-of-a-table", "b"], "n": [1, 2]}))
    assert resume.recall("rows", "") == pa.table({"id": ["of (hidden)", "b"], "n": [1, 2]})
    assert b"a-secret-of-a-table" not in (tmp_path / "run" / PARTS / "rows.step").read_bytes()


VALUE_OF = {
    "table": pa.table({"id": ["a", "b"], "scores": [[0.5, 1.0], [0.0]]}),
    "tree": {"x": torch.ones(2)},
    "json": [1.5],
}


@pytest.mark.parametrize("kind", VALUE_OF)
@pytest.mark.parametrize("resealed", [True, False])
def test_an_edited_step_raises_a_folder_error(kind: str, resealed: bool, tmp_path: Path) -> None:
    """Any edited byte is noticed; with a matching digest, the edited file is another valid one or refused."""
    resume = open_again(tmp_path / "run")
    resume.record("rows", "", VALUE_OF[kind])
    (path,) = (tmp_path / "run" / PARTS).iterdir()
    whole, refused, tried = path.read_bytes(), 0, 0
    unsealed = re.sub(rb"rlab-sha256:[0-9a-f]{64}", UNSEALED.encode(), whole) if resealed else whole
    for at in range(0, len(whole), 3):
        edited = unsealed[:at] + bytes([unsealed[at] ^ 0x55]) + unsealed[at + 1 :]
        path.write_bytes(sealed(edited) if resealed else edited)
        tried += 1
        try:
            str(resume.recall("rows", ""))
        except FolderError as error:
            refused += "\n" not in str(error)
    assert refused > 10 if resealed else refused == tried


def test_values_are_sorted_by_key_and_every_key_gets_its_own_file(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    keys = ["chunk-2", "chunk-10", "chunk-1", "a/b", "a-b", "a b", "../up"]
    for number, key in enumerate(keys):
        resume.record(key, "", {"x": torch.tensor([number])})
    assert [key for key, _ in resume.values("chunk-")] == ["chunk-1", "chunk-10", "chunk-2"]
    assert {key: int(value["x"]) for key, value in resume.values()} == {key: i for i, key in enumerate(keys)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_kill_while_a_step_is_replaced_keeps_the_old_value(tmp_path: Path) -> None:
    resume = open_again(tmp_path / "run")
    resume.record("state", "model 1", {"x": torch.zeros(2)})
    with killed():
        resume.record("state", "model 2", {"x": torch.ones(2)})
    again = open_again(tmp_path / "run")
    again.clean()
    old = again.recall("state", "model 1")
    assert old is not None
    assert old["x"].tolist() == [0, 0]
    assert len(list((tmp_path / "run" / PARTS).iterdir())) == 1


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / RUN).write_text("no database, but quite a few words " * 50)
    for name in ("photos", "file", "broken"):
        with pytest.raises(FolderError):
            open_again(tmp_path / name)
    (tmp_path / "empty").mkdir()
    open_again(tmp_path / "empty").step("a", "", Counting(1))


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[1]",
        json.dumps({"configuration": {}, "versions": {}}),
        json.dumps({"configuration": [], "versions": {"rlab": "0.3.0"}}),
        json.dumps({"configuration": {}, "versions": {"rlab": "0.3.0"}, "more": 1}),
        "[" * 100_000,
    ],
)
def test_another_run_file_is_refused_and_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes(
        sealed(content.replace("{", f'{{"seal": "{UNSEALED}", ', 1).replace(", }", "}").encode())
    )
    before = (tmp_path / RUN).read_bytes()
    for read in (open_again, check_files, read_versions):
        with pytest.raises(FolderError) as caught:
            read(tmp_path)
        assert f"{tmp_path / RUN} is damaged" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / RUN).read_bytes() == before


def test_a_folder_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    with pytest.raises(FolderError, match="begun by an earlier rlab"):
        open_again(tmp_path)


def test_a_run_continues_with_another_patch_version_and_not_with_another_minor_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again(tmp_path / "run").step("a", "", Counting(1))
    versions = read_versions(tmp_path / "run")
    assert versions == current_versions()
    assert versions.keys() == {"rlab", "Python", "torch", "device", "threads"}
    major, minor, *_ = __version__.split(".")
    monkeypatch.setattr("rlab.storage.question.__version__", f"{major}.{minor}.99")
    assert open_again(tmp_path / "run").step("a", "", stop) == 1
    monkeypatch.setattr("rlab.storage.question.__version__", f"{major}.{int(minor) + 1}.0")
    with pytest.raises(FolderError):
        open_again(tmp_path / "run")
    assert read_versions(tmp_path / "run") == versions
