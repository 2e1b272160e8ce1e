"""The document: a training step, and how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Strict, Tag, field_validator, model_validator

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.blocks import CONTAINERS, BlockSpec
from graphspec.declare.compat import Compat, fill_model, fill_op
from graphspec.declare.data import DataField, DataSource, TrainingSets
from graphspec.declare.fields import NamesOrNone, Value, at_least_one
from graphspec.declare.formulas import LOSS
from graphspec.declare.inputs import InputSpec, StateSpec
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import KINDS, AdaptOp, CallOp, EmaOp, GradientOp, LossOp, Op, OpBase, UpdateOp
from graphspec.declare.parallel import ParallelSpec
from graphspec.declare.precision import Compute, LossScaleSpec, PrecisionSpec
from graphspec.declare.run import RunSpec
from graphspec.words import did_you_mean, enumerate_names, fix_key

SECOND = ("loss", "copy")
"""Keys that are kinds only where no other kind key is present."""


EXPANDED = ("expr", *CONTAINERS)
"""What becomes ops in a document: an expression, a use of a block, and ops that hold others."""


def find_kinds(op: Mapping[str, object]) -> tuple[str, ...]:
    """Return every kind key of an op as written; `loss` and `copy` count only where there is no other."""
    first = tuple(key for key in op if key in KINDS and key not in SECOND)
    return first or tuple(key for key in op if key in SECOND)


def _check(value: object) -> object:
    """Refuse what is not an op of exactly one kind that is built."""
    if isinstance(value, OpBase):
        return value
    forms = f"an op has exactly one of the keys {', '.join(sorted((*KINDS, *EXPANDED)))}"
    if not isinstance(value, dict):
        raise problem("GS051", "expected an op: a mapping with one kind key", help=forms)
    op = cast("dict[str, object]", value)
    kinds = find_kinds(op)
    strays: tuple[str, ...] = ()
    if not any(kind in SECOND or kind not in KINDS for kind in kinds):
        # `loss` and `copy` where the op's kind has no such field were meant as a second kind.
        fields = {field for kind in kinds for field in KINDS[kind].model_fields}
        strays = tuple(key for key in SECOND if key in op and key not in fields)
    match (*kinds, *strays):
        case ():
            for key in op:
                if help := fix_key(key, op[key]):
                    raise below((key,), problem("GS051", "this op has no kind", help=help, at="key"))
                if label := did_you_mean(key, (*KINDS, *EXPANDED)):
                    message = f"no kind of op is named '{key}'"
                    raise below((key,), problem("GS051", message, label=label, help=forms, at="key"))
            raise problem("GS051", "this op has no kind", help=forms, at="key")
        case (_,):
            return op
        case found:
            message = f"an op has one kind, found {enumerate_names(found)}"
            help = "split it into several ops, or remove the extra keys"
            raise below((found[-1],), problem("GS052", message, help=help, at="key"))


if TYPE_CHECKING:
    OpField: TypeAlias = Op
else:
    OpField = Annotated[
        reduce(
            lambda one, other: one | other, (Annotated[Deferred[op], Tag(f"<{kind}>")] for kind, op in KINDS.items())
        ),
        # The tag of a kind is in angle brackets, which no key of a document is.
        Discriminator(lambda op: f"<{op.kind if isinstance(op, OpBase) else find_kinds(op)[0]}>"),
        BeforeValidator(_check),
    ]
    """An op as a field of the document: the kind picks the class."""


if TYPE_CHECKING:
    from graphspec.diagnostics import Span
    from graphspec.read.source import Document

    Ops = dict[str, Op]
else:
    Ops = Annotated[dict[str, OpField], at_least_one("op", help="add one, as in `y: {forward: net, inputs: x}`")]

MOST_MICRO_BATCHES = 64
"""Every part is written out in the code of a step."""


class GraphSpec(Declaration):
    """A graph spec: one training step, declared, and optionally how to run it.

    >>> from graphspec import load
    >>> spec = load("examples/simultaneous-gan/simultaneous-gan.yaml")
    >>> list(spec.models), spec.ops["step_g"].kind, spec.run.steps
    (['generator', 'discriminator'], 'update', 2000)
    """

    graphspec: Literal[1]
    """The version of the language."""
    name: str
    """The name of the spec, used in titles and file names."""
    include: NamesOrNone | None = None
    """Files whose blocks, models and variables are as if they were written here; a spec that was read has none left."""
    vars: dict[str, Value] = {}
    """Constants, used elsewhere as `${name}`."""
    inputs: dict[str, Deferred[InputSpec]] = {}
    """The tensors of a batch."""
    state: dict[str, Deferred[StateSpec]] = {}
    """Tensors that outlive the step and that no optimizer trains; ops read them by name, `assign` writes them."""
    models: dict[str, Deferred[ModelSpec]] = {}
    """The models of the step."""
    blocks: dict[str, Deferred[BlockSpec]] = {}
    """Parts of the step that are written once and used several times; a spec that was read has none left."""
    ops: Ops
    """What happens in the step; the key names the op and its value, and order has no meaning."""
    outputs: NamesOrNone | None = None
    """What the step returns (default: metrics and, in train mode, losses that are computed anyway)."""
    data: DataField = {}
    """Where `stepgraph run` takes batches from: `train`, and others."""
    run: Deferred[RunSpec] = RunSpec.model_construct()
    """How `stepgraph run` trains."""
    seed: int = 0
    """The seed of initial weights and of every random number."""
    rng: Literal["native", "portable"] = "native"
    """Whose random numbers: the backend's own, or the same on every backend."""
    precision: Deferred[PrecisionSpec] | None = None
    """In which type models compute, and how losses are scaled (default: float32, not scaled)."""
    parallel: Deferred[ParallelSpec] | None = None
    """Whether several processes take a step together (default: one process)."""
    micro_batches: Annotated[int, Strict(), Field(ge=1, le=MOST_MICRO_BATCHES)] = 1
    """Into how many parts a train step splits its batch, to hold the graph of one of them at a time."""
    join_calls: Annotated[bool, Strict()] = True
    """Whether calls of a model become one call on the rows of all, where that is faster and changes no result."""
    join_gradients: Annotated[bool, Strict()] = True
    """Whether gradients of losses with common terms become one gradient, where that gives each but for a factor."""
    phases: Annotated[tuple[NamesOrNone, ...], Strict(False)] = ()
    """Groups of ops: those of each come after all writers of the groups before; a spec that was read has none left."""
    compat: Compat | None = None
    """Whose defaults options have that the spec leaves out, where they are not the language's own."""

    _document: Document | None = PrivateAttr(None)

    @field_validator("data")
    @classmethod
    def _check_roles(cls, data: DataField) -> DataField:
        """Refuse several sets that no training takes turns between."""
        for role, item in data.items():
            if isinstance(item, TrainingSets) and role != "train":
                help = "give each its own name in `data`, and name the one you mean: `run: {eval: {data: ...}}`"
                raise below((role,), problem("GS056", "only `train` may have several sets", help=help, at="key"))
        return data

    @model_validator(mode="after")
    def _fill(self) -> GraphSpec:
        """Write the defaults of `compat`, and what schedules leave out: all else sees options and knows of neither.

        A loss that is written in an op that differentiates it runs in its modes.
        """
        models = {name: fill_model(model, self.compat) for name, model in self.models.items()}
        ops = {name: fill_op(op, self.compat) for name, op in self.ops.items()}
        holders = {LOSS.format(name): op for name, op in ops.items() if isinstance(op, UpdateOp | GradientOp | AdaptOp)}
        for name, op in ops.items():
            holder = holders.get(op.expr or "") if isinstance(op, CallOp | LossOp) else None
            if holder is not None:
                mode = holder.default_modes if holder.mode is None and isinstance(holder, UpdateOp) else holder.mode
                ops[name] = op.model_copy(update={"mode": mode})
        # Frozen for all other code; the constructor would lose a copy.
        object.__setattr__(self, "models", models)
        object.__setattr__(self, "ops", ops)
        return self

    @classmethod
    def read(cls, document: Document) -> GraphSpec:
        """Return the spec that a document declares; raise pydantic's ValidationError where it declares none."""
        spec = cls.model_validate(document.data)
        spec._document = document
        return spec

    def __eq__(self, other: object) -> bool:
        """Compare what is declared, not where it is written."""
        return isinstance(other, GraphSpec) and self.__dict__ == other.__dict__

    def span(self, *path: str | int, key: bool = False) -> Span | None:
        """Return the place of a part of the spec, or of its key; None for specs built in Python.

        >>> spec.span("ops", "step_g", key=True).line
        27
        """
        document = self._document
        if document is None:
            return None
        return document.key_span(path) if key else document.value_span(path)

    def texts(self) -> Mapping[str, str]:
        """Return the source texts by file name, as :func:`render` takes them.

        >>> list(spec.texts())
        ['examples/simultaneous-gan/simultaneous-gan.yaml']
        """
        return {} if self._document is None else self._document.texts

    def compute(self, model: str) -> Compute:
        """Return the type in which a model computes: its own, else that of what it follows, else the document's."""
        following: str | None = model
        while following is not None:
            declared, shadow = self.models.get(following), self.ops.get(following)
            if declared is None:
                following = shadow.ema if isinstance(shadow, EmaOp) and shadow.into is None else None
            elif declared.precision is not None:
                return declared.precision
            else:
                following = declared.like
        return "float32" if self.precision is None else self.precision.compute

    @property
    def loss_scale(self) -> LossScaleSpec | None:
        """Return how losses are scaled, None where they are not: dynamically where a model computes in float16."""
        declared, compute = None, None
        if self.precision is not None:
            declared, compute = self.precision.loss_scale, self.precision.compute
        # Following likenesses is needed only where float16 is written at all.
        is_written = "float16" in (compute, *(model.precision for model in self.models.values()))
        if declared is None and is_written and any(self.compute(name) == "float16" for name in self.models):
            return LossScaleSpec()
        return None if declared is None or declared.kind == "none" else declared

    @property
    def is_replicated(self) -> bool:
        """Return whether several processes take a step together, each on its own rows."""
        return self.parallel is not None and self.parallel.kind != "none"

    @property
    def is_sharded(self) -> bool:
        """Return whether each of these processes keeps a part of the weights only."""
        return self.parallel is not None and self.parallel.kind == "sharded"

    @property
    def batches(self) -> int:
        """Return how many batches a train step takes."""
        return max((each.batch or 0 for each in self.inputs.values()), default=0) + 1

    def source(self, role: str, dataset: str | None = None) -> DataSource | None:
        """Return what `data` says of a role, or of one of its several sets: without a name of the first."""
        found = self.data.get(role)
        if isinstance(found, TrainingSets):
            return found.sets[dataset] if dataset is not None else next(iter(found.sets.values()))
        return found

    def shadows(self) -> Mapping[str, EmaOp]:
        """Return the averages without `into`: hidden models by the names of their ops, each after one it averages."""
        averages = {name: op for name, op in self.ops.items() if isinstance(op, EmaOp) and op.into is None}
        ordered: dict[str, EmaOp] = {}
        for name in averages:
            way: dict[str, EmaOp] = {}
            while name in averages and name not in ordered and name not in way:
                way[name] = averages[name]
                name = averages[name].ema
            ordered |= dict(reversed(way.items()))
        return ordered
