"""Load records of the PhysioNet/CinC challenges: 2017 (with a table of labels), and 2020 and 2021 (with SNOMED CT codes).

https://doi.org/10.22489/CinC.2017.065-469, https://doi.org/10.13026/f4ab-0814, https://doi.org/10.13026/34va-7q14
"""

from __future__ import annotations

import re
from pathlib import Path

from rlab.data.fields import EcgOptions, Labels
from rlab.data.files import Place
from rlab.data.labels import Table, encode
from rlab.data.physionet import DiagnosedOptions, diagnosed
from rlab.data.source import Source, readable
from rlab.data.wfdb import read_record
from rlab.data.wfdb_records import cut_source, find_cuts
from rlab.errors import DataError, OptionError

REFERENCES = ("REFERENCE-v3.csv", "REFERENCE.csv")  # of CinC 2017; version 3 corrects labels
CLASSES = {"N": "normal", "A": "atrial fibrillation", "O": "other rhythm", "~": "noisy"}
COLUMNS = ("name", "abbreviation", "code")  # how a diagnosis is called
_DIAGNOSES = re.compile(r"^#?\s*Dx:\s*(?P<codes>[0-9, ]+)\s*$", re.IGNORECASE | re.MULTILINE)
_LARGEST = 2**20  # bytes of a header
_NAMES = Table.read(Path(__file__).parents[1] / "assets" / "snomed.csv")  # as both challenges name diagnoses
SNOMED = {code: (name, abbreviation) for code, name, abbreviation in _NAMES.rows}


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
