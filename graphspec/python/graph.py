"""A graph: a spec that is declared in Python, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias, Unpack, cast, overload

from msgspec.structs import replace

from graphspec.declare.compat import Compat
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import DType
from graphspec.loading import read_spec
from graphspec.python.containers import Choose, Repeat, Sometimes
from graphspec.python.document import write_document
from graphspec.python.randoms import Randoms
from graphspec.python.records import Entry, Header, Recorder, Ref, Section
from graphspec.python.values import (
    Average,
    Common,
    Derived,
    Fields,
    Model,
    Number,
    Op,
    Operand,
    Outputs,
    Update,
    Value,
    record_op,
    require_operand,
    unpack,
)

Function: TypeAlias = str | Mapping[str, str]
"""`pkg.mod:fn`, a name of the library, or one path per backend: `{"torch": ..., "tensorflow": ...}`."""
Optimizer: TypeAlias = str | Mapping[str, object] | Mapping[int, object]
Tree: TypeAlias = Mapping[str, object] | Sequence[object] | str
_COMMON = ("name", *Common.__annotations__)


class Graph(Randoms):
    """A spec that is declared in Python: the same language, the same checks, and messages with lines of Python.

    What is not given a name is named after what it is assigned to, else by its kind and a number. Operators on values,
    and functions of `graphspec.library`, are expressions. All options have the names of the language; those that are
    Python's words have an underscore after them (``class_``, ``from_``).

    >>> from graphspec import Graph, dump
    >>> from graphspec.library import mse, sgd
    >>> g = Graph("fit", seed=1)
    >>> x, y = g.input("x", ["batch", 2]), g.input("y", ["batch", 1])
    >>> net = g.model("net", layers=[{"linear": 1}], optimizer=sgd(0.1))
    >>> step = g.update(net, loss=mse(net(x, name="out"), y), name="step")
    >>> spec = g.build(outputs=[step.loss])
    >>> list(spec.ops), spec.ops["step"].loss
    (['out', 'step.loss', 'step'], 'step.loss')
    """

    def __init__(
        self,
        name: str,
        *,
        seed: int | None = None,
        rng: Literal["native", "portable"] | None = None,
        precision: Tree | None = None,
        micro_batches: int | None = None,
        join_calls: bool | None = None,
        join_gradients: bool | None = None,
        compat: Compat | None = None,
    ) -> None:
        self._recorder = Recorder(title=str(name))
        given: dict[str, object] = {"name": name, "seed": seed, "rng": rng, "precision": precision}
        given |= {"micro_batches": micro_batches, "join_calls": join_calls, "join_gradients": join_gradients}
        given |= {"compat": compat}
        site = self._recorder.sources.find()
        self._header = Header(fields={key: each for key, each in given.items() if each is not None}, site=site)

    def __repr__(self) -> str:
        return f"<graph {self._recorder.title!r}>"

    def build(
        self,
        *,
        outputs: Value | str | Sequence[Value | str] | None = None,
        data: Mapping[str, object] | None = None,
        run: Mapping[str, object] | None = None,
    ) -> GraphSpec:
        """Return the checked spec; ``outputs``, ``data`` and ``run`` are those of the language.

        Raises SpecError with every problem, each at its line of Python.

        >>> spec = g.build(outputs=[step.loss], run={"steps": 100})
        >>> spec.run.steps, spec.outputs
        (100, ('step.loss',))
        """
        given = {"outputs": outputs, "data": data, "run": run}
        site = self._recorder.sources.find()
        footer = Header(fields={key: each for key, each in given.items() if each is not None}, site=site)
        return read_spec(write_document(self._recorder, self._header, footer))

    def scope(
        self,
        name: str,
        *,
        after: Op | str | Sequence[Op | str] | None = None,
        mode: str | Sequence[str] | None = None,
    ) -> AbstractContextManager[None]:
        """Put a name and a dot before the names of all ops that are declared in a `with` statement.

        ``after`` and ``mode`` hold for all of them, as those of an op that uses a block do.

        >>> with g.scope("later", after=step):
        ...     noise = g.normal(like=x)
        >>> noise
        <random later.noise>
        """
        given = {"after": after, "mode": mode}
        fields = {key: each for key, each in given.items() if each is not None}
        return self._recorder.open(name, Header(fields=fields, site=self._recorder.sources.find()))

    def repeat(
        self,
        name: str,
        times: int | Mapping[str, object],
        *,
        batch: Literal["reuse", "split", "next"] | None = None,
        **fields: Unpack[Common],
    ) -> Repeat:
        """Repeat what is declared in a `with` statement; ``times`` may be a piecewise schedule.

        >>> with g.repeat("passes", 2) as passes:
        ...     again = g.update(net, loss=mse(net(x), y), name="again")
        """
        given: dict[str, object] = {"repeat": times, "ops": {}, "batch": batch, "name": name}
        return Repeat(self._recorder, self._record("repeat", given, fields, ("name", "repeat")))

    def choose(self, name: str, **fields: Unpack[Common]) -> Choose:
        """Return a part of the step with alternatives, one of which runs: declare them in ``with views.when(0.5):``.

        >>> views = g.choose("views")
        >>> with views.when(1.0):
        ...     seen = g.expr(-x, name="seen")
        """
        return Choose(self._recorder, self._record("choose", {"choose": [], "name": name}, fields, ("name",)))

    def sometimes(
        self, name: str, p: float, *, otherwise: Mapping[str, Value] | None = None, **fields: Unpack[Common]
    ) -> Sometimes:
        """Run what is declared in a `with` statement in some steps; in the others its outputs are what else is given.

        >>> with g.sometimes("flip", 0.5, otherwise={"turned": x}) as flip:
        ...     turned = g.expr(-x, name="turned")
        >>> out = net(flip.output("turned"))
        """
        given: dict[str, object] = {"sometimes": p, "ops": {}, "else": otherwise, "name": name}
        return Sometimes(self._recorder, self._record("sometimes", given, fields, ("name", "sometimes")))

    def phases(self, *phases: Sequence[Op]) -> None:
        """Put ops into groups: those of each come after all writers of the groups before.

        >>> late = net(x, name="late")
        >>> g.phases([step], [late])
        """
        fields = {**self._header.fields, "phases": [[*each] for each in phases]}
        self._header = replace(self._header, fields=fields)

    def input(
        self, name: str | None = None, shape: Sequence[int | str] | None = None, dtype: DType | None = None
    ) -> Value:
        """Return an input of the step: a tensor of the batch. ``shape`` has integers, and names of free sizes.

        >>> label = g.input("label", ["batch"], dtype="int64")
        """
        return Value(
            self._recorder,
            self._declare("inputs", "input", name, {"shape": shape, "dtype": dtype}, ("name", "shape", "dtype")),
        )

    def state(
        self,
        name: str | None = None,
        shape: Sequence[int] = (),
        dtype: DType | None = None,
        *,
        init: float | Literal["zeros", "ones", "normal", "uniform", "unit_normal"] | None = None,
    ) -> Value:
        """Return a tensor that outlives the step; :meth:`assign` writes it. ``shape`` has integers.

        >>> center = g.state("center", [1], init="zeros")
        """
        fields = {"shape": shape, "dtype": dtype, "init": init}
        return Value(self._recorder, self._declare("state", "state", name, fields, ("name", "shape", "dtype")))

    def model(
        self,
        name: str | None = None,
        *,
        layers: Sequence[str | Mapping[str, object]] | None = None,
        class_: Function | None = None,
        args: Mapping[str, object] | None = None,
        traits: Mapping[str, object] | None = None,
        parameter: Mapping[str, object] | None = None,
        like: Model | str | None = None,
        init: Literal["copy", "fresh"] | None = None,
        optimizer: Optimizer | None = None,
        weights: str | None = None,
        precision: Literal["float32", "bfloat16", "float16"] | None = None,
        buffers: Literal["copy", "average", "ignore"] | None = None,
        groups: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        constraint: Tree | None = None,
        regularizer: Tree | None = None,
    ) -> Model:
        """Return a model: of ``layers``, a ``class_`` of your own with ``args``, a ``parameter``, or ``like`` another.

        >>> judge = g.model("judge", layers=[{"linear": 8}, "relu", {"linear": 1}], optimizer="adam")
        >>> slow = g.model("slow", like=net)
        >>> scale = g.model("scale", parameter={"shape": [], "init": 1.0}, optimizer="sgd")
        """
        fields: dict[str, object] = {"class": class_, "args": args, "layers": layers, "parameter": parameter}
        fields |= {"like": like, "init": init, "optimizer": optimizer, "traits": traits, "buffers": buffers}
        fields |= {"groups": groups, "weights": weights, "precision": precision}
        fields |= {"constraint": constraint, "regularizer": regularizer}
        return Model(self._recorder, self._declare("models", "model", name, fields, ("name",)))

    def schedule(
        self,
        kind: str,
        *,
        clock: Literal["updates", "steps", "samples", "epochs"] | None = None,
        name: str | None = None,
        mode: str | Sequence[str] | None = None,
        doc: str | None = None,
        **fields: object,
    ) -> Value:
        """Return the number of a schedule, with the fields of its kind.

        >>> beta = g.schedule("warmup", from_=0.0, to=1.0, over="100 steps")
        """
        curve = {key.rstrip("_"): each for key, each in fields.items()}
        common = {"name": name, "mode": mode, "doc": doc}
        return Value(
            self._recorder, self._record("schedule", {"schedule": kind, **curve, "clock": clock}, common, ("schedule",))
        )

    @overload
    def call(self, function: Function, *inputs: Operand, outputs: None = None, **options: object) -> Value:
        """Return the one value that a function gives."""

    @overload
    def call(self, function: Function, *inputs: Operand, outputs: Outputs, **options: object) -> tuple[Value, ...]:
        """Return the several values that a function gives."""

    def call(
        self, function: Function, *inputs: Operand, outputs: Outputs | None = None, **options: object
    ) -> Value | tuple[Value, ...]:
        """Return what a function of your own gives: one value or, with ``outputs``, several.

        Options are its arguments, and the common fields of ops (`name`, `mode`, `after` ...); ``args={...}`` is for
        arguments that have the name of such a field, ``keywords={...}`` for inputs by name.

        >>> longest = g.call("mine:longest", x, axis=1, mode="eval")
        >>> low, high = g.call("mine:ends", x, outputs=2)
        """
        entry = self._apply("call", function, inputs, options, (), outputs)
        return Value(self._recorder, entry) if outputs is None else unpack(self._recorder, entry)

    def loss(
        self,
        function: Function,
        *inputs: Operand,
        reduction: Literal["mean", "sum", "none"] | None = None,
        weight: Number | None = None,
        lazy: Literal["scale", "none"] | None = None,
        **options: object,
    ) -> Value:
        """Return a loss of your own; options are as for :meth:`call`.

        >>> focal = g.loss("mine:focal", net(x), y, gamma=2.0, weight=0.1)
        """
        given = {"reduction": reduction, "weight": weight, "lazy": lazy}
        return Value(self._recorder, self._apply("loss", function, inputs, {**given, **options}, tuple(given)))

    def metric(self, function: Function, *inputs: Operand, reset: str | None = None, **options: object) -> Value:
        """Return a metric of your own; options are as for :meth:`call`.

        >>> spread = g.metric("mine:spread", x, reset="step")
        """
        return Value(self._recorder, self._apply("metric", function, inputs, {"reset": reset, **options}, ("reset",)))

    def transform(self, function: Function, *gradients: Value, **options: object) -> Value:
        """Return gradients that a transform of your own has changed; options are as for :meth:`call`.

        >>> short = g.transform("mine:shorten", g.gradient(mse(net(x), y), net), most=1.0)
        """
        return Value(self._recorder, self._apply("transform", function, gradients, options, ()))

    def expr(self, value: Value | str, **fields: Unpack[Fields]) -> Value:
        """Return an expression as an op of its own, with the common fields of ops; a text is read as in a YAML file.

        >>> double = g.expr(x + x, mode="eval")
        """
        site, recorder = self._recorder.sources.find(), self._recorder
        if isinstance(value, str):
            return Value(recorder, record_op(recorder, "expr", {"expr": value}, fields, site, positional=("expr",)))
        require_operand(recorder, value, site)
        if not value.entry.is_free:
            help = "write the operators where it is called: `g.expr(a + b, mode='train')`"
            raise recorder.error(site, f"{value!r} is an op already", help)
        recorder.rename(value.entry, dict[str, object](fields), site)
        return value

    @overload
    def gradient(
        self,
        value: Value | str,
        wrt: Model | Value,
        *,
        grad_outputs: Value | None = None,
        unconnected: Literal["error", "skip", "zero"] | None = None,
        stop: bool | None = None,
        **fields: Unpack[Fields],
    ) -> Value:
        """Return the gradient with respect to one model or value."""

    @overload
    def gradient(
        self,
        value: Value | str,
        wrt: Sequence[Model | Value],
        *,
        grad_outputs: Value | None = None,
        unconnected: Literal["error", "skip", "zero"] | None = None,
        stop: bool | None = None,
        **fields: Unpack[Fields],
    ) -> tuple[Value, ...]:
        """Return the gradients with respect to several models or values, in their order."""

    def gradient(
        self,
        value: Value | str,
        wrt: Model | Value | Sequence[Model | Value],
        *,
        grad_outputs: Value | None = None,
        unconnected: Literal["error", "skip", "zero"] | None = None,
        stop: bool | None = None,
        **fields: Unpack[Fields],
    ) -> Value | tuple[Value, ...]:
        """Return the gradient with respect to a model or a value; of a list as a tuple.

        In that all models together have one gradient set, which comes first, and every value has one gradient.

        >>> slopes, slope = g.gradient(mse(net(x), y), [net, x])
        """
        options = {"grad_outputs": grad_outputs, "unconnected": unconnected, "stop": stop}
        given = {"gradient": value, "wrt": wrt, **options}
        outputs = None
        if not isinstance(wrt, Ref):
            outputs = sum(isinstance(each, Value) for each in wrt) + any(isinstance(each, Model) for each in wrt)
        entry = self._record("gradient", given, fields, ("gradient", "wrt"), outputs if outputs != 1 else None)
        result = Value(self._recorder, entry)
        return result if outputs is None else (unpack(self._recorder, entry) if outputs > 1 else (result,))

    def update(
        self,
        models: Model | Sequence[Model],
        *,
        loss: Value | str | None = None,
        gradients: Value | Sequence[Value] | None = None,
        optimizer: Optimizer | None = None,
        clip: Mapping[str, object] | None = None,
        defer: Literal["auto", "end", "never"] | None = None,
        missing: Literal["error", "skip", "zero"] | None = None,
        accumulate: int | Mapping[str, object] | None = None,
        constraint: Tree | None = None,
        on_overflow: Literal["group", "all", "own", "apply", "error"] | None = None,
        shared: Literal["sum"] | None = None,
        reduce: Literal["mean", "sum"] | None = None,
        **fields: Unpack[Fields],
    ) -> Update:
        """Return an update of one or several models, for `after` and `every` of others; its ``loss`` is a value.

        The loss is a value, an expression, or the text of one.

        >>> more = g.update(net, loss=mse(net(x, after=step), y), after=step, clip={"norm": 1.0})
        """
        given: dict[str, object] = {"update": models, "loss": loss, "gradients": gradients, "optimizer": optimizer}
        given |= {"clip": clip, "defer": defer, "missing": missing, "accumulate": accumulate}
        given |= {"constraint": constraint, "on_overflow": on_overflow, "shared": shared, "reduce": reduce}
        return Update(self._recorder, self._record("update", given, fields, ("update",)))

    def ema(
        self,
        source: Model,
        *,
        into: Model | None = None,
        decay: Number | Mapping[str, object] | None = None,
        half_life: int | str | None = None,
        tau: Number | None = None,
        interval_correction: Literal["compound", "none"] | None = None,
        buffers: Literal["copy", "average", "ignore"] | None = None,
        float_buffers: Literal["copy", "average", "ignore"] | None = None,
        int_buffers: Literal["copy", "ignore"] | None = None,
        match: str | None = None,
        exclude: str | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
        rounding: Literal["nearest", "stochastic"] | None = None,
        init: Literal["initial", "first_update", "zeros"] | None = None,
        use: Mapping[str, object] | None = None,
        **fields: Unpack[Fields],
    ) -> Average:
        """Return a running average of a model's weights; without ``into`` it is a model that you can call.

        ``decay`` is a number, a schedule or a formula: ``{"kind": "tf_warm", "max": 0.9999}``.

        >>> average = g.ema(net, decay=0.99)
        >>> smooth = average(x)
        """
        given: dict[str, object] = {"ema": source, "into": into, "decay": decay, "half_life": half_life, "tau": tau}
        given |= {"interval_correction": interval_correction, "buffers": buffers, "init": init, "use": use}
        given |= {"float_buffers": float_buffers, "int_buffers": int_buffers, "match": match, "exclude": exclude}
        given |= {"dtype": dtype, "rounding": rounding}
        return Average(self._recorder, self._record("ema", given, fields, ("ema",)))

    def copy(self, source: Model, *, into: Model, **fields: Unpack[Fields]) -> Op:
        """Copy one model's weights and buffers into another model.

        >>> follow = g.copy(net, into=slow, every=100)
        """
        return Op(self._recorder, self._record("copy", {"copy": source, "into": into}, fields, ("copy",)))

    def adapt(
        self,
        model: Model,
        *,
        loss: Value | str | None = None,
        gradients: Value | None = None,
        lr: Number | Model,
        groups: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        order: Literal[1, 2] | None = None,
        **fields: Unpack[Fields],
    ) -> Derived:
        """Return a derived model: the weights of a model minus ``lr`` times a gradient, as a value; nothing is written.

        >>> fast = g.adapt(net, loss=mse(net(x), y), lr=0.1)
        >>> adapted_loss = mse(fast(x), y)
        """
        given = {"adapt": model, "loss": loss, "gradients": gradients, "lr": lr, "groups": groups, "order": order}
        return Derived(self._recorder, self._record("adapt", given, fields, ("adapt",)))

    def assign(self, state: Value, value: Operand, **fields: Unpack[Fields]) -> Op:
        """Write a state.

        >>> move = g.assign(center, 0.5)
        """
        given = {"assign": state, "value": value}
        return Op(self._recorder, self._record("assign", given, fields, ("assign", "value")))

    def _declare(
        self, section: Section, kind: str, name: str | None, fields: Mapping[str, object], positional: tuple[str, ...]
    ) -> Entry:
        """Record an input, a state or a model."""
        site = self._recorder.sources.find()
        written = {key: each for key, each in fields.items() if each is not None}
        entry = Entry(section=section, kind=kind, site=site, fields=written, name=name, positional=positional)
        entry.assigned = site.name
        return self._recorder.add(entry)

    def _record(
        self,
        kind: str,
        given: Mapping[str, object],
        fields: Mapping[str, object],
        positional: tuple[str, ...],
        outputs: Outputs | None = None,
    ) -> Entry:
        site = self._recorder.sources.find()
        return record_op(self._recorder, kind, given, fields, site, outputs, positional)

    def _apply(
        self,
        family: str,
        function: Function,
        inputs: Sequence[Operand],
        options: Mapping[str, object],
        own: tuple[str, ...],
        outputs: Outputs | None = None,
    ) -> Entry:
        """Record a function by its name: options that are no fields are its arguments."""
        site = self._recorder.sources.find()
        rest = dict(options)
        keywords, args = rest.pop("keywords", None), cast("Mapping[str, object]", rest.pop("args", None) or {})
        common = {key: rest.pop(key) for key in (*own, *_COMMON) if key in rest}
        operands = [require_operand(self._recorder, each, site) for each in inputs] if keywords is None else keywords
        if keywords is not None and inputs:
            raise self._recorder.error(
                site, "inputs are given by position and by name", "give all of them in `keywords`"
            )
        given = {family: function, "inputs": operands, "args": {**args, **rest} or None}
        return record_op(self._recorder, family, given, common, site, outputs, (family,))
