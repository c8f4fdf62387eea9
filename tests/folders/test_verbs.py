"""The table of commands: by the command in `run.json` first, then by the files of a finished run."""

from __future__ import annotations

import json
from pathlib import Path
from pkgutil import resolve_name

import pytest

from rlab.benchmarking.manifest import MANIFEST, METADATA
from rlab.errors import InputError
from rlab.folders.demo import SCENES
from rlab.folders.finished import is_finished, verb_of
from rlab.folders.reports import report_run
from rlab.folders.verbs import VERBS
from rlab.present.report import REPORT as STORED
from rlab.storage.names import ARRAYS, SAMPLES
from rlab.storage.resume import open_run
from rlab.storage.run_file import RUN
from rlab.training.page import LOG as TRAINED

WRITTEN = [
    ("audit", {STORED}),
    ("attack", {SAMPLES, ARRAYS}),
    ("benchmark make", {MANIFEST, METADATA}),
    ("compare", {STORED}),
    ("learn", {"simulator.safetensors"}),
    ("demo", {f"{scene}/{SAMPLES}" for scene in SCENES}),
    ("train", {TRAINED}),
    ("harden", {STORED}),
    ("corrupt", {STORED}),
    ("benchmark run", {STORED}),
    ("benchmark verify", {STORED}),
    ("doctor", {STORED}),
    ("explain", {STORED}),
]  # the files that the packages write when a run is finished


def touch(folder: Path, names: set[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(("command", "names"), WRITTEN)
def test_a_copied_folder_without_a_run_file_is_known_by_its_files(
    command: str, names: set[str], tmp_path: Path
) -> None:
    touch(tmp_path, names)
    if names == {STORED}:
        (tmp_path / STORED).write_text(json.dumps({"verb": command}))
    verb = verb_of(tmp_path)
    assert verb is not None
    assert verb.name == command
    assert is_finished(verb, tmp_path)


def test_the_table_has_a_row_for_each_finished_folder_and_every_report_exists() -> None:
    assert {verb.name for verb in VERBS} == {command for command, _ in WRITTEN}
    for verb in VERBS:
        assert resolve_name(verb.report).verb in (verb.name, "explain")


def test_the_stored_command_comes_before_the_files(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"command": "explain"}) as resume:
        resume.create()
    touch(tmp_path / "run", {STORED})
    verb = verb_of(tmp_path / "run")
    assert verb is not None
    assert (verb.name, is_finished(verb, tmp_path / "run")) == ("explain", False)
    (tmp_path / "run" / STORED).write_text(json.dumps({"verb": "explain"}))
    assert is_finished(verb, tmp_path / "run")


def test_a_damaged_run_file_leaves_the_files_to_decide(tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes(b"no JSON" * 100)
    assert verb_of(tmp_path) is None
    verb = verb_of(touch(tmp_path, {TRAINED}))
    assert verb is not None
    assert verb.name == "train"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = touch(tmp_path / "run", {TRAINED})
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError):
        report_run(folder)
