"""The PTB-XL folder (https://doi.org/10.13026/kfzx-aw45): 12 leads of 10 s, several SCP statements a record."""

from __future__ import annotations

import ast
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rlab.data.batch import Batch
from rlab.data.labels import Classes, class_names
from rlab.data.take import Take
from rlab.data.wfdb_cuts import cut_records, read_cuts, to_batch
from rlab.data.wfdb_read import Loss, Scaling, alike, read_headers, reason
from rlab.errors import InputError

DATABASE, STATEMENTS = "ptbxl_database.csv", "scp_statements.csv"
FOLDS = {"train": range(1, 9), "val": range(9, 10), "test": range(10, 11)}  # folds 9 and 10 were checked by hand
KINDS = ("diagnostic", "form", "rhythm")  # statements of a kind, each a label of its own
GROUPS = ("diagnostic_class", "diagnostic_subclass")  # statements that share a label
SUPERCLASSES = ("NORM", "MI", "STTC", "CD", "HYP")
SLOW, WINDOW = 100.0, 10.0  # Hz and seconds


@dataclass(frozen=True)
class Row:
    """One record of the database that has labels."""

    name: str
    slow: str  # its path at 100 Hz
    fast: str  # its path at 500 Hz
    labels: tuple[str, ...]


def is_ptbxl(folder: Path) -> bool:
    return (folder / DATABASE).is_file()


def ptbxl(
    path: str | Path,
    *,
    split: str | None = None,
    label_column: str = "diagnostic_class",
    classes: Classes = None,
    multilabel: bool = True,
    rate: float | None = None,
    window: float = WINDOW,
    leads: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    take: Take | None = None,
) -> Batch:
    """Signals (b, leads, t) in mV at `rate` (100 Hz; 500 Hz is there as well), labels (b, k) of zeros and ones.

    `split` train, val or test are folds 1-8, 9 and 10 of `strat_fold`: no patient is in two of them. `label_column` is
    diagnostic_class (NORM, MI, STTC, CD, HYP), diagnostic_subclass, or diagnostic, form, rhythm or scp for single SCP
    statements. `classes` keeps only those labels. With multilabel=False records of exactly one label are used, as (b,).
    """
    folder = Path(path)
    rows, left_out = _rows(folder, split, _label_map(folder, label_column), class_names(classes))
    names = class_names(classes) or _class_order(rows, label_column)
    if not multilabel:
        left_out += [(one.name, "has several labels") for one in rows if len(one.labels) > 1]
        rows = [one for one in rows if len(one.labels) == 1]
    if not rows:
        raise InputError(f"no record of {str(folder)!r} has a label to use{reason(left_out)}")
    chosen = take or Take()
    rows = [rows[i] for i in chosen.order(len(rows))]
    labels = {one.name: one.labels for one in rows}
    found, broken = read_headers([folder / _file(one, folder, rate) for one in rows], rate, annotated=False)
    records, lead_names, odd = alike(found, leads)
    cuts, short = cut_records(records, beats=False, window=window)
    left_out += broken + odd + short
    if not cuts:
        raise InputError(f"no windows to use in {str(folder)!r}{reason(left_out)}")
    x, kept, faulty = read_cuts(cuts[: chosen.limit], lead_names, scaling)
    cuts = [cuts[i] for i in kept]
    index = {name: i for i, name in enumerate(names)}
    y = torch.zeros(len(cuts), len(names), dtype=torch.int64)
    for row, cut in enumerate(cuts):
        y[row, [index[label] for label in labels[_stem(cut.record.name)]]] = 1
    return to_batch(cuts, x[kept], y if multilabel else y.argmax(1), names, lead_names, scaling, left_out + faulty)


def _rows(
    folder: Path, split: str | None, label_of: Mapping[str, str], wanted: Sequence[str]
) -> tuple[list[Row], list[Loss]]:
    """The records of the split that have a label, and (name, why) of those that have none."""
    if split is not None and split not in FOLDS:
        raise InputError(f"expected split train, val or test, got {split!r}")
    rows: list[Row] = []
    left_out: list[Loss] = []
    for record in _read(folder / DATABASE, ("scp_codes", "strat_fold", "filename_lr", "filename_hr")):
        if split is not None and int(float(record["strat_fold"])) not in FOLDS[split]:
            continue
        name = _stem(Path(record["filename_lr"]).name)
        held = {label_of[code] for code in _codes(record["scp_codes"], name) if code in label_of}
        labels = tuple(sorted(held & set(wanted) if wanted else held))
        if labels:
            rows.append(Row(name, record["filename_lr"], record["filename_hr"], labels))
        else:
            left_out.append((name, "has none of the labels"))
    return rows, left_out


def _label_map(folder: Path, column: str) -> dict[str, str]:
    """SCP code -> label, for the codes that have one."""
    if column not in (*GROUPS, *KINDS, "scp"):
        raise InputError(f"expected label_column {', '.join((*GROUPS, *KINDS))} or scp for PTB-XL, got {column!r}")
    rows = _read(folder / STATEMENTS, () if column == "scp" else (column,))
    pairs = [(next(iter(row.values())), row) for row in rows]  # the first column, which has no name, is the code
    if column in GROUPS:
        return {code: row[column] for code, row in pairs if row[column]}
    return {code: code for code, row in pairs if column == "scp" or row[column]}


def _codes(text: str, name: str) -> dict[str, float]:
    """A dict as Python writes it; a literal is read, nothing is run."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f"expected scp_codes like {{'NORM': 100.0}} for {name!r} in {DATABASE}, got {text!r}")
    return found


def _read(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {str(path)!r} ({error}): expected the table that comes with PTB-XL") from error
    missing = [one for one in columns if not rows or one not in rows[0]]
    if missing or not rows:
        raise InputError(
            f"{path.name!r} has no column {missing[0] if missing else 'at all'!r}: expected PTB-XL's table"
        )
    return rows


def _class_order(rows: Sequence[Row], column: str) -> tuple[str, ...]:
    """The superclasses as papers order them; other labels sorted, those of the split that occur."""
    held = {label for one in rows for label in one.labels}
    return SUPERCLASSES if column == GROUPS[0] and held <= set(SUPERCLASSES) else tuple(sorted(held))


def _file(row: Row, folder: Path, rate: float | None) -> str:
    """The 500 Hz record where another rate than 100 Hz is asked for and it is there."""
    fast = rate not in (None, SLOW) and (folder / f"{row.fast}.hea").is_file()
    return row.fast if fast else row.slow


def _stem(name: str) -> str:
    """'00001_lr' and '00001_hr' are the record 00001."""
    return name.removesuffix("_lr").removesuffix("_hr")
