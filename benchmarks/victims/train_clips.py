"""Train the compact video networks on six UCF-101 actions, groups 8-25, and test them on groups 4-7.

python -m benchmarks.victims.train_clips --pack data/clips.npz     # once, with PyAV: clips as JPEG sheets, about 25 MB
python -m benchmarks.victims.train_clips --packed data/clips.npz --device cuda --minutes 8
python -m benchmarks.victims.train_clips --only tsn --minutes 3 --out runs/weights    # from the videos, on a CPU
python -m benchmarks.victims.train_clips --pack data/clips.npz --every 3 --quality 60     # a third of the training clips
python -m benchmarks.victims.train_clips --unpack data/clips.npz   # clips_{train,test}.npz beside it, for agents/two_agents.yaml

The networks share the minutes. Weights are written in eight bits to benchmarks/weights; the last line is a JSON object with the
accuracies.
"""

from __future__ import annotations

import io
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.data import CLIP_FRAMES, CLIP_SIZE, TEST_GROUPS, TRAIN_GROUPS, WEIGHTS, real
from benchmarks.harness import command, finish
from benchmarks.victims.clips import CLIP_MEAN, CLIP_NETS, CLIP_STD
from benchmarks.victims.compact import save
from benchmarks.victims.training import accuracy, normalised, step_through
from rlab.data.batch import Batch
from rlab.data.eight_bit import to_bytes
from rlab.data.load import load
from rlab.errors import MissingExtra

STORED, SIDES = 24, (84, 112)  # frames of a clip and their size in a pack, with room to shift and crop
CHUNK = 32  # clips decoded at once
PARTS = (("train", TRAIN_GROUPS), ("test", TEST_GROUPS))
QUALITY = 80  # of the JPEG sheets
SALIENCY = "clips_saliency.safetensors"
BATCH, RATE = 48, 2e-3
LINES = 8  # progress lines for each network


@dataclass(frozen=True)
class Clips:
    """uint8 clips (n, stored frames, h, w, 3), labels (n,) and the classes' names."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]

    def to(self, device: str) -> Clips:
        return Clips(self.x.to(device), self.y.to(device), self.classes)


def decode(folder: Path, groups: str) -> Clips:
    """Read the clips of these groups with PyAV, without those that cannot be decoded."""
    source = load(folder, groups=groups, frames=STORED, size=SIDES, stream=True)
    chunks = (source.chunk(range(at, min(at + CHUNK, len(source))))[0] for at in range(0, len(source), CHUNK))
    read = [(to_bytes(batch.x, batch.bounds).movedim(1, -1), batch.y) for batch in chunks if batch is not None]
    x, y = (torch.cat(parts) for parts in zip(*read, strict=True))
    return Clips(x, y, source.classes)


def pack(folder: Path, path: Path, every: int = 1, quality: int = QUALITY) -> None:
    """Write both parts to one file; a clip is one JPEG of its frames on top of each other."""
    held: dict[str, np.ndarray] = {}
    for name, groups in PARTS:
        clips = decode(folder, groups)
        if name == "train":
            clips = Clips(clips.x[::every], clips.y[::every], clips.classes)
        sheets = [_sheet(clip.numpy(), quality) for clip in clips.x]
        held |= {f"{name}_y": clips.y.numpy(), f"{name}_sheets": np.frombuffer(b"".join(sheets), np.uint8)}
        held |= {f"{name}_ends": np.cumsum([len(sheet) for sheet in sheets]), "classes": np.array(clips.classes)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **held)  # type: ignore[arg-type]
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB, {len(held['train_y'])} + {len(held['test_y'])} clips")


def _sheet(frames: np.ndarray, quality: int) -> bytes:
    """(t, h, w, 3) -> one JPEG, as the headers of single frames would be a quarter of the file."""
    out = io.BytesIO()
    Image.fromarray(frames.reshape(-1, *frames.shape[2:])).save(out, "jpeg", quality=quality)
    return out.getvalue()


def unpack(path: Path, name: str) -> Clips:
    with np.load(path, allow_pickle=False) as held:
        sheets, ends, y = held[f"{name}_sheets"], held[f"{name}_ends"].tolist(), torch.from_numpy(held[f"{name}_y"])
        classes = tuple(str(one) for one in held["classes"])
    x = np.stack([_frames(sheets[a:b].tobytes()) for a, b in zip([0, *ends], ends, strict=False)])
    return Clips(torch.from_numpy(x), y, classes)


def _frames(sheet: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(sheet))).reshape(STORED, *SIDES, 3)


def packed_batch(path: Path, part: str) -> Batch:
    """The clips of a pack as a loader would return them; part is 'train' or 'test'."""
    clips = unpack(path, part)
    mean, std = (torch.tensor(values).view(3, 1, 1, 1) for values in (CLIP_MEAN, CLIP_STD))
    x = torch.cat([(plain(rows) * std + mean).clamp(0, 1) for rows in clips.x.split(32)])
    ids = tuple(f"{part}-{i:04d}" for i in range(len(x)))
    return Batch((x * 255).round() / 255, clips.y, ids, classes=clips.classes)


def unpack_arrays(path: Path) -> dict[str, float]:
    """Write a pack as arrays that `rlab train` reads, and the training clips' objectness and motion if OpenCV is installed."""
    from rlab.papers.saliency import saliency_maps

    counts: dict[str, float] = {}
    for part, _ in PARTS:
        batch = packed_batch(path, part)
        counts[part] = write_clips(batch, path.with_name(f"clips_{part}.npz"))
        try:
            if part == "train":
                counts["saliency"] = len(saliency_maps(batch.x, batch.bounds, path.with_name(SALIENCY)))
        except MissingExtra as why:
            print(f"without {SALIENCY}: {why}")
    return counts


