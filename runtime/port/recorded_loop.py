"""A recorded loop, and what the values of one of its iterations are made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from runtime.audit.trace import Place, Site, Update
from runtime.port.averages import Average, find_averages
from runtime.port.loop_iterations import Fired, Iteration
from runtime.port.tape import Called, Derived, Entry, Ran, Ref, Stepped, Tape, walk_back
from runtime.port.written_functions import DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """In which steps something takes place: every so many."""

    period: int
    first: int
    problem: str = ""
    """What cannot be said of it."""


class Part(NamedTuple):
    """A call that a loss is made with: its line, and what is called."""

    place: Place
    function: str


@dataclass(kw_only=True)
class Loop:
    """What all iterations of a loop have in common."""

    tape: Tape
    iterations: tuple[Iteration, ...]
    fired: Mapping[str, tuple[Fired, ...]]
    turns: Mapping[str, str]
    """Of an optimizer that steps by several losses in turn: the names that its steps have here -> its own."""
    drawn: Literal["ops", "named inputs", "inputs"] = "ops"
    """What random numbers become: they stand in for data where nothing else has rows, first those with a variable."""
    has_rows: bool = True
    """Inputs have the rows of one batch; else all of their sizes are fixed, as where a loop joins or folds batches."""

    @cached_property
    def producers(self) -> Mapping[int, tuple[int, Entry]]:
        """Return what made each value, with its place on the tape."""
        made = (
            (index, entry) for index, entry in enumerate(self.tape.entries) if isinstance(entry, Called | Ran | Derived)
        )
        return {number: (index, entry) for index, entry in made for number in entry.outputs}

    @cached_property
    def order(self) -> Mapping[int, int]:
        """Return the places of entries on the tape."""
        return {id(entry): index for index, entry in enumerate(self.tape.entries)}

    @cached_property
    def invariants(self) -> frozenset[int]:
        """Return what was made before the first call of a model and is used in several iterations, as data sets are."""
        entries = self.tape.entries
        begun = next((index for index, each in enumerate(entries) if isinstance(each, Ran)), len(entries))
        homes: dict[int, set[int]] = {}
        for each in entries:
            home = next((one.number for one in self.iterations if one.first <= each.position < one.last), -1)
            for number in each.given if isinstance(each, Called | Ran) else ():
                homes.setdefault(number, set()).add(home)
        made = (number for number in homes if self.producers.get(number, (begun, None))[0] < begun)
        return frozenset(number for number in made if len(homes[number] - {-1}) > 1)

    @cached_property
    def averages(self) -> tuple[Average, ...]:
        """Return the averages and copies."""
        return find_averages(self.tape)

    @cached_property
    def early(self) -> frozenset[Average]:
        """Return the averages that move before their source is stepped: they follow the step before that one."""
        found: list[Average] = []
        for average in self.averages:
            homes = [(each, at) for each in self.iterations for at in average.positions if each.first <= at < each.last]
            steps = [
                fire for name, fires in self.fired.items() if average.source in self.trained[name] for fire in fires
            ]
            if homes and all(
                any(each.number == fire.iteration and at < fire.position for fire in steps) for each, at in homes
            ):
                found.append(average)
        return frozenset(found)

    def find_moves(self, average: Average) -> list[int]:
        """Return the iterations after whose steps an average moves."""
        found = [
            each.number - (average in self.early)
            for each in self.iterations
            if any(each.first <= at < each.last for at in average.positions)
        ]
        return [each for each in found if each >= 0]

    @cached_property
    def ahead(self) -> int:
        """Return how many steps a spec must have taken for its `every` to be due in the steps of the loop."""
        if any(len(each.gathered) > 1 for fires in self.fired.values() for each in fires):
            return 0
        found = [find_beat([each.iteration for each in fires], len(self.iterations)) for fires in self.fired.values()]
        beats = [each for each in found if each.period > 1 and not each.problem]
        fitting = (
            steps
            for steps in range(math.lcm(*(each.period for each in beats)))
            if all((each.first + 1 + steps) % each.period == 0 for each in beats)
        )
        return next(fitting, 0)

    @cached_property
    def owners(self) -> Mapping[int, str]:
        """Return the model of each tensor."""
        return {number: name for name, model in self.tape.models.items() for number in model.tensors}

    @cached_property
    def rewritten(self) -> Mapping[int, Place]:
        """Return the values that are written in place by way of their `.data`, which makes no new value."""
        found: dict[int, Place] = {}
        for each in self.tape.entries:
            first = each.args[0] if isinstance(each, Called) and each.args else None
            if not isinstance(each, Called) or not isinstance(first, Ref) or not each.function.endswith("_"):
                continue
            made = self.producers.get(first.number, (0, None))[1]
            source = made.args[0] if isinstance(made, Called) and made.function == "data.__get__" else None
            if isinstance(source, Ref):
                found.setdefault(source.number, each.place)
        return found

    def models_of(self, step: Stepped) -> set[str]:
        """Return the models that a step moves."""
        return {self.owners[each] for each in step.tensors if each in self.owners}

    def find_lines(self, fired: Fired) -> Mapping[Site, frozenset[Part]]:
        """Return, by backward, the calls with a graph that make the loss of an update in its iteration."""
        flow, found = Flow(loop=self, iteration=self.iterations[fired.iteration]), dict[Site, frozenset[Part]]()
        applied = {event.site for event in fired.backwards}

        def has_graph(number: int) -> bool:
            """Return whether a gradient may flow into a value."""
            return self.tape.values[number].has_graph

        for site in flow.roots.keys() & applied:
            values = walk_back(
                (each for each in flow.roots[site].roots if has_graph(each)),
                lambda number: filter(has_graph, flow.inner(number)),
            )
            entries = filter(None, map(flow.made, values))
            parts = (
                Part(each.place, each.function if isinstance(each, Called) else type(each).__name__) for each in entries
            )
            found[site] = frozenset(parts)
        return found

    @cached_property
    def steps(self) -> Mapping[str, tuple[Stepped, ...]]:
        """Return the steps of each optimizer."""
        found: dict[str, list[Stepped]] = {}
        for each in self.tape.entries:
            if isinstance(each, Stepped):
                found.setdefault(each.optimizer, []).append(each)
        return {name: tuple(each) for name, each in found.items()}

    @cached_property
    def trained(self) -> Mapping[str, tuple[str, ...]]:
        """Return the models that each optimizer steps."""
        return {
            name: tuple(dict.fromkeys(self.owners[each] for each in steps[0].tensors if each in self.owners))
            for name, steps in self.steps.items()
        }

    @cached_property
    def moving(self) -> Mapping[str, frozenset[int]]:
        """Return the tensors that each optimizer has and that have required a gradient in one of its steps."""
        found: dict[str, set[int]] = {}
        for each in self.tape.trace.of(Update):
            found.setdefault(each.optimizer, set()).update(part.tensor for part in each.parts if part.required)
        return {name: frozenset(each) for name, each in found.items()}

    @cached_property
    def varying(self) -> Mapping[int, tuple[float, ...]]:
        """Return the calls whose numbers change from iteration to iteration, by their places on the tape."""
        calls: dict[tuple[object, ...], list[Called]] = {}
        for each in self.iterations:
            seen = Counter[tuple[object, ...]]()
            for entry in self.tape.entries:
                if isinstance(entry, Called) and each.first <= entry.position < each.last:
                    key = entry.place, entry.function
                    calls.setdefault((*key, seen[key]), []).append(entry)
                    seen[key] += 1
        found: dict[int, tuple[float, ...]] = {}
        for entries in calls.values():
            for given in zip(*(each.args for each in entries), strict=False):
                numbers = [each for each in given if isinstance(each, int | float)]
                if len(numbers) == len(entries) and len(set(numbers)) > 1:
                    found |= {self.order[id(each)]: tuple(numbers) for each in entries}
        return found

    @cached_property
    def causes(self) -> Mapping[str, tuple[Site, ...]]:
        """Return the sites of the backwards whose gradients each optimizer applies."""
        return {
            name: tuple(dict.fromkeys(event.site for each in fired for event in each.backwards))
            for name, fired in self.fired.items()
        }


@dataclass(kw_only=True)
class Flow:
    """The values of one iteration."""

    loop: Loop
    iteration: Iteration

    @cached_property
    def roots(self) -> Mapping[Site, Derived]:
        """Return the backwards of the iteration by their sites."""
        numbers = {event.number for event in self.iteration.backwards}
        found = (each for each in self.loop.tape.entries if isinstance(each, Derived) and each.backward in numbers)
        return {each.site: each for each in found}

    def inner(self, number: int) -> tuple[int, ...]:
        """Return the values that a value is made of, within the iteration."""
        made = self.made(number)
        return made.given if made is not None else ()

    def producer(self, number: int) -> Entry | None:
        """Return what makes a value in the iteration, or before the first one and without a model, as constants are."""
        _, entry = self.loop.producers.get(number, (0, None))
        is_early = number in self.loop.invariants or (entry is not None and entry.position < self.iteration.first)
        return None if is_early and self.loop.tape.values[number].constant is None else entry

    @cached_property
    def needed(self) -> Counter[int]:
        """Return the values that the losses need, and how often each is used."""
        uses = Counter[int](root for each in self.roots.values() for root in each.roots)
        for number in walk_back(tuple(uses), self.inner):
            uses.update(self.inner(number))
        return uses

    @cached_property
    def targets(self) -> dict[int, set[str]]:
        """Return, by value, the models whose updates differentiate a loss that is made of it."""
        found: dict[int, set[str]] = {}
        for name, places in self.loop.causes.items():
            roots = [root for place in places if place in self.roots for root in self.roots[place].roots]
            for number in walk_back(roots, self.inner):
                found.setdefault(number, set()).update(self.loop.trained[name])
        return found

    def reaches(self, number: int) -> set[str]:
        """Return the models that a gradient of a value would reach, were it not cut there."""

        def given(each: int) -> tuple[int, ...]:
            """Return the values that a gradient of a value flows on to."""
            entry = self.producer(each)
            is_cut = isinstance(entry, Called) and entry.function in ("detach", "data.__get__")
            return () if is_cut else self.inner(each)

        found = set[str]()
        for each in walk_back((number,), given):
            entry = self.producer(each)
            tensor = self.loop.tape.values[each].tensor
            if tensor is not None and tensor in self.loop.owners:
                found.add(self.loop.owners[tensor])
            if isinstance(entry, Ran):
                found.add(entry.model)
        return found

    def is_data(self, number: int) -> bool:
        """Return whether a value is made without a model, and without anything drawn at random."""
        entry = self.producer(number)
        if isinstance(entry, Ran | Derived) or self.loop.tape.values[number].tensor is not None:
            return False
        if isinstance(entry, Called) and entry.function in DRAWS:
            return False
        return all(map(self.is_data, self.inner(number)))

    @cached_property
    def batch(self) -> int:
        """Return the size of the batch: that of the first input of a model that has one."""
        for each in self.loop.tape.entries:
            for number in each.given if isinstance(each, Ran) else ():
                if self.loop.tape.values[number].shape:
                    return self.loop.tape.values[number].shape[0]
        return 0

    def made(self, number: int) -> Called | Ran | Derived | None:
        """Return what makes a value, if that is an op."""
        entry = self.producer(number)
        return entry if isinstance(entry, Called | Ran | Derived) else None


def find_beat(iterations: Sequence[int], number: int) -> Beat:
    """Return in which of so many iterations something takes place."""
    if list(iterations) == list(range(number)) or not iterations:
        return Beat(period=1, first=0)
    gaps = {after - before for before, after in pairwise(iterations)} or {iterations[0] + 1}
    period = min(gaps)
    if len(gaps) == 1 and iterations[0] < period and iterations[-1] + period >= number:
        return Beat(period=period, first=iterations[0])
    shown = ", ".join(str(each + 1) for each in iterations)
    problem = f"it runs in steps {shown} of {number}: see that `every` says so"
    return Beat(period=period, first=iterations[0], problem=problem)


def has_model(loop: Loop, number: int) -> bool:
    """Return whether a value was made with a model, in any iteration."""

    def given(each: int) -> tuple[int, ...]:
        """Return the values that a function has made a value of."""
        made = loop.producers.get(each, (0, None))[1]
        return made.given if isinstance(made, Called) else ()

    values = walk_back((number,), given)
    return any(isinstance(loop.producers.get(each, (0, None))[1], Ran | Derived) for each in values)
