"""The program: everything that a backend is given, as frozen data.

A :class:`Program` holds declarations (inputs, models, optimizers, gates) and one straight-line :class:`Function` per
mode and set of ops that fire together. Backends match over its instructions and read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from compiler.ir.instructions import Instruction
from compiler.ir.value import HyperParameter, Plain, ScheduleDecl, Shape, find_decls
from graphspec.declare.precision import Compute


class GroupDecl(Struct, frozen=True, kw_only=True):
    """The parameters of a model in whose names a pattern is found, and what is different for them in updates.

    Schedules are in ticks of their clocks, at the rate of the optimizer that steps the group.
    """

    model: str
    index: int
    """Its place among the groups of the model."""
    match: str
    lr_scale: float | ScheduleDecl = 1.0
    weight_decay: float | ScheduleDecl | None = None
    """In place of the optimizer's; None leaves that."""
    frozen: bool = False
    """No gradient is taken for them and nothing steps them."""
    optimizer: str = ""
    """The optimizer that steps them in place of the others'."""

    @property
    def changes(self) -> Mapping[str, float | ScheduleDecl]:
        """Return the options that are different, by the names of the language."""
        scale: dict[str, float | ScheduleDecl] = {} if self.lr_scale == 1.0 else {"lr_scale": self.lr_scale}
        return scale if self.weight_decay is None else {**scale, "weight_decay": self.weight_decay}

    def spell(self, optimizer: str, option: str) -> str:
        """Return the name of an option of it in words of an optimizer: ``groups.1.lr_scale``."""
        of = "" if self.model == optimizer else f"{self.model}."
        return f"{of}groups.{self.index}.{option}"


Mode: TypeAlias = Literal["train", "eval", "test", "infer"]


class InputDecl(Struct, frozen=True, kw_only=True):
    """A tensor the caller passes in the batch; ``shape`` is None where the spec leaves it open."""

    name: str
    shape: Shape | None
    dtype: str
    place: str = ""


class Initializer(Struct, frozen=True, kw_only=True):
    """How a tensor starts: zeros, ones, constant (= bound), uniform (+-bound), normal (std = bound) or unit_normal.

    ``unit_normal``: normal numbers, scaled so that rows along the last axis have the length ``bound``.
    """

    kind: Literal["zeros", "ones", "constant", "uniform", "normal", "unit_normal"]
    bound: float = 0.0


class TensorDecl(Struct, frozen=True, kw_only=True):
    """A named parameter or buffer of a model whose structure is known: ``0.weight``, [64, 32], uniform(+-0.18)."""

    name: str
    shape: tuple[int, ...]
    initializer: Initializer
    dtype: str = "float32"
    sparse: bool = False
    """Its gradient is kept as rows: the indices that a batch has, and a vector for each."""


class StateDecl(Struct, frozen=True, kw_only=True):
    """A tensor that outlives the step: read by its name wherever a value is, written by :class:`Store`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    initializer: Initializer
    place: str = ""


class LayerDecl(Struct, frozen=True, kw_only=True):
    """A built-in layer with every option resolved, input sizes included; ``layers`` are the children of containers.

    ``path`` is its name in the model (``0``, ``2.1``): the prefix of its parameters' names.
    """

    kind: str
    path: str
    options: Mapping[str, Plain] = {}
    layers: tuple[LayerDecl, ...] = ()

    @property
    def is_synced(self) -> bool:
        """Return whether it, or a layer inside it, normalizes over the rows of all processes."""
        return self.options.get("sync") is True or any(each.is_synced for each in self.layers)


class ModelDecl(Struct, frozen=True, kw_only=True):
    """A model: a user's class, built-in layers, a single parameter, or the likeness of another (``like``)."""

    name: str
    kind: Literal["class", "layers", "parameter"]
    class_path: str | None = None
    args: Mapping[str, Plain] = {}
    layers: tuple[LayerDecl, ...] = ()
    parameters: tuple[TensorDecl, ...] = ()
    buffers: tuple[TensorDecl, ...] = ()
    like: str | None = None
    """The model whose structure this one has; always declared before it."""
    initial: Literal["own", "copy"] = "own"
    """``copy``: starts with the weights and buffers of ``like``; ``own``: drawn under its own name."""
    tied: tuple[str, ...] = ()
    """Other models with which it shares parameters."""
    trained: bool = False
    """Some update writes its parameters (in any mode)."""
    weights: str | None = None
    """A safetensors file that its parameters and buffers start from, relative to the spec's folder."""
    frozen: tuple[str, ...] = ()
    """Patterns of the names of the parameters that nothing steps."""
    compute: Compute = "float32"
    """The dtype of its matrix products and convolutions; parameters are float32."""
    recomputes: bool = False
    """Gradients recompute parts of its calls."""
    place: str = ""

    @property
    def has_rows(self) -> bool:
        """Return whether the gradient of some parameter is kept as rows."""
        return any(each.sparse for each in self.parameters)

    @property
    def is_synced(self) -> bool:
        """Return whether a layer normalizes over the rows of all processes."""
        return any(each.is_synced for each in self.layers)


