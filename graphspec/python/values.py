"""What Python code holds of a graph: values, models and ops. Operators on values are expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from graphspec.expand.formulas import OPERATORS, SIGNS
from graphspec.python.records import Entry, Formula, Recorder, Ref, describe
from graphspec.python.sites import Site

Schedule: TypeAlias = Mapping[str, object]
"""A schedule: `schedule("cosine", from_=1e-3, to=0, over="10 epochs")`, or the same as a dictionary."""
Number: TypeAlias = float | Schedule
Operand: TypeAlias = "Value | Number"
Moment: TypeAlias = int | str

_HEAVIEST = 60
"""The most operations of an expression; a longer one is cut into several."""


class Common(TypedDict, total=False):
    """Fields that every op has."""

    mode: str | Sequence[str]
    """Modes in which it runs: `train`, `eval`, `test`, `infer`, or all but one: `!eval`."""
    after: Op | str | Sequence[Op | str]
    """Ops that must happen first; the op then sees what they wrote."""
    every: int | Op | str
    """Every n-th step, or exactly when an update is applied."""
    start: Moment | Mapping[str, object]
    """The first step in which it runs: `100 steps`, `3 epochs`; of an average also `{"at": ..., "before": "copy"}`."""
    until: Moment
    """The last step in which it runs."""
    dataset: str | Sequence[str]
    """Data sets on whose batches it runs."""
    doc: str
    """A comment."""


class Fields(Common, total=False):
    """Fields that every op has, and its name."""

    name: str
    """The name of the op and its value. Default: what it is assigned to, else a number."""


class Op(Ref):
    """An op: what `after` and `every` of other ops name."""

    __slots__ = ()


class Value(Op):
    """A value of a step. Operators on values are expressions, as are the functions of `graphspec.library`.

    A value has no number while a graph is declared, so that `if` and `while` cannot ask for one: use `where`.
    """

    __slots__ = ()

    __array_ufunc__ = None  # NumPy's numbers leave operators to us
    __hash__ = object.__hash__

    def __add__(self, other: Operand) -> Value:
        return _operate("+", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self if type(other) is int and other == 0 else _operate("+", other, self)  # `sum` begins with 0

    def __sub__(self, other: Operand) -> Value:
        return _operate("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return _operate("-", other, self)

    def __mul__(self, other: Operand) -> Value:
        return _operate("*", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return _operate("*", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return _operate("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return _operate("/", other, self)

    def __pow__(self, other: Operand) -> Value:
        return _operate("**", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return _operate("**", other, self)

    def __matmul__(self, other: Value) -> Value:
        return _operate("@", self, other)

    def __and__(self, other: Operand) -> Value:
        return _operate("&", self, other)

    def __rand__(self, other: Operand) -> Value:
        return _operate("&", other, self)

    def __or__(self, other: Operand) -> Value:
        return _operate("|", self, other)

    def __ror__(self, other: Operand) -> Value:
        return _operate("|", other, self)

    def __lt__(self, other: Operand) -> Value:
        return _operate("<", self, other)

    def __le__(self, other: Operand) -> Value:
        return _operate("<=", self, other)

    def __gt__(self, other: Operand) -> Value:
        return _operate(">", self, other)

    def __ge__(self, other: Operand) -> Value:
        return _operate(">=", self, other)

    if not TYPE_CHECKING:  # a type checker wants a bool here

        def __eq__(self, other: Operand) -> Value:
            return _operate("==", self, other)

        def __ne__(self, other: Operand) -> Value:
            return _operate("!=", self, other)

    def __neg__(self) -> Value:
        return apply(SIGNS["-"], "call", (self,), {}, {}, is_operator=True)

    def __abs__(self) -> Value:
        return apply("abs", "call", (self,), {}, {})

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        return apply(SIGNS["~"], "call", (self,), {}, {}, is_operator=True)

    def __getitem__(self, at: object) -> Value:
        listed = cast("tuple[object, ...]", at) if isinstance(at, tuple) else (at,)
        if any(isinstance(each, Ref) for each in listed):
            help = "write `gather(x, indices, axis=1)` for indices, `where(mask, x, 0.0)` for masks"
            raise self.recorder.error(self.recorder.sources.find(), "brackets take no values", help)
        text = ", ".join(map(_spell_index, listed))
        return apply("subscript", "call", (self,), {"at": text}, {}, is_operator=True)

    def __bool__(self) -> bool:
        help = "`where(mask, a, b)` for `if`, `minimum(a, b)` for `min`, `&`, `|`, `~` for `and`, `or`, `not`"
        raise self.recorder.error(
            self.recorder.sources.find(), "a value is neither true nor false before the step runs", help
        )

    def __iter__(self) -> Iterator[Value]:
        help = "say how many there are: `outputs=2`; parts of a tensor are `split(x, sections=2)`, or `x[:, 0]`"
        raise self.recorder.error(self.recorder.sources.find(), "this is one value, not several", help)

    def __float__(self) -> float:
        help = "read it from what the step returns"
        raise self.recorder.error(self.recorder.sources.find(), "a value has no number before the step runs", help)


class Update(Op):
    """An update, whose loss is a value."""

    __slots__ = ()

    @property
    def loss(self) -> Value:
        """Return the loss of the update, for `outputs`."""
        return Value(self.recorder, self.entry, "loss")


Outputs: TypeAlias = int | Sequence[str | Mapping[str, object]]
"""Several results: how many, or their names; `{"hidden": {"tap": 1}}` is what an inner layer gives."""


class ForwardFields(Fields, total=False):
    """Fields of `forward`."""

    keywords: Mapping[str, Operand]
    """Inputs by the names of arguments, in place of those by position."""
    train: bool
    """Whether the model runs as in training."""
    method: str
    """The method that is called in place of the model itself."""
    stop: bool
    """Whether the results are constants for every gradient."""
    snapshot: bool
    """Whether it runs on clones of the weights, so that later writes wait for no gradient through it."""
    checkpoint: bool
    """Whether its inner results are not kept for gradients, which run it again."""


class Model(Ref):
    """A model: called on values it gives values."""

    __slots__ = ()

    @overload
    def __call__(self, *inputs: Operand, outputs: None = None, **fields: Unpack[ForwardFields]) -> Value: ...
    @overload
    def __call__(self, *inputs: Operand, outputs: Outputs, **fields: Unpack[ForwardFields]) -> tuple[Value, ...]: ...
    def __call__(
        self, *inputs: Operand, outputs: Outputs | None = None, **fields: Unpack[ForwardFields]
    ) -> Value | tuple[Value, ...]:
        """Return what the model gives: one value or, with ``outputs``, several.

        Raises SpecError for a name that is taken, ArgumentError for what is no value of this graph.
        """
        recorder, given = self.recorder, dict[str, object](fields)
        site, keywords = recorder.sources.find(), given.pop("keywords", None)
        if keywords is not None and inputs:
            raise recorder.error(site, "inputs are given by position and by name", "give all of them in `keywords`")
        operands = [require_operand(recorder, each, site) for each in inputs] if keywords is None else keywords
        kind = {"forward": self, "inputs": operands}
        entry = record_op(recorder, "forward", kind, given, site, outputs)
        return Value(recorder, entry) if outputs is None else unpack(recorder, entry)


class Average(Model, Op):
    """The average of a model: a model itself where it has no `into`."""

    __slots__ = ()


class Derived(Model, Op):
    """A derived model: called, differentiated and adapted as a model is."""

    __slots__ = ()


def record_op(
    recorder: Recorder,
    kind: str,
    given: Mapping[str, object],
    fields: Mapping[str, object],
    site: Site,
    outputs: Outputs | None = None,
    positional: tuple[str, ...] = (),
) -> Entry:
    """Record an op; what is None is left out. ``outputs`` are names of its results, or their number."""
    written = {key: each for key, each in {**given, **fields}.items() if each is not None}
    name = cast("str | None", written.pop("name", None))
    results, are_given = _name_results(outputs, site)
    if are_given:
        written["outputs"] = outputs
    entry = Entry(
        section="ops",
        kind=kind,
        site=site,
        fields=written,
        name=name,
        assigned=None if results else site.name,
        results=results,
        are_given=are_given,
        positional=positional,
    )
    return recorder.add(entry)


def unpack(recorder: Recorder, entry: Entry) -> tuple[Value, ...]:
    """Return the several results of an op."""
    return tuple(Value(recorder, entry, index) for index in range(len(entry.results)))


def _name_results(outputs: int | Sequence[object] | None, site: Site) -> tuple[tuple[str | None, ...], bool]:
    """Return the names of results as far as they are known, and whether they are given."""
    if outputs is None:
        return (), False
    if isinstance(outputs, int):
        return site.names if len(site.names) == outputs else (None,) * outputs, False
    listed = [outputs] if isinstance(outputs, str) else outputs
    return tuple(
        next(iter(cast("Mapping[str, object]", each)), None) if isinstance(each, Mapping) else cast("str", each)
        for each in listed
    ), True


def apply(
    function: str,
    family: Literal["call", "loss"],
    operands: Sequence[Operand],
    options: Mapping[str, object],
    fields: Mapping[str, object],
    *,
    is_operator: bool = False,
    results: int | None = None,
) -> Value:
    """Return a call or a loss of the library; its result becomes an op, or part of the expression of what uses it."""
    recorder = _find_recorder(function, operands)
    site = recorder.sources.find(is_operator=is_operator)
    operands = tuple(require_operand(recorder, each, site) for each in operands)
    given = {key: _unwrap(each) for key, each in options.items() if each is not None}
    for key, each in given.items():
        if isinstance(each, Ref):
            message = f"the option `{key}` of `{function}` is a constant, found {each!r}"
            raise recorder.error(site, message, "`minimum`, `maximum`, `where` and operators take values")
    written = {key: each for key, each in fields.items() if each is not None}
    name, outputs = (
        cast("str | None", written.pop("name", None)),
        cast("Sequence[str] | None", written.pop("outputs", None)),
    )
    formula = Formula(function=function, family=family, operands=operands, options=given, is_operator=is_operator)
    wanted, are_given = _name_results(outputs if outputs is not None else results, site)
    entry = Entry(
        section="ops",
        kind="expr" if is_operator else family,
        site=site,
        fields=written,
        name=name,
        assigned=None if wanted else site.name,
        results=wanted,
        are_given=are_given,
        formula=formula,
    )
    parts = [each.entry for each in operands if isinstance(each, Value) and each.entry.is_free]
    for part in sorted(parts, key=lambda each: each.weight):
        is_elsewhere = part.shared is not recorder.shared  # it keeps the fields of its own scopes
        part.pinned = not entry.is_text or is_elsewhere or entry.weight + part.weight > _HEAVIEST
        entry.weight += 0 if part.pinned else part.weight
    return Value(recorder, recorder.add(entry))


def apply_several(
    function: str,
    operands: Sequence[Operand],
    options: Mapping[str, object],
    fields: Mapping[str, object],
    results: int,
) -> tuple[Value, ...]:
    """Return the several results of a call of the library."""
    value = apply(function, "call", operands, options, fields, results=results)
    return unpack(value.recorder, value.entry)


def record_function(
    family: str, function: str, operands: Sequence[Operand], options: Mapping[str, object], fields: Mapping[str, object]
) -> Value:
    """Return a metric or a transform of the library."""
    recorder = _find_recorder(function, operands)
    site = recorder.sources.find()
    args = {key: each for key, each in options.items() if each is not None}
    inputs = [require_operand(recorder, each, site) for each in operands]
    given = {family: function, "inputs": inputs, "args": args or None}
    return Value(recorder, record_op(recorder, family, given, fields, site))


def _find_recorder(function: str, operands: Sequence[object]) -> Recorder:
    """Return the recorder of the graph that operands are of; raise ArgumentError where no value is among them."""
    for each in operands:
        for inner in cast("Sequence[object]", each) if isinstance(each, list | tuple) else (each,):
            if isinstance(inner, Ref):
                return inner.recorder
    nowhere = Recorder(title="")
    found = ", ".join(map(describe, operands))
    message = f"`{function}` takes at least one value of a graph, found {found}"
    raise nowhere.error(nowhere.sources.find(), message, "calculate numbers with `math`")


def count_sections(sections: object) -> int:
    """Return how many values `split` gives."""
    return len(cast("Sequence[object]", sections)) if isinstance(sections, list | tuple) else cast("int", sections)


def require_operand(recorder: Recorder, value: object, site: Site) -> Operand:
    """Return an operand; raise ArgumentError for what is none, or a value of another graph."""
    match value:
        case Value():
            recorder.require_own(value, site)
            return value
        case int() | float():
            return _unwrap(value)
        case Mapping() if "schedule" in value:
            return cast("Schedule", value)
        case _:
            pass
    help = "pass values one by one, numbers as `float(x)`, and tensors as inputs of the graph"
    help = "call it: `net(x)`" if isinstance(value, Model) else help
    raise recorder.error(site, f"expected a value or a number, found {describe(value)}", help)


T = TypeVar("T")


def _unwrap(value: T) -> T:
    """Return a number of another library, such as `numpy.float64`, as Python's own."""
    if isinstance(value, float):
        return cast("T", float(value))
    return cast("T", int(value)) if isinstance(value, int) and not isinstance(value, bool) else value


def _operate(operator: str, left: Operand, right: Operand) -> Value:
    return apply(OPERATORS[operator], "call", (left, right), {}, {}, is_operator=True)


def _spell_index(at: object) -> str:
    """Return an index as it is written between brackets."""
    match at:
        case slice():
            whole = cast("slice[object, object, object]", at)
            start, stop, step = ("" if each is None else str(each) for each in (whole.start, whole.stop, whole.step))
            return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
        case _ if at is Ellipsis:
            return "..."
        case _:
            return str(at)
