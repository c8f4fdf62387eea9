"""Another judge: Quantus scores the maps on beats, with its default settings where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.attacks import correct
from benchmarks.data import Absent
from benchmarks.explain.cases import OURS, some_beats
from benchmarks.harness import circumstances
from benchmarks.raw import Raw
from benchmarks.victims import BEAT_NETS, beat_victim
from rlab.data.batch import Batch
from rlab.explanation.run import parse_method
from rlab.victims.torch_module import TorchVictim

SAMPLES = 8
METHODS = {
    OURS: parse_method("belief"),
    "rise, equal queries": parse_method("rise(masks=499)"),
    "kernel shap": parse_method("kernel_shap(samples=499, along=32)"),
    "lime": parse_method("lime(samples=499, along=32)"),
    "occlusion": parse_method("occlusion(along=32)"),
    "gradcam++": parse_method("gradcam++"),
    "middle": parse_method("middle"),
}


class Opened(nn.Module):
    """The victim as a module that takes raw inputs, as Quantus wants it."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.victim, self.inner = victim, victim.model

    def forward(self, x: Tensor) -> Tensor:
        return self.victim.outputs_in_graph(x, "score").detach()


def judge(quantus: Any, victim: TorchVictim, batch: Batch, maps: Tensor) -> dict[str, list[float]]:
    """Each measure's figure for every sample."""
    quiet = {"disable_warnings": True, "display_progressbar": False}
    metrics = {
        "pixel flipping": quantus.PixelFlipping(features_in_step=24, perturb_baseline="mean", **quiet),
        "relevance rank": quantus.RelevanceRankAccuracy(**quiet),
        "complexity": quantus.Complexity(**quiet),
    }
    assert batch.masks is not None
    given: dict[str, Any] = {
        "model": Opened(victim).eval(), "x_batch": batch.x.numpy(), "y_batch": batch.y.numpy(), "device": "cpu",
        "a_batch": maps[:, None].clamp(min=0).numpy() + 1e-9, "s_batch": batch.masks[:, None].numpy().astype(float),
    }  # fmt: skip
    found = {name: np.asarray(metric(**given), dtype=float) for name, metric in metrics.items()}
    found["pixel flipping"] = found["pixel flipping"].mean(1)  # of the curve
    return {name: [round(float(value), 5) for value in values.ravel()] for name, values in found.items()}


def make(device: str) -> Raw:
    try:
        import quantus  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise Absent("Quantus is not installed: pip install quantus") from None
    nets: dict[str, Any] = {}
    for name in BEAT_NETS:
        victim = beat_victim(name, "cpu")
        batch = correct(victim, some_beats())[:SAMPLES]
        maps = {method: draw(victim, batch, batch.y).maps for method, draw in METHODS.items()}
        nets[name] = {method: judge(quantus, victim, batch, each) for method, each in maps.items()}
    about = circumstances("python -m benchmarks.explain --only quantus")
    return Raw(nets, {"samples": SAMPLES, "circumstances": about})
