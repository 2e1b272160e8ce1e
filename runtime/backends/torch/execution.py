"""Execution of emitted modules under PyTorch, and the interpretation of their errors."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from compiler.ir.program import Program
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.codegen.graph import GRAPH
from runtime.codegen.module import emit_module
from runtime.codegen.resources import PLAIN, Extras
from runtime.engine import errors, load
from runtime.problems import describe

MEANINGS: Mapping[str, tuple[str, str]] = {
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
        "look for detached or integer values on the path from the model to the loss, and for a model that is frozen "
        "whole: no parameter of it has `requires_grad`",
    ),
    r"differentiated Tensors does not require grad": (
        "a parameter that the loss is differentiated by is frozen: it has no `requires_grad`",
        "let it train again, `parameter.requires_grad_(True)`, or freeze it in the spec: "
        "`groups: [{match: ..., frozen: true}]`",
    ),
    r"grad\(\)` cannot be empty|grad requires non-empty inputs": (
        "there is nothing to differentiate by: no parameter of the model has `requires_grad`",
        "remove the update, or let parameters train again: `model.requires_grad_(True)`",
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
        "the class does not create a torch.nn.Module",
        "models are modules: derive the class from torch.nn.Module",
    ),
    r"must have the same dtype|expected scalar type|[Ii]nput type .* and (weight|bias) type": (
        "numbers of different types meet",
        "models passed as `models=` keep their dtype: convert them (`model.float()`), or build the step in theirs, "
        '`build(..., dtype="float64")`',
    ),
    r"does not currently support double backward": (
        "the gradient of a gradient goes through a module that torch.compile compiled, which has no second derivative",
        "give this model to `build` without torch.compile",
    ),
    r"out of memory": ("the device is out of memory", "use smaller batches or models, or another `--device`"),
}
"""A message of torch (a pattern) -> its meaning, and the remedy."""

_COLLECTIVES = os.path.dirname(dist.__file__) + os.sep

_UNFAKEABLE: Mapping[str, str] = {
    r"_local_scalar_dense|DataDependent": "what it does depends on the values of tensors (`.item()`, `if`, `float()`)",
    r"DynamicOutputShape|Unsupported|nonzero": "it makes tensors whose shape depends on values",
    r"numpy\(\) is not supported|can't convert .* numpy": "it uses NumPy",
}
"""A message of fake tensors (a pattern) -> why a model cannot be run with them."""


def explain_unfakeable(error: BaseException) -> str:
    """Return why a step could not be run with fake tensors."""
    text = describe(error)
    return next((why for pattern, why in _UNFAKEABLE.items() if re.search(pattern, text)), text)


def is_lost(error: BaseException) -> bool:
    """Return whether an error comes out of torch.distributed itself, where a message was awaited."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and bool(frames) and frames[-1].filename.startswith(_COLLECTIVES)
    )


Loaded: TypeAlias = load.Loaded[Any]
"""An executed module; only PyTorch knows the types of its globals."""


class TorchErrors(errors.Framework):
    """The part of diagnosing an error of a step that is particular to PyTorch."""

    title = "torch"
    meanings = MEANINGS

    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [8, 2]``; None for what is none."""
        is_tensor = isinstance(value, torch.Tensor)
        return f"{value.dtype} {list(value.shape)}".replace("torch.", "") if is_tensor else None

    def find_line(self, error: BaseException) -> str:
        """Return the line of torch's message that says what happened, without its hints for people who debug C++."""
        lines = (line.strip() for line in str(error).splitlines() if line.strip())
        first = next(lines, type(error).__name__)
        hints = "Exception raised from|This is typically caused|CUDA kernel errors might|Compile with `TORCH"
        return re.split(rf"\s*(?:{hints})", first)[0]

    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the trainable parameters that a loss does not reach, where that is what a gradient failed on.

        The graph can be walked even after its saved tensors are freed: parameters are the variables of its leaves.
        """
        if "not have been used in the graph" not in str(error) or not isinstance(loss, torch.Tensor):
            return ()
        pending, seen, reached = [loss.grad_fn], set(), set()
        while pending:
            node = pending.pop()
            if node is not None and node not in seen:
                seen.add(node)
                reached.add(id(getattr(node, "variable", None)))
                pending.extend(following for following, _ in node.next_functions)
        trained = (each for model in models.values() for each in model.parameters() if each.requires_grad)
        return self.name_parameters((each for each in trained if id(each) not in reached), models)

    def is_lost(self, error: BaseException) -> bool:
        """Return whether an error comes out of a collective: another process has ended, or does not answer."""
        return is_lost(error)

    def find_parameters(self, model: Any) -> Iterable[tuple[str, object]]:
        """Return the parameters of a model with their names."""
        return model.named_parameters()


ERRORS = TorchErrors()


def load_program(
    program: Program, provided: Iterable[str] = (), extras: Extras = PLAIN, *, captured: bool = False
) -> Loaded:
    """Emit a program, execute the module and return it; models in ``provided`` are given to its ``build``.

    ``captured``: in the form of which graphs are made.
    """
    if captured:
        return load_module(emit_module(program, GRAPH, provided, extras), program, alone=True)
    return load_module(emit_module(program, TORCH, provided, extras), program)


load_module: Callable[..., Loaded] = load.load_module
"""Executes an emitted module, whose text is registered so that tracebacks can show it."""
