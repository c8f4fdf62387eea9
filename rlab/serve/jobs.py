"""Runs that the server starts: each a process of `python -m rlab`, of models that were named when the server was started."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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

MOST_JOBS = 2  # at the same time
PATIENCE = 300  # seconds that a preview may take
TAIL = 4096  # bytes of what a job said
POLICIES = ("auto", "belief", "random", "greedy", "square")
_FILTER = re.compile(
    r"[a-z][a-z0-9_+-]*(@[-+.0-9][-+.0-9e,A-Za-zµ]*)?(\*\d+)?"
)  # a built-in one: no module of anybody's


def read_models(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By name: `demo:NAME` with its own data, or a configuration of `rlab attack`, which names a model and its data."""
    models: dict[str, dict[str, Any]] = {}
    for word in words:
        if word.startswith("demo:"):
            models[word] = {"model": word, "data": word}
            continue
        if not word.endswith((".yaml", ".yml", ".toml")):
            raise InputError(
                f"expected --model demo:NAME, or a configuration of rlab attack (YAML or TOML), got {word!r}: "
                f"`rlab init DATA` writes one"
            )
        values = read_config(Path(word))
        if missing := [name for name in ("model", "data") if not values.get(name)]:
            raise InputError(f"expected {word} to name a model and its data, got no {missing[0]!r}: add it")
        models[Path(word).stem] = values
    return models


class StartForm(Options):
    """What a form may say of a run; files, modules and addresses cannot be named in it."""

    model: str
    name: str | None = Field(None, max_length=80)
    palette: str | None = Field(None, max_length=1000)
    patch: str | None = Field(None, max_length=20, pattern=r"^\d+(,\d+){0,2}$")
    goal: str | None = Field(None, max_length=80, pattern=r"^[\w.:-]+$")
    budget: int | None = Field(None, ge=1)
    policy: Literal["auto", "belief", "random", "greedy", "square"] | None = None
    until: Literal["flip", "steady", "budget"] | None = None
    distance: Literal["l2", "map", "l0", "linf"] | None = None
    seed: int | None = Field(None, ge=0, lt=2**63)
    limit: int | None = Field(None, ge=1)
    chunk: int | None = Field(None, ge=1)

    @field_validator("palette")
    @classmethod
    def _built_in(cls, palette: str | None) -> str | None:
        if not all(map(_FILTER.fullmatch, (palette or "").split())):
            raise ValueError("expected built-in filters such as gaussian_noise@0.2, with spaces between")
        return palette

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if value != ""} if isinstance(values, Mapping) else values

    def config(self, models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The configuration of `rlab attack` that is meant."""
        if self.model not in models:
            raise InputError(f"expected a model of this server, {', '.join(models) or 'of which there is none'}")
        values, said = dict(models[self.model]), self.model_dump(exclude_none=True, exclude={"model", "name", "limit"})
        if self.limit is not None:
            data = values["data"]
            values["data"] = {**({"path": data} if isinstance(data, str) else data), "limit": self.limit}
        return values | said


@dataclass
class Job:
    """A process, and where it writes what it says."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        """The last lines, without secrets."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").replace("\r", "\n").strip().splitlines()
        return str(redact("\n".join(lines[-12:])))


@dataclass
class Jobs:
    """Of one server; those still running are stopped with it, and can be resumed."""

    root: Path
    models: Mapping[str, Mapping[str, Any]]
    started: dict[str, Job] = field(default_factory=dict)
    scratch: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="rlab-serve-")
    )
    lock: Lock = field(default_factory=Lock)
    spare: Job | None = None  # has imported what takes seconds, and waits for a file to examine

    def preview(self, form: StartForm) -> dict[str, Any]:
        """What `rlab attack --dry-run` says of it; InputError with its sentence where it refuses."""
        config = self._config(form, "preview")
        call = [sys.executable, "-m", "rlab", "attack", "--config", str(config), "--dry-run", "--json"]
        try:
            done = subprocess.run(call, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise InputError(f"the preview took longer than {PATIENCE} s: try fewer samples") from None
        finally:
            config.unlink()
        if done.returncode:
            told = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise InputError(told.removeprefix("error: ").replace(str(config), "the form"))
        plan: dict[str, Any] = json.loads(done.stdout)
        return plan

    def start(self, form: StartForm) -> Job:
        """`rlab attack` into a new folder below the server's."""
        config = self._config(form, "start")
        words = ["-m", "rlab", "attack", "--config", str(config), "--pictures", "0", "--json"]
        with self.lock:
            name = self._new_name(form.name or f"attack-{datetime.now():%Y%m%d-%H%M%S}")
            self.started[name] = self._launch(name, [*words, "--out", str(self.root / name)], subprocess.DEVNULL)
            return self.started[name]

    def examine(self, wanted: str, spec: Mapping[str, Any]) -> Job:
        """`rlab.serve.own` on a file; in the process that waits for one, where there is one."""
        with self.lock:
            name = self._new_name(wanted)
            spare = self.spare if self.spare and self.spare.running else self._waiting()
            self.spare, self.started[name] = None, replace(spare, name=name)
            assert spare.process.stdin is not None
            with spare.process.stdin as told:
                told.write(json.dumps({**spec, "out": str(self.root / name)}).encode())
            return self.started[name]

    def warm(self) -> None:
        """Somebody is about to send a file."""
        with self.lock:
            if self.spare is None or not self.spare.running:
                self.spare = self._waiting()

    def _waiting(self) -> Job:
        return self._launch("", ["-m", "rlab.serve.own"], subprocess.PIPE)

    def _new_name(self, wanted: str) -> str:
        """Of a folder that is not there; refused where enough is under way."""
        if sum(job.running for job in self.started.values()) >= MOST_JOBS:
            raise InputError(f"{MOST_JOBS} runs of this server are under way: wait for one, or stop it")
        return file_name(wanted, [*self.started, *(path.name for path in self.root.iterdir())])

    def _launch(self, name: str, words: Sequence[str], stdin: int) -> Job:
        log = self.file(f"{datetime.now():%H%M%S%f}.log")
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                stdin=stdin,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=partial(
                    signal.signal, signal.SIGINT, signal.SIG_DFL
                ),  # a server in the background ignores it
            )
        return Job(name, process, log)

    def stop(self, name: str) -> None:
        """As Ctrl-C does: what is finished stays, and the same command goes on from there."""
        job = self.started.get(name)
        if job is None or not job.running:
            raise InputError("only a run that this server started, and that is under way, can be stopped here")
        job.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        jobs = [*self.started.values(), *([self.spare] if self.spare else [])]
        for job in jobs:
            if job.running:
                job.process.send_signal(signal.SIGINT)
        for job in jobs:
            try:
                job.process.wait(20)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        self.scratch.cleanup()

    def _config(self, form: StartForm, what: str) -> Path:
        """A file that the server's user alone can read: it may hold what the configuration it came from holds."""
        path = self.file(f"{what}-{datetime.now():%H%M%S%f}.yaml")
        path.write_text(yaml.safe_dump(form.config(self.models)), encoding="utf-8")
        return path

    def file(self, name: str) -> Path:
        """An empty file of the server's own, which goes with it."""
        path = Path(self.scratch.name, name)
        path.touch(mode=0o600)
        return path
