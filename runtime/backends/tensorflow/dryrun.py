"""The dry run: the graph of every active set is made before the first step, which is the one time it is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from runtime.backends.tensorflow.compat import watched_recomputing
from runtime.backends.tensorflow.execution import Loaded, diagnose
from runtime.backends.tensorflow.library.modules import KerasLayer, parts_of
from runtime.backends.tensorflow.untouched import traced
from runtime.building.attribution import find_span
from runtime.building.recomputed import find_unexpected


def run_dry(loaded: Loaded, spec: GraphSpec, seed: int) -> tuple[Diagnostic, ...]:
    """Return every problem that making the graphs of a built module shows; nothing is computed, nothing is changed."""
    models, recomputing = loaded.names["MODELS"], set[str]()
    with traced(seed), _noting(recomputing, loaded):
        found = [problem for graph in loaded.names["FUNCTIONS"].values() for problem in _trace(graph, loaded, spec)]
    unexpected = find_unexpected(recomputing, loaded.program, spec)
    return tuple(dict.fromkeys((*found, *find_kept(models, spec), *unexpected)))


@contextmanager
def _noting(recomputing: set[str], loaded: Loaded) -> Iterator[None]:
    """Note the models that `tf.recompute_grad` is met in, while graphs are made inside."""
    names = {id(model): name for name, model in loaded.names["MODELS"].items()}
    call = loaded.names.get("call_model")

    def called(model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a model."""
        assert call is not None
        with watched_recomputing(lambda: nullcontext(recomputing.add(names[id(model)]))):
            return call(model, *args, **kwargs)

    loaded.names.update({} if call is None else {"call_model": called})
    try:
        yield
    finally:
        loaded.names.update({} if call is None else {"call_model": call})


def _trace(graph: Any, loaded: Loaded, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield what goes wrong while a graph is made."""
    try:
        graph.traced.get_concrete_function()
    except Exception as error:
        yield diagnose(error, loaded, spec)


def find_kept(models: Mapping[str, Any], spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS215) for every tensor of a graph that a forward left in its model: no step would find it."""
    for name, model in models.items():
        for path in _find_symbolic(model, "", set()):
            yield Diagnostic(
                code="GS215",
                message=f"a forward of model '{name}' puts a new tensor in the place of its attribute '{path}'",
                span=find_span(spec, name),
                help=f"keep it in a variable: `self.{path}.assign(...)`; graphs, averages and copies find that",
            )


def _find_symbolic(owner: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Yield the paths of tensors of a graph among the attributes of a model and its parts."""
    if id(owner) in seen or isinstance(owner, (str, int, float, type)):
        return
    seen.add(id(owner))
    own = vars(owner) if isinstance(owner, (tf.Module, KerasLayer)) else {}
    yield from (f"{path}{name}" for name, value in own.items() if tf.is_symbolic_tensor(value))
    for name, part in parts_of(owner):
        yield from _find_symbolic(part, f"{path}{name}.", seen)
