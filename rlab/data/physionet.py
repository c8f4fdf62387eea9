"""Load PTB-XL (WFDB records with a table of labels), and records of the PhysioNet/CinC challenges: 2017 (with a table of labels),
2020 and 2021 (with SNOMED CT codes in the headers).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
from pydantic import Field

from rlab.data.fields import Column, EcgOptions, Labels, Several, Split
from rlab.data.files import Place
from rlab.data.labels import Encoded, Table, class_names, encode, is_number
from rlab.data.source import Loss, Source, first_loss, readable
from rlab.data.take import parse_ranges
from rlab.data.wfdb import read_record
from rlab.data.wfdb_records import cut_source, find_cuts
from rlab.errors import DataError, OptionError
from rlab.predictions.kinds import Prediction
from rlab.storage.names import inside

DATABASE, STATEMENTS = "ptbxl_database.csv", "scp_statements.csv"
FOLDS = {"train": "1-8", "val": "9", "test": "10"}  # folds 9 and 10 were checked by hand
KINDS = ("diagnostic", "form", "rhythm")  # kinds of statements; each statement is a label
GROUPS = ("diagnostic_class", "diagnostic_subclass")  # columns in which several statements share a label
SUPERCLASSES = ("NORM", "MI", "STTC", "CD", "HYP")
SLOW = 100.0  # Hz
OLDEST = 89  # years; PTB-XL writes 300 for patients who are older
REFERENCES = ("REFERENCE-v3.csv", "REFERENCE.csv")  # of CinC 2017; version 3 corrects labels
CLASSES = {"N": "normal", "A": "atrial fibrillation", "O": "other rhythm", "~": "noisy"}
COLUMNS = ("name", "abbreviation", "code")  # how a diagnosis is called
_DIAGNOSES = re.compile(r"^#?\s*Dx:\s*(?P<codes>[0-9, ]+)\s*$", re.IGNORECASE | re.MULTILINE)
_LARGEST = 2**20  # bytes of a header
_NAMES = Table.read(Path(__file__).parents[1] / "assets" / "snomed.csv")  # as both challenges name diagnoses
SNOMED = {code: (name, abbreviation) for code, name, abbreviation in _NAMES.rows}
Target = TypeVar("Target")


def is_ptbxl(place: Place) -> bool:
    return (place.path / DATABASE).is_file()


class DiagnosedOptions(EcgOptions):
    """Records with several labels each."""

    label_column: Column = None
    multilabel: Several = None


class PtbXlOptions(DiagnosedOptions):
    holds: ClassVar[tuple[Prediction, ...]] = ("classes", "numbers")

    split: Split = None
    folds: int | str | None = Field(None, description="PTB-XL: folds, e.g. 9 or 1-8 (folds share no patient)")


def ptbxl(source: PtbXlOptions) -> Source:
    """Load signals (b, leads, t) in mV at `rate` (default: 100 Hz; 500 Hz is also stored), labels (b, k) of zeros and ones.

    The path is the folder of https://doi.org/10.13026/kfzx-aw45: 12 leads of 10 s, several SCP statements per record.
    `folds` chooses folds of `strat_fold`, which share no patient; `split` train, val and test are folds 1-8, 9 and 10.
    `label_column` is diagnostic_class (superclasses NORM, MI, STTC, CD, HYP), diagnostic_subclass, or diagnostic, form, rhythm
    or scp for single SCP statements. `classes` keeps only these labels. multilabel=False keeps records with exactly one
    label, as (b,). With target='numbers', `label_column` is a column of the database, such as age.
    """
    if source.target == "numbers":
        numbers, left_out = _numbers(source, source.label_column or "age")
        return labelled(source, numbers, lambda each: (torch.tensor([[number] for number in each]), ()), left_out)
    column = source.label_column or GROUPS[0]
    label_of = _label_map(source.location, column)
    codes = {path: _codes(cell, stem(path)) for path, cell in _records(source, "scp_codes").items()}
    own = {path: {label_of[code] for code in each if code in label_of} for path, each in codes.items()}
    every = {label for each in own.values() for label in each}
    usual = SUPERCLASSES if column == GROUPS[0] and every <= set(SUPERCLASSES) else tuple(sorted(every))
    return diagnosed(source, own, usual)


def diagnosed(
    source: DiagnosedOptions,
    found: Mapping[Path, Collection[str]],
    usual: Sequence[str],
    unreadable: Sequence[Loss] = (),
    first: bool = False,
) -> Source:
    """The records that have any of the wanted labels, or exactly one of them if the options say so; by default, the usual ones."""
    names = class_names(source.classes) or tuple(usual)
    own = {path: sorted(set(names) & set(each)) for path, each in found.items()}
    single = source.multilabel is False
    left_out = [*unreadable, *((stem(path), "has none of the labels") for path, each in own.items() if not each)]
    left_out += [(stem(path), "has several labels") for path, each in own.items() if single and len(each) > 1]
    usable = {path: each for path, each in own.items() if each and not (single and len(each) > 1)}
    if not usable:
        raise DataError(f"no record of {source.path!r} has a usable label{first_loss(left_out)}")

    def encode(each: Sequence[Sequence[str]]) -> Encoded:
        y = torch.tensor([[int(name in labels) for name in names] for labels in each])
        return (y.argmax(1) if single else y), names

    return labelled(source, usable, encode, left_out, first)


def labelled(
    source: DiagnosedOptions,
    targets: Mapping[Path, Target],
    encode: Callable[[Sequence[Target]], Encoded],
    left_out: Sequence[Loss],
    first: bool = False,
) -> Source:
    """The windows of these records, or only the `first` of each, with what is true of them."""
    paths = list(targets)
    cuts = find_cuts(source, [paths[i] for i in source.take.rows([str(target) for target in targets.values()])])
    cuts = cuts.only([i for i, cut in enumerate(cuts.each) if not (first and cut.start)], left_out)
    one_each = replace(source.take, shuffle=False)  # a window of every record before the second of any
    cuts = cuts.only(one_each.rows([cut.record.name for cut in cuts.each]))
    y = encode([targets[cut.record.path] for cut in cuts.each])
    return cut_source(source, cuts, y, one_label=source.multilabel is False)


def _numbers(source: PtbXlOptions, column: str) -> tuple[dict[Path, float], list[Loss]]:
    """The number of each record in a column of the database, such as age or weight, and why others have none."""
    numbers, left_out = dict[Path, float](), list[Loss]()
    for path, cell in _records(source, column).items():
        if not is_number(cell) or not math.isfinite(float(cell)):
            left_out.append((stem(path), f"has no {column}"))
        elif column == "age" and float(cell) > OLDEST:
            left_out.append((stem(path), f"has a hidden age, over {OLDEST}"))
        else:
            numbers[path] = float(cell)
    if not numbers:
        raise DataError(f"no record of {source.path!r} has a number in the column {column!r}{first_loss(left_out)}")
    return numbers, left_out


def _folds(source: PtbXlOptions) -> frozenset[int]:
    if source.split is not None and source.folds is not None:
        raise OptionError(f"expected split or folds, got {source.split!r} and {source.folds!r}: remove one")
    if source.split is not None and source.split not in FOLDS:
        raise OptionError(f"expected split train, val or test, got {source.split!r}")
    wanted = str(source.folds or FOLDS.get(source.split or "", "1-10"))
    chosen = parse_ranges(wanted, "folds like 9, 1-8 or 1,3,9")
    if not chosen <= set(range(1, 11)):
        raise OptionError(f"expected folds of PTB-XL from 1 to 10, got {source.folds!r}")
    return chosen


def _records(source: PtbXlOptions, column: str) -> dict[Path, str]:
    """The records of the folds, at 500 Hz if that is needed and there, with their cells of a column of the database."""
    folder, folds, found = source.location, _folds(source), dict[Path, str]()
    fold, slow, fast, cell = columns(folder / DATABASE, "strat_fold", "filename_lr", "filename_hr", column)
    for row in range(len(fold)):
        if fold[row].removesuffix(".0") in map(str, folds):
            path = inside(folder, slow[row])
            if source.rate not in (None, SLOW) and inside(folder, f"{fast[row]}.hea").is_file():
                path = inside(folder, fast[row])
            if source.records is None or {path.name, stem(path)} & set(source.records):
                found[path] = cell[row]
    return found


def columns(path: Path, *names: str) -> list[list[str]]:
    """Columns of a table of PTB-XL."""
    table = Table.read(path, names[0])
    missing = [name for name in names if name not in table.names]
    if missing:
        raise DataError(f"{path.name!r} has no column {missing[0]!r}: expected the table that comes with PTB-XL")
    return [[row[table.names.index(name)] for row in table.rows] for name in names]


def _label_map(folder: Path, column: str) -> dict[str, str]:
    """Map each SCP code to its label, if it has one."""
    if column not in (*GROUPS, *KINDS, "scp"):
        raise OptionError(f"expected label_column {', '.join((*GROUPS, *KINDS))} or scp for PTB-XL, got {column!r}")
    codes, marks = columns(folder / STATEMENTS, "", "" if column == "scp" else column)  # the code has no name
    pairs = zip(codes, marks, strict=True)
    return {code: mark if column in GROUPS else code for code, mark in pairs if mark}


def _codes(text: str, name: str) -> dict[str, float]:
    """Read a dict literal, without running any code."""
    try:
        codes = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        codes = None
    if not isinstance(codes, dict):
        raise DataError(f"expected scp_codes like {{'NORM': 100.0}} for {name!r} in {DATABASE}, got {text!r}")
    return codes


def stem(path: Path) -> str:
    """'00001_lr' or '00001_hr' -> '00001'."""
    return path.name.removesuffix("_lr").removesuffix("_hr")


class CincOptions(EcgOptions):
    labels: Labels = None


def is_cinc2017(place: Place) -> bool:
    return any((place.path / name).is_file() for name in REFERENCES) and any(place.path.glob("*.hea"))


def cinc2017(source: CincOptions) -> Source:
    """Load signals (b, 1, t) in mV: consecutive windows of `window` seconds, each with the label of its recording.

    Labels come from `labels`, or else from REFERENCE-v3.csv, or else from REFERENCE.csv.
    """
    folder, records = source.location, source.records
    usual = next((folder / name for name in REFERENCES if (folder / name).is_file()), folder)
    reference = Path(source.labels) if source.labels else usual
    table = {row[0]: CLASSES.get(row[1], row[1]) for row in Table.read(reference).rows if len(row) > 1}
    wanted = [name for name in table if records is None or name in records]
    unknown = [name for name in records or () if name not in table]
    if unknown or not wanted:
        record = repr(unknown[0]) if unknown else "any record"
        raise DataError(f"{reference.name!r} has no line for {record}: check records")
    unlisted = sorted(header.stem for header in folder.glob("*.hea") if header.stem not in table)
    others = [(name, f"has no line in {reference.name}") for name in unlisted]
    cuts = find_cuts(source, [folder / name for name in wanted])
    cuts = cuts.only(source.take.rows([table[cut.record.name] for cut in cuts.each]), others)
    texts = [table[cut.record.name] for cut in cuts.each]
    return cut_source(source, cuts, encode(texts, source.classes or tuple(CLASSES.values())))


def is_cinc2020(place: Place) -> bool:
    """Whether the first header, in the folder or below it, lists diagnoses."""
    header = next((place.path / name for name in place.names if name.endswith(".hea")), None)
    if header is None or header.stat().st_size > _LARGEST:
        return False
    return _DIAGNOSES.search(header.read_text("latin-1")) is not None


def cinc2020(source: DiagnosedOptions) -> Source:
    """Load signals (b, leads, t) in mV, the first `window` seconds (default: 10) of each record, labels (b, k) of zeros and ones.

    `label_column` calls a diagnosis by its name (default), its abbreviation or its SNOMED CT code; codes without a name keep
    their number. `classes` keeps only these labels. multilabel=False keeps records with exactly one label, as (b,).
    """
    column, records = source.label_column or COLUMNS[0], source.records
    if column not in COLUMNS:
        raise OptionError(f"expected label_column {', '.join(COLUMNS)} for SNOMED diagnoses, got {column!r}")
    paths = [source.location / name for name in source.place.files((".hea",), "WFDB records")]
    wanted = {str(path): path.with_suffix("") for path in paths if records is None or path.stem in records}
    comments, unreadable = readable(lambda path: "\n".join(read_record(path).comments), wanted)
    found = {wanted[name]: _DIAGNOSES.search(text) for name, text in comments.items()}
    codes = {path: re.findall(r"\d+", match["codes"]) if match else [] for path, match in found.items()}
    called = {code: (*words, code)[COLUMNS.index(column)] for code, words in SNOMED.items()}
    named = {path: {called.get(code, code) for code in own} for path, own in codes.items()}
    usual = sorted({label for own in named.values() for label in own})
    return diagnosed(source, named, usual, [(Path(name).stem, why) for name, why in unreadable], first=True)
