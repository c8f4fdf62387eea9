"""Viewers of a result's samples, for signals, images and clips."""

from __future__ import annotations

from collections.abc import Sequence

from rlab.present.page import Viewers
from rlab.present.table import number
from rlab.present.viewer import Viewer, make_stage
from rlab.progress import PATIENCE, bar
from rlab.results.data import ResultData
from rlab.results.sample import Sample
from rlab.results.tones import STATUS_TONES


def viewer_blocks(result: ResultData, rows: Sequence[int]) -> list[Viewers]:
    """Viewers of the samples `rows`, with the ids sample-INDEX."""
    viewers = []
    with bar(len(rows), "drawing", patience=PATIENCE) as progress:
        for i in rows:
            viewers.append(make_viewer(Sample.of(result, i), f"sample-{i}", len(rows)))
            progress([i])
    return shelf(viewers)


def shelf(viewers: Sequence[Viewer], columns: int = 0) -> list[Viewers]:
    """Viewers as blocks; signals get one column."""
    return [Viewers(viewers, 1 if viewers[0].stage.signal else columns)] if viewers else []


def make_viewer(sample: Sample, name: str, among: int = 1, title: str = "", still: bool = False) -> Viewer:
    """`name` is the id, `among` the number of viewers on the page; clips show one frame if `still`."""
    return Viewer(
        id=name,
        title=title or f"{sample.id}: L2 {number(sample.final['l2'])}{sample.setting.l2_unit}",
        status=sample.status.label.split(" because")[0],
        tone=STATUS_TONES[sample.status],
        sentence=sample.sentence + sample.layers.note,
        answers=sample.answers(),
        stage=make_stage(sample.layers, among, still),
    )
