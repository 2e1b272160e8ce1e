"""User classes with a state of their own: used by the tests as ``tests.backends.torch.keepers:Name``."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class Signs(torch.optim.Optimizer):
    """Sign descent that slows down by itself, and keeps numbers, tensors, group entries and an attribute."""

    def __init__(self, params, lr=0.1, decay=0.9):
        super().__init__(params, {"lr": lr, "decay": decay})
        self.calls = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        self.state["all"]["seen"] = self.state["all"].get("seen", 0) + 1
        for group in self.param_groups:
            group["lr"] *= group["decay"]
            group["pace"] = group.get("pace", 1.0) / 2
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                mean = state.setdefault("mean", torch.zeros_like(p, dtype=torch.bfloat16))
                mean.lerp_(p.grad.bfloat16(), 0.5)
                share = 1 + group["pace"] + self.calls / 100 + self.state["all"]["seen"] / 50
                p.sub_(mean.float().sign() * group["lr"] * share)

    def state_dict(self):
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state_dict):
        self.calls = state_dict["calls"]
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})


class Remembering(nn.Module):
    """A linear layer whose scale grows with its calls, which are no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.zeros(3), persistent=False)
        self.calls, self.history = 0, np.zeros(2)

    def forward(self, x):
        self.calls += 1
        self.history[self.calls % 2] += 1
        self.shift += 0.125
        return self.layer(x) * (1 + self.calls / 10) + self.shift + float(self.history[0])

    def get_extra_state(self):
        return {"calls": self.calls, "history": self.history, "seen": (torch.ones(2, dtype=torch.bfloat16), None)}

    def set_extra_state(self, state):
        if state["seen"][0].dtype != torch.bfloat16 or not isinstance(state["history"], np.ndarray):
            raise ValueError("not mine")
        self.calls, self.history = state["calls"], state["history"]


class Refusing(Remembering):
    """Takes nothing back but what it has already."""

    def set_extra_state(self, state):
        if state["calls"] != self.calls:
            raise ValueError("never")


class Hoarding(Remembering):
    """Keeps what no checkpoint can."""

    def get_extra_state(self):
        return {"calls": {1, 2}}


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Failing(nn.Module):
    """A layer that raises in a batch that starts with a 13."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        if x.device.type != "meta" and x.flatten()[0] == 13:
            raise ValueError("an unlucky batch")
        return nn.functional.dropout(self.layer(x), 0.5, self.training)


class Hits(nn.Module):
    """A share of hits, counted as torchmetrics does: what it counts is in its state_dict only if it is asked to be."""

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold, self.asked = threshold, False
        self.hits, self.total, self.kept = torch.zeros(()), torch.zeros(()), []
        if type(self.hits) is not torch.Tensor:
            raise TypeError("made with fake tensors, which must not be copied deeply")

    def persistent(self, mode=False):
        self.asked = mode

    def update(self, scores, target):
        self.hits = self.hits + ((scores > self.threshold) == (target > self.threshold)).sum()
        self.total = self.total + target.numel()
        self.kept.append(scores.mean())

    def compute(self):
        return self.hits / self.total + torch.stack(self.kept).mean() * 0

    def reset(self):
        self.hits, self.total, self.kept = torch.zeros(()), torch.zeros(()), []

    def state_dict(self, *args, **kwargs):
        return {"hits": self.hits, "total": self.total, "kept": list(self.kept)} if self.asked else {}

    def load_state_dict(self, state, strict=True):
        self.hits, self.total, self.kept = state["hits"], state["total"], state["kept"]


class Forgetful:
    """Counts calls and tells nobody."""

    def __init__(self) -> None:
        self.calls = 0

    def update(self, scores):
        self.calls += 1

    def compute(self):
        return float(self.calls)

    def reset(self):
        self.calls = 0


class Shapeless:
    """No metric at all."""


shared = Forgetful()


def spread(scores, factor=1.0):
    """Return a number per batch."""
    return scores.std() * factor


def rows(scores):
    """Return a number per row."""
    return scores.sum(1)
