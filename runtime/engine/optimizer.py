"""The optimizer of a step as its user holds it: the learning rate, other numbers, the updates so far, the slots."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from typing import SupportsFloat, SupportsIndex, cast, final

from compiler.ir.program import OptimizerDecl
from compiler.ir.value import HyperParameter, ScheduleDecl
from compiler.plan.timetable import format_schedule
from graphspec.declare.graph import GraphSpec
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import Option, accepts, describe_option, find_option
from graphspec.diagnostics import SpecError
from graphspec.read.source import Path, Plain
from graphspec.words import spell_path
from graphspec.write.render import to_plain
from runtime.engine.backend import OptimizerAccess, Slots
from runtime.options import RATE, START, Options
from runtime.problems import problem
from runtime.state import Plain as StatePlain
from runtime.terminal import counted

ANY_RATE = Option(name=RATE, kind="number", minimum=0.0, required=True, meaning="learning rate")
"""What a user's class takes."""
MOST = 2**53
"""As many updates at most: more are no number of float64."""


@final
class Optimizer:
    """One optimizer of a built step, with the same interface on every backend.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> optimizer = step.optimizers["generator"]
    >>> optimizer
    <optimizer 'generator': adam on generator, learning rate 0.0005, 0 updates>
    >>> optimizer.learning_rate = 1e-4
    >>> optimizer.iterations = 100
    >>> optimizer
    <optimizer 'generator': adam on generator, learning rate 0.0001 (set by hand), 100 updates>
    >>> optimizer.learning_rate = None  # the spec's again
    >>> optimizer.learning_rate, sorted(optimizer.slots["0.weight"])
    (0.0005, ['exp_avg', 'exp_avg_sq', 'step'])
    """

    __slots__ = ("_access", "_declared", "_is_set", "_options", "_used")

    def __init__(self, declared: OptimizerDecl, access: OptimizerAccess) -> None:
        self._declared = declared
        self._access = access
        self._used: tuple[int, float | None] | None = None
        """After which update a rate was set, and the rate of that update."""
        self._is_set = False
        self._options = Options(declared, access)

    def __setattr__(self, name: str, value: object) -> None:
        """Set a property; raise AttributeError for a number that has another name here, with that name."""
        if not hasattr(type(self), name):
            known = "learning_rate" if name == "lr" else f"options[{name!r}]" if name in self._options else ""
            raise AttributeError(f"an optimizer has no {name!r} to set{known and f': write optimizer.{known} = ...'}")
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """Return its name: that of its model, or of the update that declares it."""
        return self._declared.name

    @property
    def rule(self) -> str:
        """Return its rule, as in ``adam``, or the user's class, as in ``pkg.mod:Class``."""
        return self._declared.rule

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models that it steps, in order."""
        return self._declared.models

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of the next update, its schedule evaluated.

        A number that is set replaces the spec's from the next update on, until it is set to None. Raises SpecError:
        GS270 a user's class without a learning rate, or a value that is no finite number from 0 up.
        """
        rate = self._access.rate()
        if rate is None:
            raise self._refuse(f"{self.rule} keeps none under the name `lr`", "set what it has through `native`")
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: SupportsFloat | None) -> None:
        """Set the learning rate from the next update on; None restores the spec's."""
        before = self.learning_rate
        value = None if rate is None else self._read(rate)
        if self._used is None or self._used[0] != self.iterations:
            self._used = self.iterations, self._access.used() if self.iterations else before
        self._access.set_rate(value)
        self._is_set = value is not None

    @property
    def is_rate_set(self) -> bool:
        """Return whether the learning rate was set by hand, in place of the spec's."""
        return self._is_set

    @property
    def used_rate(self) -> float | None:
        """Return the learning rate of the last update; None before the first, and where the class has none."""
        if not self.iterations:
            return None
        if self._used is not None and self._used[0] == self.iterations:
            return self._used[1]
        return self._access.used()

    @property
    def options(self) -> Options:
        """Return the other numbers of the next update, by name: ``optimizer.options["weight_decay"] = 0.1``."""
        return self._options

    @property
    def iterations(self) -> int:
        """Return how many updates were applied: the count that schedules and bias corrections use.

        It can be set, because it is state; 0 also resets the slots of a built-in rule. Raises SpecError: GS270 a value
        that is no whole number from 0 up, or a user's class of PyTorch, which keeps its own count.
        """
        return self._access.applied()

    @iterations.setter
    def iterations(self, count: SupportsIndex) -> None:
        """Set how many updates were applied."""
        try:
            value = -1 if isinstance(count, bool) else operator.index(count)
        except TypeError:
            value = -1
        if not 0 <= value <= MOST:
            help = "give the number of updates so far"
            raise self._refuse(f"{count!r} is not a whole number from 0 to {MOST:,}", help, "`iterations`")
        reason = self._access.why_counted()
        if reason:
            raise self._refuse(reason, "restore() a state, or set what it has through `native`", "`iterations`")
        used = self.used_rate
        accumulated = self._declared.options.get(START)
        summed = accumulated if isinstance(accumulated, (int, float)) else 0.0
        first = {"mu_product": 1.0, "step_size": 1.0, "sum": summed}
        self._access.set_applied(value, first)
        self._used = value, used

    @property
    def slots(self) -> Slots:
        """Return copies of its slots, by parameter and slot: of the shape of the parameter, or counts.

        A parameter is called ``0.weight``, or ``model.0.weight`` where several models are stepped. Only
        :meth:`Step.restore` and :meth:`Step.load` write slots.
        """
        return self._access.slots()

    @property
    def native(self) -> object:
        """Return the framework's object that steps the parameters, as the generated source makes it."""
        return self._access.native

    def __repr__(self) -> str:
        """Return its name, rule, models, learning rate and number of updates."""
        rate = self._access.rate()
        origin = " (set by hand)" if self._is_set else ""
        shown = "" if rate is None else f", learning rate {rate:g}{origin}"
        updates = counted(self.iterations, "update")
        return f"<optimizer '{self.name}': {self.rule} on {', '.join(self.models)}{shown}, {updates}>"

    def _read(self, rate: object) -> float:
        """Return a learning rate; raise SpecError (GS270) for a value that is not one."""
        value = float(rate) if isinstance(rate, SupportsFloat) and not isinstance(rate, bool) else math.nan
        tables = {str(name): options for name, options in OPTIMIZERS.items()}
        option = find_option(tables[self.rule], RATE) if self._declared.builtin else None
        if not accepts(option or ANY_RATE, value):
            expected = describe_option(option or ANY_RATE).removeprefix("a ")
            raise self._refuse(f"{rate!r} is not a finite {expected}", "None restores what the spec says")
        return value

    def _refuse(self, reason: str, help: str, what: str = "the learning rate") -> SpecError:
        """Return the error of a number that cannot be read or set."""
        return problem("GS270", f"{what} of optimizer '{self.name}': {reason}", help=help)


