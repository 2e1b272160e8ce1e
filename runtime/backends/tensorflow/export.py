"""Export: the weights of a model as a safetensors file, and a pure mode as a SavedModel."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import save

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.tensorflow.execution import ERRORS, Loaded, load_module
from runtime.backends.tensorflow.library.modules import KerasLayer, parts_of
from runtime.backends.tensorflow.slots import buffers, parameters
from runtime.backends.tensorflow.tensors import sample_inputs, target_dtype
from runtime.codegen.module import emit_module
from runtime.engine.backend import PackedModel, PackedProgram
from runtime.engine.load import find_span
from runtime.problems import problem, quiet

TAPS = ("seen", "call")
"""Attributes through which layers are watched: of the library's layers, and of Keras's."""


@contextmanager
def untapped(models: Mapping[str, Any]) -> Iterator[None]:
    """Restore on the way out the attributes that watch layers: another module may watch them inside."""
    layers = list(_find_layers(list(models.values()), set()))
    kept = [{name: vars(layer)[name] for name in TAPS if name in vars(layer)} for layer in layers]
    try:
        yield
    finally:
        for layer, attributes in zip(layers, kept, strict=True):
            for name in TAPS:
                vars(layer).pop(name, None)
            vars(layer).update(attributes)


def _find_layers(owner: Any, seen: set[int]) -> Iterator[Any]:
    """Yield all modules and layers of something, once each."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    if isinstance(owner, (tf.Module, KerasLayer)):
        yield owner
    for _, part in parts_of(owner):
        yield from _find_layers(part, seen)


