"""Optimizers: a rule by name with its options, or a user's class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema, model_validator

from graphspec.declare.base import Declaration, Deferred, Reader, below, problem
from graphspec.declare.fields import check_keywords
from graphspec.declare.functions import ClassName
from graphspec.declare.options import Option, OptionDefault, find_defaults
from graphspec.declare.schedules import ScheduleSpec
from graphspec.words import quote

OptimizerName: TypeAlias = Literal[
    "sgd",
    "adam",
    "adamw",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adamax",
    "nadam",
    "lion",
    "lamb",
    "lars",
    "adafactor",
    "ftrl",
    "rprop",
    "muon",
    "schedule_free_sgd",
    "schedule_free_adamw",
]
OptionValue: TypeAlias = bool | int | float | str | tuple[float | ScheduleSpec, ...] | ScheduleSpec | None


RATE = "lr"
"""The option of every rule that has its default where a schedule leaves a value out."""


def _rate(default: float) -> Option:
    return Option(name=RATE, kind="number", default=default, minimum=0.0, meaning="learning rate")


def _betas(first: float, second: float) -> Option:
    return Option(name="betas", kind="betas", default=(first, second), meaning="decay of the two running means")


def _number(name: str, default: float, meaning: str) -> Option:
    return Option(name=name, kind="number", default=default, minimum=0.0, meaning=meaning)


def _decay(default: float = 0.0, *, decoupled: bool = False, within: str = "the gradient") -> Option:
    meaning = "weight decay, decoupled from the gradient" if decoupled else f"weight decay, added to {within}"
    return _number("weight_decay", default, meaning)


def _eps(default: float) -> Option:
    return _number("eps", default, "added to the denominator")


SPARSE = Option(
    name="sparse",
    kind="choice",
    choices=("dense", "lazy"),
    default="dense",
    meaning="which rows of `sparse` tables an update steps: all (dense), or those that have a gradient (lazy)",
)
FUSED = Option(name="fused", kind="auto", default="auto", meaning="one fused kernel, if the device has one")

OPTIMIZERS: Mapping[OptimizerName, tuple[Option, ...]] = {
    "sgd": (
        _rate(1e-3),
        _number("momentum", 0.0, "fraction of the last step kept in the next"),
        _number("dampening", 0.0, "fraction of the gradient kept out of the momentum"),
        Option(name="nesterov", kind="bool", default=False, meaning="momentum in the form of Nesterov"),
        _decay(),
        Option(
            name="momentum_form",
            kind="choice",
            choices=("lr_outside", "lr_inside"),
            default="lr_outside",
            meaning="whether the momentum holds gradients (lr_outside) or steps already scaled by lr (lr_inside)",
        ),
        SPARSE,
        FUSED,
    ),
    "adam": (_rate(1e-3), _betas(0.9, 0.999), _eps(1e-8), _decay(), SPARSE, FUSED),
    "adamw": (_rate(1e-3), _betas(0.9, 0.999), _eps(1e-8), _decay(1e-2, decoupled=True), FUSED),
    "rmsprop": (
        _rate(1e-2),
        Option(
            name="alpha",
            kind="number",
            default=0.99,
            minimum=0.0,
            below=1.0,
            meaning="decay of the running mean of squares",
        ),
        _eps(1e-8),
        _decay(),
        _number("momentum", 0.0, "fraction of the last step kept in the next"),
        Option(name="centered", kind="bool", default=False, meaning="divide by the variance, not the mean square"),
        FUSED,
    ),
    "adagrad": (
        _rate(1e-2),
        _number("lr_decay", 0.0, "lr is divided by 1 + updates * lr_decay"),
        _decay(),
        replace(_number("initial_accumulator_value", 0.0, "initial value of the sum of squares"), once=True),
        _eps(1e-10),
        SPARSE,
        FUSED,
    ),
    "adadelta": (
        _rate(1.0),
        Option(name="rho", kind="number", default=0.9, minimum=0.0, maximum=1.0, meaning="decay of the running means"),
        _eps(1e-6),
        _decay(),
        FUSED,
    ),
    "adamax": (_rate(2e-3), _betas(0.9, 0.999), _eps(1e-8), _decay(), FUSED),
    "nadam": (
        _rate(2e-3),
        _betas(0.9, 0.999),
        _eps(1e-8),
        _decay(),
        _number("momentum_decay", 4e-3, "how fast Nesterov's momentum grows"),
        FUSED,
    ),
    "lion": (_rate(1e-4), _betas(0.9, 0.99), _decay(decoupled=True), FUSED),
    "lamb": (_rate(1e-3), _betas(0.9, 0.999), _eps(1e-6), _decay(within="the step whose length is compared")),
    "lars": (
        _rate(1.0),
        _number("momentum", 0.9, "fraction of the last step kept in the next"),
        _decay(within="the step whose length is compared"),
        Option(name="nesterov", kind="bool", default=False, meaning="momentum in the form of Nesterov"),
        _number("trust_coefficient", 1e-3, "length of a step, relative to that of the weights, at lr = 1"),
    ),
    "adafactor": (
        _rate(1e-2),
        Option(
            name="beta2_decay", kind="number", default=-0.8, maximum=0.0, meaning="new squares count t to this power"
        ),
        Option(name="eps1", kind="number", minimum=0.0, meaning="least root of a mean square; none: that of its type"),
        _number("eps2", 1e-3, "least root mean square of the weights in the length of a step"),
        Option(
            name="clip_threshold",
            kind="number",
            default=1.0,
            above=0.0,
            meaning="greatest root mean square of a step before it is scaled",
        ),
        _decay(decoupled=True),
    ),
    "ftrl": (
        replace(_rate(1e-3), minimum=None, above=0.0),
        Option(name="lr_power", kind="number", default=-0.5, maximum=0.0, meaning="how the rate falls with the sum"),
        Option(
            name="initial_accumulator_value",
            kind="number",
            default=0.1,
            above=0.0,
            once=True,
            meaning="initial value of the sum of squares",
        ),
        _number("l1", 0.0, "pull to 0 by a constant, which makes weights exactly 0"),
        _number("l2", 0.0, "pull to 0 in proportion, twice this added to the denominator"),
        _number("l2_shrinkage", 0.0, "weight decay, twice this times the weights added to the gradient"),
        _number("beta", 0.0, "added to the root of the sum of squares"),
    ),
    "rprop": (
        _rate(1e-2),
        Option(
            name="eta_minus",
            kind="number",
            default=0.5,
            above=0.0,
            below=1.0,
            meaning="factor of a step that turns back",
        ),
        Option(name="eta_plus", kind="number", default=1.2, above=1.0, meaning="factor of a step that keeps its sign"),
        _number("step_min", 1e-6, "least step"),
        Option(name="step_max", kind="number", default=50.0, above=0.0, meaning="greatest step"),
    ),
    "muon": (
        _rate(1e-3),
        Option(
            name="momentum", kind="number", default=0.95, above=0.0, below=1.0, meaning="decay of the mean of gradients"
        ),
        Option(name="nesterov", kind="bool", default=True, meaning="momentum in the form of Nesterov"),
        _decay(0.1, decoupled=True),
        Option(
            name="ns_steps",
            kind="int",
            default=5,
            minimum=1.0,
            maximum=99.0,
            once=True,
            meaning="rounds of orthogonalization",
        ),
        _number("eps", 1e-7, "least length by which a matrix is divided"),
        Option(
            name="adjust_lr",
            kind="choice",
            choices=("original", "match_rms_adamw"),
            default="original",
            meaning="factor of lr by the shape: sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns))",
        ),
    ),
    "schedule_free_sgd": (
        _rate(1.0),
        Option(
            name="momentum",
            kind="number",
            default=0.9,
            minimum=0.0,
            below=1.0,
            once=True,
            meaning="share of the average in the weights that are trained",
        ),
        _decay(),
    ),
    "schedule_free_adamw": (
        _rate(2.5e-3),
        replace(
            _betas(0.9, 0.999),
            once=True,
            meaning="share of the average in the weights that are trained, and decay of the mean of squares",
        ),
        _eps(1e-8),
        _decay(within="the step"),
    ),
}
"""The options of every built-in rule; defaults are PyTorch's, and otherwise those of its paper or its authors' code."""


AVERAGING_RULES: Mapping[OptimizerName, str] = {"schedule_free_sgd": "momentum", "schedule_free_adamw": "betas"}
"""The rules whose weights lie between two sequences, and the option that says how near to the average of the first."""
MATRIX_RULES: tuple[OptimizerName, ...] = ("muon",)
"""The rules that step parameters of two axes alone."""


def _read_option(value: object) -> object:
    """Read one option's value: a scalar, a schedule, or a list of numbers and schedules."""
    if isinstance(value, dict):
        return _read_schedule(cast("dict[str, object]", value))
    if not isinstance(value, list | tuple):
        return value
    items = tuple(cast("Sequence[object]", value))
    if any(isinstance(item, bool) or not isinstance(item, int | float | dict | ScheduleSpec) for item in items):
        raise problem("GS044", "expected a list of numbers")
    return _ITEMS.validate_python(items)


