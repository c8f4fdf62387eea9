"""Hide a cat from a real detector, YOLOX-nano: how little distortion makes it vanish within 100 queries?

    python examples/detector.py yolox_nano.onnx          # any ONNX file of YOLOX; the picture comes with scikit-image

The network's outputs are relative to the cells of its grid, so `yolox` decodes them. Files exported by ultralytics need no code:
`rlab attack yolo.onnx FOLDER -M outputs=boxes -M box_format=xywh -M box_layout=columns`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import rlab
from rlab.predictions.targets import own_targets

SIDE = 416


def yolox(path: str) -> rlab.CallableVictim:
    """Images (n, 3, 416, 416) in [0, 1], red first -> boxes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    grids = [
        np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1).reshape(-1, 2)
        for n in (SIDE // 8, SIDE // 16, SIDE // 32)
    ]
    cells, strides = np.concatenate(grids), np.repeat([8, 16, 32], [len(grid) for grid in grids])[:, None]

    def detect(x: np.ndarray) -> np.ndarray:
        images = np.ascontiguousarray(255 * x[:, ::-1])
        out = np.concatenate([session.run(None, {"images": image[None]})[0] for image in images])
        return np.concatenate([(out[..., :2] + cells) * strides, np.exp(out[..., 2:4]) * strides, out[..., 4:]], -1)

    return rlab.CallableVictim(detect, outputs="boxes", box_format="xywh", box_columns="objectness")


def seen_by(victim: rlab.Victim, x: torch.Tensor) -> rlab.Batch:
    """Images with the objects that the model finds in them as the truth; use `rlab.load` for COCO, VOC or YOLO annotations."""
    return rlab.Batch(x, own_targets("boxes", victim(x), x.shape[2:], score=0.5), target="boxes", eight_bit=True)


def main(path: str) -> None:
    if not Path(path).is_file():
        print(f"skipped: there is no file {path}")
        return
    from skimage.data import chelsea
    from skimage.transform import resize

    victim, cat = yolox(path), chelsea()
    image = np.full((SIDE, SIDE, 3), 114 / 255)  # grey below the picture, as in the network's training
    image[: SIDE * cat.shape[0] // cat.shape[1]] = resize(cat, (SIDE * cat.shape[0] // cat.shape[1], SIDE))
    x = torch.tensor(np.rint(255 * image) / 255).permute(2, 0, 1)[None].float()
    result = rlab.attack(victim, seen_by(victim, x), goal="vanish", patch=32, budget=100)
    print(result[0])
    result.report("detector.html")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "yolox_nano.onnx")
