"""The one runner of all benchmarks: a case is cut into pieces, each piece makes a raw file, raw files make the page.

A piece fits ten minutes of a GPU. One whose raw file this version of rlab made with the same settings is skipped, so a run that
was stopped resumes, and several processes on one machine share the work.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import rlab
from benchmarks import tables
from benchmarks.data import Absent
from benchmarks.raw import RAW, RESULTS, Curves, Origin, Raw, Store, commit, from_curves
from rlab.errors import MissingExtra

Options = argparse.Namespace
Figures = Mapping[str, Any]


def command(about: str | None, name: str | None = None) -> argparse.ArgumentParser:
    """A parser that shows the module's docstring and knows --device."""
    parser = argparse.ArgumentParser(name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


@dataclass(frozen=True)
class Piece:
    """A part of a case that runs at once; `make` takes the device."""

    name: str  # of its raw file
    case: str  # what --only selects
    settings: Mapping[str, Any]
    make: Callable[[str], Raw]

    @classmethod
    def of_curves(cls, name: str, case: str, settings: Mapping[str, Any], make: Callable[[str], Curves]) -> Piece:
        return cls(name, case, settings, lambda device: Raw(from_curves(make(device))))


@dataclass(frozen=True)
class Claim:
    """A benchmark: the pieces to run, the page and figures that raw files give, and a run of under a minute."""

    name: str
    title: str
    about: str | None  # the module's docstring, for --help
    rules: str  # how figures are measured, for the page
    quick: Callable[[Options], Figures]
    pieces: Callable[[Options], Iterable[Piece]] = lambda options: ()
    sections: Callable[[Store], Iterable[str]] = lambda store: ()
    figures: Callable[[Store], Figures] = lambda store: {}
    flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    cases: Sequence[str] = ()
    commands: Mapping[str, Callable[[Options], Figures]] = field(default_factory=dict)  # flags that run something else

    def parser(self) -> argparse.ArgumentParser:
        parser, cases = command(self.about, f"benchmarks.{self.name}"), ", ".join(self.cases)
        parser.add_argument(
            "--quick", action="store_true", help="measure a few samples in about a minute; write nothing"
        )
        parser.add_argument("--page", action="store_true", help="write the page from the raw files; run nothing")
        parser.add_argument("--only", default="", metavar="CASE", help=f"cases, separated by commas: {cases}")
        parser.add_argument("--fresh", action="store_true", help="run pieces again that have a raw file")
        parser.add_argument(
            "--minutes", type=float, default=math.inf, help="start no piece later than this (default: no limit)"
        )
        parser.add_argument(
            "--raw", type=Path, default=RAW / self.name, help="folder of raw files (default: %(default)s)"
        )
        self.flags(parser)
        return parser

    def main(self, words: Sequence[str] | None = None) -> None:
        """Run what the command line asks for and print the figures as one JSON object in the last line."""
        parser = self.parser()
        options, began = parser.parse_args(words), time.monotonic()
        options.only = [case.strip() for case in options.only.split(",") if case.strip()]
        if unknown := [case for case in options.only if self.cases and case not in self.cases]:
            parser.error(f"there is no case {unknown[0]!r}: choose from {', '.join(self.cases)}")
        for name, command in self.commands.items():
            if getattr(options, name):
                return finish(command(options))
        if options.quick:
            return finish({**self._quick(options), "seconds": time.monotonic() - began})
        store = Store(options.raw)
        if not options.page:
            run(self.pieces(options), store, options, began)
        if not options.only and options.raw == RAW / self.name:
            self.write_page(store, RESULTS / f"{self.name}.md")
        finish(self.figures(store))

    def _quick(self, options: Options) -> Figures:
        try:
            return self.quick(options)
        except (Absent, MissingExtra) as why:
            print(f"skipped: {why}")
            return {}

    def write_page(self, store: Store, path: Path) -> None:
        if sections := list(traced(self.sections(store), store)):
            source = origins(store, f"python -m benchmarks.{self.name}") + self._unmeasured(store)
            path.write_text(tables.page(self.title, self.rules, source, sections), encoding="utf-8")

    def _unmeasured(self, store: Store) -> str:
        """A sentence about the cases that have no raw file."""
        options, found = self.parser().parse_args([]), dict[str, bool]()
        options.only = []
        for piece in self.pieces(options):
            found[piece.case] = found.get(piece.case, False) or piece.name in store
        absent = ",".join(case for case, any_file in found.items() if not any_file)
        return f" Without results yet: `python -m benchmarks.{self.name} --only {absent}` makes them." if absent else ""


def run(pieces: Iterable[Piece], store: Store, options: Options, began: float) -> None:
    """Run the chosen pieces that have no raw file yet."""
    late = 0
    for piece in pieces:
        if options.only and piece.case not in options.only:
            continue
        if not options.fresh and store.matches(piece.name, piece.settings):
            continue
        if time.monotonic() - began > 60 * options.minutes:
            late += 1
            continue
        with _claimed(store, piece.name) as mine:
            if mine and (options.fresh or not store.matches(piece.name, piece.settings)):
                make_piece(piece, store, options.device)
    if late:
        print(f"{late} pieces are left for the next run")


def make_piece(piece: Piece, store: Store, device: str) -> None:
    start = time.monotonic()
    try:
        raw = piece.make(device)
    except (Absent, MissingExtra) as why:
        print(f"skipped {piece.name}: {why}", flush=True)
        return
    seconds = round(time.monotonic() - start, 1)
    store.write(piece.name, raw, Origin(rlab.__version__, commit(), machine(device), seconds, piece.settings))
    print(f"{piece.name}: {seconds:.0f} s", flush=True)


@contextmanager
def _claimed(store: Store, name: str) -> Iterator[bool]:
    """Whether this process is the only one at work on the piece; the lock ends with the process."""
    store.folder.mkdir(parents=True, exist_ok=True)
    path = store.folder / f"{name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def machine(device: str = "cpu") -> str:
    """The GPU's name, or the processor and its number of cores."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def circumstances(command: str, device: str = "cpu", seed: int | str = 0) -> str:
    """Device, versions, commit, seed and command, as a line below a table that has no raw file."""
    packages = ", ".join(f"{name} {found}" for name in ("torch", "torchattacks") if (found := _version(name)))
    made = f"rlab {rlab.__version__}{f' ({commit()})' if commit() else ''}"
    return f"{machine(device)}; Python {platform.python_version()}, {made}, {packages}; seed {seed}; `{command}`"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def origins(store: Store, command: str) -> str:
    """Versions, commits and devices of all raw files of a page."""
    held = [store.origin(name) for name in store.names()]
    commits: dict[str, dict[str, None]] = {}
    for o in held:
        commits.setdefault(o.version, {})[o.commit or "commit unknown"] = None
    made = [f"rlab {version} ({', '.join(each)})" for version, each in commits.items()]
    devices = dict.fromkeys(o.device for o in held if o.device)
    where = f" on {' and '.join(devices)}" if devices else ""
    return f"Measured with {' and '.join(made)}{where}; `{command} --page` writes this page from the raw results."


def traced(sections: Iterable[str], store: Store) -> Iterator[str]:
    """Each section with the raw files read for it (default: those of the section before), and a line about older ones."""
    names = list[str]()
    for section in sections:
        names = sorted(set(store.used)) or names
        store.used.clear()
        old: dict[str, list[str]] = {}
        for name in names:
            if not (origin := store.origin(name)).current:
                old.setdefault(origin.version, []).append(name)
        lines = [f"**Measured with rlab {v}:** {_all_or(each, names)}." for v, each in old.items()]
        yield tables.sourced("\n\n".join([section, *lines]), store.digest(names), names)


def _all_or(some: Sequence[str], every: Sequence[str]) -> str:
    return "all rows of this section" if len(some) == len(every) else ", ".join(f"`{name}`" for name in some)


def plain_figures(figures: Figures) -> dict[str, Any]:
    """Figures as JSON prints them: four decimals, null where a figure is not finite."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return round(value, 4) if math.isfinite(value) else None

    return {name: plain(value) for name, value in figures.items()}


def finish(figures: Figures) -> None:
    """Print the figures as the last line of a benchmark."""
    print(json.dumps(plain_figures(figures)))
