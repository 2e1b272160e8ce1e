"""Diagnosis: an error raised inside an emitted module, described in the words of the spec."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, cast, runtime_checkable

from msgspec import Struct

from compiler.ir.instructions import Accumulate, Evaluate, Forward, Gradient, Transform
from graphspec.analysis.gradient_sets import find_gradient_sets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_instructions
from runtime.engine.load import Loaded, find_arguments, find_frames, find_op, find_span, name_subject
from runtime.problems import describe, raised_in
from runtime.processes import LOST
from runtime.step import StepError

T = TypeVar("T")
LONGEST = 300
"""The most characters of a framework's message."""
FILES = frozenset({"GS271", "GS272"})
"""Codes of problems with weight files."""


class Framework(ABC):
    """The part of diagnosing an error of a step that depends on the framework."""

    title: str
    """The name of the framework in notes."""
    meanings: Mapping[str, tuple[str, str]]
    """A pattern of the framework's messages -> the meaning, and the remedy."""

    @abstractmethod
    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [8, 2]``; None for what is none."""

    @abstractmethod
    def find_line(self, error: BaseException) -> str:
        """Return the line of an error's text that says what happened."""

    @abstractmethod
    def find_parameters(self, model: object) -> Iterable[tuple[str, object]]:
        """Return the parameters of a model with their names."""

    def clean(self, error: BaseException) -> str:
        """Return the framework's message as one line, cut where it is very long."""
        line = self.find_line(error)
        return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."

    def interpret(self, error: BaseException) -> tuple[str, tuple[str, ...], str]:
        """Return message, notes and help of an operation's error: the framework's words where there are no better."""
        text = f"{type(error).__name__}: {error}"
        for pattern, (meaning, help) in self.meanings.items():
            if re.search(pattern, text):
                return meaning, (f"{self.title}: {self.clean(error)}",), help
        return self.clean(error), (), ""

    def is_lost(self, error: BaseException) -> bool:
        """Return whether an error says that another process has ended, or does not answer."""
        return False

    @abstractmethod
    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, object]) -> tuple[str, ...]:
        """Return the parameters that a loss does not reach, where that is what a gradient failed on."""

    def name_parameters(self, parameters: Iterable[object], models: Mapping[str, object]) -> tuple[str, ...]:
        """Return the names of some parameters of models, as ``model.parameter``."""
        wanted = {id(each) for each in parameters}
        named = ((name, *each) for name, model in models.items() for each in self.find_parameters(model))
        return tuple(f"{model}.{name}" for model, name, each in named if id(each) in wanted)

    def find_op(self, error: BaseException, loaded: Loaded[object]) -> str:
        """Return the op that an error comes from; empty where no line of the module identifies one."""
        return find_op(error, loaded)

    def raised_in(self, error: BaseException) -> tuple[str, ...]:
        """Return a note with the user's frames of an error; none where it went through no code of the user's."""
        return raised_in(error)

    def quote(self, error: BaseException) -> str:
        """Return an error's type and the first line of its text."""
        return describe(error)


@runtime_checkable
class NonFiniteReport(Protocol):
    """An error raised by the checks of a debug build, or by the reader of weight files."""

    code: str
    op: str
    message: str
    notes: tuple[str, ...]
    remedy: str


def call_checked(loaded: Loaded[T], spec: GraphSpec, framework: Framework, function: str, *arguments: object) -> T:
    """Call one of the module's functions; raise StepError with its place in the spec where it fails."""
    try:
        return loaded.call(function, *arguments)
    except Exception as error:
        found = diagnose(error, cast("Loaded[object]", loaded), spec, framework)
    raise StepError([found], spec.texts())


def diagnose_report(finding: NonFiniteReport, spec: GraphSpec) -> Diagnostic:
    """Return a finding as a diagnostic; for a weight file, at the place that names it."""
    is_file = finding.code in FILES and finding.op in spec.models
    span = spec.span("models", finding.op, "weights") if is_file else find_span(spec, finding.op)
    return Diagnostic(code=finding.code, message=finding.message, span=span, notes=finding.notes, help=finding.remedy)


def diagnose(error: Exception, loaded: Loaded[object], spec: GraphSpec, framework: Framework) -> Diagnostic:
    """Return the diagnostic of an error raised inside the emitted module.

    GS210 where the user's own code raised, with the user's frames; GS211 where an operation of the step failed; GS212
    where a loss does not reach all it is differentiated by; GS259 where another process is gone;
    GS261 and GS262 from the checks of a debug build.
    """
    if isinstance(error, NonFiniteReport):
        return diagnose_report(error, spec)
    op = framework.find_op(error, loaded)
    return _Failure(error=error, loaded=loaded, spec=spec, framework=framework, op=op).diagnose()


