"""Execution of emitted modules under TensorFlow, and how their errors are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile
from typing import Any, TypeAlias

import tensorflow as tf

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.messages import clean, find_defined, interpret
from runtime.backends.tensorflow.naming import parameters as parameters_of
from runtime.codegen.module import Emitted
from runtime.engine import errors, load
from runtime.engine.load import find_named, find_op
from runtime.problems import raised_at, raised_in

Loaded: TypeAlias = load.Loaded[Any]
"""An executed module, whose globals only TensorFlow knows the types of."""


class TensorFlowErrors(errors.Framework):
    """What is particular to TensorFlow where an error of a step is told.

    What fails while a graph runs went through no line of Python: the message tells where the operation was written.
    """

    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [?, 2]``, sizes that a graph leaves open as ?."""
        if not isinstance(value, (tf.Tensor, tf.Variable)):
            return None
        sizes = value.shape.as_list() if value.shape.rank is not None else ["..."]
        return f"{value.dtype.name} [{', '.join('?' if size is None else str(size) for size in sizes)}]"

    def interpret(self, error: BaseException) -> tuple[str, tuple[str, ...], str]:
        """Return message, notes and help of an operation's error."""
        return interpret(error)

    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that a loss does not reach, where that is what a gradient failed on."""
        if "the loss does not reach it" not in str(error):
            return ()
        return self.name_parameters(_find_missed(error), models)

    def name_parameters(self, parameters: Iterable[object], models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of some parameters of models, as ``model.parameter``."""
        wanted = {id(each) for each in parameters}
        named = ((model, parameters_of(made)) for model, made in models.items())
        return tuple(f"{model}.{name}" for model, each in named for name, one in each.items() if id(one) in wanted)

    def find_op(self, error: BaseException, load: load.Loaded[object]) -> str:
        """Return the op that an error comes from; empty where no line of the module tells."""
        written = find_named(((file, line) for file, line, _ in find_defined(error)), load)
        return written or find_op(error, load)

    def raised_in(self, error: BaseException) -> tuple[str, ...]:
        """Return a note with the user's frames of an error, of the graph that failed where it is one."""
        inside = dropwhile(lambda frame: not frame[0].startswith("<stepgraph"), find_defined(error))
        return raised_at(tuple(inside)) or raised_in(error)

    def quote(self, error: BaseException) -> str:
        """Return an error's type and the line of its text that says what happened."""
        text = clean(error)
        return type(error).__name__ if text == type(error).__name__ else f"{type(error).__name__}: {text}"


ERRORS = TensorFlowErrors()


def load_module(emitted: Emitted, program: Program) -> Loaded:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it."""
    return load.load_module(emitted, program)


def call_checked(load: Loaded, spec: GraphSpec, function: str, *arguments: object) -> Any:
    """Call one of the module's functions; raise StepError with its place in the spec where it fails."""
    return errors.call_checked(load, spec, ERRORS, function, *arguments)


def diagnose(error: Exception, load: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return what to tell the user of an error raised inside the emitted module."""
    return errors.diagnose(error, load, spec, ERRORS)


def _find_missed(error: BaseException) -> Iterator[Any]:
    """Yield the targets without a gradient, out of the frame of the library's ``gradients`` that gave up."""
    trace = error.__traceback__
    while trace is not None:
        names = trace.tb_frame.f_locals
        if trace.tb_frame.f_code.co_name == "gradients" and "found" in names:
            pairs = zip(names["found"], names["targets"], strict=True)
            yield from (target for gradient, target in pairs if gradient is None)
        trace = trace.tb_next
