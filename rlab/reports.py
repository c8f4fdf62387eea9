"""A page of any folder that a command of rlab left behind."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from rlab.auditing.stored import SCORES
from rlab.benchmarking.folder import MANIFEST, METADATA
from rlab.benchmarking.page import benchmark_report, benchmark_section
from rlab.core.result import AttackResult
from rlab.errors import InputError
from rlab.hardening.sections import training_section
from rlab.present.attack import attack_sections
from rlab.present.inline import file_address
from rlab.present.page import Block, Code, Facts, Gallery, Page, Picture, Section, Table, Text, write_page
from rlab.runs import files
from rlab.runs.attack import CONFIG

PAGE = "report.html"


def report_run(folder: str | Path, out: str | Path | None = None, samples: int = 6) -> Path:
    """Writes `report.html` into the folder, or to `out`; attack, benchmark, comparison, explanation or hardening."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"there is no folder {place}: name a run folder of rlab")
    for mark, make in _KINDS.items():
        if all((place / name).is_file() for name in mark):
            return write_page(make(place, samples), Path(out) if out else place / PAGE)
    if (place / "ledger.sqlite").exists():
        raise InputError(f"{place} is not finished: run its command again to resume it, then report it")
    raise InputError(
        f"{place} holds no run that can be reported: expected a folder of rlab attack, benchmark, compare, explain, harden or audit"
    )


def _attack(folder: Path, samples: int) -> Page:
    result = AttackResult.load(folder)
    return Page(f"Attack {folder.name}", [*attack_sections(result, samples), setting_section(result, folder)])


def setting_section(result: AttackResult, folder: Path) -> Section:
    s = result.setting
    facts = {
        "samples": f"{len(result)} of size {' × '.join(map(str, s.size))}",
        "palette": ", ".join(s.palette),
        "patches": f"{' × '.join(map(str, s.patch))}, {len(s.grid)} in all",
        "goal": s.goal,
        "policy": s.policy,
        "budget": f"{s.budget} queries a sample",
        "seed": f"{s.seed}",
    }
    blocks: list[Block] = [Facts(facts)]
    if (folder / CONFIG).is_file():
        blocks.append(
            Code(f"rlab attack --config {folder / CONFIG} --out runs/again\n\n{(folder / CONFIG).read_text('utf-8')}")
        )
    return Section("What was asked", blocks)


def _benchmark(folder: Path, samples: int) -> Page:
    found, report = benchmark_report(folder)
    m = found.manifest
    facts = {
        "palette": ", ".join(m.palette), "ladder": m.ladder, "goal": m.goal, "policy": m.policy, "seed": f"{m.seed}",
        "hash": m.hash, "versions": ", ".join(f"{name} {one}" for name, one in m.versions.items()),
    }  # fmt: skip
    again = Code(f"rlab benchmark make --config {folder / CONFIG} --out bench/again\nrlab benchmark verify {folder}")
    return Page(
        f"Benchmark {found.name}", [benchmark_section(found, report), Section("How it was made", [Facts(facts), again])]
    )


def _harden(folder: Path, samples: int) -> Page:
    return Page(f"Hardening {folder.name}", [training_section(folder)])


def _compare(folder: Path, samples: int) -> Page:
    with (folder / "samples.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["attack"] for row in rows))
    lines = []
    for name in names:
        mine = [row for row in rows if row["attack"] == name and row["attacked"] == "True"]
        won = [row for row in mine if row["succeeded"] == "True"]
        lines.append(
            [
                name,
                f"{len(won)} of {len(mine)}",
                *(_median([float(row[key]) for row in won]) for key in ("queries", "l2")),
            ]
        )
    table = Table(["attack", "flipped", "median queries", "median L2"], lines, "On the same samples and budget")
    shown = Gallery([Picture(file_address(folder / "curves.png"), "Success and distortion against queries")])
    return Page(f"Comparison {folder.name}", [Section("Attacks", [table, shown])])


def _median(values: Sequence[float]) -> str:
    from statistics import median

    return f"{median(values):.3g}" if values else "–"


def _contest(folder: Path, samples: int) -> Page:
    with (folder / SCORES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("method", "id")]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        lines.append(
            [method, *(_mean([float(row[name]) for row in mine if row[name] not in ("", "nan")]) for name in names)]
        )
    note = Text(
        "The inputs are not stored with explanations; gallery.html in the same folder shows them side by side.",
        quiet=True,
    )
    return Page(f"Explanations {folder.name}", [Section("Scores", [Table(["method", *names], lines, "Means"), note])])


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3g}" if values else "–"


Maker = Callable[[Path, int], Page]
_KINDS: dict[tuple[str, ...], Maker] = {
    (files.SAMPLES, files.ARRAYS): _attack,
    (MANIFEST, METADATA): _benchmark,
    (files.SAMPLES, "curves.png"): _compare,
    ("log.json",): _harden,
    (SCORES,): _contest,
}
