"""The folder of the PhysioNet/CinC 2017 challenge (https://doi.org/10.22489/CinC.2017.065-469): one lead, REFERENCE.csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlab.data.batch import Batch
from rlab.data.labels import Classes, encode
from rlab.data.tables import read_cells
from rlab.data.take import Take
from rlab.data.wfdb_cuts import cut_records, read_cuts, to_batch
from rlab.data.wfdb_read import Scaling, alike, read_headers, reason
from rlab.errors import InputError

REFERENCES = ("REFERENCE-v3.csv", "REFERENCE.csv")  # the later one mends labels of the earlier
CLASSES = {"N": "normal", "A": "atrial fibrillation", "O": "other rhythm", "~": "noisy"}
WINDOW = 10.0  # seconds; recordings last 9 to 61


def is_cinc2017(folder: Path) -> bool:
    return any((folder / name).is_file() for name in REFERENCES) and any(folder.glob("*.hea"))


def cinc2017(
    path: str | Path,
    *,
    window: float = WINDOW,
    rate: float | None = None,
    leads: Sequence[str] | None = None,
    records: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    labels: str | None = None,
    classes: Classes = None,
    take: Take | None = None,
) -> Batch:
    """Signals (b, 1, t) in mV, windows of `window` seconds end to end, each with its recording's label.

    Labels are those of REFERENCE-v3.csv where it is there, else of REFERENCE.csv, else of the table named.
    """
    folder = Path(path)
    reference = Path(labels) if labels else next(folder / name for name in REFERENCES if (folder / name).is_file())
    table = {row[0]: CLASSES.get(row[1], row[1]) for row in read_cells(reference) if len(row) > 1}
    wanted = [name for name in table if records is None or name in records]
    unknown = [name for name in records or () if name not in table]
    if unknown or not wanted:
        raise InputError(
            f"{reference.name!r} has no line for {unknown[0] if unknown else 'any record'!r}: check records"
        )
    found, left_out = read_headers([folder / name for name in wanted], rate, annotated=False)
    left_out += [(one.stem, f"has no line in {reference.name}") for one in _others(folder, table)]
    chosen, names, odd = alike(found, leads)
    cuts, short = cut_records(chosen, beats=False, window=window)
    left_out += odd + short
    if not cuts:
        raise InputError(f"no windows to use in {str(folder)!r}{reason(left_out)}")
    cuts = [cuts[i] for i in (take or Take()).order(len(cuts))]
    x, kept, broken = read_cuts(cuts, names, scaling)
    cuts = [cuts[i] for i in kept]
    order = classes if classes is not None else tuple(CLASSES.values())
    y, class_order = encode([table[cut.record.name] for cut in cuts], order)
    return to_batch(cuts, x[kept], y, class_order, names, scaling, left_out + broken)


def _others(folder: Path, table: dict[str, str]) -> list[Path]:
    return sorted(one for one in folder.glob("*.hea") if one.stem not in table)
