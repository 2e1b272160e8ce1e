"""Execution of emitted modules under PyTorch, and the interpretation of their errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.module import Emitted
from runtime.engine import errors, load
from runtime.problems import describe

_MEANINGS: Mapping[str, tuple[str, str]] = {
    r"do not fit: (they|the target|the scores) ": (
        "its operands have shapes that do not fit",
        "give one of them the shape of the other with `call: reshape`; the framework would broadcast them and pair "
        "elements that do not belong together",
    ),
    r"appears to not have been used in the graph|has no gradient: the loss does not reach it": (
        "the loss does not depend on every parameter it is differentiated by",
        "take unused parameters out of the model, or write `missing: skip` or `missing: zero` on the update",
    ),
    r"element 0 of tensors does not require grad|does not require grad and does not have a grad_fn": (
        "the loss depends on no parameter: nothing between them can be differentiated",
        "look for detached or integer values on the way from the model to the loss, and for a model that is frozen "
        "whole: no parameter of it has `requires_grad`",
    ),
    r"differentiated Tensors does not require grad": (
        "a parameter that the loss is differentiated by is frozen: it has no `requires_grad`",
        "let it train again, `parameter.requires_grad_(True)`, or freeze it in the spec: "
        "`groups: [{match: ..., frozen: true}]`",
    ),
    r"grad\(\)` cannot be empty|grad requires non-empty inputs": (
        "there is nothing to differentiate by: no parameter of the model has `requires_grad`",
        "take the update out, or let parameters train again: `model.requires_grad_(True)`",
    ),
    r"[Ii]nference tensors": (
        "a tensor was made in inference mode, where nothing can be differentiated",
        "make models and their tensors outside of `torch.inference_mode()`",
    ),
    r"uninitialized parameter": (
        "a lazy layer does not know its size yet",
        "let some op that needs no gradient before it call the model, or use layers with explicit sizes",
    ),
    r"grad can be implicitly created only for scalar outputs": (
        "the loss is not a single number",
        "reduce it: `reduction: mean` on the loss, or `call: mean`",
    ),
    r"modified by an inplace operation": (
        "a value that the gradient needs was changed in place",
        "a model or function of yours writes into its input or its weights during forward: work on a copy there",
    ),
    r"must be Tensor, not (tuple|list|dict)|'(tuple|list|dict)' object has no attribute": (
        "a call gave several results where one was expected",
        "name them all at the call: `outputs: [first, second]`",
    ),
    r"deepcopy|cannot pickle": (
        "the model cannot be copied",
        "a copy is made for `like` and `ema`; keep tensors with a graph, files, locks and the like out of its "
        "attributes",
    ),
    r"has no attribute 'to'": (
        "the class makes no torch.nn.Module",
        "models are modules: derive the class from torch.nn.Module",
    ),
    r"must have the same dtype|expected scalar type|[Ii]nput type .* and (weight|bias) type": (
        "numbers of different types meet",
        "models given by `models=` keep their type: convert them (`model.float()`), or build the step in theirs, "
        '`build(..., dtype="float64")`',
    ),
    r"does not currently support double backward": (
        "the gradient of a gradient goes through a module that torch.compile compiled, which has no second derivative",
        "give this model to `build` without torch.compile",
    ),
    r"out of memory": ("the device is out of memory", "use smaller batches or models, or another `--device`"),
}
"""A message of torch (a pattern) -> its meaning, and the remedy."""

_LONGEST = 300
_UNFAKEABLE: Mapping[str, str] = {
    r"_local_scalar_dense|DataDependent": "what it does depends on the values of tensors (`.item()`, `if`, `float()`)",
    r"DynamicOutputShape|Unsupported|nonzero": "it makes tensors whose shape depends on values",
    r"numpy\(\) is not supported|can't convert .* numpy": "it uses NumPy",
}
"""A message of fake tensors (a pattern) -> why a model cannot be run with them."""


def clean(error: BaseException) -> str:
    """Return torch's message as one line, without its hints for people who debug C++."""
    text = str(error).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    first = re.split(r"\s*(?:Exception raised from|CUDA kernel errors might|Compile with `TORCH)", first)[0]
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."


def interpret(error: BaseException) -> tuple[str, tuple[str, ...], str]:
    """Return message, notes and help of an operation's error; torch's own words where there are no better ones."""
    text = str(error)
    for pattern, (meaning, help) in _MEANINGS.items():
        if re.search(pattern, text):
            return meaning, (f"torch: {clean(error)}",), help
    return clean(error), (), ""


def explain_unfakeable(error: BaseException) -> str:
    """Return why a step could not be run with fake tensors."""
    text = describe(error)
    return next((why for pattern, why in _UNFAKEABLE.items() if re.search(pattern, text)), text)


def find_unused(loss: torch.Tensor, models: Mapping[str, torch.nn.Module]) -> tuple[str, ...]:
    """Return the trainable parameters that no path of a loss's graph ends in, as ``model.parameter``."""
    reached = _find_leaves(loss)
    return tuple(
        f"{name}.{key}"
        for name, model in models.items()
        for key, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in reached
    )


def _find_leaves(loss: torch.Tensor) -> frozenset[int]:
    """Return the ids of the leaves of a graph; it can be walked even after its saved tensors are freed."""
    pending, seen, leaves = [loss.grad_fn], set(), set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
        pending.extend(following for following, _ in node.next_functions)
    return frozenset(leaves)


Loaded: TypeAlias = load.Loaded[Any]
"""An executed module; only PyTorch knows the types of its globals."""


class TorchErrors(errors.Framework):
    """The part of diagnosing an error of a step that is particular to PyTorch."""

    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [8, 2]``; None for what is none."""
        is_tensor = isinstance(value, torch.Tensor)
        return f"{value.dtype} {list(value.shape)}".replace("torch.", "") if is_tensor else None

    def interpret(self, error: BaseException) -> tuple[str, tuple[str, ...], str]:
        """Return message, notes and help of an operation's error; torch's own words where there are no better ones."""
        return interpret(error)

    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that a loss does not reach, where that is what a gradient failed on."""
        is_unused = "not have been used in the graph" in str(error)
        return find_unused(loss, models) if is_unused and isinstance(loss, torch.Tensor) else ()

    def name_parameters(self, parameters: Iterable[object], models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of some parameters of models, as ``model.parameter``."""
        wanted = {id(each) for each in parameters}
        named = ((model, name, each) for model, made in models.items() for name, each in made.named_parameters())
        return tuple(f"{model}.{name}" for model, name, each in named if id(each) in wanted)


ERRORS = TorchErrors()


def load_module(emitted: Emitted, program: Program) -> Loaded:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it."""
    return load.load_module(emitted, program)


def call_checked(load: Loaded, spec: GraphSpec, function: str, *arguments: object) -> Any:
    """Call one of the module's functions; raise StepError with its place in the spec where it fails."""
    return errors.call_checked(load, spec, ERRORS, function, *arguments)


def diagnose(error: Exception, load: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return the diagnostic of an error raised inside the emitted module."""
    return errors.diagnose(error, load, spec, ERRORS)