class OptimizerDecl(Struct, frozen=True, kw_only=True):
    """An optimizer cell: its rule, hyper-parameters with every default resolved, and the models it steps, in order."""

    name: str
    rule: str
    """A built-in name (``adam``) or a user's ``pkg.mod:Class``."""
    builtin: bool
    models: tuple[str, ...]
    options: Mapping[str, HyperParameter]
    excluded: tuple[str, ...] = ()
    """Models whose parameters another optimizer steps: what they share with these is not among its own."""
    chosen: tuple[tuple[str, str], ...] = ()
    """By model and pattern, the parameters that it steps; none where it steps all, but for what is left."""
    left: tuple[tuple[str, str], ...] = ()
    """By model and pattern, the parameters that optimizers of their groups step."""
    groups: tuple[GroupDecl, ...] = ()
    """Parameters of its models for which something is different; each is in one group at most."""
    place: str = ""

    @property
    def schedules(self) -> Mapping[str, ScheduleDecl]:
        """Return what changes with the steps or updates, by its place: ``lr``, ``betas.0``, ``groups.1.lr_scale``."""
        found = {
            f"{name}{place}": each
            for name, option in self.options.items()
            for place, each in find_decls(option).items()
        }
        for group in self.groups:
            changes = ((name, each) for name, each in group.changes.items() if isinstance(each, ScheduleDecl))
            found |= {group.spell(self.name, name): each for name, each in changes}
        return found

    @property
    def is_partial(self) -> bool:
        """Return whether it steps some parameters of its models alone."""
        return bool(self.excluded or self.chosen or self.left)

    @property
    def is_lazy(self) -> bool:
        """Return whether it leaves alone what it keeps for rows without a gradient, where its rule moves all rows."""
        return self.builtin and self.options.get("sparse") == "lazy"

    @property
    def steps_rows(self) -> bool:
        """Return whether an update changes nothing but the rows that have a gradient: by its rule, or because lazy."""
        if self.is_lazy:
            return True
        still = {"sgd": ("momentum", "weight_decay"), "adagrad": ("weight_decay",)}.get(self.rule, ())
        decays = any(group.weight_decay for group in self.groups)
        has_slot = self.options.get("momentum_form") == "lr_inside"
        return bool(still) and not (decays or has_slot or any(self.options[name] for name in still))

    def find_changed(self) -> tuple[GroupDecl, ...]:
        """Return the groups that it steps in another way than the rest."""
        return tuple(group for group in self.groups if group.changes and not group.frozen)

    def find_unlike(self) -> tuple[Mapping[str, float | ScheduleDecl], ...]:
        """Return what is different for groups: those in which the same is different are one."""
        unlike: list[Mapping[str, float | ScheduleDecl]] = []
        for group in self.find_changed():
            unlike.extend([] if group.changes in unlike else [group.changes])
        return tuple(unlike)


class LossScaleDecl(Struct, frozen=True, kw_only=True):
    """The loss scale of a step: where it starts, and how it follows the verdicts over gradients."""

    initial: float
    is_fixed: bool
    growth_steps: int
    growth_factor: float
    backoff_factor: float
    min_scale: float
    most_skips: int | None
    """After how many steps in a row with gradients that are not finite the run ends; None: never."""


def window_of(update: str) -> str:
    """Return the gate of the steps from which an update accumulates gradients."""
    return f"{update}.window"


def back_of(average: str) -> str:
    """Return the gate of the steps in which a model takes the weights of its average."""
    return f"{average}.write_back"


def drop_of(update: str) -> str:
    """Return the gate of the steps at whose end an update discards what it has accumulated."""
    return f"{update}.drop"


def group_of(model: str, index: int) -> str:
    """Return the gate of the steps in which a group of parameters is temporarily frozen."""
    return f"{model}.groups.{index}"


class Gate(Struct, frozen=True, kw_only=True):
    """When an op of a mode fires. Ops without a gate fire in every step of their mode (or never, where dead).

    ``clock == "steps"``: at ``start``, ``start + every``, ... up to ``until`` (1-based, inclusive; without ``start``
    at ``every``, ``2 * every``, ...). ``clock == "writes"``: counts the steps in which every group of ``follows`` has
    an op that fired, within ``start`` and ``until`` (step numbers) and of ``datasets``, and fires at every
    ``every``-th of them; with a ``start`` at the first counted one and then at every ``every``-th. ``clock ==
    "averaged"``: from the first time on that the op fired in a mode in which it has another gate. ``clock ==
    "epochs"``: at the last step of every ``epoch``.

    ``first`` and ``last`` are starts and ends that only the run can count: the gate is closed before the ``first`` and
    after the ``last`` step in which an op of ``counted`` took place. With ``first`` it fires as with ``start``.
    """

    op: str
    clock: Literal["steps", "writes", "averaged", "epochs"] = "steps"
    every: int = 1
    start: int | None = None
    until: int | None = None
    follows: tuple[tuple[str, ...], ...] = ()
    datasets: tuple[str, ...] = ()
    """On batches of which data sets it fires, and counts on the clock ``writes``; none are named: on all."""
    epoch: int | None = None
    """The steps of an epoch, where its count restarts with each epoch, or it fires at the end of each."""
    flush: bool = False
    """It fires at the end of an epoch as well, if anything is counted then."""
    first: int | None = None
    last: int | None = None
    counted: tuple[str, ...] = ()
    counts_with: str = ""
    """On the clock ``writes``, the op of the first iteration, where it is one of a later: both have one count."""
    draw: str = ""
    """What it is an alternative of, where it is one: it is open in steps whose number, drawn for it from 0 to 1, is"""
    low: float = 0.0
    """at least this,"""
    high: float = 1.0
    """and less than this."""

    @property
    def counter(self) -> str:
        """Return the op under whose name its count is kept."""
        return self.counts_with or self.op

    @property
    def is_counted(self) -> bool:
        """Return whether it starts or ends after a number of updates that only the run can count."""
        return self.first is not None or self.last is not None

    @property
    def has_start(self) -> bool:
        """Return whether the first step that counts for it is due, rather than the n-th."""
        return self.start is not None or self.first is not None


