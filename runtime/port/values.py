"""The values of an iteration as expressions, ops and inputs of a spec."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import NamedTuple, cast

from runtime.audit.trace import NOWHERE, Place
from runtime.port.averages import Average
from runtime.port.recorded_loop import Flow, has_model
from runtime.port.tape import Called, Clipped, Derived, Ran, Ref, Stepped, as_list, find_refs
from runtime.port.written_functions import DRAWS, SAME, Text, UnknownFunction, write_call

TODO = "TODO"
"""Marks in a spec what nothing but its author can write."""


@dataclass(slots=True, kw_only=True)
class Line:
    """An entry of a section, with the line that it comes from."""

    text: str
    place: Place = NOWHERE
    at: float = 0
    """Its place on the tape: ops are listed in the order of the loop."""
    todo: str = ""
    note: str = ""
    """What else could have been meant."""


class Origin(NamedTuple):
    """Where an input comes from: its variable, its line, and its number among those of that line."""

    variable: str
    place: Place
    nth: int


@dataclass(kw_only=True)
class Values:
    """Writes values; ``draws``: what is drawn at random is an input, so that two programs can have the same."""

    flow: Flow
    model_names: Mapping[str, str]
    update_names: Mapping[str, str]
    average_names: Mapping[Average, str]
    taken: set[str]
    draws: bool = False
    inputs: dict[str, int] = field(default_factory=dict[str, int])
    """Input -> its value."""
    origins: dict[str, Origin] = field(default_factory=dict[str, "Origin"])
    """Input -> by what it is known in other iterations, too."""
    input_lines: dict[str, Line] = field(default_factory=dict[str, Line])
    ops: dict[str, Line] = field(default_factory=dict[str, Line])
    texts: dict[int, Text] = field(default_factory=dict[int, Text])
    todos: list[str] = field(default_factory=list[str])
    loose: list[str] = field(default_factory=list[str])
    """What is left to do and has no line of its own in the spec."""
    questions: list[str] = field(default_factory=list[str])

    def read(self, given: object) -> Text:
        """Return the expression of an argument; raise UnknownFunction where it is none that the language has."""
        match given:
            case Ref(number):
                return self.value(number)
            case bool():
                return Text(str(given))
            case int() | float():
                return Text(repr(given), 5 if given >= 0 else 3)
            case _:
                raise UnknownFunction(f"an argument of type {type(given).__name__}")

    def value(self, number: int) -> Text:
        """Return the expression of a value; what is used more than once, and has a name, becomes an op."""
        if number not in self.texts:
            self.texts[number] = self._write_value(number)
        return self.texts[number]

    def _write_value(self, number: int) -> Text:
        value, entry = self.flow.loop.tape.values[number], self.flow.producer(number)
        if value.tensor is not None and value.tensor in self.flow.loop.owners:
            return self._write_parameter(value.tensor, number)
        if value.constant is not None and not (value.shape and value.dtype.startswith(("int", "uint"))):
            return Text(
                f"{value.constant:g}" if float(f"{value.constant:g}") == value.constant else repr(value.constant)
            )
        match entry:
            case Ran():
                return self._write_forward(entry, number)
            case Derived():
                root, wrt = entry.roots[0], entry.inputs[entry.outputs.index(number)]
                text = self.value(root).text
                loss = text if not self.flow.loop.tape.values[root].shape else f"sum({text})"
                fields = {"gradient": loss, "wrt": self._reference(Ref(wrt), entry)}
                return self.add_op(self.flow.loop.tape.names.get(number, "slope"), flow_style(fields), entry)
            case Called():
                return self._write_called(entry, number)
            case _:
                return self._write_input(number)

    def _write_called(self, entry: Called, number: int) -> Text:
        values, first = self.flow.loop.tape.values, entry.args[0] if entry.args else None
        if (
            entry.function in ("float", "double")
            and isinstance(first, Ref)
            and not values[first.number].dtype.startswith(("float", "bfloat"))
        ):
            return self._write_input(number, "" if self.flow.is_data(number) else "a cast of whole numbers")
        if entry.function in ("detach", "data.__get__", *SAME) and isinstance(first, Ref):
            place = entry.outputs.index(number) if entry.function == "broadcast_tensors" else 0
            taken = entry.args[place]
            source = taken.number if isinstance(taken, Ref) else first.number
            inner = self.value(source)
            cuts = entry.function in ("detach", "data.__get__", "detach_")
            if cuts and self.flow.reaches(source) & self.flow.targets.get(number, set()):
                return Text(f"stop({inner.text})")
            return inner
        if entry.function in DRAWS:
            return self._write_draw(entry, number)
        if self.flow.is_data(number) or (
            not values[number].has_graph and not self.flow.reaches(number) and not self._is_written(number)
        ):
            return self._write_input(number)
        if entry.function in ("chunk", "split", "max", "min") and len(entry.outputs) > 1:
            return self._write_parts(entry, number)
        before = (
            dict(self.ops),
            dict(self.input_lines),
            dict(self.inputs),
            dict(self.origins),
            set(self.taken),
            dict(self.texts),
        )
        try:
            text = write_call(entry, self.read, self._made, values, self.flow.batch)
        except UnknownFunction as problem:
            self.ops, self.input_lines, self.inputs, self.origins, self.taken, self.texts = before
            return self._write_input(number, f"{problem} is not in the language: write a `call` of your own")
        self._note_numbers(entry)
        name = self.flow.loop.tape.names.get(number, "")
        if self.flow.needed[number] > 1:
            return self.add_op(name or "value", {"expr": text.text}, entry)
        return text

    def _note_numbers(self, entry: Called) -> None:
        """Note numbers of the program that may be something else in other steps."""
        numbers = self.flow.loop.varying.get(self.flow.loop.order[id(entry)], ())
        if numbers:
            # The first three, and all up to the first that differs.
            first = next((index for index, each in enumerate(numbers) if each != numbers[0]), 0)
            shown = ", ".join(f"{each:g}" for each in numbers[: max(3, first + 1)])
            todo = f"a number changes from step to step ({shown}): make it an input, or a `schedule`"
            self.note(todo, entry.place)
            self.loose.append(f"{entry.place}: {todo}")
        by = entry.args[1] if entry.function in ("div", "__truediv__", "true_divide") and len(entry.args) > 1 else None
        if isinstance(by, int | float) and by == self.flow.batch > 1:
            self.questions.append(f"{entry.place}: it divides by {by:g}, the size of the batch: a mean, if it is that")

    def _write_parts(self, entry: Called, number: int) -> Text:
        """Return one of several results of a function."""
        inner = self.read(entry.args[0])
        rest = [*entry.args[1:], *(entry.options[key] for key in ("dim", "keepdim") if key in entry.options)]
        if entry.function in ("max", "min"):
            is_index = entry.outputs.index(number) == 1
            keep = ", keepdims=True" if len(rest) > 1 and rest[1] and not is_index else ""
            sign = "-" if is_index and entry.function == "min" else ""
            function = "argmax" if is_index else entry.function
            return Text(f"{function}({sign}{inner.within(3 if sign else 0)}, axis={rest[0]}{keep})")
        axis = rest[1] if len(rest) > 1 else 0
        sizes = [self.flow.loop.tape.values[each].shape[int(str(axis))] for each in entry.outputs]
        sections = str(len(sizes)) if len(set(sizes)) == 1 else str(sizes)
        names = [self.free(self.flow.loop.tape.names.get(each, "part")) for each in entry.outputs]
        option = "" if axis == 1 else f", axis={axis}"
        fields = {"expr": f"split({inner.text}, sections={sections}{option})", "outputs": names}
        self.ops[self.free("parts")] = Line(
            text=flow_style(fields), place=entry.place, at=self.flow.loop.order[id(entry)]
        )
        for each, name in zip(entry.outputs, names, strict=True):
            self.texts[each] = Text(name)
        return self.texts[number]

    def _is_written(self, number: int) -> bool:
        """Return whether the language can say how a value is made."""
        entry = self.flow.producer(number)
        if entry is None or isinstance(entry, Ran | Derived):
            return True
        if not isinstance(entry, Called) or entry.function in (*DRAWS, *SAME, "detach"):
            return True
        if entry.function in ("chunk", "split"):
            return all(map(self._is_written, self.flow.inner(number)))
        try:
            write_call(entry, lambda _: Text("x"), self._made, self.flow.loop.tape.values, self.flow.batch)
        except UnknownFunction:
            return False
        return all(map(self._is_written, self.flow.inner(number)))

    def _made(self, given: object) -> Called | None:
        """Return the call of a function that made an argument."""
        entry = self.flow.producer(given.number) if isinstance(given, Ref) else None
        return entry if isinstance(entry, Called) else None

    def _write_input(self, number: int, todo: str = "", where: Place = NOWHERE) -> Text:
        value = self.flow.loop.tape.values[number]
        entry = self.flow.loop.producers.get(number, (0, None))[1]
        place = entry.place if entry is not None and where == NOWHERE else where
        if value.has_graph and not todo:
            todo = "a value with a graph comes from an earlier step: a `state`, or a part of this step"
        elif (
            not todo
            and entry is not None
            and entry.position < self.flow.iteration.first
            and has_model(self.flow.loop, number)
        ):
            todo = "a value comes from an earlier step: make it a `state`"
        if number in self.flow.loop.rewritten:
            todo = todo or f"{self.flow.loop.rewritten[number]} writes it in place: give the step what is written"
        name = self.free(self.flow.loop.tape.names.get(number, "x"))
        shape = ", ".join(self._sizes(value.shape))
        fields = (
            f"{{shape: [{shape}]}}"
            if value.dtype in ("float32", "float64")
            else (f"{{shape: [{shape}], dtype: {value.dtype}}}")
        )
        self.input_lines[name] = Line(text=fields, place=place, todo=self.note(todo, place))
        self.inputs[name] = number
        variable = self.flow.loop.tape.names.get(number, "")
        nth = sum(each[:2] == (variable, place) for each in self.origins.values())
        self.origins[name] = Origin(variable, place, nth)
        return Text(name)

    def _sizes(self, shape: Sequence[int]) -> list[str]:
        rows = self.flow.batch if self.flow.loop.has_rows else 0
        return ["batch" if index == 0 and size == rows else str(size) for index, size in enumerate(shape)]

    def _write_draw(self, entry: Called, number: int) -> Text:
        name = self.flow.loop.tape.names.get(number, "")
        drawn = self.flow.loop.drawn
        if self.draws or drawn == "inputs" or (drawn == "named inputs" and name):
            return self._write_input(number)
        like = self.read(entry.args[0]).text if entry.function.endswith("_like") else ""
        if like.isidentifier():
            return self.add_op(name or "noise", f"{{random: {DRAWS[entry.function]}, like: {like}}}", entry)
        shape = ", ".join(self._sizes(self.flow.loop.tape.values[number].shape))
        name = name or "noise"
        return self.add_op(name, f"{{random: {DRAWS[entry.function]}, shape: [{shape}]}}", entry)

    def _write_parameter(self, tensor: int, number: int) -> Text:
        model = self.flow.loop.tape.models[self.flow.loop.owners[tensor]]
        name = self.model_names[model.name]
        if model.shape is None:
            used = (each for each in self.flow.loop.tape.entries if not isinstance(each, Stepped | Clipped))
            where = next((each.place for each in used if number in each.given), NOWHERE)
            lacking = f"{model.name}.{model.tensors[tensor]} is used outside of its model"
            return self._write_input(number, f"{lacking}: make it a parameter of its own", where)
        entry = next(
            each for each in self.flow.loop.tape.entries if isinstance(each, Called) and number in find_refs(each.args)
        )
        fields = {"forward": name, **self.after(model.name, entry.position)}
        return self.add_op(f"{name}_value", flow_style(fields), entry)

    def _write_forward(self, entry: Ran, number: int) -> Text:
        names = [self._reference(each, entry) for each in entry.inputs]
        fields: dict[str, object] = {"forward": self.model_names[entry.model]}
        fields["inputs"] = names[0] if len(names) == 1 else names
        reached = {entry.model, *(model for each in entry.given for model in self.flow.reaches(each))}
        targets = set[str]().union(*(self.flow.targets.get(each, set()) for each in entry.outputs))
        if not entry.recorded and reached & targets:
            fields["stop"] = True
        owned = any(entry.model in models for models in self.flow.loop.trained.values())
        if entry.training != owned and self.flow.loop.tape.models[entry.model].by_mode:
            fields["train"] = entry.training
        fields |= self.after(entry.model, entry.position)
        stepped = fields.get("after")
        note, todo = "", ""
        if entry.has_others:
            todo = f"{entry.model} returns a tuple with more than tensors: let it return tensors, or a dictionary"
            self.note(todo, entry.place)
        if isinstance(stepped, str) and stepped in self.update_names.values():
            note = f"without `after`, {fields['forward']} is as the step began: simultaneous updates"
        if len(entry.outputs) == 1 and not entry.keys:
            made = self.add_op(self.flow.loop.tape.names.get(number, f"{fields['forward']}_out"), fields, entry)
            self.ops[made.text].note, self.ops[made.text].todo = note, todo
            return made
        outputs = [
            self.free(key or self.flow.loop.tape.names.get(each, f"{fields['forward']}_out"))
            for each, key in zip(entry.outputs, entry.keys or [""] * len(entry.outputs), strict=True)
        ]
        fields["outputs"] = outputs
        self.ops[self.free(f"{fields['forward']}_call")] = Line(
            text=flow_style(fields), place=entry.place, at=self.flow.loop.order[id(entry)], note=note, todo=todo
        )
        for each, name in zip(entry.outputs, outputs, strict=True):
            self.texts[each] = Text(name)
        return self.texts[number]

    def _reference(self, given: object, entry: Ran | Derived) -> str:
        """Return the name of an argument; what has none becomes an op."""
        text = self.read(given)
        if text.text.isidentifier():
            return text.text
        number = given.number if isinstance(given, Ref) else -1
        if number >= 0 and (constant := self.flow.loop.tape.values[number].constant) is not None:
            lacking = f"the language has no tensor of the number {constant:g}: give the step one, as here"
            self.texts[number] = made = self._write_input(number, lacking)
            return made.text
        name = self.flow.loop.tape.names.get(
            number, f"into_{self.model_names[entry.model]}" if isinstance(entry, Ran) else "at"
        )
        made = self.add_op(name, {"expr": text.text}, self.flow.made(number) or entry)
        self.texts[number] = made
        return made.text

    def after(self, model: str, position: int) -> dict[str, object]:
        """Return which writes of a model, earlier in the iteration, a call of it comes after."""
        found: list[str] = []
        for name, fires in self.flow.loop.fired.items():
            if model in self.flow.loop.trained[name] and any(
                self._is_before(each.position, position) for each in fires
            ):
                found.append(self.update_names[name])
        for average in self.flow.loop.averages:
            is_of_step = average not in self.flow.loop.early
            if (
                is_of_step
                and average.target == model
                and any(self._is_before(each, position) for each in average.positions)
            ):
                found.append(self.average_names[average])
        return {"after": found[0] if len(found) == 1 else found} if found else {}

    def _is_before(self, one: int, other: int) -> bool:
        return self.flow.iteration.first <= one < other

    def note(self, todo: str, place: Place) -> str:
        """Keep what is left to do, and return it."""
        if todo:
            self.todos.append(f"{place}: {todo}" if place != NOWHERE else todo)
        return todo

    def free(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        return free_name(wanted, self.taken)

    def add_op(self, name: str, fields: Mapping[str, object] | str, entry: Called | Ran | Derived) -> Text:
        """Add an op and return its name as an expression."""
        free = self.free(name)
        text = fields if isinstance(fields, str) else flow_style(fields)
        self.ops[free] = Line(text=text, place=entry.place, at=self.flow.loop.order[id(entry)])
        return Text(free)


def flow_style(value: object) -> str:
    """Return a value of the language on one line."""
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            return "{" + ", ".join(f"{key}: {flow_style(each)}" for key, each in fields.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow_style, as_list(cast("object", value)))) + "]"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        case str() if not re.fullmatch(r"[A-Za-z_][\w.]*", value):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case _:
            return str(value)


def free_name(wanted: str, taken: set[str]) -> str:
    """Return a name like another that is not taken, and take it."""
    base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
    base = f"_{base}" if base[0].isdigit() else f"{base}_" if keyword.iskeyword(base) else base
    name = next(each for each in chain((base,), (f"{base}_{n}" for n in count(2))) if each not in taken)
    taken.add(name)
    return name