def _read_schedule(value: dict[str, object]) -> ScheduleSpec:
    if "schedule" not in value:
        help = "a schedule says its kind, as in `{schedule: cosine, from: 1e-3, to: 0, over: 1000}`"
        raise problem("GS044", "expected a number or a schedule, found a mapping without `schedule`", help=help)
    return ScheduleSpec.model_validate(value)


def _read_item(value: object) -> object:
    return _read_schedule(cast("dict[str, object]", value)).close(None) if isinstance(value, dict) else value


_EPOCH = re.compile(r"[1-9][0-9]{0,17}")
_ITEMS = TypeAdapter(tuple[Annotated[object, Reader(_read_item)], ...], config=ConfigDict(defer_build=True))
"""Each is read by itself, so that a problem of a schedule is reported at its place."""


OptionField = Annotated[OptionValue, Reader(_read_option), WithJsonSchema({})]


class OptimizerSpec(Declaration):
    """An optimizer: `adam`, or `{name: adam, lr: 2e-4, betas: [0.5, 0.999]}`, or `{class: pkg.mod:Name, lr: ...}`.

    `{1: adam, 10: {name: sgd, lr: 1e-3}}` is one after another, each from its epoch on.
    """

    name: OptimizerName | None = None
    """A built-in rule: the same mathematics on every backend."""
    class_: Deferred[ClassName] | None = Field(None, alias="class")
    """A user's optimizer class in place of a rule."""
    options: dict[str, OptionField] = {}
    """Everything else that is written: options of the rule, or keyword arguments of the class."""
    epochs: dict[str, OptimizerSpec] = {}
    """Optimizers by the epoch, counted from 1, from which on each steps; there is nothing else then."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: object) -> object:
        """Move everything but `name` and `class` into the options, and optimizers by epochs into the order of these."""
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, dict):
            return value
        written = cast("dict[str, object]", value)
        for key, item in written.items() if len(written) == 1 else ():
            if key in OPTIMIZERS and isinstance(item, dict):
                help = f"write the name as a value: `{{name: {key}, lr: 1e-3}}`"
                raise below(
                    (key,), problem("GS053", "an optimizer has a `name`, found its name as a key", help=help, at="key")
                )
        if not any(key.isdigit() for key in written):
            named = {key: written[key] for key in ("name", "class") if key in written}
            return {**named, "options": {key: item for key, item in written.items() if key not in named}}
        help = "write `optimizer: {1: {name: adam}, 10: {name: sgd}}`: each steps from its epoch on, counted from 1"
        for key, item in written.items():
            if not _EPOCH.fullmatch(key):
                message = f"expected the epoch from which on an optimizer steps, found {quote(key)}"
                raise below((key,), problem("GS044", message, help=help, at="key"))
            if isinstance(item, dict) and any(inner.isdigit() for inner in cast("dict[str, object]", item)):
                raise below((key,), problem("GS044", "expected one optimizer, found several by epochs", help=help))
        if "1" not in written:
            message = f"no optimizer steps before epoch {min(map(int, written))}"
            raise problem("GS044", message, help="write the first one under `1`")
        return {"epochs": {key: written[key] for key in sorted(written, key=int)}}

    @model_validator(mode="after")
    def _check(self) -> OptimizerSpec:
        if self.epochs:
            return self
        if (self.name is None) == (self.class_ is None):
            found = "neither" if self.name is None else "both"
            help = f"write `name:` with one of {', '.join(OPTIMIZERS)}, or `class: pkg.mod:Name`"
            raise problem("GS053", f"an optimizer has a `name` or a `class`, found {found}", help=help)
        if self.class_ is not None:
            check_keywords(self.options)
        for name, value in self.options.items():
            if isinstance(value, ScheduleSpec):
                # The rate of a rule has a default, whichever it is in the document.
                value.close(0.0 if name == RATE and self.name is not None else None, (name,))
        return self

    def close(self, defaults: Mapping[str, object]) -> OptimizerSpec:
        """Return the optimizer with the values that its schedules leave out; not for one that changes by epochs.

        Those of the rate are its default, ``defaults`` being what a document has in place of those of the rule.
        """
        own = {} if self.name is None else {**find_defaults(OPTIMIZERS[self.name]), **defaults}
        rates = {RATE: rate} if isinstance(rate := own.get(RATE), float) else {}
        open = {name: value for name, value in self.options.items() if isinstance(value, ScheduleSpec)}
        closed = {name: value.close(rates.get(name)) for name, value in open.items()}
        return self.model_copy(update={"options": {**self.options, **closed}}) if closed != open else self

    @property
    def phases(self) -> tuple[tuple[int, OptimizerSpec], ...]:
        """Return the optimizers in their order, each with its first epoch; one that does not change is one."""
        return tuple((int(epoch), each) for epoch, each in self.epochs.items()) or ((1, self),)

    def resolved(self) -> Mapping[str, OptionValue]:
        """Return every option with the defaults of the rule; for a `class`, only those given."""
        if self.name is None:
            return self.options
        defaults: Mapping[str, OptionDefault] = find_defaults(OPTIMIZERS[self.name])
        return {**defaults, **self.options}
