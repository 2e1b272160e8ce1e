"""What a user may have written: models, losses and sources that fail, each in its own way."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import Linear

__all__ = ["Linear"]


class Net(nn.Module):
    def __init__(self, inputs: int = 4, outputs: int = 1) -> None:
        super().__init__()
        self.inner = Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Raising(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.scaled(x))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the scale of the data is not known")


class Impatient(Net):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 3:
            raise RuntimeError("out of patience")
        return self.inner(x)


class Unmakeable(Net):
    def __init__(self, folder: str) -> None:
        super().__init__()
        raise FileNotFoundError(f"no weights in {folder}")


class HalfUsed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.unused = Linear(2, 2)


class Counting(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.inner(x)


def strict_loss(guess: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    if wanted.shape[1] != 2:
        raise TypeError("wanted has no second column")
    return (guess - wanted).square().mean()


class NoTargets:
    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield {"x": np.zeros((8, 4)), "z": np.zeros((8, 1))}


class Offline:
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        raise ConnectionError("the disk is not mounted")
