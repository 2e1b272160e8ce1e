"""Running statistics of BatchNorm, computed anew for a model whose weights no training pass has had."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.compat import is_batch_norm


@contextmanager
def recomputing(model: nn.Module) -> Generator[Callable[[], int | None]]:
    """Let the statistics of a model become the means over the forwards inside (``torch.optim.swa_utils.update_bn``).

    Only layers of BatchNorm are in train mode, so that nothing is drawn. Yields a function that returns in how many
    forwards the layer that ran least took part; None where there is no such layer. After an error the statistics are
    those of before.
    """
    layers: list[Any] = [
        each for each in model.modules() if is_batch_norm(each) and vars(each)["_buffers"]["running_mean"] is not None
    ]
    kept = [(each.momentum, [buffer.clone() for buffer in each.buffers()]) for each in layers]
    modes: dict[nn.Module, bool] = {}

    def begin(layer: nn.Module, inputs: object) -> None:
        """Let a layer normalize by the batch."""
        modes[layer], layer.training = layer.training, True

    def end(layer: nn.Module, inputs: object, result: object) -> None:
        """Let it be in the mode in which it was."""
        layer.training = modes.pop(layer)

    handles = [each.register_forward_pre_hook(begin) for each in layers]
    handles += [each.register_forward_hook(end) for each in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
    try:
        yield lambda: min((int(each.num_batches_tracked) for each in layers), default=None)
    except BaseException:
        with torch.no_grad():
            for layer, (_, values) in zip(layers, kept, strict=True):
                for buffer, value in zip(layer.buffers(), values, strict=True):
                    buffer.copy_(value)
        raise
    finally:
        for handle in handles:
            handle.remove()
        for layer, was_training in modes.items():
            layer.training = was_training
        for layer, (momentum, _) in zip(layers, kept, strict=True):
            layer.momentum = momentum
