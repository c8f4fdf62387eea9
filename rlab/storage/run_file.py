"""The file `run.json`: what a run folder belongs to, how it was begun, and digests that reveal damage of its files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from rlab import __version__
from rlab.errors import FolderError, InputError
from rlab.storage.sealed import UNSEALED, is_intact, sealed
from rlab.storage.stored import open_stored, read_stored, write_atomically

RUN, PARTS, LEFTOVER = "run.json", "parts", ".part"
AGAIN = "run the same command again, which makes only what is missing"  # after a deleted file of a run
ELSEWHERE = "restore it from a copy, or run the same command with another folder"
MOST_TEXT = 2**29  # bytes of a JSON file


def _with_own(versions: dict[str, str]) -> dict[str, str]:
    if "rlab" not in versions:
        raise ValueError("the version of rlab is missing")
    return versions


class RunFile(BaseModel):
    """The content of `run.json`. It is written before the first query."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    configuration: dict[
        str, Any
    ]  # with the command, and digests of the model, the data and whatever else decides the results
    versions: Annotated[dict[str, str], AfterValidator(_with_own)]  # and the device
    files: dict[str, str] = {}  # digests by name, once the run is finished
    seal: str = UNSEALED

    def write(self, folder: Path) -> None:
        write_atomically(folder / RUN, sealed(json.dumps({**self.model_dump(), "seal": UNSEALED}, indent=1).encode()))


def read_run(folder: Path) -> RunFile | None:
    """Read a folder's `run.json`; None if there is none."""
    path = folder / RUN
    try:
        if not is_intact(path, MOST_TEXT):
            raise ValueError("its content has changed since rlab wrote it")
        return RunFile.model_validate(json.loads(read_stored(path, MOST_TEXT)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise FolderError(f"{path} is damaged ({' '.join(str(error).split())}): {ELSEWHERE}") from error


def stored_command(folder: Path) -> str | None:
    """The command that made the folder; None without a readable `run.json`."""
    try:
        run = read_run(folder)
    except FolderError:
        return None
    return None if run is None else str(run.configuration.get("command", ""))


def why_unreadable(folder: Path, command: str, what: str) -> str:
    """Why the results of a command are not in this folder, after the folder's name; `what` says what the folder should be."""
    other = stored_command(folder)
    if other not in (None, "", command):
        return f"is a folder of `rlab {other}`, not {what}: name one of `rlab {command}`"
    return "is not finished: run its command again to resume it" if (folder / RUN).exists() else f"is not {what}"


def current_versions() -> dict[str, str]:
    """Return the versions, the device and its threads, which decide the last bits of a result."""
    import torch  # here: `rlab serve` starts without it

    cpu = f"{platform.machine()} CPU ({torch.backends.cpu.get_cpu_capability()})"
    device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else cpu
    versions = {"rlab": __version__, "Python": platform.python_version(), "torch": torch.__version__}
    return {**versions, "device": device, "threads": str(torch.get_num_threads())}


def read_versions(folder: Path) -> dict[str, str]:
    """Read the versions, the device and the threads a run was begun with; empty without `run.json`."""
    run = read_run(folder)
    return {} if run is None else run.versions


def check_files(folder: Path, *names: str) -> None:
    """Refuse files that differ from what the finished run wrote; a folder without `run.json` has no digests to check."""
    run = read_run(folder)
    if run is not None and run.files:
        for name in names:
            check_digest(folder / name, run.files.get(name))


def remove_leftovers(folder: Path) -> None:
    """Remove half-written files and folders; runs inside the folder remove their own."""
    for parent, folders, files in os.walk(folder):
        for name in [name for name in (*folders, *files) if name.endswith(LEFTOVER)]:
            path = Path(parent, name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        folders[:] = [name for name in folders if not Path(parent, name, RUN).exists()]


def file_digest(path: Path) -> str:
    with open_stored(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digest(path: Path, digest: str | None) -> None:
    try:
        if digest in (None, file_digest(path)):
            return
    except FileNotFoundError as error:
        raise FolderError(f"{path} is missing: {AGAIN}") from error
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from error
    raise damaged(path)


def damaged(path: Path) -> FolderError:
    """Return the error for a file whose digest differs."""
    return FolderError(f"{path} is damaged, its content has changed since rlab wrote it: delete it and {AGAIN}")


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn any failure to interpret a run folder's files into a FolderError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        why = f"{type(error).__name__} {' '.join(str(error).split())}"
        raise FolderError(f"{folder} is damaged or was edited ({why}): {ELSEWHERE}") from error
