"""Ops of a graph that hold others: what is declared in their `with` statement is repeated, or chosen."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import cast

from graphspec.python.records import Entry, Recorder
from graphspec.python.values import Op, Value


class Container(Op):
    """An op that holds those that are declared in its `with` statement; outside, `after=` names it like any op."""

    __slots__ = ("_opened",)

    def __init__(self, recorder: Recorder, entry: Entry) -> None:
        super().__init__(recorder, entry)
        self._opened: AbstractContextManager[None] | None = None

    def output(self, value: Value | str) -> Value:
        """Return what a value in it is outside: stacked over iterations, or that of the alternative that runs.

        Of alternatives the name is given that all of them have. Raises ArgumentError for values of other ops.
        """
        site = self.recorder.sources.find()
        outputs = cast("list[object]", self.entry.fields.setdefault("outputs", []))
        if isinstance(value, Value):
            if value.entry.holder is not self.entry:
                help = "give a value that is declared in its `with` statement"
                raise self.recorder.error(site, f"{value!r} is not in {self!r}", help)
            value.entry.pinned = True
        outputs.append(value)
        return Value(self.recorder, self.entry, len(outputs) - 1)


class Repeat(Container):
    """A repeated part of a step.

    >>> from graphspec import Graph
    >>> from graphspec.library import mse, sgd
    >>> g = Graph("passes")
    >>> x, y = g.input("x", ["batch", 2]), g.input("y", ["batch", 1])
    >>> net = g.model("net", layers=[{"linear": 1}], optimizer=sgd(0.1))
    >>> with g.repeat("passes", 3, batch="split") as passes:
    ...     fit = mse(net(x, name="out"), y)
    ...     _ = g.update(net, loss=fit, name="step")
    >>> losses = passes.output(fit)
    >>> spec = g.build(outputs=[losses])
    >>> spec.outputs, spec.ops["passes.3.step"].after
    (('passes.fit',), ('passes.2.step',))
    """

    def __enter__(self) -> Repeat:
        self._opened = self.recorder.hold(self.entry, ("ops",))
        self._opened.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.__exit__(kind, error, trace)


class Sometimes(Repeat):
    """A part of a step that runs in some steps; `output` takes the names that `otherwise` gives values for."""

    def output(self, value: Value | str) -> Value:
        """Return the value of an output: in the steps without this part it is what `otherwise` says."""
        names = [*cast("Mapping[str, object]", self.entry.fields.get("else", {}))]
        if value not in names:
            site = self.recorder.sources.find()
            raise self.recorder.error(site, f"{self!r} has no output {value!r}", "name it in `otherwise`")
        return Value(self.recorder, self.entry, names.index(cast("str", value)))


class Choose(Container):
    """A part of a step with several alternatives, each in a `with` statement of its own.

    >>> from graphspec import Graph
    >>> g = Graph("views")
    >>> x = g.input("x", ["batch", 2])
    >>> views = g.choose("views")
    >>> with views.when(0.5):
    ...     seen = g.expr(-x, name="seen")
    >>> with views.when(0.5):
    ...     seen = g.expr(x * 2, name="seen")
    >>> spec = g.build(outputs=[views.output("seen")])
    >>> spec.outputs, spec.ops["views.2.seen"].within[0].low
    (('views.seen',), 0.5)
    """

    @contextmanager
    def when(self, p: float) -> Generator[None]:
        """Declare the ops of an alternative that is taken with a probability."""
        alternatives = cast("list[dict[str, object]]", self.entry.fields["choose"])
        alternatives.append({"p": p, "ops": {}})
        with self.recorder.hold(self.entry, ("choose", len(alternatives) - 1, "ops")):
            yield
