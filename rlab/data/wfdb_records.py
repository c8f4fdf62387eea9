"""Load WFDB records (PhysioNet), cut into beats or windows, in the physical unit of the record unless scaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlab.data.batch import UNBOUNDED
from rlab.data.ecg_masks import QRS, mark_masks
from rlab.data.fields import DataFields, Scaling, check_room
from rlab.data.labels import Encoded, encode, look_up, read_table
from rlab.data.source import Decoded, Loss, Source, Unreadable, first_loss, reading, reads
from rlab.data.wfdb_read import AAMI, Record, Values, alike, read_headers, read_values, standardise
from rlab.errors import DataError, InputError, OptionError
from rlab.progress import PATIENCE, bar

BEAT, WINDOW = 0.72, 10.0  # default length in seconds
# Records with disjoint patients, de Chazal et al. 2004 (https://doi.org/10.1109/TBME.2004.827359)
_DS1 = "101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230"
_DS2 = "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234"
SPLITS = {"train": frozenset(_DS1.split()), "test": frozenset(_DS2.split())}
BEYOND = 0.2  # seconds; the mask of an R outside a sample may reach this far into it
DEVIATIONS = "SD"  # the unit of scaled values


@dataclass(frozen=True)
class Cut:
    """The position of one sample, `length` values of a record from `start`, and its label if the beats give one."""

    record: Record
    start: int
    length: int
    id: str
    label: str

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.length)

    @property
    def r_peaks(self) -> tuple[int, ...]:
        """Sample numbers of the R peaks inside and just outside."""
        reach = round(BEYOND * self.record.rate)
        near = np.searchsorted(self.record.at, (self.start - reach, self.start + self.length + reach))
        return tuple((self.record.at[slice(*near)] - self.start).tolist())


@dataclass(frozen=True)
class Found:
    """The samples of some records, their shared leads, and (id, reason) of what cannot be used; no values are read."""

    cuts: list[Cut]
    leads: tuple[str, ...]
    left_out: tuple[Loss, ...]

    def only(self, rows: Sequence[int], others: Sequence[Loss] = ()) -> Found:
        """Some of the samples; `others` were left out before."""
        return Found([self.cuts[i] for i in rows], self.leads, (*others, *self.left_out))


def find_cuts(source: DataFields, paths: Sequence[Path], *, beats: bool = False, labelled: bool = False) -> Found:
    """Cut records into beats or windows; `labelled` keeps only those with a label from their beats."""
    window = source.window or (BEAT if beats else WINDOW)
    readable, unreadable = read_headers(paths, source.rate, annotated=beats or labelled)
    records, leads, odd = alike(readable, source.leads)
    length = 2 * round(window * records[0].rate / 2)
    if length < 2:
        raise OptionError(f"expected a window of at least two values, got {window:g} s at {records[0].rate:g} Hz")
    cuts, left_out = list[Cut](), unreadable + odd
    for record in records:
        every = _cuts(record, beats, length)
        if not beats and not every:
            left_out.append((record.name, f"is shorter than a window of {window:g} s"))
        for cut in every:
            if cut.start < 0 or cut.start + length > record.length:
                left_out.append((cut.id, "at the record's border"))
            elif labelled and not cut.label:
                left_out.append((cut.id, "holds no annotated beat"))
            else:
                cuts.append(cut)
    if not cuts:
        raise DataError(f"no usable {'beats' if beats else 'windows'} in {source.path!r}{first_loss(left_out)}")
    return Found(cuts, leads, tuple(left_out))


def _cuts(record: Record, beats: bool, length: int) -> list[Cut]:
    """A sample around each R peak, which its id names, or consecutive windows, with ids that name their start."""
    if beats:
        pairs, middle = list(zip((record.at - length // 2).tolist(), record.classes, strict=True)), length // 2
    else:
        starts = range(0, record.length - length + 1, length)
        pairs, middle = [(start, _main_class(record, start, length)) for start in starts], 0
    return [Cut(record, at, length, f"{record.name}:{at + middle:06d}", name) for at, name in pairs]


def _main_class(record: Record, start: int, length: int) -> str:
    """The most common class except N among the beats of a window; N if there is no other, '' without beats."""
    inside = np.flatnonzero((record.at >= start) & (record.at < start + length))
    counts = Counter(record.classes[i] for i in inside)
    others = {name: count for name, count in counts.items() if name != "N"}
    return max(sorted(others), key=lambda name: others[name]) if others else ("N" if counts else "")


def read_cuts(
    cuts: Sequence[Cut], leads: tuple[str, ...], scaling: Scaling | None = None
) -> tuple[Tensor, list[int], list[Loss]]:
    """Values (b, leads, t), the usable rows, and (id, reason) of the others, with one record in memory at a time."""
    check_room(len(cuts), (len(leads), cuts[0].length))
    x = torch.zeros(len(cuts), len(leads), cuts[0].length)
    left_out, kept, rows = list[Loss](), list[int](), dict[str, list[int]]()
    for row, cut in enumerate(cuts):
        rows.setdefault(str(cut.record.path), []).append(row)
    with bar(len(cuts), "reading", patience=PATIENCE) as progress:
        for members in rows.values():
            for row, sample in zip(members, _read_record([cuts[row] for row in members], leads, scaling), strict=True):
                if isinstance(sample, Unreadable):
                    left_out.append((cuts[row].id, str(sample)))
                else:
                    x[row] = sample
                    kept.append(row)
            progress(members)
    return x, sorted(kept), left_out


def _read_record(cuts: Sequence[Cut], leads: tuple[str, ...], scaling: Scaling | None) -> list[Tensor | Unreadable]:
    """The values (leads, t) of each cut of one record, or the reason why it cannot be used."""
    try:
        with reading():
            record = read_values(cuts[0].record, leads, scaling)
    except (Unreadable, InputError) as why:
        return [Unreadable(str(why))] * len(cuts)
    each = [(_fault(record, cut, leads), record.values[:, cut.span]) for cut in cuts]
    return [
        Unreadable(fault) if fault else torch.from_numpy(standardise(x) if scaling == "window" else x)
        for fault, x in each
    ]


def _fault(record: Values, cut: Cut, leads: tuple[str, ...]) -> str:
    """The reason why a cut cannot be used, or ''."""
    if record.fault:
        return record.fault
    values = record.values[:, cut.span]
    if not np.isfinite(values).all():
        return "holds a gap (NaN)"
    saturated = record.saturated[:, cut.span].any(1)
    flat = record.flat[:, cut.span].any(1) | (np.ptp(values, axis=1) == 0)
    for what, flags in (("is saturated", saturated), ("is a flat line", flat)):
        if flags.any():
            return f"lead {leads[int(flags.argmax())]} {what}"
    return ""


@reads("beats", "window", "leads", "records", "split", "labels", "label_column", "classes", "rate", "scaling")
def wfdb_records(source: DataFields) -> Source:
    """Load signals (b, leads, t) from one record or a folder of them, with ids 'record:sample' and masks at R ± 50 ms.

    With `beats`, each sample is `window` seconds (default: 0.72) around an annotated R, labelled with the AAMI class N,
    S, V, F or Q. Otherwise samples are consecutive windows of `window` seconds (default: 10), labelled with the most
    common class except N among their beats, or N if there is no other. A table `labels` by record replaces both.
    `leads` defaults to those that all records share. `split` train and test are the usual patient-disjoint halves of the
    MIT-BIH arrhythmia database. `rate` resamples every record; `scaling` standardises each lead per record or window.
    """
    paths, labelled = _paths(source.location, source.records, source.split), source.labels is None
    found = find_cuts(source, paths, beats=source.beats is not False, labelled=labelled)
    y, classes = _labels(source, found.cuts)
    rows = source.take.rows(y)
    numbered = source.facts(classes)["numbered"] and not labelled
    return cut_source(source, found.only(rows), y[rows], classes, numbered)


def cut_source(source: DataFields, found: Found, y: Tensor, classes: Sequence[str], numbered: bool = False) -> Source:
    """The samples with their labels, read on demand, with R peaks and QRS masks if every record has annotated beats."""
    cuts, leads, rate = found.cuts, found.leads, found.cuts[0].record.rate
    annotated = all(len(cut.record.at) for cut in cuts)

    def read(rows: Sequence[int]) -> Decoded:
        chosen = [cuts[i] for i in rows]
        x, kept, losses = read_cuts(chosen, leads, source.scaling)
        if not kept:
            return Decoded(None, kept, losses)
        peaks = tuple(chosen[i].r_peaks for i in kept) if annotated else None
        masks = None if peaks is None else mark_masks(peaks, x.shape[-1], round(QRS * rate))
        return Decoded(x if len(kept) == len(x) else x[kept], kept, losses, {"masks": masks, "r_peaks": peaks})

    records = {cut.record.path: cut.record for cut in cuts}.values()
    files, of = list[Path](), dict[Path, range]()
    for record in records:
        of[record.path] = range(len(files), len(files) + len(record.files))
        files += [record.path.with_name(name) for name in record.files]
    unit = DEVIATIONS if source.scaling else cuts[0].record.unit(leads)
    facts = source.facts(classes) | {"numbered": numbered, "left_out": found.left_out}
    facts |= {"bounds": UNBOUNDED, "unit": unit, "rate": rate, "leads": leads}
    ids, parts = tuple(cut.id for cut in cuts), tuple(of[cut.record.path] for cut in cuts)
    return Source(read, (len(leads), cuts[0].length), y, ids, tuple(files), parts=parts, **facts)


def _labels(source: DataFields, cuts: Sequence[Cut]) -> Encoded:
    if source.labels is None:
        return encode([cut.label for cut in cuts], source.classes or tuple(AAMI))
    table = read_table(source.labels, source.label_column)
    texts = look_up(table, [cut.record.name for cut in cuts], str(source.labels))
    return encode(texts, source.classes, tuple(table.values()))


def _paths(path: Path, records: Sequence[str] | None, split: str | None) -> list[Path]:
    """Paths, without suffix, of the records in the folder or of the single record."""
    if not path.is_dir():
        if records is not None or split is not None:
            raise OptionError(f"{str(path)!r} is a single record: records and split work only for a folder")
        record = path.with_suffix("") if path.suffix in (".hea", ".dat", ".atr", ".mat") else path
        if not record.with_name(record.name + ".hea").is_file():
            raise DataError(f"there is no record {str(record)!r}: expected the header {record.name + '.hea'!r}")
        return [record]
    headers = sorted(header.with_suffix("") for header in path.glob("*.hea"))
    if not headers:
        raise DataError(f"the folder {str(path)!r} holds no WFDB records: expected .hea headers")
    if split is not None and split not in SPLITS:
        raise OptionError(f"expected split train or test, got {split!r}")
    wanted = records if records is not None else SPLITS[split] if split else None
    chosen = [header for header in headers if wanted is None or header.name in wanted]
    missing = [name for name in records or () if name not in {header.name for header in headers}]
    if missing or not chosen:
        lack = repr(missing[0]) if missing else f"of the {split} split"
        names = ", ".join(header.name for header in headers[:5]) + (", ..." if len(headers) > 5 else "")
        raise OptionError(f"the folder {str(path)!r} has no record {lack}: it holds {names}")
    return chosen
