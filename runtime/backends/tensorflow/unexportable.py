"""What a SavedModel cannot hold, in the words of a spec: why, in which op, and in which line of the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.execution import ERRORS, Loaded
from runtime.backends.tensorflow.naming import buffers, parameters
from runtime.engine.load import find_span

CODE = "GS265"
REMEDY = "`--format weights` writes the weights alone"
DRAWS = (
    *("Random", "Truncated", "Multinomial", "Parameterized", "Rng"),
    *("StatefulRandom", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal"),
)
"""How the names of operations begin that draw random numbers."""
WRITES = ("Assign", "ResourceScatter", "ResourceApply")
"""How the names of operations begin that write into variables."""
UNTRACKED = "untracked"
"""What TensorFlow says of a table or another resource that no variable is."""


def explain_unexportable(error: Exception, loaded: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return what to tell of an error that exporting a mode of an emitted module raised."""
    op = ERRORS.find_op(error, loaded)
    subject = f"op '{op}'" if op else f"mode {loaded.program.modes[0].mode}"
    is_untracked = UNTRACKED in str(error)
    reason = "a model uses a resource that is no variable, such as a table" if is_untracked else ERRORS.quote(error)
    message = f"{subject} cannot be exported: {reason}"
    return Diagnostic(code=CODE, message=message, span=find_span(spec, op), notes=ERRORS.raised_in(error), help=REMEDY)


def explain_drawing(mode: str, draws: tuple[str, ...]) -> Diagnostic:
    """Return what to tell of a program that draws random numbers."""
    message = f"mode {mode} cannot be exported: it draws random numbers"
    help = f"let `random` ops draw what the mode needs; {REMEDY}"
    return Diagnostic(code=CODE, message=message, notes=(f"drawn by {', '.join(draws)}",), help=help)


def explain_writing(mode: str, name: str) -> Diagnostic:
    """Return what to tell of a program that changes a variable of a model."""
    message = f"mode {mode} cannot be exported: a forward writes into {name}"
    help = f"let the model do that only where `training` is true; {REMEDY}"
    return Diagnostic(code=CODE, message=message, help=help)


def explain_different(mode: str, output: str, difference: str) -> Diagnostic:
    """Return what to tell of a program that gives other numbers than what it was made of."""
    message = f"mode {mode} cannot be exported: '{output}' has other numbers as a program"
    help = f"let models not depend on sizes in Python, and keep nothing from call to call; {REMEDY}"
    return Diagnostic(
        code=CODE, message=message, notes=(f"compared with what it was made of: {difference}",), help=help
    )


def find_draws(traced: Any) -> tuple[str, ...]:
    """Return the operations of a graph that draw random numbers, in the functions that it calls as well."""
    nodes = _nodes(traced.graph.as_graph_def())
    return tuple(dict.fromkeys(node.op for node in nodes if node.op.startswith(DRAWS)))


def find_writes(traced: Any, models: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the variables that a graph writes, ``the variable net.calls``."""
    known = {
        id(variable.handle): f"the variable {model}.{name}"
        for model, each in models.items()
        for name, variable in (parameters(each) | buffers(each)).items()
    }
    handles = {inner.op.name: known.get(id(outer), "a variable") for outer, inner in traced.graph.captures}
    written = [node for node in _nodes(traced.graph.as_graph_def()) if node.op.startswith(WRITES)]
    return tuple(handles.get(node.input[0].partition(":")[0], "a variable") for node in written)


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, and those of the functions in its library."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
