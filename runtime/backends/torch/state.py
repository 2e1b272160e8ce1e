"""State of an executed module, read and restored apart from autograd."""

from __future__ import annotations

import torch

from runtime.backends.torch.module import Module
from runtime.engine import restore
from runtime.state import State


@torch.inference_mode(False)
@torch.no_grad()
def read_state(module: Module) -> State:
    """Return everything that training changes, copied to the host.

    Raises SpecError: GS267 where a user's module, metric or optimizer keeps what a checkpoint cannot.
    """
    return restore.read_state(module)


@torch.inference_mode(False)
@torch.no_grad()
def restore_state(module: Module, state: State) -> None:
    """Make a module what it was when a state was read: in place, and nothing at all where something does not fit.

    Raises SpecError: GS264 for every name that is missing, not expected, or of another shape or type.
    """
    restore.restore_state(module, state)
