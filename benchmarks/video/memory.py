"""Peak memory and seconds of a long clip, from the file to the end of an attack; each measurement in its own process.

python -m benchmarks.video.memory                         # 300 frames, the policies random and square, the network tsm
python -m benchmarks.video.memory --frames 16 64 300 --net c3d --policies random
python -m benchmarks.video.memory --size 224 224 --policies auto --budget 10   # within 4 GB

In Python: `measure(frames=300, policy="square")` returns the same figures. It writes a clip three times as long as
its sample, so decoding keeps a third of what it reads; the network is untrained, and its prediction for the clean
clip is the label. Memory is counted from before the clip is opened.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import CLIP_SIZE
from benchmarks.victims.clips import CLIP_MEAN, CLIP_NETS, CLIP_STD
from rlab.data import DataOptions
from rlab.data.clips import ClipSource
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim

LONGER = 3  # times as many frames in the file as in the sample


def measure(
    frames: int = 300,
    policy: str = "square",
    net: str = "tsm",
    budget: int = 200,
    device: str = "cpu",
    size: tuple[int, int] = CLIP_SIZE,
) -> dict[str, Any]:
    """MiB, seconds and queries of one clip, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.video.memory", "--one", "--frames", str(frames), "--policies", policy]
    command += ["--net", net, "--budget", str(budget), "--device", device, "--size", *map(str, size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if done.returncode:
        raise RuntimeError(f"measuring {policy} on {frames} frames failed: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(frames: int, policy: str, net: str, budget: int, device: str, size: tuple[int, int]) -> dict[str, Any]:
    """The same in this process."""
    torch.manual_seed(0)
    made = CLIP_NETS[net](6).eval()
    victim = TorchVictim(made, mean=CLIP_MEAN, std=CLIP_STD, outputs="logits", device=device)
    with tempfile.TemporaryDirectory() as folder:
        write_clip(Path(folder) / "moving" / "a.mp4", LONGER * frames)
        before, began = start_peak(), time.perf_counter()
        batch = ClipSource.of(DataOptions(path=folder)).load(frames, size)
        decoded, loaded = peak(), time.perf_counter()
    batch.y[:] = victim(batch.x).argmax(1)
    answered = time.perf_counter()
    result = run_attack(make_attack(batch, policy=policy, budget=budget), victim, batch)
    ended = time.perf_counter()
    gpu = torch.cuda.max_memory_allocated() / 2**20 if device.startswith("cuda") else 0.0
    return {
        "frames": frames,
        "policy": policy,
        "net": net,
        "clip_mib": batch.x.nbytes / 2**20,
        "decode_peak_mib": decoded - before,
        "peak_mib": peak() - before,
        "gpu_peak_mib": gpu,
        "decode_seconds": loaded - began,
        "answer_seconds": answered - loaded,
        "clip_seconds": ended - answered,
        "queries": int(result.queries.sum()),
    }


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


def start_peak() -> float:
    """Reset the peak and return the MiB in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """Peak MiB of this process since `start_peak` (Linux only; ru_maxrss would include the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, nargs="+", default=[300])
    parser.add_argument("--policies", nargs="+", default=["random", "square"])
    parser.add_argument("--net", choices=sorted(CLIP_NETS), default="tsm")
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, nargs=2, default=CLIP_SIZE, help="height and width of the sampled frames")
    parser.add_argument("--one", action="store_true", help="measure in this process")
    chosen = parser.parse_args()
    run = one if chosen.one else measure
    rows = [
        run(n, p, chosen.net, chosen.budget, chosen.device, tuple(chosen.size))
        for n in chosen.frames
        for p in chosen.policies
    ]
    for row in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    last = rows[-1]
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in last.items()}))


if __name__ == "__main__":
    main()
