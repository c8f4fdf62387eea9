"""WFDB records (PhysioNet) cut into beats or windows. Values stay in the record's physical unit unless scaled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlab.data.batch import Batch
from rlab.data.labels import Classes, encode, look_up, read_table
from rlab.data.take import Take
from rlab.data.wfdb_cuts import cut_records, read_cuts, to_batch
from rlab.data.wfdb_read import AAMI, CLASS_OF, Scaling, alike, read_headers, reason
from rlab.errors import InputError

__all__ = ["AAMI", "CLASS_OF", "SPLITS", "wfdb_records"]

BEAT, WINDOW = 0.72, 10.0  # seconds, where none are asked for
# Records of disjoint patients, de Chazal et al. 2004 (https://doi.org/10.1109/TBME.2004.827359)
_DS1 = "101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230"
_DS2 = "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234"
SPLITS = {"train": frozenset(_DS1.split()), "test": frozenset(_DS2.split())}


def wfdb_records(
    path: str | Path,
    *,
    beats: bool = True,
    window: float | None = None,
    leads: Sequence[str] | None = None,
    records: Sequence[str] | None = None,
    split: str | None = None,
    labels: str | None = None,
    label_column: str | None = None,
    classes: Classes = None,
    rate: float | None = None,
    scaling: Scaling | None = None,
    take: Take | None = None,
) -> Batch:
    """Signals (b, leads, t) from one record or a folder of them, ids 'record:sample', masks at R +- 50 ms.

    beats: `window` seconds (0.72) centred on each annotated R, labelled by AAMI class N, S, V, F or Q; else windows of
    `window` seconds (10) end to end, labelled by the commonest class other than N among their beats, N where there is
    none. A table of `labels` by record replaces both. `leads` defaults to those all records share; `split` train or
    test are the usual patient-disjoint halves of the MIT-BIH arrhythmia database. `rate` resamples every record;
    `scaling` standardises each lead over its record or over each window.
    """
    given = None if labels is None else read_table(labels, label_column)
    found, left_out = read_headers(_paths(Path(path), records, split), rate, annotated=given is None or beats)
    chosen, names, odd = alike(found, leads)
    seconds = window if window is not None else BEAT if beats else WINDOW
    cuts, border = cut_records(chosen, beats, seconds, labelled=given is None)
    left_out += odd + border
    if not cuts:
        raise InputError(f"no {'beats' if beats else 'windows'} to use in {str(path)!r}{reason(left_out)}")
    cuts = [cuts[i] for i in (take or Take()).order(len(cuts))]
    x, kept, broken = read_cuts(cuts, names, scaling)
    cuts = [cuts[i] for i in kept]
    texts = [one.label for one in cuts] if given is None else look_up(given, [c.record.name for c in cuts], str(labels))
    order = tuple(AAMI) if given is None and classes is None else classes
    y, class_order = encode(texts, order, known=() if given is None else tuple(given.values()))
    return to_batch(cuts, x[kept], y, class_order, names, scaling, left_out + broken)


def _paths(path: Path, records: Sequence[str] | None, split: str | None) -> list[Path]:
    """Records without their ending: the folder's, or the one that is named."""
    if not path.is_dir():
        if records is not None or split is not None:
            raise InputError(f"{str(path)!r} is one record: records and split are for a folder of them")
        one = path.with_suffix("") if path.suffix in (".hea", ".dat", ".atr", ".mat") else path
        if not one.with_name(one.name + ".hea").is_file():
            raise InputError(f"there is no record {str(one)!r}: expected the header {one.name + '.hea'!r}")
        return [one]
    found = sorted(header.with_suffix("") for header in path.glob("*.hea"))
    if not found:
        raise InputError(f"the folder {str(path)!r} holds no WFDB records: expected .hea headers")
    if split is not None and split not in SPLITS:
        raise InputError(f"expected split train or test, got {split!r}")
    wanted = records if records is not None else SPLITS[split] if split else None
    chosen = [one for one in found if wanted is None or one.name in wanted]
    missing = [name for name in records or () if name not in {one.name for one in found}]
    if missing or not chosen:
        raise InputError(
            f"the folder {str(path)!r} has no record {missing[0] if missing else f'of the {split} split'!r}: "
            f"it holds {', '.join(one.name for one in found[:5])}{', ...' if len(found) > 5 else ''}"
        )
    return chosen
