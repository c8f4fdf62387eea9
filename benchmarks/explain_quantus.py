"""An outside judge: Quantus's own measures of the maps on beats, with its defaults where it has them.

python -m benchmarks.explain_quantus            # needs pip install quantus; raw scores, shown on the page of benchmarks.explain

Pixel flipping: area under the class's probability as 24 points at a time, the highest first, are set to the input's mean (lower is
better). Relevance rank: of as many of the highest points as the truth has, the share inside it. Complexity: entropy of the map.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks import common
from benchmarks.explain import correct, test_beats
from benchmarks.explain_page import OURS
from benchmarks.explain_quick import NETS
from benchmarks.train_ecg import ecg_victim
from rlab.data.batch import Batch
from rlab.explanation.base import Method
from rlab.explanation.belief import Belief
from rlab.explanation.black_box import Middle, Occlusion, Rise
from rlab.explanation.captum_methods import KernelShap, Lime
from rlab.explanation.sensitivity import Hsic
from rlab.explanation.white_box import GradCamPlusPlus
from rlab.victims.torch_module import TorchVictim

METHODS: dict[str, Method] = {
    OURS: Belief(),
    "rise, equal queries": Rise(masks=499),
    "hsic": Hsic(masks=499, along=32),
    "kernel shap": KernelShap(499, 32),
    "lime": Lime(499, 32),
    "occlusion": Occlusion(along=32),
    "gradcam++": GradCamPlusPlus(),
    "middle": Middle(),
}


class Opened(nn.Module):
    """The victim as a module that takes raw inputs, as Quantus wants it."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.victim, self.inner = victim, victim.model

    def forward(self, x: Tensor) -> Tensor:
        return self.victim.outputs_in_graph(x, "score").detach()


def judge(quantus: Any, victim: TorchVictim, batch: Batch, maps: Tensor) -> dict[str, list[float]]:
    """By measure, one figure a sample."""
    quiet = {"disable_warnings": True, "display_progressbar": False}
    metrics = {
        "pixel flipping": quantus.PixelFlipping(features_in_step=24, perturb_baseline="mean", **quiet),
        "relevance rank": quantus.RelevanceRankAccuracy(**quiet),
        "complexity": quantus.Complexity(**quiet),
    }
    assert batch.masks is not None
    given: dict[str, Any] = {
        "model": Opened(victim).eval(),
        "x_batch": batch.x.numpy(),
        "y_batch": batch.y.numpy(),
        "a_batch": maps[:, None].clamp(min=0).numpy() + 1e-9,
        "s_batch": batch.masks[:, None].numpy().astype(float),
        "device": "cpu",
    }
    found = {name: np.asarray(metric(**given), dtype=float) for name, metric in metrics.items()}
    found["pixel flipping"] = found["pixel flipping"].mean(1)  # of the curve
    return {name: [round(float(value), 5) for value in values.ravel()] for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=24)
    given = parser.parse_args()
    try:
        import quantus
    except ImportError:
        raise SystemExit("Quantus is not installed: pip install quantus") from None
    raw: dict[str, Any] = {"circumstances": common.circumstances(0), "samples": given.samples, "nets": {}}
    for name in NETS:
        victim = ecg_victim(name, "cpu")
        batch = correct(victim, test_beats(0))[: given.samples]
        raw["nets"][name] = {}
        for method, draw in METHODS.items():
            raw["nets"][name][method] = judge(quantus, victim, batch, draw(victim, batch, batch.y).maps)
            means = {measure: round(float(np.mean(v)), 3) for measure, v in raw["nets"][name][method].items()}
            print(name, method, means, flush=True)
    (common.RAW / "explain-quantus.json").write_text(json.dumps(raw, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
