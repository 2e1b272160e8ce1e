"""Numbers of an optimizer that its user may set while it trains: options of its rule, and those of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import SupportsFloat, cast, final

from compiler.ir.program import OptimizerDecl
from compiler.ir.value import HyperParameter, ScheduleDecl
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import Option, accepts, describe_option, find_option
from graphspec.diagnostics import SpecError
from runtime.engine.backend import OptimizerAccess, Place, Value
from runtime.problems import problem

RATE = "lr"
MOMENTUM, DAMPENING, START = "momentum", "dampening", "initial_accumulator_value"


@final
class Options(Mapping[str, Value]):
    """The numbers of an optimizer other than the learning rate, by name: ``betas``, ``groups.0.lr_scale``.

    A number that is set replaces the spec's from the next update on, until it is set to None.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> options = step.optimizers["generator"].options
    >>> options
    {'betas': (0.5, 0.999), 'eps': 1e-08, 'weight_decay': 0.0}
    """

    __slots__ = ("_access", "_declared", "_places", "_set", "_table", "_written")

    def __init__(self, declared: OptimizerDecl, access: OptimizerAccess) -> None:
        self._declared, self._access = declared, access
        rules = {str(rule): options for rule, options in OPTIMIZERS.items()}
        self._table = rules[declared.rule] if declared.builtin else ()
        unknown = {RATE, *([DAMPENING] if declared.options.get("momentum_form") == "lr_inside" else [])}
        unknown |= {option.name for option in self._table if option.once}
        self._written: dict[str, tuple[Place, HyperParameter]] = {
            name: (Place(option=name), value)
            for name, value in declared.options.items()
            if name not in unknown and _is_numeric(value)
        }
        """The values of the spec by the names of the numbers, each with its place."""
        unlike = declared.find_unlike()
        for group in declared.find_changed():
            for name, value in group.changes.items():
                place = Place(option=name, group=unlike.index(group.changes))
                self._written[group.spell(declared.name, name)] = place, value
        self._places = {name: place for name, (place, _) in self._written.items()}
        self._set: dict[str, Value] = {}

    @property
    def by_hand(self) -> Mapping[str, Value]:
        """Return the numbers that are set by hand at present."""
        return MappingProxyType(self._set)

    def __getitem__(self, name: str) -> Value:
        """Return a number of the next update, its schedule evaluated. Raises KeyError for an unknown name.

        >>> options["eps"]
        1e-08
        """
        return self._access.number(self._places[name])

    def __setitem__(self, name: str, value: Value | None) -> None:
        """Set a number from the next update on; None restores the spec's.

        Raises SpecError: GS270 an unknown name, an invalid value, or a number that cannot change after the build.

        >>> options["weight_decay"] = 0.1
        >>> dict(options.by_hand)
        {'weight_decay': 0.1}
        """
        place = self._find_free(name)
        taken = None if value is None else self._read(name, value)
        self._access.set_number(place, taken)
        self._set.pop(name, None)
        self._set.update({} if taken is None else {name: taken})

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)

    def __repr__(self) -> str:
        """Return the numbers by name."""
        return repr(dict(self))

    def _find_free(self, name: str) -> Place:
        """Return the place of a number; raise SpecError (GS270) where there is none, or it cannot be set."""
        place, options = self._places.get(name), self._declared.options
        if place is None:
            if name in (RATE, "learning_rate"):
                raise self._refuse(name, "it is no entry of `options`", "set `learning_rate` of the optimizer")
            if name == START:
                raise self._refuse(name, "it is where the sums began", "write it in the spec")
            if any(option.once for option in self._table if option.name == name):
                raise self._refuse(name, "it cannot change after the build", "write it in the spec")
            has = ", ".join(self._places) or "none"
            is_group = "groups." in name
            help = "give the group another number than 1 in the spec, or a schedule" if is_group else f"it has {has}"
            raise self._refuse(name, "the spec has no such number", help)
        if place.group is not None:
            alike = [each for each in self._places if self._places[each] == place]
            if len(alike) > 1:
                reason = f"{' and '.join(alike)} are one, since their groups say the same"
                raise self._refuse(name, reason, "write another number in one of them, or a schedule")
        elif self._declared.builtin:
            is_still = options.get(MOMENTUM) == 0 and options.get("momentum_form") != "lr_inside"
            if is_still and name in (MOMENTUM, DAMPENING):
                reason = "nothing is kept for a momentum, which is 0 in the spec"
                raise self._refuse(name, reason, "write another `momentum` there")
            if name == DAMPENING and options["nesterov"]:
                raise self._refuse(name, "Nesterov's momentum has none", "leave `nesterov` out of the spec")
        reason = self._access.why_fixed(place)
        if reason:
            help = "set what it has through `native`, or write it in the spec and build anew"
            raise self._refuse(name, reason, help)
        return place

    def _read(self, name: str, value: object) -> Value:
        """Return a value of an option; raise SpecError (GS270) for anything else."""
        place, written = self._written[name]
        is_list = isinstance(value, (tuple, list))
        items = cast("Sequence[object]", value) if is_list else (value,)
        numbers = tuple(
            float(each) if isinstance(each, SupportsFloat) and not isinstance(each, bool) else math.nan
            for each in items
        )
        size = len(written) if isinstance(written, tuple) else 1
        option = None  # as for an option of a user's class
        if place.group is not None:
            option = Option(name=place.option, kind="number", minimum=0.0, required=True, meaning="")
        elif self._declared.builtin:
            option = find_option(self._table, place.option)
        is_one = is_list == isinstance(written, tuple) and len(numbers) == size and all(map(math.isfinite, numbers))
        found = numbers if is_list else numbers[0]
        if not is_one or (option is not None and not accepts(option, found)):
            expected = describe_option(option) if option else f"{size} finite number{'s' if size > 1 else ''}"
            raise self._refuse(name, f"expected {expected}, found {value!r}", "None restores what the spec says")
        if name == MOMENTUM and self._declared.builtin and not found:
            raise self._refuse(name, "without a momentum nothing would become of the one that is kept", "set 1e-6")
        return found

    def _refuse(self, name: str, reason: str, help: str) -> SpecError:
        """Return the error of a number that cannot be set."""
        return problem("GS270", f"`{name}` of optimizer '{self._declared.name}': {reason}", help=help)


def _is_numeric(value: HyperParameter) -> bool:
    """Return whether an option is a number, follows a schedule, or is several of those."""
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_numeric, value))
    return isinstance(value, (int, float, ScheduleDecl)) and not isinstance(value, bool)
