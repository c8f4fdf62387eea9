"""WFDB records whose headers list diagnoses as SNOMED CT codes: the PhysioNet/CinC challenges 2020 and 2021, with CPSC 2018.

https://doi.org/10.13026/f4ab-0814 (2020), https://doi.org/10.13026/34va-7q14 (2021).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlab.data.fields import DataFields
from rlab.data.labels import class_names, read_cells
from rlab.data.physionet import labelled_source, usable_labels
from rlab.data.source import Loss, Source, readable, reads
from rlab.data.wfdb_files import read_header
from rlab.data.wfdb_records import find_cuts
from rlab.errors import OptionError

COLUMNS = ("name", "abbreviation", "code")  # how a diagnosis is called
_DIAGNOSES = re.compile(r"^#?\s*Dx:\s*(?P<codes>[0-9, ]+)\s*$", re.IGNORECASE | re.MULTILINE)
_LARGEST = 2**20  # bytes of a header
_, *_ROWS = read_cells(Path(__file__).parents[1] / "assets" / "snomed.csv")  # as both challenges name diagnoses
SNOMED = {code: (name, abbreviation) for code, name, abbreviation in _ROWS}


def is_cinc2020(folder: Path) -> bool:
    """Whether the first header, in the folder or below it, lists diagnoses."""
    header = next(_headers(folder), None)
    if header is None or header.stat().st_size > _LARGEST:
        return False
    return _DIAGNOSES.search(header.read_text("latin-1")) is not None


def _headers(folder: Path) -> Iterator[Path]:
    """Headers in the folder and below it, in the order of their names."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".hea") and not name.startswith("."))


@reads("label_column", "classes", "multilabel", "rate", "window", "leads", "records", "scaling")
def cinc2020(source: DataFields) -> Source:
    """Load signals (b, leads, t) in mV, the first `window` seconds (default: 10) of each record, labels (b, k) of zeros and ones.

    `label_column` calls a diagnosis by its name (default), its abbreviation or its SNOMED CT code; codes without a name keep
    their number. `classes` keeps only these labels. multilabel=False keeps records with exactly one label, as (b,).
    """
    paths = [path.with_suffix("") for path in _headers(source.location)]
    return _diagnosed(source, *_codes([path for path in paths if _is_wanted(path, source)]))


def _is_wanted(path: Path, source: DataFields) -> bool:
    return source.records is None or path.name in source.records


def _codes(paths: Sequence[Path]) -> tuple[dict[Path, list[str]], list[Loss]]:
    """The SNOMED CT codes of each record, and (name, reason) of those that cannot be read."""
    comments, left_out = readable(lambda path: read_header(path).comments, {str(path): path for path in paths})
    matches = {Path(name): _DIAGNOSES.search("\n".join(lines)) for name, lines in comments.items()}
    return {path: re.findall(r"\d+", match["codes"]) if match else [] for path, match in matches.items()}, [
        (Path(name).name, why) for name, why in left_out
    ]


def _diagnosed(source: DataFields, codes: Mapping[Path, Sequence[str]], unreadable: Sequence[Loss]) -> Source:
    """The records with their diagnoses; those without any are left out too."""
    column, wanted = source.label_column or COLUMNS[0], class_names(source.classes)
    if column not in COLUMNS:
        raise OptionError(f"expected label_column {', '.join(COLUMNS)} for SNOMED diagnoses, got {column!r}")
    called = {code: (*words, code)[COLUMNS.index(column)] for code, words in SNOMED.items()}
    named = {path: {called.get(code, code) for code in own} for path, own in codes.items()}
    labels, left_out = usable_labels(source, named, wanted, unreadable)
    paths = list(labels)
    rows = [paths[i] for i in source.take.rows([",".join(own) for own in labels.values()])]
    found = find_cuts(source, rows)
    found = found.only([i for i, cut in enumerate(found.cuts) if not cut.start], left_out)
    names = wanted or tuple(sorted({label for own in labels.values() for label in own}))
    return labelled_source(source, found, [labels[cut.record.path] for cut in found.cuts], names)