class _Failure(Struct, frozen=True, kw_only=True):
    """An error of one op, model or input of a step; ``op`` is empty where it is unknown."""

    error: Exception
    loaded: Loaded[object]
    spec: GraphSpec
    framework: Framework
    op: str

    def diagnose(self) -> Diagnostic:
        """Return the diagnostic."""
        subject, span = name_subject(self.spec, self.op), find_span(self.spec, self.op)
        message, notes, help = self.framework.interpret(self.error)
        if self.framework.is_lost(self.error):
            message = f"{subject} timed out waiting for the other processes: one has exited or hangs"
            notes = (f"{self.framework.title}: {self.framework.clean(self.error)}",)
            help = "read the last output of the other process"
            return Diagnostic(code=LOST, message=message, span=span, notes=notes, help=help)
        raised = self.framework.raised_in(self.error)
        if raised:
            message = f"{subject} raised {self.framework.quote(self.error)}"
            help = (
                self._name_sets()
                or self._name_structured()
                or help
                or "the error comes from your code: the last line under `raised in`"
            )
            given = {
                name: f"{name}: {described}"
                for frame in find_frames(self.error, self.loaded)
                for _, name, value in find_arguments(frame, self.op, self.loaded)
                if (described := self.framework.describe(value)) is not None
            }
            called = (f"called with {', '.join(given.values())}",) if given else ()
            return Diagnostic(code="GS210", message=message, span=span, notes=(*called, *raised), help=help)
        model = self.spec.models.get(self.op)
        path = None if model is None else model.class_path(self.loaded.program.backend)
        constructor = None if path is None else f"{path.partition(':')[2]}.__init__()"
        if constructor is not None and isinstance(self.error, TypeError) and constructor in str(self.error):
            span, help = self.spec.span("models", self.op, "args"), f"compare `args` with what {path} takes"
        help = self._name_structured() or help
        unused = self._name_unused()
        code, message = "GS212" if unused else "GS211", f"{subject} failed: {message}"
        return Diagnostic(code=code, message=message, span=span, notes=unused or notes, help=help)

    def _name_sets(self) -> str:
        """Return a hint on what a user's function gets in place of a tensor; empty where it gets only tensors."""
        op = self.spec.ops.get(self.op)
        sets = find_gradient_sets(self.spec)
        given = [each.name for each in (op.operands() if isinstance(op, CallOp) else ()) if each.name in sets]
        if not given:
            return ""
        what = "a tuple with a tensor for each parameter, or None where there is no gradient"
        return f"'{given[0]}' is a gradient set: your function gets {what}"

    def _name_structured(self) -> str:
        """Return a hint on a model's result that is not a tensor, and the fix; empty where all are tensors."""
        instructions = [*find_instructions(self.loaded.program)]
        read = {name for each in instructions if each.op == self.op for name in each.operands}
        calls = [each for each in instructions if isinstance(each, Forward | Evaluate)]
        made = {name: each.op for each in calls for name in each.outputs}
        for frame in find_frames(self.error, self.loaded):
            for name in (each for each in made if each in read):
                value = frame.f_locals.get(self.loaded.emitted.names.value(name))
                if value is not None and self.framework.describe(value) is None:
                    what = f"'{name}' is not a tensor but a {type(value).__name__}"
                    return f"{what}: write `outputs: [{_list_names(value)}]` at '{made[name]}'"
        return ""

    def _name_unused(self) -> tuple[str, ...]:
        """Return a note with the parameters that have no gradient, where that is what the op failed on."""
        names, gradients = self.loaded.emitted.names, list[Gradient]()
        # Sets that together must have every gradient for the op, with their models.
        demanded: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        for each in find_instructions(self.loaded.program):
            if isinstance(each, Gradient) and each.op == self.op:
                gradients.append(each)
            elif isinstance(each, Transform) and each.op == self.op and each.function.name == "require":
                demanded.append((each.inputs, each.models))
            elif isinstance(each, Accumulate) and each.gradients is not None and each.op == self.op:
                demanded.append(((each.gradients,), each.models))
        for frame in find_frames(self.error, self.loaded):
            known = cast("Mapping[str, object]", self.loaded.names["MODELS"])
            for gradient in gradients[:1]:  # one whose loss does not reach them
                loss = frame.f_locals.get(names.value(gradient.loss))
                models = {name: known[name] for name in gradient.models}
                if unused := self.framework.find_unused(self.error, loss, models):
                    return (f"'{gradient.loss}' does not depend on {', '.join(unused)}",)
            for values, owners in demanded:
                parameters = cast("list[object]", self.loaded.names[names.joint(owners)])
                sets = [cast("tuple[object, ...] | None", frame.f_locals.get(names.value(value))) for value in values]
                found = zip(*(each or () for each in sets), strict=False)
                absent = [p for p, parts in zip(parameters, found, strict=False) if all(g is None for g in parts)]
                if absent:  # sets of some terms of a loss are not named in the document
                    named = values[0] if values[0] in find_gradient_sets(self.spec) else self.op
                    lacking = self.framework.name_parameters(absent, {name: known[name] for name in owners})
                    return (f"'{named}' has no gradient of {', '.join(lacking)}",)
        return ()


def _list_names(value: object) -> str:
    """Return the names of the values in a model's result; for a tuple, made-up ones."""
    fields = cast("Iterable[str]", getattr(value, "_fields", ()))
    if isinstance(value, (tuple, list)) and not fields:
        return ", ".join(f"name{number}" for number in range(1, len(cast("Sequence[object]", value)) + 1))
    held = cast("Mapping[str, object]", getattr(cast("object", value), "__dict__", {}))
    if isinstance(value, Mapping):
        held = cast("Mapping[str, object]", value)
    named = (name for name, each in held.items() if each is not None)
    return ", ".join(fields or named)