CODE = "GS265"
REMEDY = "`--format weights` writes the weights alone"
DRAWS = (
    *("Random", "Truncated", "Multinomial", "Parameterized", "Rng"),
    *("StatefulRandom", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal"),
)
"""Prefixes of the names of operations that draw random numbers."""
WRITES = ("Assign", "ResourceScatter", "ResourceApply")
"""Prefixes of the names of operations that write into variables."""
UNTRACKED = "untracked"
"""TensorFlow's message on a table or another resource that is not a variable."""


def explain_unexportable(error: Exception, loaded: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return the diagnostic of an error that exporting a mode of an emitted module raised."""
    op = ERRORS.find_op(error, loaded)
    subject = f"op '{op}'" if op else f"mode {loaded.program.modes[0].mode}"
    is_untracked = UNTRACKED in str(error)
    reason = "a model uses a resource that is not a variable, such as a table" if is_untracked else ERRORS.quote(error)
    message = f"{subject} cannot be exported: {reason}"
    return Diagnostic(code=CODE, message=message, span=find_span(spec, op), notes=ERRORS.raised_in(error), help=REMEDY)


def explain_drawing(mode: str, draws: tuple[str, ...]) -> Diagnostic:
    """Return the diagnostic of a program that draws random numbers."""
    message = f"mode {mode} cannot be exported: it draws random numbers"
    help = f"let `random` ops draw what the mode needs; {REMEDY}"
    return Diagnostic(code=CODE, message=message, notes=(f"drawn by {', '.join(draws)}",), help=help)


def explain_writing(mode: str, name: str) -> Diagnostic:
    """Return the diagnostic of a program that changes a variable of a model."""
    message = f"mode {mode} cannot be exported: a forward writes into {name}"
    help = f"let the model do that only where `training` is true; {REMEDY}"
    return Diagnostic(code=CODE, message=message, help=help)


def explain_different(mode: str, output: str, difference: str) -> Diagnostic:
    """Return the diagnostic of a program whose numbers differ from the original's."""
    message = f"mode {mode} cannot be exported: '{output}' has other numbers as a program"
    help = f"let models not depend on sizes in Python, and keep nothing from call to call; {REMEDY}"
    return Diagnostic(
        code=CODE, message=message, notes=(f"compared with what it was made of: {difference}",), help=help
    )


def find_draws(traced: Any) -> tuple[str, ...]:
    """Return the operations of a graph that draw random numbers, including those in the functions that it calls."""
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


FREE = 8
"""The least free size of the inputs a mode is compared with; no two free sizes are the same there."""
SIGNATURE = "serving_default"
"""The name under which TensorFlow's own tools look for the program."""
NEAR: Mapping[str, float] = {"float64": 1e-7, "float32": 1e-5, "float16": 2**-8, "bfloat16": 2**-5}
"""The tolerance between a graph and the same code run eagerly, by the type of the computation."""

Function = Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]


class PureModule(tf.Module):
    """A module that calls an emitted function, with the variables that the function reads as its own."""

    def __init__(self, function: Function, inputs: Mapping[str, tf.TensorSpec], variables: list[tf.Variable]) -> None:
        super().__init__()
        self.function = function
        self.held = variables
        traced: Any = self.__call__
        traced.get_concrete_function(dict(inputs))  # saves what has been traced so far

    @tf.function(autograph=False)
    def __call__(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the outputs of a batch."""
        return self.function(batch)

    @tf.function(autograph=False)
    def serve(self, **batch: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of a batch whose tensors are given by name."""
        return self.function(batch)


def pack_model(model: Any, name: str) -> PackedModel:
    """Return parameters and buffers of a model under its names for them: those of built-in models are PyTorch's.

    Raises SpecError: GS265 for types that safetensors does not have.
    """
    found = {key: np.array(each.numpy()) for key, each in (parameters(model) | buffers(model)).items()}
    try:
        content = save(found, metadata={"format": "tf"})
    except (KeyError, SafetensorError) as error:
        message = f"the weights of model '{name}' cannot be exported: safetensors does not have the type {error}"
        raise problem(CODE, message, help="keep such variables out of the model") from error
    described = {key: (each.shape, each.dtype.name) for key, each in found.items()}
    return PackedModel(content=content, tensors=described)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPacker:
    """Packs a program of one function, which draws and writes nothing, over the present models."""

    program: Program
    spec: GraphSpec
    models: Mapping[str, Any]
    states: Mapping[str, tf.Variable]
    dtype: tf.DType

    @property
    def mode(self) -> str:
        """Return the mode that is exported."""
        return self.program.modes[0].mode

    def pack(self) -> PackedProgram:
        """Return the files of a SavedModel; it computes the same numbers as the function.

        Called with a dictionary of tensors, or by name under its signature. Raises SpecError: GS265 with the reason
        where TensorFlow cannot follow the models, or follows them wrongly.
        """
        with quiet(), untapped(self.models), tempfile.TemporaryDirectory() as folder:
            loaded = load_module(emit_module(self.program, TENSORFLOW, provided=self.models), self.program)
            with self._refusing(loaded):
                loaded.call("build", 0, "cpu", self.dtype, dict(self.models))
            loaded.names.get("STATE", {}).update(self.states)
            function = loaded.names[loaded.emitted.names.function(self.program.modes[0].functions[0].name)]
            with self._refusing(loaded):
                specs = {
                    entry.name: tf.TensorSpec(
                        [size if isinstance(size, int) else None for size in entry.shape or ()],
                        target_dtype(entry, self.dtype),
                        name=entry.name,
                    )
                    for entry in self.program.inputs
                }
                held = [
                    each for model in self.models.values() for each in (parameters(model) | buffers(model)).values()
                ]
                module = PureModule(function, specs, [*held, *self.states.values()])
                serve: Any = module.serve
                served = serve.get_concrete_function(**specs)
            draws, writes = find_draws(served), find_writes(served, self.models)
            if draws:
                raise SpecError([explain_drawing(self.mode, draws)], self.spec.texts())
            if writes:
                raise SpecError([explain_writing(self.mode, writes[0])], self.spec.texts())
            with self._refusing(loaded):
                tf.saved_model.save(module, folder, signatures={SIGNATURE: served})
                self._compare(folder, function)
            paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
            return PackedProgram(suffix=".savedmodel", files=files)

    @contextmanager
    def _refusing(self, loaded: Loaded) -> Iterator[None]:
        """Raise failures inside as SpecError (GS265), with TensorFlow's reason in one line."""
        try:
            yield
        except SpecError:
            raise
        except Exception as error:
            found = explain_unexportable(error, loaded, self.spec)
        else:
            return
        raise SpecError([found], self.spec.texts())

    def _compare(self, folder: str, function: Function) -> None:
        """Raise SpecError (GS265) for a program whose numbers differ from the function run eagerly."""
        program = tf.saved_model.load(folder)
        lower = () if self.dtype == tf.float64 else {each.compute for each in self.program.models} - {"float32"}
        sizes = (size for entry in self.program.inputs for size in entry.shape or ())
        free = dict.fromkeys(size for size in sizes if isinstance(size, str))
        for more in (0, 3):
            batch = sample_inputs(self.program, dict(zip(free, count(FREE + more), strict=False)), self.dtype) or {}
            found, expected = program(batch), function(batch)
            for name, value in expected.items():
                near = max(NEAR.get(each, 1e-3) for each in (value.dtype.name, *lower))
                try:
                    np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=near, atol=near)
                except AssertionError as error:
                    lines = [line for line in str(error).splitlines() if line.strip()]
                    difference = lines[1] if len(lines) > 1 else lines[0]
                    raise SpecError([explain_different(self.mode, name, difference)], self.spec.texts()) from None
