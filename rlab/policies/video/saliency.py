"""Where in a clip things are and where they move: objectness and motion, worked out once a clip and kept. No model is asked."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.grid import PatchGrid
from rlab.errors import InputError
from rlab.policies.video.motion import flow_maps
from rlab.policies.video.objectness import edge_boxes
from rlab.runs.files import write_atomically

SIDE = 32  # maps are kept at this many cells a side at most
_KEPT = 512  # clips in memory
_TOGETHER = 64  # clips between two writes of the file
_JITTER = 8  # grey levels by which a clip's thumbnail may differ and be the same clip
_cache: OrderedDict[str, Tensor] = OrderedDict()


def of_clips(x: Tensor) -> Tensor:
    """Clips (n, c, t, h, w) in 0..1 -> (n, 2, t, rows, columns) in 0..1: objectness, then motion. Each clip only once."""
    return torch.stack([_of_clip(clip) for clip in x]).to(x.device)


def _of_clip(clip: Tensor) -> Tensor:
    frames = _bytes(clip)
    key = hashlib.sha256(frames.tobytes() + str(frames.shape).encode()).hexdigest()
    if key not in _cache:
        found = np.stack([edge_boxes(frames), flow_maps(frames)])
        small = [min(SIDE, side) for side in found.shape[2:]]
        _cache[key] = F.adaptive_avg_pool3d(torch.from_numpy(found)[None], (len(frames), small[0], small[1]))[0]
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return _cache[key]


def _bytes(clip: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """(c, t, h, w) in 0..1 -> (t, h, w, 3) uint8."""
    wide = clip if clip.shape[0] == 3 else clip.mean(0, keepdim=True).expand(3, *clip.shape[1:])
    return (wide.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 3, 0).cpu().contiguous().numpy()


def over(maps: Tensor, grid: PatchGrid) -> Tensor:
    """Maps (n, 2, t, rows, columns) -> (n, frames, 2, rows, columns) of the grid's patches."""
    shape = tuple(maps.shape[2:])
    wanted = (shape[0], *(max(side, count) for side, count in zip(shape[1:], grid.shape[1:], strict=True)))
    wide = maps if wanted == shape else F.interpolate(maps, size=wanted, mode="nearest")
    t, rows, columns = grid.shape
    return F.adaptive_avg_pool3d(wide, (t, rows, columns)).transpose(1, 2)


def kept(x: Tensor, ids: Sequence[str], path: Path | None) -> Tensor:
    """The maps of clips x (n, c, t, h, w) in 0..1: from the file where they stand by id, else worked out and added to it."""
    if path is None:
        return of_clips(x)
    held = _read(path) if path.exists() else {}
    thumbs = _thumbs(x)
    for name, thumb in zip(ids, thumbs, strict=True):
        if name in held and not _alike(held[name][0], thumb):
            raise InputError(
                f"{str(path)!r} holds the objectness and motion of another clip {name!r}: name another file"
            )
    missing = [i for i, name in enumerate(ids) if name not in held]
    for rows in (missing[at : at + _TOGETHER] for at in range(0, len(missing), _TOGETHER)):  # a stopped run goes on
        made = (of_clips(x[rows]).cpu() * 255).round().to(torch.uint8)
        held |= {ids[i]: (thumbs[i], one) for i, one in zip(rows, made, strict=True)}
        _write(path, held)
    return torch.stack([held[name][1] for name in ids]).float() / 255


def _thumbs(x: Tensor) -> Tensor:
    """(n, t, 4, 4) uint8: enough to tell clips apart, and the same however a picture was decoded."""
    small = F.adaptive_avg_pool3d(x.mean(1, keepdim=True), (x.shape[2], 4, 4)).squeeze(1)
    return (small * 255).round().clamp(0, 255).to(torch.uint8).cpu()


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and int((one.int() - other.int()).abs().max()) <= _JITTER


def _read(path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            ids, thumbs, maps = (file[name] for name in ("ids", "thumbs", "maps"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {str(path)!r} as maps of objectness and motion: {error}") from error
    rows = zip(ids, torch.from_numpy(thumbs), torch.from_numpy(maps), strict=True)
    return {str(name): (thumb, one) for name, thumb, one in rows}


def _write(path: Path, held: dict[str, tuple[Tensor, Tensor]]) -> None:
    thumbs, maps = (torch.stack(part).numpy() for part in zip(*held.values(), strict=True))
    whole = io.BytesIO()
    np.savez_compressed(whole, ids=np.array(list(held)), thumbs=thumbs, maps=maps)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, whole.getvalue())
