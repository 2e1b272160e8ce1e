"""Classes that can be exported, and classes that cannot: used as ``tests.backends.torch.exporters:Name``."""

from __future__ import annotations

import torch
from torch import nn


class Linear(nn.Module):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


class Rich(Linear):
    """Everything a module may hold: shared weights, statistics, buffers that are not saved, tensors that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(4, 3)
        self.again.weight = self.layer.weight
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.register_buffer("shift", torch.full((3,), 0.25), persistent=False)
        self.scale = torch.tensor(1.5)

    def forward(self, x):
        self.last = self.norm(self.layer(x) + self.again(x)) * self.scale + self.shift
        return self.drop(self.last)


class Deep(nn.Module):
    """Recurrence, and weights that are computed from others."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
        self.recurrence = nn.LSTM(8, 3, batch_first=True)

    def forward(self, x):
        return self.recurrence(self.wide(x)[:, None].expand(-1, 5, -1))[0][:, -1]


class Fast(nn.Module):
    """Attention, for which torch has a faster kernel that it does not export."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.last(self.layer(self.wide(x)[:, None].expand(-1, 5, -1))[:, -1])


class Branching(Linear):
    """Control flow that depends on values."""

    def forward(self, x):
        y = super().forward(x)
        if y.sum() > 0:
            return 2 * y
        return y


class Sized(Linear):
    """Control flow that depends on the size of the batch."""

    def forward(self, x):
        return super().forward(x) * (2 if x.shape[0] > 4 else 1)


class Drawing(Linear):
    """Random numbers in evaluation, too."""

    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)


class Counting(Linear):
    """A buffer that counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Telling(Linear):
    """State beside the tensors."""

    def get_extra_state(self):
        return {"version": 3}

    def set_extra_state(self, state):
        del state
