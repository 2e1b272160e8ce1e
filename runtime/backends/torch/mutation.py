"""Mutation: values are immutable, so a user's model or function must not write into what it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from compiler.ir.instructions import Evaluate, Forward, Transform
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.compat import TorchDispatchMode, find_written, is_alias
from runtime.backends.torch.execution import Loaded
from runtime.engine.load import Call, find_arguments, find_caller, find_span
from runtime.problems import show_frames

_HELP = "values are immutable: give the layer `inplace=False`, or begin with a copy, `x = x.clone()`"


@dataclass(slots=True, kw_only=True)
class Mutations:
    """The writes of users' code into its inputs, seen while a module runs."""

    loaded: Loaded
    spec: GraphSpec
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def watched(self) -> TorchDispatchMode:
        """Return a context that notes every such write."""
        return _Writes(self)

    def note(self, tensor: torch.Tensor) -> None:
        """Note a write into a tensor, where it shares its memory with an input of the op that runs."""
        caller = find_caller(sys._getframe(), self.loaded)
        if caller is None:
            return
        frame, op = caller
        for instruction, name, value in find_arguments(frame, op, self.loaded):
            if _is_users(instruction) and any(is_alias(tensor, each) for each in _flatten(value)):
                self.found.append(self._report(instruction, name, _find_lines(frame)))
                return

    def _report(self, instruction: Call, name: str, lines: tuple[str, ...]) -> Diagnostic:
        """Return the problem of one write."""
        return Diagnostic(
            code="GS216",
            message=f"op '{instruction.op}': {_name_callee(instruction)} writes into its input '{name}'",
            span=find_span(self.spec, instruction.op),
            notes=("\n".join(("written in:", *(f"  {line}" for line in lines))),) if lines else (),
            help=_HELP,
        )


class _Writes(TorchDispatchMode):
    """Notes the tensors that an operation writes into."""

    def __init__(self, mutations: Mutations) -> None:
        super().__init__()
        self.mutations = mutations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note what it is going to write."""
        for tensor in find_written(func, args, kwargs or {}):
            self.mutations.note(tensor)
        return func(*args, **(kwargs or {}))


def _is_users(instruction: Call) -> bool:
    """Return whether what an instruction calls is the user's: nothing built in writes into its inputs.

    A fused optimizer that runs behind a transform claims to write into its gradients.
    """
    return isinstance(instruction, Forward) or not instruction.function.builtin


def _name_callee(instruction: Call) -> str:
    """Return how a message calls what an op calls."""
    match instruction:
        case Forward(model=model, method=None):
            return f"model '{model}'"
        case Forward(model=model, method=method):
            return f"`{method}` of model '{model}'"
        case Evaluate(function=function) | Transform(function=function):
            return f"'{function.name}'"


def _find_lines(outer: FrameType) -> tuple[str, ...]:
    """Return the user's lines that run now, outermost first, below a frame of the emitted module."""
    inside: list[tuple[FrameType, int]] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame is not outer:
        inside.append((frame, frame.f_lineno))
        frame = frame.f_back
    return show_frames(reversed(inside))


def _flatten(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or those of a set of gradients."""
    match value:
        case torch.Tensor():
            yield value
        case list() | tuple():
            for each in value:
                yield from _flatten(each)
        case _:
            return
