"""The files for pipelines and containers: their own lines are run, with stand-ins for what is not here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

import rlab
from rlab.auditing.report import VERDICT
from tests.command import rlab_command
from tests.test_project import ROOT, project

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of stand-ins: an audit that fails with a verdict, and others that tell what they were asked."""
    folder = tmp_path / "tools"
    folder.mkdir()
    tool(folder, "rlab", f'echo "$@" > asked; mkdir -p "$4"; echo failed > "$4/{VERDICT}"; exit "${{WILL_BE:-1}}"')
    tool(folder, "gh", 'echo "$@" >> commented; [ "$4" != --edit-last ]')
    return folder


def run(script: str, folder: Path, tools: Path, **env: str) -> int:
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=folder, env={**os.environ, "PATH": path, **env}
    )
    return done.returncode


def steps() -> dict[str, Any]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    return {step["name"]: step for step in action["runs"]["steps"] if "name" in step}


@needs_bash
@pytest.mark.parametrize(
    ("index", "asked"),
    [("https://cpu.invalid", ["torch --index-url https://cpu.invalid", "pack[onnx]"]), ("", ["pack[onnx]"])],
)
def test_the_action_installs_the_cpu_build_first_and_caches_it(tmp_path: Path, index: str, asked: list[str]) -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert inputs["torch-index"]["default"].endswith("/cpu")
    assert list(steps()).index("Cache packages") < list(steps()).index("Install")
    (tmp_path / "python").write_text('#!/bin/sh\nshift 4\necho "$@" >> asked\n')
    (tmp_path / "python").chmod(0o755)
    given = {"PACKAGE": "pack", "EXTRAS": "onnx", "TORCH_INDEX": index}
    assert run(steps()["Install"]["run"], tmp_path, tmp_path, **given) == 0
    assert (tmp_path / "asked").read_text().splitlines() == asked


@needs_bash
@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_the_action_audits_comments_and_ends_as_the_audit_did(tmp_path: Path, tools: Path, code: str) -> None:
    outputs, words = tmp_path / "outputs", tmp_path / "summary"
    env = {"FILE": "a file.yaml", "OUT": "out", "ARGUMENTS": "--device cpu", "WILL_BE": code, "NUMBER": "7"}
    env |= {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(words)}
    assert run(steps()["Audit"]["run"], tmp_path, tools, **env) == 0  # the page is kept whatever the verdict is
    assert outputs.read_text() == f"code={code}\n"
    assert words.read_text() == "failed\n"
    assert (tmp_path / "asked").read_text() == "audit a file.yaml --out out --device cpu\n"
    assert run(steps()["Comment"]["run"], tmp_path, tools, **env) == 0
    assert (tmp_path / "commented").read_text().splitlines()[-1] == f"pr comment 7 --body-file out/{VERDICT}"
    assert run(steps()["Verdict"]["run"], tmp_path, tools, CODE=code) == int(code)


def test_nothing_a_stranger_writes_becomes_a_command() -> None:
    for step in steps().values():
        assert "${{" not in step.get("run", "")


class Notes(BaseHTTPRequestHandler):
    got: list[tuple[str, str, Any]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.path, self.headers["PRIVATE-TOKEN"], body))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@needs_bash
def test_the_gitlab_job_notes_the_verdict_and_ends_as_the_audit_did(tmp_path: Path, tools: Path) -> None:
    job = yaml.safe_load((ROOT / "ci" / "gitlab-audit.yml").read_text())[".rlab-audit"]
    tool(tools, "python", f'[ "$1" = -m ] || exec {shutil.which("python3")} "$@"')  # nothing is installed
    server = HTTPServer(("127.0.0.1", 0), Notes)
    Thread(target=server.serve_forever, daemon=True).start()
    env = {**job["variables"], "CI_MERGE_REQUEST_IID": "3", "CI_PROJECT_ID": "9", "RLAB_TOKEN": "t"}
    env["CI_API_V4_URL"] = f"http://127.0.0.1:{server.server_port}/api/v4"
    try:
        assert run("\n".join(job["script"]), tmp_path, tools, **env) == 1
    finally:
        server.shutdown()
    assert Notes.got == [("/api/v4/projects/9/merge_requests/3/notes", "t", {"body": "failed\n"})]
    assert job["artifacts"]["when"] == "always"


def test_the_image_copies_what_is_there_and_installs_extras_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.+) /source/\S*$", text, re.M) for name in line.split()]
    assert {"rlab", "pyproject.toml", "examples"} <= set(copied)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert [name for name in copied if f"!{name}" not in ignored] == []
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", text, re.M)
    assert set(extras.split(",")) <= set(project()["optional-dependencies"])
    assert set(re.findall(r"^FROM \S+ AS (\w+)$", text, re.M)) == {"base", "cpu", "cuda"}


def test_the_image_is_built_of_what_it_copies_alone(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.M):
        *names, target = line.split()
        for name in names:
            place = tmp_path / target.lstrip("/") / ("" if target.endswith("/") else ".")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(build, cwd=tmp_path / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = set(ZipFile(wheel).namelist())
    assert {"rlab/cli/app.py", "rlab/present/templates/page.html", "rlab/assets/examples/audit.yaml"} <= held
    assert any(name.endswith("/licenses/LICENSE") for name in held)
    (steps,) = re.findall(r"^RUN ((?:.*\\\n)*.*)$", text, re.M)
    assert subprocess.run(["sh", "-n", "-c", steps], capture_output=True).returncode == 0
    assert len(re.findall(r"^torch==", (ROOT / "constraints.txt").read_text(), re.M)) == 1
    entry, words = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (.+)$", text, re.M))
    assert entry == list(project()["scripts"])
    assert rlab_command(*words).code == 0
    order = re.findall(r"^(USER|ENTRYPOINT)\b", text, re.M)
    assert order == ["USER", "ENTRYPOINT"]  # what runs has no rights


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == rlab.__version__
    assert cited["license"] == project()["license"]
