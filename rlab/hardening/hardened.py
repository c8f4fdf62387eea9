"""What hardening gives back: the new model, the old one, and how it went."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.errors import InputError, MissingExtra
from rlab.hardening.batches import imbalance
from rlab.hardening.options import HardenOptions
from rlab.hardening.state import Epoch, best_epoch
from rlab.runs.files import write_atomically, write_json
from rlab.victims.torch_module import TorchVictim, arrange

WEIGHTS, LOG = "hardened.safetensors", "log.json"


@dataclass(frozen=True)
class Hardened:
    """`victim` is the hardened model behind the same wrapper; `original` is untouched."""

    victim: TorchVictim
    original: TorchVictim
    options: HardenOptions
    history: tuple[Epoch, ...]  # the first is the original
    stopped: str  # why it ended before its time; empty where it did not
    flipped: Tensor  # (k,) adversarial samples in all, by class
    rows: int  # that reached the model: attacks, training, validation
    classes: tuple[str, ...] = ()

    @property
    def model(self) -> nn.Module:
        return self.victim.model

    @property
    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return best_epoch(self.history)

    @property
    def imbalance(self) -> str:
        """How uneven the classes among flipped samples are, as a sentence; empty where they are not."""
        sentence = imbalance(self.flipped, self.classes)
        evened = ": rare ones were drawn more often" if self.options.balance else ": balance=True evens them out"
        return sentence and sentence + evened

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
        s = self.summary()
        lines = [
            f"clean accuracy {s['clean_before']:.1%} -> {s['clean_after']:.1%}, under attack "
            f"{s['robust_before']:.1%} -> {s['robust_after']:.1%} (validation samples, epoch {s['epoch']:g}, "
            f"{s['share']:.0%} of the way)",
            f"{int(s['rows']):,} rows reached the model",
            self.imbalance,
            self.stopped,
            "" if self.best.number else "no epoch was better than the original, whose weights are kept",
        ]
        return "\n".join(line for line in lines if line)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """hardened.safetensors, a state dict of the module, and log.json; -> the folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        write_atomically(path / WEIGHTS, to_bytes(weights))
        log = {
            "config": self.options.plain(),
            "summary": self.summary(),
            "stopped": self.stopped,
            "imbalance": self.imbalance,
            "flipped": self.flipped.int().tolist(),
            "history": [asdict(epoch) for epoch in self.history],
        }
        write_json(path / LOG, log)
        return path

    def export_onnx(self, path: str | os.PathLike[str], shape: tuple[int, ...]) -> Path:
        """The hardened model for inputs (b, *shape) in the data's own range, normalisation inside; extra 'onnx'."""
        try:
            import onnx  # noqa: F401  (torch's exporter needs it and says so less clearly)
        except ImportError as error:
            raise MissingExtra("onnx", "harden") from error
        whole = _WithNormalisation(self.victim).cpu().eval()
        example = torch.full((2, *shape), max(self.victim.bounds[0], 0.0))
        axes = {"x": {0: "b"}, "scores": {0: "b"}}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the exporter's own
                torch.onnx.export(
                    whole, (example,), str(path), input_names=["x"], output_names=["scores"], dynamic_axes=axes,
                    dynamo=False,
                )  # fmt: skip
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"this model cannot be written as ONNX: {reason}; its state dict can be saved") from error
        return Path(path)


class _WithNormalisation(nn.Module):
    """The model as the data see it."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.model = copy.deepcopy(victim.model)
        self.normalise, self.layout, self.dtype = victim.normalise, victim.layout, victim.dtype

    def forward(self, x: Tensor) -> Tensor:
        answer = self.model(arrange(x, self.normalise, self.layout).to(self.dtype))
        scores: Tensor = answer if isinstance(answer, Tensor) else answer.logits
        return scores