def write_clips(batch: Batch, path: Path) -> int:
    """Write clips as arrays of bytes that `rlab.load` reads; return how many."""
    x = (batch.x * 255).round().to(torch.uint8).numpy()
    names = {"ids": np.array(batch.ids), "classes": np.array(batch.classes)}
    np.savez_compressed(path, x=x, y=batch.y.numpy(), **names)  # type: ignore[arg-type]
    return len(batch)


def augmented(x: Tensor, draw: torch.Generator) -> Tensor:
    """uint8 (b, t, h, w, 3) -> normalised (b, 3, 16, 72, 96): random frames, window, flip and light for each clip."""
    n, device = len(x), x.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=draw).to(device)

    at = (torch.arange(CLIP_FRAMES, device=device) + uniform(0, 1, CLIP_FRAMES)) * STORED / CLIP_FRAMES
    x = x[torch.arange(n, device=device)[:, None], at.long()].float() / 255
    scale, flip = uniform(0.65, 1.0, 1), torch.where(uniform(-1, 1, 1) < 0, -1.0, 1.0)
    stretch = uniform(-0.12, 0.12, 1).exp()
    wide, high = (scale * stretch).clamp(max=1), (scale / stretch).clamp(max=1)
    turn = uniform(-0.1, 0.1, 1)
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0] = torch.cat([flip * wide, turn * 0.75, uniform(-1, 1, 1) * (1 - wide)], 1)
    theta[:, 1] = torch.cat([-turn / 0.75, high, uniform(-1, 1, 1) * (1 - high)], 1)
    grid = F.affine_grid(theta, [n, 3, *CLIP_SIZE], align_corners=False)
    flat = x.permute(0, 1, 4, 2, 3).flatten(1, 2)  # every frame of a clip moves alike
    moved = F.grid_sample(flat, grid, padding_mode="reflection", align_corners=False).unflatten(1, (CLIP_FRAMES, 3))
    return normal(_relit(moved.transpose(1, 2), uniform))


def _relit(x: Tensor, uniform) -> Tensor:  # type: ignore[no-untyped-def]
    """Change brightness, contrast, saturation and tint of each clip (b, 3, t, h, w) and cover one box of it."""
    grey = x.mean(1, keepdim=True)
    x = grey + uniform(0.3, 1.5, 1, 1, 1, 1) * (x - grey)
    level = x.mean((1, 2, 3, 4), keepdim=True)
    x = level + uniform(0.6, 1.4, 1, 1, 1, 1) * (x - level)
    x = (x * uniform(0.6, 1.4, 1, 1, 1, 1) * uniform(0.85, 1.15, 3, 1, 1, 1)).clamp(0, 1)
    rows, columns = (torch.linspace(0, 1, side, device=x.device) for side in CLIP_SIZE)
    inside = ((rows - uniform(0, 1, 1)).abs() < 0.15)[:, :, None] & ((columns - uniform(0, 1, 1)).abs() < 0.15)[:, None]
    return torch.where(inside[:, None, None], torch.full_like(level, 0.45), x)


