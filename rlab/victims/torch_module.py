"""A torch module as the victim: evaluation mode, no gradients, normalised inside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Literal, final, get_args

import torch
from torch import Tensor, nn

from rlab.errors import InputError, VictimError
from rlab.victims.base import Outputs, Victim
from rlab.victims.normalise import Channels, Normalise

Layout = Literal["channels_first", "frames_first"]
FIRST_CHUNK = 256  # rows at once to begin with; running out of memory halves it


@final
class TorchVictim(Victim):
    """`mean` and `std` are in the units of the data, [0, 1] for images; `device` None stays where the model is.

    `layout="frames_first"` is for video models that take (b, t, c, h, w).
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mean: Channels | None = None,
        std: Channels | None = None,
        device: str | torch.device | None = None,
        autocast: bool = False,
        layout: Layout = "channels_first",
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"expected a torch module, got {type(model).__name__}: wrap a function in CallableVictim")
        super().__init__(
            bounds=bounds, outputs=outputs, multilabel=multilabel, chunk=FIRST_CHUNK if chunk is None else chunk
        )
        self.model = model if device is None else _moved(model, device)
        self.model.eval()
        first = next((p for p in chain(model.parameters(), model.buffers()) if p.is_floating_point()), torch.empty(0))
        self.device = first.device if device is None else torch.device(device)
        self.dtype = first.dtype
        self.normalise = Normalise.of(mean, std)
        self.autocast = autocast
        self.layout = known_layout(layout)

    def _predict(self, x: Tensor) -> Tensor:
        if self.model.training:  # someone trained it since
            self.model.eval()
        x = arrange(
            x.to(self.device, copy=self.normalise is None), self.normalise, self.layout
        )  # a model may write on x
        with torch.inference_mode(), self._precision():
            return tensor_scores(self.model(x.to(self.dtype)))

    def scores_with_grad(self, x: Tensor, phase: str) -> Tensor:
        """Scores (b, k) that can be differentiated by x: for training agents and white-box baselines."""
        self.rows[phase] += len(x)
        with torch.enable_grad():
            with self._precision():
                answer = tensor_scores(self.model(arrange(x, self.normalise, self.layout).to(self.dtype)))
            return self._scores(answer.float())

    def input_gradient(self, x: Tensor, of: Callable[[Tensor], Tensor], phase: str) -> Tensor:
        """The gradient (b, c, *size) of `of(scores)` (b,) by the input."""
        inputs = x.detach().to(self.device).requires_grad_()
        with torch.enable_grad():
            value = of(self.scores_with_grad(inputs, phase)).sum()
        return torch.autograd.grad(value, inputs)[0].to(x.device)

    def _precision(self) -> AbstractContextManager[object]:
        half = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        return torch.autocast(self.device.type, half) if self.autocast else nullcontext()


def known_layout(layout: Layout) -> Layout:
    if layout not in get_args(Layout):
        raise InputError(f"expected layout to be one of {', '.join(get_args(Layout))}, got {layout!r}")
    return layout


def arrange(x: Tensor, normalise: Normalise | None, layout: Layout) -> Tensor:
    """x: (b, c, *size) as the model wants it."""
    x = x if normalise is None else normalise(x)
    return x.transpose(1, 2) if layout == "frames_first" else x


def _moved(model: nn.Module, device: str | torch.device) -> nn.Module:
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise InputError(f"cannot put the model on device {str(device)!r}: {said}") from error


def tensor_scores(answer: object) -> Tensor:
    """A tensor, or the `logits` of an answer that has them, as Hugging Face models give."""
    match answer:
        case Tensor():
            return answer
        case object(logits=Tensor() as logits):
            return logits
    raise VictimError(
        f"expected the model to return a tensor (b, k) or an answer with .logits, got {type(answer).__name__}"
    )
