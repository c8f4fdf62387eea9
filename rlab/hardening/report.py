"""The report of a hardening: its epochs, and the figures and flips of the model before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.errors import FolderError
from rlab.hardening.batches import imbalance
from rlab.hardening.before_after import AFTER, BEFORE, failure_blocks, pair_blocks, robustness_charts
from rlab.hardening.evaluation import Robustness
from rlab.hardening.options import HardenOptions
from rlab.hardening.trainable import Epoch, best_epoch
from rlab.present.chart import Chart, Curve
from rlab.present.page import Charts, Code, Number, Page, Section, Text
from rlab.present.report import UNSAVED, Metric, PathLike, Report
from rlab.present.table import Share, Table
from rlab.results.result import AttackResult
from rlab.stats import NOTHING, Estimate
from rlab.storage.files import write_atomically
from rlab.victims.torch_module import TorchVictim

WEIGHTS = "hardened.safetensors"
COLUMNS = {
    "clean": "clean",
    "agent_l2": "L2 to flip",
    "l2_ratio": "times unchanged",
    "agent": "attacked",
    "transfer": "flips of the original",
    "square": "Square",
    "pgd": "PGD",
    "corruptions": "corruptions",
    "held_out": "held-out",
}
PLAIN = ("agent_l2", "l2_ratio")  # the other figures are shares
RULES = (
    "Shares of samples on which the model stays right; attacked: by the policy on this model; flips of the original: inputs that "
    "the policy found on the original model; corruptions: the palette's filters over the whole input; held-out: all other "
    "filters. L2 to flip is the median distance that the policy needs on this model, ∞ if its budget was too small for half of "
    "the samples; times unchanged: its ratio to that of the original model. Brackets are 95% bootstrap intervals over seeds and "
    "samples."
)
_SHOWN, _AXIS = "share of samples that stay right", "epoch (0: original)"
_PAIRS = 4  # samples that are shown before and after
Estimates = Mapping[str, Estimate]


@dataclass(frozen=True)
class Hardened(Report):
    """The hardened model as `victim`, and the unchanged one as `original`; a stored report has the weights in a file."""

    verb: ClassVar[str] = "harden"

    options: HardenOptions
    history: tuple[Epoch, ...]  # the first is the original
    stopped: str  # why training stopped early, if it did
    flipped: Tensor  # (k,) number of flipped samples by class
    rows: int  # inputs sent to the model by attacks, training and validation
    classes: tuple[str, ...] = ()
    measured: Mapping[str, Robustness] = field(default_factory=dict)  # before and after, if test data were given
    attacks: Mapping[str, AttackResult] | None = field(default=None, metadata=UNSAVED)
    models: tuple[TorchVictim, TorchVictim] | None = field(default=None, metadata=UNSAVED)  # before and after

    def __repr__(self) -> str:
        return f"Hardened({str(self).splitlines()[0]})"

    @property
    def original(self) -> TorchVictim:
        return self._models()[0]

    @property
    def victim(self) -> TorchVictim:
        return self._models()[1]

    @property
    def model(self) -> nn.Module:
        return self.victim.model

    def _models(self) -> tuple[TorchVictim, TorchVictim]:
        if self.models is None:
            raise FolderError(f"a stored report holds no model: load the weights from {WEIGHTS} into yours")
        return self.models

    @property
    def best(self) -> Epoch:
        """The epoch whose weights are kept."""
        return best_epoch(self.history)

    @property
    def queries(self) -> int:
        """Inputs sent to the model and its copies, for training and measuring."""
        return self.rows + sum(each.rows for each in self.measured.values())

    @property
    def imbalance(self) -> str:
        """A sentence if the classes of the flipped samples are uneven, otherwise an empty string."""
        sentence = imbalance(self.flipped, self.classes)
        then = "rare classes were drawn more often" if self.options.balance else "balance=True compensates for that"
        return sentence and f"{sentence}: {then}"

    def summary(self) -> dict[str, float]:
        first, best = self.history[0], self.best
        return {
            "clean_before": first.clean,
            "clean_after": best.clean,
            "robust_before": first.robust,
            "robust_after": best.robust,
            "epoch": best.number,
            "share": best.share,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        first, best = self.history[0], self.best
        accuracies = f"clean accuracy {first.clean:.1%} -> {best.clean:.1%}, under attack {first.robust:.1%} -> {best.robust:.1%}"
        where = f"(validation samples, epoch {best.number}, {best.share:.0%} of the change in weights)"
        sent = f"{self.rows:,} inputs were sent to the model to make samples, train and validate"
        sent += "".join(f", {each.rows:,} to measure it {when}" for when, each in self.measured.items())
        sent += f": {self.queries:,} in all" if self.measured else ""
        kept = "" if best.number else "no epoch improved on the original, so its weights are kept"
        return "\n".join(line for line in (f"{accuracies} {where}", sent, self.imbalance, self.stopped, kept) if line)

    def records(self) -> list[dict[str, Any]]:
        """One row per epoch; the first is the original."""
        return [asdict(epoch) for epoch in self.history]

    def metrics(self) -> dict[str, Metric]:
        figures: dict[str, Metric] = {name.replace("_", " "): value for name, value in self.summary().items()}
        for when, each in self.measured.items():
            figures |= {f"{COLUMNS[k]}, {when}": shown(k, v) for k, v in each.figures.items() if k in COLUMNS}
        return figures

    def series(self) -> list[tuple[int, Mapping[str, float]]]:
        """The figures of every epoch."""
        rows = [{k: float(v) for k, v in row.items() if math.isfinite(v)} for row in self.records()]
        return [*enumerate(rows)]

    def settings(self) -> Mapping[str, Any]:
        return self.options.plain()

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """Figures before and after, epochs, and options."""
        s, shares = self.summary(), {"clean": "clean", "robust": "under attack"}
        numbers = [Number(f"{w} {e}", Share(s[f"{n}_{e}"])) for n, w in shares.items() for e in (BEFORE, AFTER)]
        numbers.append(Number("inputs to make samples, train and validate", self.rows))
        numbers += [Number(f"inputs to measure {when}", each.rows) for when, each in self.measured.items()]
        options = Code(yaml.safe_dump(self.options.plain(), sort_keys=False, allow_unicode=True))
        sections = [*self.sections(samples, folder), Section("Options", [options])]
        return Page(f"Hardening {folder.name}" if folder else "Hardening", sections, numbers=numbers)

    def sections(self, samples: int = 24, folder: Path | None = None) -> list[Section]:
        """What is measured before and after, and the epochs; `folder` holds the attacks of a stored report."""
        head = ["epoch", "clean", "under attack", "share of the change", "flipped", "inputs so far"]
        rows: list[list[int | Share]] = [
            [e.number, Share(e.clean), Share(e.robust), Share(e.share), e.flipped, e.rows] for e in self.history
        ]
        chart = Chart("On validation samples", self._curves(), _AXIS, _SHOWN, percent=True)
        table = Table(head, rows, "On validation samples (epoch 0: original)")
        epochs = Section("Epochs", [*map(Text, str(self).splitlines()), Charts([chart]), table])
        if not self.measured:
            return [epochs]
        attacks = self.attacks or {when: AttackResult.load((folder or Path()) / when) for when in self.measured}
        note = Text(f"Measured on test samples that the model was not trained on. {RULES}", quiet=True)
        figures = figures_table({when: each.figures for when, each in self.measured.items()})
        curves = robustness_charts({when: each.curves for when, each in self.measured.items()})
        count = min(samples, _PAIRS)
        return [
            Section("Before and after", [figures, note, curves]),
            Section("Flips before and after", pair_blocks(attacks[BEFORE], attacks[AFTER], count)),
            Section("Remaining failures", failure_blocks(attacks[AFTER], count)),
            epochs,
        ]

    def _curves(self) -> list[Curve]:
        numbers = [e.number for e in self.history]
        values = {"clean": [e.clean for e in self.history], "under attack": [e.robust for e in self.history]}
        return [Curve(name, numbers, each) for name, each in values.items()]

    def write(self, folder: Path) -> None:
        """Also write hardened.safetensors, the state dict of the model."""
        super().write(folder)
        weights = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        write_atomically(folder / WEIGHTS, to_bytes(weights))
        for when, attack in (self.attacks or {}).items():
            if not (folder / when).exists():  # a run has written it already
                attack.save(folder / when)

    def export_onnx(self, path: PathLike, shape: tuple[int, ...]) -> Path:
        """Export the hardened model with its normalisation, for inputs (b, *shape) in the data's range."""
        from rlab.hardening.onnx import export_onnx

        return export_onnx(self.victim, Path(path), shape)


def shown(name: str, estimate: Estimate) -> Estimate | Share:
    """A figure for display: a distance or a ratio as it is, the others in percent."""
    return estimate if name in PLAIN else Share(estimate)


def figures_table(estimates: Mapping[str, Estimates], of: str = "") -> Table:
    """One row per model, one column per figure that any of them has."""
    names = [name for name in COLUMNS if any(name in each for each in estimates.values())]
    rows = [[model, *(shown(name, each.get(name, NOTHING)) for name in names)] for model, each in estimates.items()]
    return Table([of, *(COLUMNS[name] for name in names)], rows)
