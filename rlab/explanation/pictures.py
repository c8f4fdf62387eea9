"""Maps over their inputs: colour over an image or the frames of a clip, and a band behind each lead of a signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib
import torch
from matplotlib.figure import Figure

from rlab.core.channels import is_twelve_lead
from rlab.data.batch import Batch
from rlab.explanation.explained import Explained
from rlab.explanation.maps import to_unit
from rlab.present.figures import Panel, View, draw_panels, legend
from rlab.present.layers import FULL, Layers, mask_marks
from rlab.present.sheet import MM, clinical_sheet
from rlab.present.style import STYLE, new_figure
from rlab.present.viewer import Viewer, make_stage, sheet_stage

FRAMES = 4  # of a clip side by side
MASK, TRUTH = ("#00c2ad", "mask: what the method selects"), ("#3b82f6", "ground truth")
NOTES = 3  # sentences below a sheet of twelve leads
A4 = (297.0, 210.0)  # mm


@dataclass(frozen=True)
class Overlay:
    """An input under a map, its mask and the ground truth."""

    layers: Layers
    title: str  # the true, the predicted and the explained class, and the method
    notes: tuple[str, ...] = ()  # sentences below a sheet of twelve leads

    @classmethod
    def of(cls, explanation: Explained, batch: Batch, row: int) -> Overlay:
        heat, signal = to_unit(explanation.maps[row : row + 1])[0], batch.kind == "signal"
        if explanation.deviation is not None:  # how certain the sign of the map is
            ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
            heat = heat * torch.erf(ratio / 2**0.5)
        if signal:
            heat = heat.expand(batch.x.shape[1], -1)
        if signal and explanation.by_lead is not None:
            heat = explanation.by_lead[row].clamp(min=0) / explanation.by_lead[row].max().clamp(min=1e-12)
        if explanation.drops is not None:  # on one scale for all records
            heat = (explanation.drops[row] / FULL).clamp(-1, 1)
        leads = batch.x.shape[1]
        marks = mask_marks(explanation.mask[row].numpy(), leads, *MASK)
        marks += [] if batch.masks is None else mask_marks(batch.masks[row].numpy(), leads, *TRUTH, bar=0.05)
        layers = Layers(
            batch.x[row].numpy(),
            batch.bounds,
            heat=heat.numpy(),
            marks=marks,
            signed=explanation.drops is not None,
            rate=batch.rate,
            unit=batch.unit,
            leads=batch.leads,
            r_peaks=() if batch.r_peaks is None else batch.r_peaks[row],
        )
        title = f"{_classes(explanation, batch, row)}\nexplained {explanation.names[row]}, by {explanation.method}"
        return cls(layers, title.strip(), tuple(explanation.statements(row)[:NOTES]))

    @property
    def clinical(self) -> bool:
        """Whether to draw twelve leads as clinicians read them."""
        return self.layers.signal and self.layers.paper and is_twelve_lead(self.layers.leads)

    def viewer(self, name: str, title: str, note: str, among: int, still: bool, clinical: bool = False) -> Viewer:
        """The input under a map that fades; `among` is the number of viewers, and a slider moves through clips unless `still`."""
        stage = sheet_stage(clinical_sheet(self.layers)) if clinical else make_stage(self.layers, among, still)
        return Viewer(name, title, "", "", note, (), stage)

    def views(self) -> list[Panel]:
        """Panels of the input under its map; of a clip, the frames with the largest shares of the map."""
        title = self.title.replace("\n", ", ")
        if not self.layers.clip:
            return [View(title, self.layers, "map")]
        best = sorted(self.layers.weight.argsort(kind="stable")[: -FRAMES - 1 : -1].tolist())
        return [View(f"{self.layers.name(frame)}, {title}", self.layers, "map", frame) for frame in best]

    def figure(self) -> Figure:
        """The input under its map; twelve leads on a page to print, at 25 mm/s and 10 mm/mV."""
        if not self.clinical:
            return draw_maps([[self]])
        sheet = clinical_sheet(self.layers)
        wide, high = (side / MM for side in sheet.size)
        left, bottom = (A4[0] - wide) / 2 / A4[0], (A4[1] - 22 - high) / A4[1]
        with matplotlib.rc_context(STYLE):
            figure = new_figure(A4[0] / 25.4, A4[1] / 25.4)
            figure.set_layout_engine("none")
            sheet.draw(figure.add_axes((left, bottom, wide / A4[0], high / A4[1])))
            figure.text(left, 1 - 5 / A4[1], self.title, va="top")
            figure.text(left, bottom - 4 / A4[1], "\n".join([*self.notes, sheet.note]), fontsize=8, va="top")
            figure.legend(handles=legend([replace(self.layers, marks=())]), loc="lower left", ncols=2)
        return figure


def _classes(explanation: Explained, batch: Batch, row: int) -> str:
    """The true and the predicted class, with probabilities if they are known."""
    classes = {"true": int(batch.y[row])} if batch.y.dim() == 1 else {}
    p = None if explanation.probabilities is None else explanation.probabilities[row]
    if p is not None:
        classes["predicted"] = int(p.argmax())
    known = {label: "" if p is None else f" (P {float(p[label]):.2f})" for label in classes.values()}
    return ", ".join(f"{word} {batch.label_name(label)}{known[label]}" for word, label in classes.items())


def draw_maps(overlays: Sequence[Sequence[Overlay]]) -> Figure:
    """Rows of inputs under their maps, with their classes and a legend."""
    return draw_panels([], [[view for over in line for view in over.views()] for line in overlays])


def overlays_of(explained: Mapping[str, Explained], batch: Batch, rows: Sequence[int]) -> list[list[Overlay]]:
    """Every method's map over each of these samples; images by one method share a row."""
    lines = [[Overlay.of(each, batch, row) for each in explained.values()] for row in rows]
    return [[line[0] for line in lines]] if len(explained) == 1 and batch.kind == "image" else lines
