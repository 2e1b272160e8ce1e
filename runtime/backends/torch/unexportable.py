"""What torch.export cannot follow, in the words of a spec: why, in which op, and in which line of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.compat import is_draw
from runtime.backends.torch.execution import Loaded
from runtime.backends.torch.messages import clean, explain_unfakeable
from runtime.engine.load import find_op, find_span
from runtime.problems import describe, raised_in

CODE = "GS265"
REMEDY = "`--format weights` writes the weights alone"
_SIZES = re.compile(r"Constraints violated \(([^)]*)\)[^\n]*\n\s*- ([^\n]*)")
_COPY = re.compile(r"deepcopy|cannot pickle")


def explain_unexportable(error: Exception, loaded: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return what to tell of an error that exporting a mode of an emitted module raised."""
    op = find_op(error, loaded)
    subject = f"op '{op}'" if op else f"mode {loaded.program.modes[0].mode}"
    reason, note = _explain(error)
    notes = (*((f"torch: {note}",) if note else ()), *raised_in(error))
    message = f"{subject} cannot be exported: {reason}"
    return Diagnostic(code=CODE, message=message, span=find_span(spec, op), notes=notes, help=REMEDY)


def _explain(error: Exception) -> tuple[str, str]:
    """Return why something cannot be exported, and torch's own words where they say more."""
    sizes = _SIZES.search(str(error))
    if sizes is not None:
        return f"it does not work for every size of {sizes[1]}", sizes[2]
    if _COPY.search(str(error)):
        return "its models cannot be copied", clean(error)
    reason = explain_unfakeable(error)
    return (reason, "") if reason != describe(error) else ("torch.export cannot follow what it does", clean(error))


def explain_different(mode: str, exported: torch.export.ExportedProgram, error: AssertionError) -> Diagnostic:
    """Return what to tell of a program that gives other numbers than what it was made of."""
    drawn = tuple(dict.fromkeys(_find_draws(exported)))
    reason = "draws random numbers" if drawn else "gives other numbers as a program"
    notes = (f"drawn by {', '.join(drawn)}",) if drawn else (f"torch: {clean(error)}",)
    help = f"let `random` ops draw what the mode needs, and models keep nothing from call to call; {REMEDY}"
    return Diagnostic(code=CODE, message=f"mode {mode} cannot be exported: it {reason}", notes=notes, help=help)


def _find_draws(exported: torch.export.ExportedProgram) -> Iterator[str]:
    """Yield the operations of a program that draw, each with the part of the models that does: ``rand_like in net``."""
    for node in exported.graph.nodes:
        if is_draw(node.target):
            paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
            name = str(node.target).split(".")[1]  # of aten.rand_like.default
            yield f"{name} in {paths[-1]}" if paths else name


def explain_remembering(mode: str, name: str) -> Diagnostic:
    """Return what to tell of a program that changes a buffer of a model."""
    message = f"mode {mode} cannot be exported: a forward writes into the buffer {name}"
    help = f"let the model do that only while `self.training`; {REMEDY}"
    return Diagnostic(code=CODE, message=message, help=help)
