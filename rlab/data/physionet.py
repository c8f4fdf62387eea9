"""Load two public sets of WFDB records with tables of labels: PTB-XL and the PhysioNet/CinC 2017 challenge."""

from __future__ import annotations

import ast
import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rlab.data.fields import DataFields
from rlab.data.labels import class_names, encode, is_number, read_cells
from rlab.data.source import Loss, Source, first_loss, reads
from rlab.data.take import parse_ranges
from rlab.data.wfdb_records import Found, cut_source, find_cuts
from rlab.errors import DataError, OptionError
from rlab.storage.names import inside
from rlab.storage.outside import read_text

DATABASE, STATEMENTS = "ptbxl_database.csv", "scp_statements.csv"
FOLDS = {"train": range(1, 9), "val": range(9, 10), "test": range(10, 11)}  # folds 9 and 10 were checked by hand
KINDS = ("diagnostic", "form", "rhythm")  # kinds of statements; each statement is a label
GROUPS = ("diagnostic_class", "diagnostic_subclass")  # columns in which several statements share a label
SUPERCLASSES = ("NORM", "MI", "STTC", "CD", "HYP")
SLOW = 100.0  # Hz
REFERENCES = ("REFERENCE-v3.csv", "REFERENCE.csv")  # of CinC 2017; version 3 corrects labels
CLASSES = {"N": "normal", "A": "atrial fibrillation", "O": "other rhythm", "~": "noisy"}
OLDEST = 89  # years; PTB-XL writes 300 for patients who are older


@dataclass(frozen=True)
class Row:
    """One record of the database."""

    name: str
    slow: str  # its path at 100 Hz
    fast: str  # its path at 500 Hz
    cell: str  # what the database says


def is_ptbxl(folder: Path) -> bool:
    return (folder / DATABASE).is_file()


@reads("target", "split", "folds", "label_column", "classes", "multilabel", "rate", "window", "leads", "scaling")
def ptbxl(source: DataFields) -> Source:
    """Load signals (b, leads, t) in mV at `rate` (default: 100 Hz; 500 Hz is also stored), labels (b, k) of zeros and ones.

    The path is the folder of https://doi.org/10.13026/kfzx-aw45: 12 leads of 10 s, several SCP statements per record.
    `folds` chooses folds of `strat_fold`, which share no patient; `split` train, val and test are folds 1-8, 9 and 10.
    `label_column` is diagnostic_class (superclasses NORM, MI, STTC, CD, HYP), diagnostic_subclass, or diagnostic, form, rhythm
    or scp for single SCP statements. `classes` keeps only these labels. multilabel=False keeps records with exactly one
    label, as (b,). With target='numbers', `label_column` is a column of the database, such as age.
    """
    if source.target == "numbers":
        return _numbers_source(source)
    column, wanted = source.label_column or GROUPS[0], class_names(source.classes)
    label_of, every = _label_map(source.location, column), _records(source, "scp_codes")
    found = {
        Path(row.name): {label_of[code] for code in _codes(row.cell, row.name) if code in label_of} for row in every
    }
    labels, left_out = usable_labels(source, found, wanted)
    all_labels = {label for own in found.values() for label in own}
    usual = SUPERCLASSES if column == GROUPS[0] and all_labels <= set(SUPERCLASSES) else tuple(sorted(all_labels))
    rows = [row for row in every if Path(row.name) in labels]
    chosen = [rows[i] for i in source.take.rows([",".join(own) for own in labels.values()])]
    cuts = _found(source, chosen, left_out)
    return labelled_source(source, cuts, [labels[Path(_stem(cut.record.name))] for cut in cuts.cuts], wanted or usual)


def usable_labels(
    source: DataFields, found: Mapping[Path, set[str]], wanted: Sequence[str], unreadable: Sequence[Loss] = ()
) -> tuple[dict[Path, tuple[str, ...]], list[Loss]]:
    """The labels of each record that has any of the wanted ones, or exactly one of them if the options say so."""
    labels = {path: tuple(sorted(own & set(wanted) if wanted else own)) for path, own in found.items()}
    most = 1 if source.multilabel is False else len({label for own in labels.values() for label in own})
    left_out = [*unreadable, *((path.name, "has none of the labels") for path, own in labels.items() if not own)]
    left_out += [(path.name, "has several labels") for path, own in labels.items() if len(own) > most]
    usable = {path: own for path, own in labels.items() if 0 < len(own) <= most}
    if not usable:
        raise DataError(f"no record of {source.path!r} has a usable label{first_loss(left_out)}")
    return usable, left_out


def _found(source: DataFields, rows: Sequence[Row], left_out: Sequence[Loss]) -> Found:
    """The windows of these records."""
    folder, fast = source.location, source.rate not in (None, SLOW)  # use the 500 Hz record, if there is one
    paths = [inside(folder, r.fast if fast and inside(folder, f"{r.fast}.hea").is_file() else r.slow) for r in rows]
    found = find_cuts(source, paths)
    one_each = replace(source.take, shuffle=False)  # a window of every record before the second of any
    return found.only(one_each.rows([cut.record.name for cut in found.cuts]), left_out)


