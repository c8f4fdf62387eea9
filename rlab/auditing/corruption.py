"""The stage `corrupt` of an audit: accuracy under the common corruptions, if a requirement needs it."""

from __future__ import annotations

import math

import numpy as np

from rlab.auditing.load import LoadedAudit
from rlab.auditing.results import Rows, StageRecord, StageResults
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.stats import share_estimate


def run_corrupt(audit: LoadedAudit) -> StageRecord:
    job = audit.corruption_job()
    config = {"model": audit.options.model.plain(), "data": audit.options.data.plain(), **job.options.plain()}
    report = job.run(audit.folder / "corrupt", config, audit.progress("corrupt", job.inputs))
    return StageRecord(Rows(model=report.rows))


def judge_corruption(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    """The mean over kinds and levels, or over those that the requirement names; its interval is that of so many samples."""
    report = results.corrupt
    assert report is not None
    values = [
        tally.accuracy.value
        for kind, tallies in report.kinds.items()
        for level, tally in zip(report.levels, tallies, strict=True)
        if requirement.distortion in (None, kind) and requirement.level in (None, str(level))
    ]
    samples, mean = report.clean.samples, float(np.mean(values)) if values else math.nan
    return Verdict.of(requirement, share_estimate(mean * samples, samples), samples)