class Function(Struct, frozen=True, kw_only=True):
    """One straight-line program: the instructions of a mode for one set of gated ops that fire together."""

    mode: Mode
    name: str
    active: tuple[str, ...]
    """Every update, ema, copy and assign that fires in it, in listed order (what a reader wants to see)."""
    gated: tuple[str, ...]
    """The gated ops (see :class:`Gate`) that fire; the key by which a step picks its function."""
    instructions: tuple[Instruction, ...]
    datasets: tuple[str, ...] = ()
    """The data sets for whose batches it is (an empty name: those of none); none where the spec names no data sets."""


class ModeProgram(Struct, frozen=True, kw_only=True):
    """All functions of one mode, and the gates that choose between them (in evaluation order)."""

    mode: Mode
    gates: tuple[Gate, ...]
    functions: tuple[Function, ...]
    undecided: frozenset[str] = frozenset()
    """The gates whose firing no clock determines, because they count writes that may be skipped."""


class Compression(Struct, frozen=True, kw_only=True):
    """How gradients are shortened before they travel between processes."""

    kind: Literal["fp16", "bf16", "powersgd", "threshold", "sign"]
    options: Mapping[str, Plain]
    """Of a kind that keeps what it does not send: its numbers."""


class ParallelDecl(Struct, frozen=True, kw_only=True):
    """Replicas: processes that take a step together, each on its own rows of the batch."""

    buffers: Literal["rank0", "mean", "local"]
    """Whose buffers all replicas have after a step that writes some."""
    is_sharded: bool = False
    """Each keeps a part of the weights, and of the slots of optimizers; otherwise all of them."""
    compress: Compression | None = None
    """How gradients are shortened before they travel."""
    bucket_mb: float | None = None
    """In messages of about how many megabytes gradients travel; None where a set is one."""


class Program(Struct, frozen=True, kw_only=True, dict=True):
    """A compiled step for a backend."""

    name: str
    backend: str
    order: str
    seed: int
    rng: Literal["native", "portable"]
    inputs: tuple[InputDecl, ...]
    models: tuple[ModelDecl, ...]
    optimizers: tuple[OptimizerDecl, ...]
    modes: tuple[ModeProgram, ...]
    states: tuple[StateDecl, ...] = ()
    """The states that some op reads or writes, or that are returned."""
    parallel: ParallelDecl | None = None
    """How several processes take a step together; None for one process."""
    loss_scale: LossScaleDecl | None = None
    """How losses are scaled; None where they are not."""
    datasets: tuple[str, ...] = ()
    """The data sets that ops distinguish: each call of the step then names the data set of its batch."""
    uncounted: tuple[str, ...] = ()
    """What is left out because it needs a length that only a run knows; such a program can be read and not run."""

    @property
    def is_sharded(self) -> bool:
        """Return whether every process keeps a part of the weights only."""
        return self.parallel is not None and self.parallel.is_sharded

    def mode(self, name: str) -> ModeProgram:
        """Return the program of a mode; raise StopIteration where the spec has none."""
        return next(mode for mode in self.modes if mode.mode == name)

    def find_written_buffers(self, function: Function) -> tuple[str, ...]:
        """Return the models whose buffers a function writes; built-in layers are known to have some or none."""
        writes = (write for each in function.instructions for write in each.writes if write.cell.kind == "buffers")
        written = {model for write in writes for model in write.cell.owners}
        found = (model for model in self.models if model.name in written)
        return tuple(model.name for model in found if model.kind == "class" or model.buffers)

    def has_rows(self, models: Iterable[str]) -> bool:
        """Return whether a gradient set over some models has rows."""
        return any(self.model(each).has_rows for each in models)

    def model(self, name: str) -> ModelDecl:
        """Return a model's declaration by name; raise KeyError where there is none."""
        return self.by_name[name]

    @cached_property
    def tied(self) -> frozenset[str]:
        """Return the models that share parameters with others."""
        return frozenset(model.name for model in self.models if model.tied)

    @cached_property
    def by_name(self) -> Mapping[str, ModelDecl]:
        """Return the declarations of all models by name."""
        return {model.name: model for model in self.models}
