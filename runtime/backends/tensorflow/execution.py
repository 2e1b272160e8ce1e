"""Execution of emitted modules under TensorFlow, and the interpretation of their errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile
from typing import Any, TypeAlias

import tensorflow as tf

from compiler.ir.program import Program
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.tensorflow.slots import parameters as parameters_of
from runtime.codegen.module import Emitted, emit_module
from runtime.codegen.resources import PLAIN, Extras
from runtime.engine import errors, load
from runtime.engine.load import find_named, find_op
from runtime.problems import raised_at, raised_in

MEANINGS: Mapping[str, tuple[str, str]] = {
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
        "it draws random numbers of Python or NumPy, which a graph would draw once and keep forever",
        "draw with `keras.random` and a SeedGenerator, or with a tf.random.Generator",
    ),
    r"there is nothing to differentiate by": (
        "there is nothing to differentiate by: no parameter of the model is trainable",
        "remove the update, or make variables of the model with `trainable=True`",
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
        "the values of tensors are read outside of the graph: it is traced once, before there are any",
        "compute with TensorFlow's operations, or wrap the part in `tf.numpy_function`",
    ),
    r"is out of scope|InaccessibleTensorError|cannot be accessed from": (
        "a tensor of another call is used",
        "models and functions keep nothing from call to call but variables",
    ),
    r"[Cc]reat(e|ing) variables on a non-first call|singleton tf.Variables": (
        "variables are created while a step runs",
        "make all variables of a model in its constructor, or in `build` where it is a model of Keras",
    ),
    r"expected to be an? \w+ tensor but is an? \w+ tensor|must be (of )?the same (d?type)|"
    r"to have the same dtype|Tensor conversion requested dtype|must have the same type": (
        "numbers of different types meet",
        "models passed as `models=` keep their dtype: make them in the type of the step, or build the step in theirs, "
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
        "the class does not create a callable model",
        "models are Keras's, or tf.Modules with `__call__`",
    ),
}
"""What TensorFlow says (a pattern) -> what it means, and the remedy."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GRAPH = "Graph execution error:"
_DEFINED = "defined at (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$', re.MULTILINE)
_KERAS = "Exception encountered when calling"
_ROOTS = re.compile(r"^\d+ root error\(s\) found\.\s*\(0\) [A-Z_]+:\s*", re.MULTILINE)
"""What begins a message where replicas fail together; the first of their errors follows."""
_ABORTED = "Collective ops is aborted by"
_TAIL = re.compile(r"\s*(\[\[\{\{.*|\[Op:[^\]]*\].*|name: \S*$)")


def find_defined(error: BaseException) -> tuple[tuple[str, int, str], ...]:
    """Return where the operation that failed in a graph was written, outermost first, as (file, line, function)."""
    _, found, trace = str(error).partition(_DEFINED)
    frames = _FRAME.finditer(trace) if found else ()
    return tuple((frame["file"], int(frame["line"]), frame["name"]) for frame in frames)


Loaded: TypeAlias = load.Loaded[Any]
"""An executed module, whose globals only TensorFlow knows the types of."""


class TensorFlowErrors(errors.Framework):
    """The part of diagnosing an error of a step that is particular to TensorFlow.

    A failure while a graph runs passed through no line of Python: its message says where the operation was written.
    """

    title = "TensorFlow"
    meanings = MEANINGS

    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [?, 2]``, sizes that a graph leaves open as ?."""
        if not isinstance(value, (tf.Tensor, tf.Variable)):
            return None
        sizes = value.shape.as_list() if value.shape.rank is not None else ["..."]
        return f"{value.dtype.name} [{', '.join('?' if size is None else str(size) for size in sizes)}]"

    def find_line(self, error: BaseException) -> str:
        """Return the line that says what happened, not where the operation was written and who was called with what."""
        text = _ANSI.sub("", str(error)).strip()
        if text.startswith(_GRAPH):
            frames = list(_FRAME.finditer(text))
            text = text[frames[-1].end() :] if frames else text.removeprefix(_GRAPH)
        lines = [line.strip() for line in _ROOTS.sub("", text).splitlines()]
        lines = [line for line in lines if line and not line.startswith(_KERAS)]
        return _TAIL.sub("", lines[0]) if lines else type(error).__name__

    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that a loss does not reach: the frame of ``gradients`` that gave up has the targets."""
        missed: list[object] = []
        trace = error.__traceback__ if "the loss does not reach it" in str(error) else None
        while trace is not None:
            names = trace.tb_frame.f_locals
            if trace.tb_frame.f_code.co_name == "gradients" and "found" in names:
                pairs = zip(names["found"], names["targets"], strict=True)
                missed += [target for gradient, target in pairs if gradient is None]
            trace = trace.tb_next
        return self.name_parameters(missed, models)

    def is_lost(self, error: BaseException) -> bool:
        """Return whether an error says that another worker is gone: so does what its end has aborted."""
        gone = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
        return isinstance(error, gone) or (isinstance(error, tf.errors.OpError) and _ABORTED in str(error))

    def find_parameters(self, model: Any) -> Iterable[tuple[str, object]]:
        """Return the parameters of a model with their names."""
        return parameters_of(model).items()

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
        text = self.clean(error)
        return type(error).__name__ if text == type(error).__name__ else f"{type(error).__name__}: {text}"


ERRORS = TensorFlowErrors()


def load_program(program: Program, provided: Iterable[str] = (), extras: Extras = PLAIN) -> Loaded:
    """Emit a program, execute the module and return it; models in ``provided`` are given to its ``build``."""
    return load_module(emit_module(program, TENSORFLOW, provided, extras), program)


load_module: Callable[[Emitted, Program], Loaded] = load.load_module
"""Executes an emitted module, whose text is registered so that tracebacks can show it."""
