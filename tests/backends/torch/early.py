"""An optimizer of a user's that is applied early, and a model with a parameter that no call uses."""

from __future__ import annotations

import torch

SEEN: list[torch.Tensor | None] = []
"""What the optimizers were given."""


class Counting(torch.optim.Optimizer):
    """Momentum that begins with the first gradient; it counts in its groups, and keeps what it was given."""

    def __init__(self, params: object, lr: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "calls": 0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Step every parameter."""
        for group in self.param_groups:
            group["calls"] += 1
            for parameter in group["params"]:
                gradient = parameter.grad
                SEEN.append(gradient)
                if gradient is not None:
                    state = self.state[parameter]
                    state["speed"] = gradient.clone() if "speed" not in state else 0.5 * state["speed"] + gradient
                    parameter -= group["lr"] * state["speed"]


class Spare(torch.nn.Module):
    """A number, and an idle one."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.idle = (torch.nn.Parameter(torch.ones(())) for _ in range(2))

    def forward(self) -> torch.Tensor:
        """Return the number."""
        return self.value * 1.0


TRIPS: list[int] = []
"""How often `trip` is still to fail."""


def trip(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or fail."""
    if TRIPS:
        TRIPS.pop()
        raise ArithmeticError("tripped")
    return x