def plain(x: Tensor) -> Tensor:
    """uint8 (b, t, h, w, 3) -> normalised (b, 3, 16, 72, 96) as a loader returns it, with the middle frame of each stretch."""
    at = (torch.arange(CLIP_FRAMES, device=x.device) + 0.5) * STORED / CLIP_FRAMES
    x = x[:, at.long()].permute(0, 1, 4, 2, 3).float() / 255
    small = F.interpolate(x.flatten(0, 1), CLIP_SIZE, mode="bilinear", antialias=True, align_corners=False)
    return normal(small.unflatten(0, (-1, CLIP_FRAMES)).transpose(1, 2))


def normal(x: Tensor) -> Tensor:
    return normalised(x, CLIP_MEAN, CLIP_STD)


def fit(net: nn.Module, clips: Clips, chosen: Namespace) -> int:
    """Train for a number of steps or, by default, of minutes; return the steps."""
    seconds, began, done, shown = 60 * chosen.minutes / len(chosen.only), time.monotonic(), 0, 0
    peak, draw = RATE * (chosen.batch / BATCH) ** 0.5, torch.Generator().manual_seed(chosen.seed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=peak, weight_decay=0.05)

    def clip_gradients(*_: Any) -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)

    optimizer.register_step_pre_hook(clip_gradients)

    def losses() -> Iterator[Tensor]:
        nonlocal done, shown
        while (gone := done / chosen.steps if chosen.steps else (time.monotonic() - began) / seconds) < 1:
            for group in optimizer.param_groups:  # rises for a twentieth of the training, then falls
                group["lr"] = peak * min(gone / 0.05 + 0.02, 0.5 * (1 + np.cos(np.pi * gone)))
            rows = torch.randint(len(clips.x), (chosen.batch,), generator=draw).to(chosen.device)
            with torch.autocast(clips.x.device.type, torch.bfloat16, enabled=clips.x.is_cuda):
                loss = F.cross_entropy(net(augmented(clips.x[rows], draw)), clips.y[rows], label_smoothing=0.1)
            yield loss
            done += 1
            if int(gone * LINES) > shown:
                shown = int(gone * LINES)
                print(f"  {gone:4.0%}  step {done}  loss {float(loss):.3f}", flush=True)

    step_through(net, optimizer, losses(), lambda: None)
    return done


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--pack", type=Path, help="write the clips to this file and stop")
    parser.add_argument(
        "--every", type=int, default=1, help="pack one training clip in this many (default: %(default)s)"
    )
    parser.add_argument("--quality", type=int, default=QUALITY, help="of the JPEGs in a pack (default: %(default)s)")
    parser.add_argument("--unpack", type=Path, help="write this pack as arrays beside it and stop")
    parser.add_argument("--packed", type=Path, help="train from this file instead of the videos")
    parser.add_argument("--clips", type=Path, help="folder of videos (default: ucf6 of the real data)")
    parser.add_argument("--only", choices=sorted(CLIP_NETS), nargs="+", default=list(CLIP_NETS))
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--minutes", type=float, default=8.0, help="minutes for all networks together (default: 8)")
    parser.add_argument(
        "--steps", type=int, help="steps for each network instead of minutes; repeatable on one machine"
    )
    parser.add_argument("--batch", type=int, default=BATCH, help=f"clips in a step (default: {BATCH})")
    parser.add_argument("--seed", type=int, default=0)
    finish(run(parser.parse_args()))


def run(chosen: Namespace) -> dict[str, float]:
    """Pack, unpack or train; return the test accuracy of each network."""
    if chosen.unpack:
        return unpack_arrays(chosen.unpack)
    if chosen.pack:
        pack((chosen.clips or real("ucf6")), chosen.pack, chosen.every, chosen.quality)
        return {}
    train, test = (
        (unpack(chosen.packed, name) if chosen.packed else decode((chosen.clips or real("ucf6")), groups)).to(
            chosen.device
        )
        for name, groups in PARTS
    )
    found = {}
    for name in chosen.only:
        torch.manual_seed(chosen.seed)
        net = CLIP_NETS[name](len(train.classes)).to(chosen.device)
        began = time.monotonic()
        steps = fit(net, train, chosen)
        found[name], again = (accuracy(net, each.x, each.y, plain, 32) for each in (test, train))
        about = {"net": name, "classes": ",".join(train.classes), "accuracy": f"{found[name]:.4f}", "steps": str(steps)}
        about["trained_on"] = f"{len(train.y)} UCF-101 clips of groups {TRAIN_GROUPS}"
        save(net, chosen.out / f"{name}.safetensors", about)
        right = f"{found[name]:.1%} of {len(test.y)} test clips, {again:.1%} of {len(train.y)} training clips"
        print(f"{name}: {right}; {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    main()
