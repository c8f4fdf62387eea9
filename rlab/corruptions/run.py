"""`rlab.corrupt`: query a model under every kind and level of corruption; each is a step that a stopped run does not repeat."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import torch
from pydantic import Field, TypeAdapter, field_validator
from torch import Tensor

from rlab.core.rng import sample_seeds
from rlab.corruptions import KINDS, LEVELS
from rlab.corruptions.report import CLEAN, NO_TALLY, CorruptionReport, Tally
from rlab.corruptions.robustbench import check_robustbench, write_robustbench
from rlab.data.batch import Batch
from rlab.data.eight_bit import EightBit
from rlab.data.images import CIFAR10C, kinds_in
from rlab.data.load import DataOptions
from rlab.errors import FolderError, ModelError, OptionError
from rlab.filters.palettes import corruptions
from rlab.progress import Progress, bar, quiet, showing
from rlab.runs.fingerprint import data_fingerprint
from rlab.runs.inputs import Data, Model, named_data, plain_input, taken
from rlab.runs.palette_options import make_palette
from rlab.runs.understood import Announce, Understood, show
from rlab.storage.config import Accepts, Options, check_keywords, did_you_mean, takes, write_config
from rlab.storage.contents import Contents
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions

if TYPE_CHECKING:
    from rlab.keywords import CorruptKeywords

BINS = 15  # of confidence
_CHUNK = 256  # inputs that are corrupted and queried at once
VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # further files of CIFAR-10-C


class CorruptOptions(Options):
    """What a model is measured under."""

    kinds: Annotated[tuple[str, ...], Accepts(str | tuple[str, ...] | list[str])] = Field(
        (),
        description="kinds of corruptions, separated by commas (default: all fifteen; those of recordings for signals)",
    )
    levels: Annotated[tuple[int, ...], Accepts(str | tuple[int, ...] | list[int])] = Field(
        LEVELS, description="levels of corruption, separated by commas (default: 1,2,3,4,5)"
    )
    baseline: str | None = Field(
        None, description="folder of an earlier run on the same data, to divide errors by (mCE)"
    )
    robustbench: Literal["cifar10", "cifar100", "imagenet"] | None = Field(
        None, description="also write files for RobustBench's table of these data: cifar10, cifar100 or imagenet"
    )
    seed: int = Field(0, ge=-(2**63), lt=2**63, description="random seed (default: 0)")

    @field_validator("kinds", "levels", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        listed = " ".join(map(str, value if isinstance(value, list | tuple) else [value]))
        return listed.replace(",", " ").split()

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        if not levels or not set(levels) <= set(LEVELS):
            raise ValueError(f"expected levels from 1 to 5, got {', '.join(map(str, levels)) or 'none'}")
        return tuple(sorted(set(levels)))

    def specs(self, batch: Batch, files: DataOptions | None = None) -> dict[str, tuple[str, ...]]:
        """By kind, the filters of the chosen levels, or the data that hold the corrupted images."""
        known = corruptions(batch.rank, batch.rate) if files is None else stored(files, bool(self.kinds))
        for kind in self.kinds:
            if kind not in known:
                wanted = f"a corruption of {batch.kind} such as {next(iter(known))!r}"
                raise OptionError(f"expected {wanted}, got {kind!r}.{did_you_mean(kind, known)}")
        return {kind: tuple(known[kind][level - 1] for level in self.levels) for kind in self.kinds or known}


class CorruptRunOptions(CorruptOptions):
    """Options of `rlab corrupt`."""

    model: ModelOptions
    data: DataOptions


@takes(CorruptOptions)
def corrupt(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    announce: Announce = show,
    **options: Unpack[CorruptKeywords],
) -> CorruptionReport:
    """Measure a model under the common corruptions: accuracy and calibration by kind and level.

    The model and the data are as in `rlab.attack`; the data `cifar10c:FOLDER` are files of CIFAR-10-C, which are measured as they
    are. With `baseline`, the folder of an earlier report on the same data, the report
    has the mean corruption error (mCE). With `out`, each kind and level is stored in this folder as soon as it is measured, and
    the same call resumes there after a stop.
    `progress` and `announce` are as in `attack`. `rlab.corruptions.corrupt` corrupts a batch without a model.
    """
    declared = check_keywords(corrupt, CorruptOptions, options)
    baseline = None if declared.baseline is None else CorruptionReport.load(declared.baseline)
    if declared.robustbench and out is None:
        raise OptionError("expected a folder for the files of RobustBench, got none: pass out")
    files = files_of(data, limit)
    some = data if files is None else files.model_copy(update={"path": next(iter(stored(files, True).values()))[0]})
    with showing(progress), taken(model, some, limit) as (victim, batch):
        job = Job(declared, victim, batch, baseline, files)
        announce(Understood(batch, (victim,)))
        config = {"model": plain_input(model, "name"), "data": plain_input(data, "path"), **declared.plain()}
        with bar(job.inputs, "corrupting", unit="inputs") as advance:
            return job.run(None if out is None else Path(out), config, advance)


@dataclass(frozen=True)
class Job:
    """One model under the corruptions of one configuration."""

    options: CorruptOptions
    victim: Victim
    batch: Batch  # to corrupt, or the first of the corrupted files
    baseline: CorruptionReport | None = None
    files: DataOptions | None = None

    def __post_init__(self) -> None:
        if self.victim.multilabel or self.victim.prediction != "classes":
            got = "a multi-label model" if self.victim.multilabel else f"one that returns {self.victim.prediction}"
            raise ModelError(f"expected a classifier with one label per sample to corrupt its inputs, got {got}")
        if self.options.robustbench:
            check_robustbench(self.batch, self.specs, self.options.levels)
        before, named = self.baseline, f"the baseline {self.options.baseline}"
        if before is None:
            return
        if before.data != data_fingerprint(self.batch):
            raise FolderError(f"{named} is about other data: run it on the same samples first")
        if before.levels != self.options.levels or not set(self.specs) <= set(before.kinds):
            lacks = "levels" if before.levels != self.options.levels else "kinds"
            raise FolderError(f"{named} has other {lacks} than this run: run both with the same options")

    @property
    def specs(self) -> dict[str, tuple[str, ...]]:
        return self.options.specs(self.batch, self.files)

    @property
    def inputs(self) -> int:
        """How many inputs the model gets."""
        return len(self.batch) * ((self.files is None) + len(self.specs) * len(self.options.levels))

    def run(self, folder: Path | None, config: Mapping[str, Any], progress: Progress = quiet) -> CorruptionReport:
        """Measure in memory, or in a folder that belongs to this configuration."""
        if folder is None:
            return self._measure(None, progress)
        own = {key: value for key, value in config.items() if key not in ("baseline", "robustbench")}
        facts = {"the data": data_fingerprint(self.batch), "the model": Contents(self.victim)}
        with open_run(folder, {"command": "corrupt", **own, **facts}) as resume:
            resume.create()
            write_config(folder, config)
            report = self._measure(resume, progress)
            report.write(folder)
            if self.options.robustbench is not None:
                made = "of the published files, rlab" if self.files else "corrupted by rlab"
                write_robustbench(report, self.options.robustbench, made, self.victim, folder)
        return report

    def _measure(self, resume: Resume | None, progress: Progress) -> CorruptionReport:
        self._check()

        def tally(spec: str | None) -> Tally:
            def make() -> dict[str, Any]:
                return asdict(self._tally(spec))

            made = make() if resume is None else resume.step(spec or CLEAN, "", make)
            progress(range(len(self.batch)))
            return TypeAdapter(Tally).validate_python(made)

        clean = tally(None) if self.files is None else NO_TALLY
        kinds = {kind: tuple(map(tally, specs)) for kind, specs in self.specs.items()}
        rows = sum(each.rows for each in (clean, *chain(*kinds.values())))
        return CorruptionReport(clean, kinds, self.options.levels, data_fingerprint(self.batch), rows, self.baseline)

    def _tally(self, spec: str | None) -> Tally:
        """Query all samples under one corruption; None leaves them as they are. An answer of NaN is wrong, at no confidence."""
        sure, right, before = list[Tensor](), list[Tensor](), self.victim.rows.total()
        whole = self.batch.x if spec is None or self.files is None else _load(self.files, spec).x
        for rows in torch.arange(len(self.batch)).split(_CHUNK):
            x = whole[rows].to(self.victim.device)
            if spec is not None and self.files is None:
                x = self._corrupted(x, spec, rows)
            scores = self.victim(x, "search").cpu()
            lost = scores.isnan().any(1)
            chosen = self.victim.probabilities(scores).max(1)
            sure.append(chosen.values.masked_fill(lost, 0.0).double())
            right.append((chosen.indices == self.batch.y[rows].cpu()) & ~lost)
        return replace(tally_of(torch.cat(sure), torch.cat(right)), rows=self.victim.rows.total() - before)

    def _check(self) -> None:
        """Corrupt or read one input of every kind: what must fail should fail before the first query."""
        for first, *_ in self.specs.values():
            if self.files is None:
                self._corrupted(self.batch.x[:1], first, torch.arange(1))
            else:
                _load(self.files, first, limit=1)

    def _corrupted(self, x: Tensor, spec: str, rows: Tensor) -> Tensor:
        seeds = sample_seeds(self.options.seed, 0, len(self.batch))[rows].tolist()
        rounded = EightBit(self.batch.bounds) if self.batch.eight_bit else None
        palette = make_palette([spec], self.batch, rounded=rounded)
        return palette.bank(x, self.batch.bounds, seeds)[:, 1]


def files_of(data: Data, limit: int | None) -> DataOptions | None:
    """The files of CIFAR-10-C, if the data are such; None for data to corrupt."""
    named = named_data(data, limit)
    return named if named is not None and named.path.startswith(CIFAR10C) else None


def stored(files: DataOptions, named: bool) -> dict[str, tuple[str, ...]]:
    """By kind, the names of the data at levels 1 to 5; the papers' kinds come first, in their order, and those that they keep for
    validation only if the user has `named` kinds."""
    order = {kind: at for at, kind in enumerate(KINDS)}
    kinds = sorted(kinds_in(Path(files.path.removeprefix(CIFAR10C))), key=lambda kind: order.get(kind, len(order)))
    chosen = [kind for kind in kinds if named or kind not in VALIDATION]
    return {kind: tuple(f"{files.path}/{kind}@{level}" for level in LEVELS) for kind in chosen}


def _load(files: DataOptions, path: str, **values: int) -> Batch:
    return files.model_copy(update={"path": path, **values}).load()


def tally_of(sure: Tensor, right: Tensor) -> Tally:
    """Confidences (n,) in [0, 1] and whether the answers (n,) are right -> counts in bins."""
    at = (sure * BINS).long().clamp(0, BINS - 1)
    counts, hits, sums = (
        torch.zeros(BINS, dtype=torch.float64).index_add_(0, at, values.double()).tolist()
        for values in (torch.ones_like(sure), right, sure)
    )
    bins = zip(map(int, counts), map(int, hits), sums, strict=True)
    return Tally(len(sure), int(right.sum()), tuple(bins))