def _numbers_source(source: DataFields) -> Source:
    """The records with the number in a column of the database, such as age or weight; those without one are left out."""
    column, value, left_out = source.label_column or "age", dict[str, float](), list[Loss]()
    every = _records(source, column)
    for row in every:
        cell = row.cell
        if not is_number(cell) or not math.isfinite(float(cell)):
            left_out.append((row.name, f"has no {column}"))
        elif column == "age" and float(cell) > OLDEST:
            left_out.append((row.name, f"has a hidden age, over {OLDEST}"))
        else:
            value[row.name] = float(cell)
    if not value:
        raise DataError(f"no record of {source.path!r} has a number in the column {column!r}{first_loss(left_out)}")
    rows = [row for row in every if row.name in value]
    found = _found(source, [rows[i] for i in source.take.rows([row.cell for row in rows])], left_out)
    y = torch.tensor([[value[_stem(cut.record.name)]] for cut in found.cuts])
    return cut_source(source, found, y, ())


def labelled_source(source: DataFields, found: Found, labels: Sequence[Sequence[str]], names: Sequence[str]) -> Source:
    """The samples with one or several of the labels `names` each."""
    y = torch.zeros(len(found.cuts), len(names), dtype=torch.int64)
    for row, own in enumerate(labels):
        y[row, [names.index(label) for label in own]] = 1
    single = source.multilabel is False
    return replace(cut_source(source, found, y.argmax(1) if single else y, names), one_label=single)


def _folds(source: DataFields) -> frozenset[int] | None:
    """The folds to read, None for all."""
    if source.split is not None and source.folds is not None:
        raise OptionError(f"expected split or folds, got {source.split!r} and {source.folds!r}: remove one")
    if source.split is not None and source.split not in FOLDS:
        raise OptionError(f"expected split train, val or test, got {source.split!r}")
    if source.folds is None:
        return frozenset(FOLDS[source.split]) if source.split else None
    chosen = parse_ranges(str(source.folds), "folds like 9, 1-8 or 1,3,9")
    if not chosen <= set(range(1, 11)):
        raise OptionError(f"expected folds of PTB-XL from 1 to 10, got {source.folds!r}")
    return chosen


def _records(source: DataFields, column: str) -> list[Row]:
    """The records of the folds with their cell of this column."""
    folds, rows = _folds(source), list[Row]()
    for record in _read(source.location / DATABASE, (column, "strat_fold", "filename_lr", "filename_hr")):
        cells = [record[name] for name in ("strat_fold", "filename_lr", "filename_hr", column)]
        if None in cells:
            raise DataError(f"a line of {DATABASE} has fewer cells than its header: download the table of PTB-XL again")
        if folds is None or cells[0].removesuffix(".0") in map(str, folds):
            rows.append(Row(_stem(Path(cells[1]).name), *cells[1:]))
    return rows


def _label_map(folder: Path, column: str) -> dict[str, str]:
    """Map each SCP code to its label, if it has one."""
    if column not in (*GROUPS, *KINDS, "scp"):
        raise OptionError(f"expected label_column {', '.join((*GROUPS, *KINDS))} or scp for PTB-XL, got {column!r}")
    rows = _read(folder / STATEMENTS, () if column == "scp" else (column,))
    pairs = [(next(iter(row.values())), row) for row in rows]  # the first column, which has no name, is the code
    if column in GROUPS:
        return {code: row[column] for code, row in pairs if row[column]}
    return {code: code for code, row in pairs if column == "scp" or row[column]}


def _codes(text: str, name: str) -> dict[str, float]:
    """Read a dict literal, without running any code."""
    try:
        codes = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        codes = None
    if not isinstance(codes, dict):
        raise DataError(f"expected scp_codes like {{'NORM': 100.0}} for {name!r} in {DATABASE}, got {text!r}")
    return codes


def _read(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise DataError(f"cannot read {str(path)!r} ({error}): expected the table that comes with PTB-XL") from error
    missing = [column for column in columns if not rows or column not in rows[0]]
    if missing or not rows:
        lack = f"column {missing[0]!r}" if missing else "rows"
        raise DataError(f"{path.name!r} has no {lack}: expected the table that comes with PTB-XL")
    return rows


def _stem(name: str) -> str:
    """'00001_lr' or '00001_hr' -> '00001'."""
    return name.removesuffix("_lr").removesuffix("_hr")


def is_cinc2017(folder: Path) -> bool:
    return any((folder / name).is_file() for name in REFERENCES) and any(folder.glob("*.hea"))


@reads("window", "rate", "leads", "records", "scaling", "labels", "classes")
def cinc2017(source: DataFields) -> Source:
    """Load signals (b, 1, t) in mV: consecutive windows of `window` seconds, each with the label of its recording.

    Labels come from `labels`, or else from REFERENCE-v3.csv, or else from REFERENCE.csv
    (https://doi.org/10.22489/CinC.2017.065-469).
    """
    folder, records = source.location, source.records
    usual = next((folder / name for name in REFERENCES if (folder / name).is_file()), folder)
    reference = Path(source.labels) if source.labels else usual
    table = {row[0]: CLASSES.get(row[1], row[1]) for row in read_cells(reference) if len(row) > 1}
    wanted = [name for name in table if records is None or name in records]
    unknown = [name for name in records or () if name not in table]
    if unknown or not wanted:
        record = repr(unknown[0]) if unknown else "any record"
        raise DataError(f"{reference.name!r} has no line for {record}: check records")
    unlisted = sorted(header.stem for header in folder.glob("*.hea") if header.stem not in table)
    others = [(name, f"has no line in {reference.name}") for name in unlisted]
    found = find_cuts(source, [folder / name for name in wanted])
    found = found.only(source.take.rows([table[cut.record.name] for cut in found.cuts]), others)
    texts = [table[cut.record.name] for cut in found.cuts]
    return cut_source(source, found, *encode(texts, source.classes or tuple(CLASSES.values())))
