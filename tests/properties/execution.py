"""Emitted steps, executed fast: every definition of the support code is compiled once per process."""

from __future__ import annotations
import __future__

import functools
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from compiler import Plan
from runtime.api import emit
from tests.properties.users import make_models

_HEAD = re.compile(r"^(?=(?:@|def |class |[A-Za-z_]+(?:: | = )|from |import ))", re.MULTILINE)
_NUMBERS = itertools.count()


class Execution:
    """A plan that runs without the checks that ``build`` makes beforehand, by default on the CPU in float64.

    ``models``: those that are given; otherwise the classes of random specs are made.
    """

    def __init__(
        self,
        plan: Plan,
        text: str | None = None,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
        models: Mapping[str, torch.nn.Module] | None = None,
    ) -> None:
        self.text = emit(plan) if text is None else text
        self.names, self.device = execute(self.text), device
        given = make_models(plan.spec, dtype) if models is None else models
        self.names["build"](seed=plan.spec.seed, device=device, dtype=dtype, models=given)
        self.models: Mapping[str, torch.nn.Module] = self.names["MODELS"]

    def shapes(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        """Return the shapes of all parameters and buffers."""
        return {model: {name: value.shape for name, value in found.items()} for model, found in self._models().items()}

    def state(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Return copies of all parameters and buffers, and of the declared states."""
        held = {name: value.cpu().numpy().copy() for name, value in self.names.get("STATE", {}).items()}
        return {**self._models(), "state": held} if held else self._models()

    def counters(self) -> Mapping[str, np.ndarray]:
        """Return how often every optimizer was applied, and the loss scale, if there is one."""
        found = {name: np.array(one.applied) for name, one in self.names.get("OPTIMIZERS", {}).items()}
        scale = self.names.get("loss_scale")
        return found if scale is None else {**found, "loss_scale": np.array(scale.scale)}

    def _models(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Return copies of all parameters and buffers."""
        return {
            model: {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}
            for model, module in self.models.items()
        }

    def step(
        self, batch: Mapping[str, np.ndarray], mode: str = "train", *dataset: str | None
    ) -> Mapping[str, np.ndarray]:
        """Take one step, and return its outputs."""
        given = {name: torch.from_numpy(value).to(self.device) for name, value in batch.items()}
        found = self.names["step"](given, mode, *dataset)
        return {name: value.detach().cpu().numpy() for name, value in found.items()}


def execute(text: str) -> dict[str, Any]:
    """Execute a module definition by definition, and return its names."""
    module = ModuleType(f"emitted_{next(_NUMBERS)}")
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        for code in _compile(text):
            exec(code, module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__


def _compile(text: str) -> Iterator[CodeType]:
    """Yield the code of every piece of a module; decorators stay with what they decorate."""
    held = ""
    for piece in _HEAD.split(text):
        held += piece
        if held.startswith("from __future__"):
            held = ""
        if piece.startswith("@") or not held:
            continue
        yield _compile_piece(held)
        held = ""


@functools.lru_cache(maxsize=1000)
def _compile_piece(text: str) -> CodeType:
    """Return the code of one definition; what is the same in all modules stays known, what was seen once does not."""
    return compile(text, "<emitted>", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
