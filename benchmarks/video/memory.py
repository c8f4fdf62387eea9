"""Peak memory and seconds of a long clip, from the file to the end of an attack; each measurement in its own process.

python -m benchmarks.video.memory                         # 300 frames, the policies random and square, the network tsm
python -m benchmarks.video.memory --frames 16 64 300 --net c3d --policies random
python -m benchmarks.video.memory --size 224 224 --policies auto --budget 10   # within 4 GB

In Python: `measure(frames=300, policy="square")` returns the same figures. It writes a clip three times as long as
its sample, so decoding keeps a third of what it reads; the network is untrained, and its prediction for the clean
clip is the label. Memory is counted from before the clip is opened.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import CLIP_SIZE
from benchmarks.harness import command, finish
from benchmarks.processes import measured_alone, peak, start_peak
from benchmarks.victims.clips import CLIP_MEAN, CLIP_NETS, CLIP_STD
from rlab.data.load import load
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim

LONGER = 3  # times as many frames in the file as in the sample


def measure(
    frames: int = 300, policy: str = "square", net: str = "tsm", budget: int = 200, device: str = "cpu",
    size: tuple[int, int] = CLIP_SIZE,
) -> dict[str, Any]:  # fmt: skip
    """MiB, seconds and queries of one clip, measured in a new process."""
    words = ["--one", "--frames", str(frames), "--policies", policy, "--net", net, "--budget", str(budget)]
    return measured_alone("benchmarks.video.memory", *words, "--device", device, "--size", *map(str, size))


def one(frames: int, policy: str, net: str, budget: int, device: str, size: tuple[int, int]) -> dict[str, Any]:
    """The same in this process."""
    torch.manual_seed(0)
    made = CLIP_NETS[net](6).eval()
    victim = TorchVictim(made, mean=CLIP_MEAN, std=CLIP_STD, outputs="logits", device=device)
    with tempfile.TemporaryDirectory() as folder:
        write_clip(Path(folder) / "moving" / "a.mp4", LONGER * frames)
        before, began = start_peak(), time.perf_counter()
        batch = load(folder, frames=frames, size=size)
        decoded, loaded = peak(), time.perf_counter()
    batch = replace(batch, y=victim(batch.x).argmax(1).cpu(), classes=tuple("abcdef"))
    answered = time.perf_counter()
    result = run_attack(make_attack(batch, policy=policy, budget=budget), victim, batch)
    seconds = {"decode": loaded - began, "answer": answered - loaded, "clip": time.perf_counter() - answered}
    gpu = torch.cuda.max_memory_allocated() / 2**20 if device.startswith("cuda") else 0.0
    memory = {"clip": batch.x.nbytes / 2**20, "decode_peak": decoded - before, "peak": peak() - before, "gpu_peak": gpu}
    figures = {f"{name}_mib": used for name, used in memory.items()}
    figures |= {f"{name}_seconds": taken for name, taken in seconds.items()}
    return {"frames": frames, "policy": policy, "net": net, **figures, "queries": int(result.queries.sum())}


def write_clip(path: Path, frames: int) -> None:
    """Write a bright square that crosses noise, 160 x 120 at 25 frames per second."""
    import av

    path.parent.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(60, 120, (120, 160, 3), np.uint8)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for frame in range(frames):
            picture = noise.copy()
            picture[40:80, frame % 120 : frame % 120 + 40] = 230
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--frames", type=int, nargs="+", default=[300])
    parser.add_argument("--policies", nargs="+", default=["random", "square"])
    parser.add_argument("--net", choices=sorted(CLIP_NETS), default="tsm")
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--size", type=int, nargs=2, default=CLIP_SIZE, help="height and width of the sampled frames")
    parser.add_argument("--one", action="store_true", help="measure in this process")
    o = parser.parse_args()
    run, row = one if o.one else measure, dict[str, Any]()
    for frames in o.frames:
        for policy in o.policies:
            row = run(frames, policy, o.net, o.budget, o.device, tuple(o.size))
            print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    finish(row)


if __name__ == "__main__":
    main()
