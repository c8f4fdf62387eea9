"""Requirements as people write them: 'success below 20% at SNR 20 dB', 'accuracy of robust at flip x1.5 at least 40%'."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from rlab.auditing.words import EXAMPLES, FIGURES, HARDEN_FIGURES, STAGES, Detail, Figure
from rlab.benchmarking import parse_requirement
from rlab.errors import InputError

Relation = Literal["below", "at most", "above", "at least"]
RELATIONS: dict[str, Relation] = {
    "at least": "at least", ">=": "at least", "at most": "at most", "<=": "at most",
    "below": "below", "less than": "below", "<": "below", "above": "above", "more than": "above", ">": "above",
}  # fmt: skip
_HOLDS: dict[Relation, Callable[[float, float], bool]] = {
    "below": lambda value, limit: value < limit,
    "at most": lambda value, limit: value <= limit,
    "above": lambda value, limit: value > limit,
    "at least": lambda value, limit: value >= limit,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_BOUND = re.compile(
    rf"\s*(?:is\s+|are\s+)?(at least|at most|below|less than|above|more than|<=|>=|<|>)\s*({_NUMBER})\s*(%|[A-Za-zµ]+)?",
    re.I,
)
_NEXT = r"(?=\s+(?:at|within|under|of|for|after|before|gained|lost)\s|\s*$)"
_CLAUSES: tuple[tuple[Detail, str, re.Pattern[str]], ...] = (
    ("within", "snr", re.compile(rf"(?:at|within)\s+snr\s+({_NUMBER})\s*(?:db)?\b", re.I)),
    ("within", "l2", re.compile(rf"(?:at|within)\s+l2\s+({_NUMBER})", re.I)),
    ("within", "queries", re.compile(rf"within\s+({_NUMBER})\s+queries", re.I)),
    ("moment", "", re.compile(r"(after|before|gained by|lost by)\s+hardening", re.I)),
    ("class", "", re.compile(rf"for\s+class\s+(\"[^\"]+\"|'[^']+'|.+?){_NEXT}", re.I)),
    ("distortion", "", re.compile(r"under\s+(\S+)", re.I)),
    ("what", "", re.compile(r"under\s+(\S+)", re.I)),
    ("what", "", re.compile(r"at\s+(?:level\s+)?(?:flip\s+(?=[a-z]))?(\S+)", re.I)),
    ("name", "", re.compile(r"of\s+(\S+)", re.I)),
)
_FIELDS: dict[Detail, str] = {
    "within": "within", "moment": "moment", "class": "classed", "distortion": "distortion", "what": "what", "name": "named",
}  # fmt: skip
_UNITS = {"success": (), "median queries": ("queries",), "median snr": ("db",), "median patches": ("patches",)}
_UNITS |= {"queries": ("queries", "rows")}


@dataclass(frozen=True)
class Rule:
    """One requirement, read. What was left out is ''."""

    text: str
    name: str  # of the figure, as written
    figure: Figure
    relation: Relation
    limit: float
    classed: str = ""
    distortion: str = ""
    what: str = ""  # a level or a distortion of the benchmark
    named: str = ""  # a model of the benchmark, or a method of explanation
    within: tuple[str, float] | None = None  # ('snr', 20.0), ('l2', 1.0) or ('queries', 100.0)
    moment: str = ""  # after, before, gained by, lost by
    unit: str = ""  # of the data, as in 'median L2 at least 0.1 mV'

    def holds(self, value: float) -> bool:
        return _HOLDS[self.relation](value, self.limit)


def parse_rule(text: str) -> Rule:
    """Reads one requirement; the short form of `rlab benchmark run --require`, 'x1.5=0.3', is one too."""
    plain = " ".join(text.split())
    if re.fullmatch(r"[^\s<>=]+=[^\s=]+", plain):
        short = parse_requirement(plain)
        return Rule(
            plain, "accuracy", FIGURES["accuracy"], "at least", short.accuracy, what=short.what, named=short.model
        )
    stage, body = _stage(plain)
    subject, relation, value, unit = _bound(plain, body)
    table = HARDEN_FIGURES if re.search(r"\bhardening\b", subject, re.I) else FIGURES
    name = _figure_name(plain, subject, table)
    limit = _limit(plain, name, table[name], value, unit)
    rule = Rule(plain, name, table[name], relation, limit, unit=unit if name == "median l2" else "")
    rule = _details(rule, subject[len(name) :].strip())
    if stage and stage != rule.figure.stage:
        raise _unclear(plain, f"{name!r} is a figure of the stage {rule.figure.stage!r}, not of {stage!r}")
    if "what" in rule.figure.details and not rule.what:
        raise _unclear(plain, "say where, as in 'accuracy at flip' or 'accuracy under gaussian_blur'")
    return rule


def _unclear(text: str, why: str) -> InputError:
    return InputError(f"cannot read the requirement {text!r}: {why}; expected one like {EXAMPLES}")


def _stage(text: str) -> tuple[str, str]:
    """An optional 'attack:' before everything."""
    match = re.match(rf"({'|'.join(STAGES)})\s*:\s*(.+)$", text, re.I)
    return (match[1].lower(), match[2]) if match else ("", text)


def _bound(text: str, body: str) -> tuple[str, Relation, float, str]:
    """What is measured, with all its clauses; relation, number and unit."""
    if none := re.fullmatch(r"no\s+(.+)", body, re.I):
        return none[1], "at most", 0.0, ""
    match = _BOUND.search(body)
    if match is None or not body[: match.start()].strip():
        raise _unclear(text, "it has no limit such as 'below 20%' or 'at least 1.0'")
    relation = RELATIONS[" ".join(match[1].lower().split())]
    tail, unit = body[match.end() :], match[3] or ""
    if unit.lower() in ("at", "within", "under", "of", "for", "after", "before"):  # no unit, but the next clause
        tail, unit = f"{unit}{tail}", ""
    return f"{body[: match.start()]} {tail}".strip(), relation, float(match[2]), unit


def _figure_name(text: str, subject: str, table: dict[str, Figure]) -> str:
    said = subject.lower()
    known = [name for name in table if re.match(rf"{re.escape(name)}\b", said)]
    if not known:
        raise _unclear(
            text, f"the figures are {', '.join([*FIGURES, *(n for n in HARDEN_FIGURES if n not in FIGURES)])}"
        )
    return max(known, key=len)


def _limit(text: str, name: str, figure: Figure, value: float, unit: str) -> float:
    allowed = _UNITS.get(name, ())
    if unit and unit != "%" and unit.lower() not in allowed and name != "median l2":
        raise _unclear(text, f"{unit!r} is not a unit of {name}")
    if unit == "%" and not figure.share:
        raise _unclear(text, f"{name} is not a share, so it has no percent")
    limit = value / 100 if unit == "%" else value
    if figure.share and not -1 <= limit <= 1:
        raise _unclear(text, f"{name} is a share: write a percentage up to 100% or a number up to 1")
    return limit


def _details(rule: Rule, rest: str) -> Rule:
    """Clause after clause, in any order."""
    while rest:
        for detail, kind, pattern in _CLAUSES:
            match = pattern.match(rest)
            if match and detail in rule.figure.details:
                if getattr(rule, _FIELDS[detail]):
                    raise _unclear(rule.text, f"{match[0]!r} is one too many: a requirement names one of a kind")
                rule, rest = _with(rule, detail, kind, match[1]), rest[match.end() :].strip()
                break
        else:
            raise _unclear(rule.text, f"{rest!r} says nothing about {rule.name}")
    return rule


def _with(rule: Rule, detail: Detail, kind: str, said: str) -> Rule:
    value = (kind, float(said)) if kind else said.strip("\"'")
    return replace(rule, **{_FIELDS[detail]: value})  # type: ignore[arg-type]  # a clause with a kind is `within`
