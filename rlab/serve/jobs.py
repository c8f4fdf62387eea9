"""Runs that the server starts: processes of `python -m rlab` with the models that `rlab serve` was started with."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from rlab.errors import InputError
from rlab.redact import redact
from rlab.storage.config import Options, read_config
from rlab.storage.names import file_name

MOST_JOBS = 2  # maximum at the same time
PATIENCE = 300  # maximum seconds for a preview
TAIL = 4096  # bytes of a job's output to show
PolicyName = Literal["auto", "belief", "random", "greedy", "square"]
_FILTER = re.compile(r"[a-z][a-z0-9_+-]*(@[-+.0-9][-+.0-9e,A-Za-zµ]*)?(\*\d+)?")  # built-in filters only, no modules


def read_models(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Configurations by name, from demo:NAME or from files of `rlab attack`, which name a model and its data."""
    models: dict[str, dict[str, Any]] = {}
    for word in words:
        if word.startswith("demo:"):
            models[word] = {"model": word, "data": word}
            continue
        if not word.endswith((".yaml", ".yml", ".toml")):
            raise InputError(
                f"expected --model demo:NAME, or a YAML or TOML file for rlab attack, got {word!r}: `rlab init DATA` writes one"
            )
        values = read_config(Path(word))
        if missing := [name for name in ("model", "data") if not values.get(name)]:
            raise InputError(f"expected {word} to name a model and its data, got no {missing[0]!r}: add it")
        models[Path(word).stem] = values
    return models


class Form(Options):
    """The fields of a form or an address; an empty field counts as missing."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if value != ""} if isinstance(values, Mapping) else values


class StartForm(Form):
    """The options of a run that a form can set; it cannot name files, modules or addresses. Text fields have a description."""

    model: str
    name: str | None = Field(None, max_length=80, description="name of the run")
    limit: int | None = Field(None, ge=1, description="maximum number of samples")
    budget: int | None = Field(None, ge=1, description="queries per sample")
    palette: str | None = Field(None, max_length=1000, description="filters, e.g. gaussian_noise@0.2 gaussian_blur")
    patch: str | None = Field(None, pattern=r"^\d{1,6}(,\d{1,6}){0,2}$", description="patch size, e.g. 8 or 2,8,8")
    goal: str | None = Field(None, pattern=r"^[\w.:-]{1,80}$", description="goal, e.g. untargeted or targeted:3")
    seed: int | None = Field(None, ge=0, lt=2**63, description="random seed")
    chunk: int | None = Field(None, ge=1, description="samples saved and shown together")
    policy: PolicyName | None = None
    until: Literal["flip", "steady", "budget"] | None = None
    distance: Literal["l2", "map", "l0", "linf"] | None = None

    @field_validator("palette")
    @classmethod
    def _built_in(cls, palette: str | None) -> str | None:
        if not all(map(_FILTER.fullmatch, (palette or "").split())):
            raise ValueError("expected built-in filters such as gaussian_noise@0.2, separated by spaces")
        return palette

    def config(self, models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        if self.model not in models:
            raise InputError(f"expected a model of this server: {', '.join(models) or 'it has none'}")
        values, given = dict(models[self.model]), self.model_dump(exclude_none=True, exclude={"model", "name", "limit"})
        if self.limit is not None:
            data = values["data"]
            values["data"] = {**({"path": data} if isinstance(data, str) else data), "limit": self.limit}
        return values | given


@dataclass
class Job:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        """The last lines of the output, without secrets."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").replace("\r", "\n").strip().splitlines()
        return str(redact("\n".join(lines[-12:])))


@dataclass
class Jobs:
    """The jobs of one server; running jobs are stopped with the server and can be resumed."""

    root: Path
    models: Mapping[str, Mapping[str, Any]]
    started: dict[str, Job] = field(default_factory=dict)
    scratch: tempfile.TemporaryDirectory[str] = field(
        default_factory=partial(tempfile.TemporaryDirectory, prefix="rlab-")
    )
    lock: Lock = field(default_factory=Lock)

    def preview(self, form: StartForm) -> dict[str, Any]:
        """The output of `rlab attack --dry-run`, or an InputError with its error."""
        config = self._config(form, "preview")
        call = [sys.executable, "-m", "rlab", "attack", "--config", str(config), "--dry-run", "--json"]
        try:
            done = subprocess.run(call, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise InputError(f"the preview took longer than {PATIENCE} s: try fewer samples") from None
        finally:
            config.unlink()
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "the preview failed without an error message"
            raise InputError(last.removeprefix("error: ").replace(str(config), "the form"))
        plan: dict[str, Any] = json.loads(done.stdout)
        return plan

    def start(self, form: StartForm) -> Job:
        """Start `rlab attack` in a new folder below the server's folder."""
        config = self._config(form, "start")
        words = ["-m", "rlab", "attack", "--config", str(config), "--pictures", "0", "--json"]
        with self.lock:
            name = self._new_name(form.name or f"attack-{datetime.now():%Y%m%d-%H%M%S}")
            self.started[name] = self._launch(name, [*words, "--out", str(self.root / name)], subprocess.DEVNULL)
            return self.started[name]

    def examine(self, wanted: str, spec: Mapping[str, Any]) -> Job:
        """Start `rlab.serve.own` on a file."""
        with self.lock:
            name = self._new_name(wanted)
            self.started[name] = job = self._launch(name, ["-m", "rlab.serve.own"], subprocess.PIPE)
            assert job.process.stdin is not None
            with job.process.stdin as stdin:
                stdin.write(json.dumps({**spec, "out": str(self.root / name)}).encode())
            return job

    def _new_name(self, wanted: str) -> str:
        """The name of a new folder; refused if too many jobs are running."""
        if sum(job.running for job in self.started.values()) >= MOST_JOBS:
            raise InputError(f"{MOST_JOBS} runs of this server are running: wait for one to finish, or stop it")
        return file_name(wanted, [*self.started, *(path.name for path in self.root.iterdir())])

    def _launch(self, name: str, words: Sequence[str], stdin: int) -> Job:
        log = self.file(f"{datetime.now():%H%M%S%f}.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                stdin=stdin,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background server ignores SIGINT
            )
        return Job(name, process, log)

    def stop(self, name: str) -> None:
        """Stop a job as Ctrl-C does; finished work is kept, and the same command resumes."""
        job = self.started.get(name)
        if job is None or not job.running:
            raise InputError("this run cannot be stopped here: this server did not start it, or it is not running")
        job.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        for job in self.started.values():
            if job.running:
                job.process.send_signal(signal.SIGINT)
        for job in self.started.values():
            try:
                job.process.wait(20)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        self.scratch.cleanup()

    def _config(self, form: StartForm, what: str) -> Path:
        """Write the configuration, which may hold secrets, to a file that only this user can read."""
        path = self.file(f"{what}-{datetime.now():%H%M%S%f}.yaml")
        path.write_text(yaml.safe_dump(form.config(self.models)), encoding="utf-8")
        return path

    def file(self, name: str) -> Path:
        """A new empty file that is deleted with the server."""
        path = Path(self.scratch.name, name)
        path.touch(mode=0o600)
        return path
