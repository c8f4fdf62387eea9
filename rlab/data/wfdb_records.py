"""Load WFDB records (PhysioNet), cut into beats or windows, in the physical unit of the record unless scaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from rlab.data.batch import UNBOUNDED
from rlab.data.ecg_masks import QRS, mark_masks
from rlab.data.fields import EcgOptions, Labelled, Split
from rlab.data.labels import Encoded, encode, encode_texts, look_up, read_table, table_of
from rlab.data.source import Decoded, Loss, Source, Unreadable, first_loss, readable, reading
from rlab.data.wfdb import AAMI, Record, Values, alike, read_record, read_values, standardise
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
class Cuts:
    """Samples of some records, the leads that these share, and (id, reason) of what cannot be used; no values are read."""

    each: list[Cut]
    leads: tuple[str, ...]
    left_out: tuple[Loss, ...]

    def only(self, rows: Sequence[int], others: Sequence[Loss] = ()) -> Cuts:
        """Some of the samples; `others` were left out before."""
        return Cuts([self.each[i] for i in rows], self.leads, (*others, *self.left_out))


def find_cuts(source: EcgOptions, paths: Sequence[Path], *, beats: bool = False, labelled: bool = False) -> Cuts:
    """Cut records into beats or windows; `labelled` keeps only those with a label from their beats."""
    window = source.window or (BEAT if beats else WINDOW)
    found, unreadable = readable(
        lambda path: read_record(path, source.rate, annotated=beats or labelled), {str(path): path for path in paths}
    )
    left_out = [(Path(name).name, why) for name, why in unreadable]
    if not found:
        raise DataError(f"none of {len(paths)} WFDB records can be read{first_loss(left_out)}")
    records, leads, odd = alike(list(found.values()), source.leads)
    length = 2 * round(window * records[0].rate / 2)
    if length < 2:
        raise OptionError(f"expected a window of at least two values, got {window:g} s at {records[0].rate:g} Hz")
    cuts, left_out = list[Cut](), left_out + odd
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
    return Cuts(cuts, leads, tuple(left_out))


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


class WfdbOptions(Labelled, EcgOptions):
    beats: bool | None = Field(None, description="WFDB: cut beats, or consecutive windows")
    split: Split = None


def wfdb_records(source: WfdbOptions) -> Source:
    """Load signals (b, leads, t) from one record or a folder of them, with ids 'record:sample' and masks at R ± 50 ms.

    With `beats`, each sample is `window` seconds (default: 0.72) around an annotated R, labelled with the AAMI class N,
    S, V, F or Q. Otherwise samples are consecutive windows of `window` seconds (default: 10), labelled with the most
    common class except N among their beats, or N if there is no other. A table `labels` by record replaces both.
    `leads` defaults to those that all records share. `split` train and test are the usual patient-disjoint halves of the
    MIT-BIH arrhythmia database. `rate` resamples every record; `scaling` standardises each lead per record or window.
    """
    own = source.labels is None and source.target != "numbers"  # labels from the beats
    cuts = find_cuts(source, _paths(source), beats=source.beats is not False, labelled=own)
    if own:
        labels = encode([cut.label for cut in cuts.each], source.classes or tuple(AAMI))
    else:
        table = read_table(table_of(source), source.label_column)
        named = look_up(table, [cut.record.name for cut in cuts.each], str(source.labels))
        labels = encode_texts(named, source, str(source.labels), tuple(table.values()))
    rows = source.take.rows(labels[0])
    return cut_source(source, cuts.only(rows), (labels[0][rows], labels[1]), numbered=not own)


def cut_source(
    source: EcgOptions, found: Cuts, labels: Encoded, *, numbered: bool = False, one_label: bool = False
) -> Source:
    """The samples with their labels, read on demand, with R peaks and QRS masks if every record has annotated beats."""
    cuts, leads, rate = found.each, found.leads, found.each[0].record.rate
    annotated = all(len(cut.record.at) for cut in cuts)

    def read(rows: Sequence[int]) -> Decoded:
        found = _read(source, [cuts[i] for i in rows], leads)
        if not annotated or found.x is None:
            return found
        peaks = tuple(cuts[rows[i]].r_peaks for i in found.kept)
        masks = mark_masks(peaks, cuts[0].length, round(QRS * rate))
        return replace(found, more={"masks": masks, "r_peaks": peaks})

    facts = source.facts(labels[1]) | {"left_out": found.left_out, "one_label": one_label}
    facts |= {"bounds": UNBOUNDED, "rate": rate, "leads": leads, "numbered": numbered and facts["numbered"]}
    facts["unit"] = DEVIATIONS if source.scaling else cuts[0].record.unit(leads)
    files = {cut.record.path: cut.record.files for cut in cuts}
    of_each = [files[cut.record.path] for cut in cuts]
    return Source(read, (len(leads), cuts[0].length), labels[0], tuple(cut.id for cut in cuts), of_each, **facts)


def _read(source: EcgOptions, cuts: Sequence[Cut], leads: Sequence[str]) -> Decoded:
    """The usable samples (b, leads, t), with one record in memory at a time."""
    x = torch.zeros(len(cuts), len(leads), cuts[0].length)
    losses, rows = dict[int, Loss](), dict[Path, list[int]]()
    for row, cut in enumerate(cuts):
        rows.setdefault(cut.record.path, []).append(row)
    with bar(len(cuts), "reading", patience=PATIENCE) as progress:
        for members in rows.values():
            try:
                with reading():
                    values = read_values(cuts[members[0]].record, leads, source.scaling)
                for row in members:
                    part = values.values[:, cuts[row].span]
                    if fault := _fault(values, cuts[row], leads):
                        losses[row] = (cuts[row].id, fault)
                    else:
                        x[row] = torch.from_numpy(standardise(part) if source.scaling == "window" else part)
            except (Unreadable, InputError) as why:
                losses |= {row: (cuts[row].id, str(why)) for row in members}
            progress(members)
    kept = [row for row in range(len(cuts)) if row not in losses]
    return Decoded(x[kept] if kept else None, kept, list(losses.values()))


def _fault(record: Values, cut: Cut, leads: Sequence[str]) -> str:
    """The reason why a cut cannot be used, or ''."""
    values = record.values[:, cut.span]
    if not np.isfinite(values).all():
        return "holds a gap (NaN)"
    saturated = record.saturated[:, cut.span].any(1)
    flat = record.flat[:, cut.span].any(1) | (np.ptp(values, axis=1) == 0)
    for what, flags in (("is saturated", saturated), ("is a flat line", flat)):
        if flags.any():
            return f"lead {leads[int(flags.argmax())]} {what}"
    return ""


def _paths(source: WfdbOptions) -> list[Path]:
    """Paths, without suffix, of the records in the folder or of the single record."""
    path, records, split = source.location, source.records, source.split
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