SECTION = "hyperparameters"
"""Their section in a checkpoint. It serves for comparison only and is never restored."""
SETTINGS = "settings"
"""The section of the numbers of models and ops that are not options of optimizers, for comparison too."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "models": ("groups", "regularizer", "constraint"),
    "ops": ("clip", "constraint", "decay", "tau", "half_life"),
    "precision": ("loss_scale",),
}
"""The fields that it has, by section of the document."""


def describe_optimizers(declared: tuple[OptimizerDecl, ...], held: Mapping[str, Optimizer]) -> dict[str, StatePlain]:
    """Return every option of every optimizer in words; a number that was set by hand in place of the spec's."""
    found: dict[str, StatePlain] = {}
    for each in declared:
        optimizer = held[each.name]
        rate = {RATE: optimizer.learning_rate} if optimizer.is_rate_set else {}
        by_hand = {**optimizer.options.by_hand, **rate}
        options: dict[str, StatePlain] = {
            key: _spell(value) for key, value in each.options.items() if key not in by_hand
        }
        found[each.name] = {**options, **{key: f"{value!r} {BY_HAND}" for key, value in by_hand.items()}}
    return found


def find_differences(saved: StatePlain, now: Mapping[str, StatePlain]) -> Iterator[str]:
    """Yield a sentence for every option that differs in a checkpoint; an option that it lacks is not compared."""
    for name, options in now.items():
        before = saved.get(name) if isinstance(saved, dict) else None
        if isinstance(before, dict) and isinstance(options, dict):
            for key in dict.fromkeys((*options, *before)):
                was, is_now = before.get(key, WRITTEN), options.get(key, WRITTEN)
                is_known = (key in before and key in options) or any(
                    str(each).endswith(BY_HAND) for each in (was, is_now)
                )
                if was != is_now and is_known:
                    yield f"`{key}` of optimizer '{name}' was {was}, and is {is_now}"


def describe_settings(spec: GraphSpec) -> dict[str, StatePlain]:
    """Return groups, penalties, constraints, clips, decays of averages and the loss scale, by their places."""
    plain = to_plain(spec)
    found: dict[str, StatePlain] = {}
    for section, fields in FIELDS.items():
        written = cast("dict[str, Plain]", plain.get(section, {}))
        holders = {(section,): written} if section == "precision" else {(section, key): written[key] for key in written}
        for path, holder in holders.items():
            chosen = {name: holder[name] for name in fields if name in holder} if isinstance(holder, dict) else {}
            found.update(_spell_leaves(path, chosen))
    return found


def find_changes(saved: StatePlain, now: Mapping[str, StatePlain]) -> Iterator[str]:
    """Yield a sentence for every setting that differs in a checkpoint; one without settings is not compared."""
    if isinstance(saved, dict):
        for key in dict.fromkeys((*now, *saved)):
            before, after = saved.get(key, NOTHING), now.get(key, NOTHING)
            if before != after:
                yield f"`{key}` was {before}, and is {after}"


NOTHING = "nothing"
WRITTEN = "what the spec says"
BY_HAND = "(set by hand)"


def _spell_leaves(path: Path, value: Plain) -> Iterator[tuple[str, str]]:
    """Yield everything in a value that is not a mapping or a list of mappings, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _spell_leaves((*path, key), item)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _spell_leaves((*path, index), item)
    else:
        yield spell_path(path), repr(value)


def _spell(value: HyperParameter) -> str:
    """Return a value, or a schedule, in words."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_spell, value))})"
    return format_schedule(value) if isinstance(value, ScheduleDecl) else repr(value)
