"""Viewers of a result's samples, for signals, images and clips."""

from __future__ import annotations

from collections.abc import Sequence

from rlab.data.kinds import Kind, kind_of
from rlab.present.page import Block, Viewers
from rlab.present.table import number
from rlab.present.viewer import Viewer
from rlab.progress import PATIENCE, bar
from rlab.results.data import ResultData
from rlab.results.plots.pixels import channel_note
from rlab.results.plots.sample import Sample
from rlab.results.tones import STATUS_TONES
from rlab.results.viewers.pixels import picture_stage
from rlab.results.viewers.signal import signal_stage


def viewer_blocks(result: ResultData, rows: Sequence[int]) -> list[Block]:
    """Viewers of the samples `rows`, with the ids sample-INDEX."""
    viewers = []
    with bar(len(rows), "drawing", patience=PATIENCE) as progress:
        for i in rows:
            viewers.append(make_viewer(Sample.of(result, i), f"sample-{i}", len(rows)))
            progress([i])
    return shelf(viewers, kind_of(result.setting.size))


def shelf(viewers: Sequence[Viewer], kind: Kind, columns: int = 0) -> list[Block]:
    """Viewers as blocks; signals get one column."""
    return [Viewers(viewers, 1 if kind == "signal" else columns)]


def make_viewer(sample: Sample, name: str, among: int = 1, title: str = "", still: bool = False) -> Viewer:
    """`name` is the id, `among` the number of viewers on the page; clips show one frame if `still`."""
    signal = kind_of(sample.setting.size) == "signal"
    return Viewer(
        id=name,
        title=title or f"{sample.id}: L2 {number(sample.final['l2'])}{sample.setting.l2_unit}",
        status=sample.status.label.split(" because")[0],
        tone=STATUS_TONES[sample.status],
        sentence=sample.sentence + ("" if signal else channel_note(sample.x0)),
        answers=sample.figures(),
        stage=signal_stage(sample, among) if signal else picture_stage(sample, among, still),
    )
