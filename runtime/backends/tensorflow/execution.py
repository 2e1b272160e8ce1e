"""Execution of emitted modules under TensorFlow, and the interpretation of their errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile
from typing import Any, TypeAlias

import tensorflow as tf

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.slots import parameters as parameters_of
from runtime.codegen.module import Emitted
from runtime.engine import errors, load
from runtime.engine.load import find_named, find_op
from runtime.problems import raised_at, raised_in

_MEANINGS: Mapping[str, tuple[str, str]] = {
    r"do not fit: (they|the target|the scores) |reshape is a tensor with 1 values, but the requested shape has 2": (
        "its operands have shapes that do not fit",
        "give one of them the shape of the other with `call: reshape`; the framework would broadcast them and pair "
        "elements that do not belong together",
    ),
    r"has no gradient: the loss does not reach it": (
        "the loss does not depend on every parameter it is differentiated by",
        "take unused parameters out of the model, or write `missing: skip` or `missing: zero` on the update",
    ),
    r"random numbers of Python or NumPy are drawn": (
        "it draws random numbers of Python or NumPy, which a graph would draw once and keep for ever",
        "draw with `keras.random` and a SeedGenerator, or with a tf.random.Generator",
    ),
    r"there is nothing to differentiate by": (
        "there is nothing to differentiate by: no parameter of the model is trainable",
        "take the update out, or make variables of the model with `trainable=True`",
    ),
    r"the loss is not a single number": (
        "the loss is not a single number",
        "reduce it: `reduction: mean` on the loss, or `call: mean`",
    ),
    r"Attempt to convert a value \([\[({]|object of type 'dict'|must be Tensor, not (tuple|list|dict)": (
        "a call gave several results where one was expected",
        "name them all at the call: `outputs: [first, second]`",
    ),
    r"Using a symbolic `tf.Tensor` as a Python `bool`|iterating over `tf.Tensor`|Iterating over a symbolic": (
        "what Python decides here depends on the values of tensors, which a graph does not have yet",
        "use `tf.where`, `tf.cond` or `tf.while_loop`",
    ),
    r"Cannot convert a symbolic|has no attribute 'numpy'|numpy\(\) is only available": (
        "the values of tensors are taken out of the graph: it is traced once, when there are none yet",
        "compute with TensorFlow's operations, or wrap the part in `tf.numpy_function`",
    ),
    r"is out of scope|InaccessibleTensorError|cannot be accessed from": (
        "a tensor of another call is used",
        "models and functions keep nothing from call to call but variables",
    ),
    r"[Cc]reat(e|ing) variables on a non-first call|singleton tf.Variables": (
        "variables are made while a step runs",
        "make all variables of a model in its constructor, or in `build` where it is a model of Keras",
    ),
    r"expected to be an? \w+ tensor but is an? \w+ tensor|must be (of )?the same (d?type)|"
    r"to have the same dtype|Tensor conversion requested dtype|must have the same type": (
        "numbers of different types meet",
        "models given by `models=` keep their type: make them in the type of the step, or build the step in theirs, "
        '`build(..., dtype="float64")`',
    ),
    r"custom_gradient decorator currently supports keywords? arguments only when eager": (
        "a function with a gradient of its own is called with keywords, which TensorFlow cannot do in a graph; a "
        "`keras.RematScope` makes layers that are called so",
        "make the model outside of the scope, and write `checkpoint: true` on its forward: that recomputes all of it",
    ),
    r"deepcopy|cannot pickle|Could not locate class|must override `get_config": (
        "the model cannot be copied",
        "a copy is made for `like` and `ema`; keep files, locks and the like out of its attributes",
    ),
    r"Resource exhausted|OOM when allocating": (
        "the device is out of memory",
        "use smaller batches or models, or another `--device`",
    ),
    r"has no attribute '(variables|trainable_variables|call|__call__)'|is not a callable object": (
        "the class makes no model that can be called",
        "models are Keras's, or tf.Modules with `__call__`",
    ),
}
"""What TensorFlow says (a pattern) -> what it means, and the remedy."""

_LONGEST = 300
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GRAPH = "Graph execution error:"
_DEFINED = "defined at (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$', re.MULTILINE)
_KERAS = "Exception encountered when calling"
_TAIL = re.compile(r"\s*(\[\[\{\{.*|\[Op:[^\]]*\].*|name: \S*$)")


def find_defined(error: BaseException) -> tuple[tuple[str, int, str], ...]:
    """Return where the operation that failed in a graph was written, outermost first, as (file, line, function)."""
    _, found, trace = str(error).partition(_DEFINED)
    frames = _FRAME.finditer(trace) if found else ()
    return tuple((frame["file"], int(frame["line"]), frame["name"]) for frame in frames)


def clean(error: BaseException) -> str:
    """Return TensorFlow's message as one line, without where the operation was written and who was called with what."""
    text = _ANSI.sub("", str(error)).strip()
    if text.startswith(_GRAPH):
        frames = list(_FRAME.finditer(text))
        text = text[frames[-1].end() :] if frames else text.removeprefix(_GRAPH)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_KERAS)]
    first = _TAIL.sub("", lines[0]) if lines else type(error).__name__
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."


def interpret(error: BaseException) -> tuple[str, tuple[str, ...], str]:
    """Return message, notes and help of an operation's error; TensorFlow's own words where there are no better ones."""
    text = f"{type(error).__name__}: {error}"
    for pattern, (meaning, help) in _MEANINGS.items():
        if re.search(pattern, text):
            return meaning, (f"TensorFlow: {clean(error)}",), help
    return clean(error), (), ""


Loaded: TypeAlias = load.Loaded[Any]
"""An executed module, whose globals only TensorFlow knows the types of."""


class TensorFlowErrors(errors.Framework):
    """The part of diagnosing an error of a step that is particular to TensorFlow.

    A failure while a graph runs passed through no line of Python: its message says where the operation was written.
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
        """Return the op that an error comes from; empty where no line of the module identifies one."""
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
    """Return the diagnostic of an error raised inside the emitted module."""
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
