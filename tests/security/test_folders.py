"""A folder from someone else is data: rlab imports, calls, opens and queries nothing it names, and changes nothing outside."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlab.benchmarking.manifest import MANIFEST, METADATA, rows_digest
from rlab.storage import files
from tests.benchmarking.cases import made_once
from tests.command import Said, rlab_command
from tests.victims.faults import Server

GRADED = """
import numpy as np
def model():
    return lambda x: np.stack([x.reshape(len(x), -1)[:, k::3].mean(1) for k in range(3)], 1)
"""
PLANTED = """
from pathlib import Path
Path({marker!r}).write_text("imported")
def run(*given, **more):
    Path({marker!r}).write_text("called")
    return given[0] if given else (lambda x: x.reshape(len(x), -1)[:, :3])
"""


class Handed:
    """A copy of a finished benchmark, which is also the working folder, as for a careless user."""

    def __init__(self, home: Path) -> None:
        self.home, self.marker = home, home / "marker"
        self.folder = made_once(home, 2, "npz").folder.rename(home / "handed")
        (self.folder / "my_planted.py").write_text(PLANTED.format(marker=str(self.marker)))
        (self.folder / "my_graded.py").write_text(GRADED)

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        manifest = json.loads((self.folder / MANIFEST).read_text())
        change(manifest)
        (self.folder / MANIFEST).write_text(json.dumps(manifest))

    def edit_rows(self, change: Callable[[dict[str, Any]], None]) -> None:
        rows = files.read_rows(self.folder / METADATA)
        for row in rows:
            change(row)
        files.write_rows(self.folder / METADATA, rows, "")
        stored = files.read_rows(self.folder / METADATA)
        self.edit(lambda manifest: manifest.update(hash=rows_digest(stored)))

    def model(self, fields: object) -> None:
        self.edit(lambda manifest: manifest["config"].update(models={"exact": fields}))

    def outside(self) -> dict[str, bytes]:
        """Return every file outside the folder."""
        paths = (path for path in self.home.rglob("*") if path.is_file() and self.folder not in path.parents)
        return {str(path.relative_to(self.home)): path.read_bytes() for path in paths}


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handed:
    home = Handed(tmp_path)
    (tmp_path / "precious").write_bytes(b"untouched")
    monkeypatch.chdir(home.folder)
    return home


def verify(*words: object) -> Said:
    return rlab_command("benchmark", "verify", ".", *words)


def run(*words: object) -> Said:
    return rlab_command("benchmark", "run", ".", "--model", "mine=my_graded:model", *words)


MODELS: dict[str, object] = {
    "a module of the folder": "my_planted:run",
    "fields": {"name": "my_planted:run", "outputs": "logits"},
    "a factory": {"name": "exact/flip.safetensors", "factory": "my_planted:run"},
    "a score": {"name": "my_graded:model", "score": "my_planted:run"},
    "a function that ends the process": "os:abort",
    "a hub": "timm:resnet18",
    "a pickle": "model.pkl",
    "not a model": ["my_planted:run"],
}


@pytest.mark.parametrize("model", MODELS)
def test_models_that_a_folder_names_are_shown_but_not_loaded(handed: Handed, model: str) -> None:
    handed.model(MODELS[model])
    before = handed.outside()
    checked = verify()
    assert checked.code == 0, checked.err
    assert "exact was not checked" in checked.out
    assert rlab_command("report", ".").code == 0
    assert handed.outside() == before
    assert "my_planted" not in sys.modules


def test_an_address_that_a_folder_names_gets_no_request(handed: Handed, server: Server) -> None:
    handed.model(server.url)
    assert verify().code == 0
    assert run().code == 0
    assert rlab_command("report", ".").code == 0
    assert server.received == []


def test_the_user_may_trust_a_folder_or_name_the_model(handed: Handed) -> None:
    handed.model("my_planted:run")
    assert verify("--trust").code in (0, 1)
    assert handed.marker.read_text() == "called"
    handed.marker.unlink()
    named = verify("--model", "exact=my_graded:model")
    assert "queries to their victims" in named.out
    assert not handed.marker.exists()


@pytest.mark.parametrize("spec", ["my_planted:run@0.5*3", "os:abort"])
def test_filters_that_a_folder_names_are_shown_but_not_run(handed: Handed, spec: str) -> None:
    handed.edit(lambda manifest: manifest.update(palette=["illuminate@0.5", spec]))
    before = handed.outside()
    assert verify().code == 0
    graded = run()
    assert graded.code == 0, graded.err
    assert rlab_command("report", ".").code == 0
    assert handed.outside() == before


@pytest.mark.parametrize("name", ["../precious", "{home}/precious", "exact/../../precious", "", "\0"])
def test_rows_that_name_files_elsewhere_are_mismatches(handed: Handed, name: str) -> None:
    np.savez(handed.home / "precious", x=np.zeros((3, 3, 8, 8), np.float32))
    handed.edit_rows(lambda row: row.update(file=name.format(home=handed.home)))
    before = handed.outside()
    checked = verify()
    assert checked.code == 1
    assert "outside" in checked.out  # a narrow cell breaks the sentence
    assert run().code == 2
    assert handed.outside() == before


@pytest.mark.parametrize("name", ["../escaped/x", "a\nb", "x" * 300])
def test_the_name_of_a_victim_writes_nothing_elsewhere(handed: Handed, name: str) -> None:
    handed.edit_rows(lambda row: row.update(victim=name if row["victim"] else ""))
    handed.edit(lambda manifest: manifest.update(victims=[[name, "0" * 24]]))
    before = handed.outside()
    assert run().code == 0
    assert handed.outside() == before


@pytest.mark.parametrize("place", ["report.html.part", "results", "exact/more.npz", "config.yaml", "run.json"])
def test_a_folder_with_a_link_that_points_outside_is_refused(handed: Handed, place: str) -> None:
    (handed.folder / place).unlink(missing_ok=True)
    (handed.folder / place).symlink_to(handed.home / "precious")
    before = handed.outside()
    for shown in (verify(), run(), rlab_command("report", "."), rlab_command("show", ".")):
        assert shown.code == 2
        assert "points outside" in shown.err
    assert handed.outside() == before


def test_a_link_within_the_folder_is_fine(handed: Handed) -> None:
    (handed.folder / "same.json").symlink_to(handed.folder / MANIFEST)
    assert verify().code == 0


def test_a_link_in_place_of_a_result_is_refused_by_commands_that_resume(handed: Handed) -> None:
    (handed.home / "run").mkdir()
    (handed.home / "run" / "run.json").symlink_to(handed.home / "precious")
    before = handed.outside()
    shown = rlab_command("attack", "demo:digits", "demo:digits", "--limit", 1, "--out", handed.home / "run")
    assert shown.code == 2
    assert handed.outside() == before
