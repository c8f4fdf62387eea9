"""The report of an audit: verdicts, the reports of its stages, what they cost, and how to repeat it. No model is queried here."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Self, TypeVar

import yaml

import rlab
from rlab.auditing.detection import detection_section
from rlab.auditing.record import Rows, StageRecord
from rlab.auditing.verdicts import INTERVALS, JUNIT, banner, junit, requirements_table, row_of, verdict_text
from rlab.benchmarking import Benchmark, BenchmarkReport
from rlab.benchmarking.report import DEFAULT
from rlab.benchmarking.requirements import Verdict
from rlab.benchmarking.verify import Verification
from rlab.corruptions.report import CorruptionReport
from rlab.diagnosis.report import Diagnosis
from rlab.explanation import MethodComparison
from rlab.hardening.report import Hardened
from rlab.present.page import Block, Code, Facts, Folded, Page, Section, Text, write_page
from rlab.present.report import REPORT, UNSAVED, Metric, PathLike, Report, plain_value
from rlab.present.table import Table, text
from rlab.results.metrics import compared_sections
from rlab.results.result import AttackResult
from rlab.storage.files import copy_folder, finite, write_json, write_text
from rlab.storage.index import read_index
from rlab.storage.names import ARRAYS, SAMPLES
from rlab.storage.run_file import check_files

AUDIT, DECLARED, PAGE, VERDICT = "audit.json", "audit.yaml", "report.html", "verdict.md"
VERIFIED = Path("results", "verified")  # below the benchmark's folder
# By stage: its reports, in the folders where its commands write them, and its title.
REPORTS: Mapping[str, Mapping[Path, type[Report]]] = {
    "doctor": {Path("doctor"): Diagnosis},
    "attack": {Path("attack"): AttackResult},
    "detect": {},
    "corrupt": {Path("corrupt"): CorruptionReport},
    "explain": {Path("explain"): MethodComparison},
    "benchmark": {
        Path("benchmark"): Benchmark,
        Path("benchmark") / DEFAULT: BenchmarkReport,
        Path("benchmark") / VERIFIED: Verification,
    },
    "harden": {Path("harden"): Hardened},
}
TITLES = {"corrupt": "Corruptions", "explain": "Explanations", "harden": "Hardening"}
Kind = TypeVar("Kind", bound=Report)


@dataclass(frozen=True)
class AuditResult(Report):
    """The verdicts of an audit, and the reports of its stages."""

    verb: ClassVar[str] = "audit"
    config: Mapping[str, Any]  # the audit file with every default
    verdicts: tuple[Verdict, ...]
    stages: Mapping[str, StageRecord]  # finished stages and their cost
    left_out: Mapping[str, str]  # skipped stages, and why
    model: Mapping[str, str]  # name and fingerprint
    data: Mapping[str, Any]
    versions: Mapping[str, str]
    folder: Path = field(default=Path(), metadata=UNSAVED)
    reports: Mapping[Path, Report] = field(default_factory=dict, metadata=UNSAVED)  # by folder, below the audit's

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        stored, path = super().load(folder), Path(folder)
        return replace(stored, folder=path, reports=read_reports(path, stored.stages))

    def save(self, folder: PathLike) -> Path:
        """Copy the audit's folder."""
        return copy_folder(self.folder, Path(folder))

    def __repr__(self) -> str:
        met = sum(verdict.passed for verdict in self.verdicts)
        return f"AuditResult({met} of {len(self.verdicts)} requirements met, {self.page})"

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    @property
    def rows(self) -> Rows:
        return sum((stage.rows for stage in self.stages.values()), Rows())

    @property
    def attack(self) -> AttackResult | None:
        return self.find(AttackResult)

    def find(self, kind: type[Kind]) -> Kind | None:
        """The report of this kind; None if its stage did not run or has no results."""
        return next((each for each in self.reports.values() if isinstance(each, kind)), None)

    def records(self) -> list[dict[str, Any]]:
        """One row per requirement, with its limit, the measured value and the verdict."""
        return [row_of(verdict) for verdict in self.verdicts]

    def metrics(self) -> dict[str, Metric]:
        figures: dict[str, Metric] = {str(verdict.requirement): verdict.value for verdict in self.verdicts}
        figures |= self.attack.metrics() if self.attack is not None else {}
        return figures | {"passed": float(self.passed)}

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        return () if self.attack is None else self.attack.series()

    def settings(self) -> Mapping[str, Any]:
        return self.config

    @classmethod
    def compared(cls, reports: Mapping[str, Self]) -> Sequence[Section]:
        attacks = {name: report.attack for name, report in reports.items() if report.attack is not None}
        return compared_sections(attacks) if len(attacks) == len(reports) else ()

    @property
    def record(self) -> dict[str, Any]:
        """The content of `audit.json`."""
        figures: dict[str, dict[str, float]] = {}
        for at, each in self.reports.items():
            figures.setdefault(at.parts[0], {}).update({k: plain_value(v) for k, v in each.metrics().items()})
        record: dict[str, Any] = finite({
            "rlab_audit": rlab.__version__,
            "title": self.config.get("title", ""),
            "passed": self.passed,
            "requirements": self.records(),
            "rows": {**asdict(self.rows), "total": self.rows.total},
            "stages": {name: _stage(record) for name, record in self.stages.items()},
            "left_out": dict(self.left_out),
            "figures": figures,
            "model": dict(self.model),
            "data": dict(self.data),
            "seed": self.config["seed"],
            "versions": dict(self.versions),
            "config": dict(self.config),
        })  # fmt: skip
        return record

    def write(self, folder: Path) -> None:
        """Also write the page, the declared file, and the files for pipelines."""
        super().write(folder)
        page = self.view(folder=folder)
        write_text(folder / DECLARED, yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True))
        write_json(folder / AUDIT, self.record)
        title = self.config.get("title") or f"audit of {self.model['name']}"
        write_text(folder / JUNIT, junit(title, self.stages, self.left_out, self.verdicts))
        write_text(folder / VERDICT, verdict_text(page, self.verdicts))
        write_page(page, folder / PAGE)

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """The verdicts, what was tested, the sections of each stage's page, the cost, and how to repeat it."""
        name, where, attack = self.model["name"], folder or self.folder, self.attack
        required: list[Block] = [requirements_table(self.verdicts), Text(INTERVALS, quiet=True)]
        sections = [
            *([Section("Requirements", required)] if self.verdicts else []),
            Section("What was tested", self._tested()),
            *(section for stage in self.stages for section in self._shown(stage, samples, where)),
            Section("Cost", self._cost()),
            Section("How to repeat it", self._again(where)),
        ]
        lead = f"{name}, {self.data['samples']} {self.data['kind']} samples"
        page = None if attack is None else attack.view(0)
        lead += "" if page is None else f". {page.lead}"
        verdict = banner(self.verdicts) if self.verdicts else None
        return Page(
            self.config.get("title") or f"Audit of {name}",
            sections,
            verdict,
            lead,
            () if page is None else page.numbers,
        )

    def _shown(self, stage: str, samples: int, folder: Path) -> list[Section]:
        """The pages of the stage's reports, below its title."""
        if tallies := self.stages[stage].tallies:
            return [detection_section(tallies)]
        pages = [each.view(samples, folder / at) for at, each in self.reports.items() if at in REPORTS[stage]]
        if not pages:
            return []
        blocks: list[Block] = []
        sections: list[Section] = []
        for page in pages:
            blocks += [Text(page.verdict.sentence)] if page.verdict is not None else []
            blocks += [Facts({number.name: text(number.value) for number in page.numbers})] if page.numbers else []
            first, *others = page.sections
            blocks += first.blocks
            sections += others
        return [Section(TITLES.get(stage, stage.capitalize()), blocks), *sections]

    def _tested(self) -> list[Block]:
        data, config = self.data, self.config
        left_out = f"; {data['left_out']} skipped" if data["left_out"] else ""
        facts = {
            "model": f"{config['model']['name']} (fingerprint {self.model['fingerprint']})",
            "data": f"{data['samples']} {data['kind']} samples of size {' × '.join(map(str, data['size']))}, "
            f"{data['channels']} channel{'s' if data['channels'] != 1 else ''}, from {config['data']['path']}{left_out}",
            "data digest": f"sha256 {data['digest']}",
            "seed": f"{config['seed']}",
            "versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "machine": f"{platform.system()} {platform.machine()}",
        }
        declared = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        return [Facts(facts), Folded("The audit file, with every default", [Code(declared)])]

    def _cost(self) -> list[Block]:
        rows: list[list[Any]] = [[name, done.note, *asdict(done.rows).values()] for name, done in self.stages.items()]
        rows += [[stage, why, 0, 0] for stage, why in self.left_out.items()]
        rows.append(["total", "", *asdict(self.rows).values()])
        head = ["stage", "", "audited model", "copies"]
        note = "A query is one input that reaches a model for any purpose. Queries of a stage that was interrupted are not counted."
        return [Table(head, rows, "Queries to models", words=2), Text(note, quiet=True)]

    def _again(self, folder: Path) -> list[Block]:
        lines = [f"rlab audit {quote(str(folder / DECLARED))} --out runs/again"]
        lines += [f"rlab attack --config {quote(str(folder / 'attack' / 'config.yaml'))} --out runs/attack"]
        note = "In a new folder, every stage runs again; in this folder, only the requirements are checked again."
        return [Code("\n".join(lines)), Text(note, quiet=True)]


def needed(folder: Path, stage: str) -> Iterator[Path]:
    """The files that the reports of a stage are read from; later ones are listed in earlier ones."""
    for at, kind in REPORTS[stage].items():
        if kind is AttackResult:
            yield from (folder / at / SAMPLES, folder / at / ARRAYS)
            check_files(folder / at, ARRAYS)
            yield from (folder / at / name for name, _ in read_index(folder / at / ARRAYS).shards)
        else:
            yield folder / at / ("manifest.json" if kind is Benchmark else REPORT)


def read_reports(folder: Path, stages: Mapping[str, StageRecord]) -> dict[Path, Report]:
    """The reports of the finished stages."""
    finished = [REPORTS[stage] for stage, record in stages.items() if not record.note]
    return {at: kind.load(folder / at) for kinds in finished for at, kind in kinds.items()}


def _stage(record: StageRecord) -> dict[str, Any]:
    """The cost of a stage, and what only the audit measures."""
    tallies = [asdict(tally) for tally in record.tallies]
    return {"rows": asdict(record.rows), "note": record.note} | ({"tallies": tallies} if tallies else {})
