"""Students: several small networks for every kind of input."""

from __future__ import annotations

import pytest
import torch

from rlab.learning.students import Student, shapes_for

SHAPES = {
    "beat": (1, 187),
    "ten seconds of twelve leads": (12, 5000),
    "tiny": (3, 4, 4),
    "small image": (3, 32, 32),
    "wide image": (1, 20, 70),
    "photo": (3, 224, 224),
    "short clip": (3, 4, 8, 8),
    "clip": (3, 16, 112, 112),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_at_least_three_different_small_networks(shape: tuple[int, ...]) -> None:
    abouts = shapes_for(shape[1:], torch.device("cpu"))
    assert len({about.architecture for about in abouts}) >= 3
    for about in abouts:
        student = Student(about, shape, 5).eval()
        assert sum(part.numel() for part in student.parameters()) < 1_000_000
        with torch.no_grad():
            logits = student(torch.rand(2, *shape))
        assert logits.shape == (2, 5)
        assert logits.isfinite().all()
