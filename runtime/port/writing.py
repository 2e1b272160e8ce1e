"""One iteration of a loop as a spec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from runtime.audit.trace import NOWHERE, Backward, Place, ScalerStep, Tick
from runtime.port.averages import Average
from runtime.port.expressions import Text
from runtime.port.iterations import Iteration
from runtime.port.loop import Beat, Flow, Loop, find_beat
from runtime.port.rules import describe_rule
from runtime.port.tape import Called, Clipped, Entry, Model, Ran, Ref, Stepped
from runtime.port.values import TODO, Line, Origin, Values, flow_style, free_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A spec and what it was made of."""

    text: str
    inputs: Mapping[str, int]
    """Input -> its value in the iteration."""
    origins: Mapping[str, Origin]
    """Input -> by what it is known in other iterations, too."""
    losses: Mapping[str, tuple[Place, ...]]
    """Update -> the backwards of its loss."""
    todos: tuple[str, ...]
    models: Mapping[str, str]
    """Model -> its name in the trace."""
    has_rows: bool
    """An input has the rows of a batch."""


@dataclass(kw_only=True)
class Writer:
    """Writes one iteration of a loop; ``draws``: random values are inputs, so that both programs can have the same."""

    loop: Loop
    iteration: Iteration
    name: str
    draws: bool = False
    header: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Name what is written apart from values."""
        loop, taken = self.loop, set[str]()
        self.flow = Flow(loop=loop, iteration=self.iteration)
        self._model_names = {name: free_name(name, taken) for name in loop.tape.models}
        self._update_names = {name: free_name(_step_name(name), taken) for name in loop.fired}
        self._average_names = {
            each: free_name(f"follow_{self._model_names[each.source]}", taken) for each in loop.averages
        }
        self.values = Values(
            flow=self.flow,
            model_names=self._model_names,
            update_names=self._update_names,
            average_names=self._average_names,
            taken=taken,
            draws=self.draws,
        )
        self._models: dict[str, Line] = {}

    def write(self) -> Ported:
        """Return the spec."""
        loop, values = self.loop, self.values
        losses = {name: self._write_loss(name) for name in loop.fired}
        for name, loss in losses.items():
            self._write_update(name, loss)
        for average in loop.averages:
            self._write_average(average)
        used = [name for name in loop.tape.models if name in self._used]
        for name in used:
            self._write_model(loop.tape.models[name])
        written = {self._update_names[name]: loop.causes[name] for name in loop.fired}
        return Ported(
            text=self._lay_out(tuple(written)),
            inputs=values.inputs,
            origins=values.origins,
            losses=written,
            todos=tuple(values.todos),
            models={self._model_names[name]: name for name in used},
            has_rows=any("[batch" in each.text for each in values.input_lines.values()),
        )

    @cached_property
    def _used(self) -> set[str]:
        """Return the models that are called, stepped or averaged."""
        entries = (self.flow.producer(number) for number in self.flow.needed)
        called = {entry.model for entry in entries if isinstance(entry, Ran)}
        stepped = {model for models in self.loop.trained.values() for model in models}
        return called | stepped | {name for each in self.loop.averages for name in (each.source, each.target)}

    def _write_loss(self, optimizer: str) -> tuple[str, Place]:
        """Return the loss of an optimizer as an expression, without the division of an accumulated one."""
        windows = max(len(each.gathered) for each in self.loop.fired[optimizer])
        terms: list[Text] = []
        place = NOWHERE
        for line in self.loop.causes[optimizer]:
            derived = self.flow.roots.get(line)
            for root in derived.roots if derived is not None else ():
                place = line
                terms.append(self.values.value(self._undivided(root, windows)[0]))
        if not terms:
            terms = [Text(TODO)]
        return " + ".join(each.within(1) for each in terms), place

    def _undivided(self, root: int, windows: int) -> tuple[int, bool]:
        """Return what is divided by the number of steps in a window, and whether anything is."""
        entry = self.flow.producer(root)
        if windows > 1 and isinstance(entry, Called) and isinstance(entry.args[0], Ref) and len(entry.args) > 1:
            by = entry.args[1]
            if (entry.function in ("div", "__truediv__", "true_divide") and by == windows) or (
                entry.function in ("mul", "__mul__") and isinstance(by, float) and by * windows == 1
            ):
                return entry.args[0].number, True
        return root, False

    def _write_update(self, optimizer: str, loss: tuple[str, Place]) -> None:
        fires, steps = self.loop.fired[optimizer], self.loop.steps[optimizer]
        models = [self._model_names[each] for each in self.loop.trained[optimizer]]
        updated = models if models else [TODO]
        place = fires[-1].update.place
        fields: dict[str, object] = {"update": updated[0] if len(updated) == 1 else updated, "loss": loss[0]}
        rule, lacking = describe_rule(steps[0].rule, steps[0].groups[0])
        todos = [f"{lacking}: choose a rule" if lacking else ""]
        todos += ["its loss was not recorded: write it"] if loss[0] == TODO else []
        todos += ["the model that it steps was not seen to be called: write it"] if not models else []
        fields["optimizer"] = rule
        shared = {key: each for key, each in steps[0].groups[0].items() if key != "initial_lr"}
        if any(
            {key: each for key, each in group.items() if key != "initial_lr"} != shared for group in steps[0].groups[1:]
        ):
            todos.append("its groups have options of their own: write `groups` of the model")
        curve, lacking = self._find_schedule(optimizer)
        todos.append(lacking)
        if curve is not None:
            fields["optimizer"] = {**(rule if isinstance(rule, dict) else {"name": rule}), "lr": curve}
        clip = next((each for each in self.loop.tape.entries if self._clips(each, optimizer)), None)
        if isinstance(clip, Clipped):
            fields["clip"] = (
                {"norm": clip.limit, "eps": 1e-6} if clip.function == "clip_grad_norm_" else {"value": clip.limit}
            )
        limits = self._find_clamp(optimizer)
        if limits is not None:
            fields["constraint"] = {"clip": list(limits)}
        windows, note = max(len(each.gathered) for each in fires), ""
        if windows > 1:
            roots = [
                root
                for line in self.loop.causes[optimizer]
                if line in self.flow.roots
                for root in self.flow.roots[line].roots
            ]
            divided = all(self._undivided(root, windows)[1] for root in roots)
            fields["accumulate"] = windows if divided else {"steps": windows, "reduce": "sum"}
        else:
            fired = [each.iteration for each in fires]
            beat = find_beat(fired, len(self.loop.iterations))
            fields |= {"every": beat.period} if beat.period > 1 else {}
            todos.append(beat.problem)
            note = _describe_beat(beat, self.loop.ahead)
        self.values.ops[self._update_names[optimizer]] = Line(
            at=self._find_place([each.position for each in fires]),
            text=flow_style(fields),
            place=place,
            todo=self.values.note("; ".join(filter(None, todos)), place),
            note=note,
        )

    def _find_schedule(self, optimizer: str) -> tuple[Mapping[str, object] | None, str]:
        """Return the schedule of a learning rate in the language, and what cannot be said of it."""
        steps, events = self.loop.steps[optimizer], self.loop.tape.trace.events
        schedule = steps[0].schedule
        ticks = [at for at, each in enumerate(events) if isinstance(each, Tick) and each.optimizer == optimizer]
        if schedule is not None and not ticks:
            return None, f"{schedule.kind}, which sets its learning rate, was not advanced: write a schedule"
        ends = zip(steps, [*(each.position for each in steps[1:]), len(events)], strict=True)
        counts = [sum(step.position <= at < end for at in ticks) for step, end in ends]
        if schedule is not None and schedule.curve is not None and set(counts[:-1]) <= {1} and counts[-1] <= 1:
            return schedule.curve, ""
        rates = {each.groups[0].get("lr") for each in steps}
        return None, "its learning rate changes: write a schedule" if ticks or len(rates) > 1 else ""

    def _find_place(self, positions: Sequence[int]) -> float:
        """Return the place on the tape of a write: that of the iteration, if it takes place there."""
        first, last = self.iteration.first, self.iteration.last
        position = next((each for each in positions if first <= each < last), last)
        return sum(each.position <= position for each in self.loop.tape.entries) - 0.5

    def _clips(self, entry: Entry, optimizer: str) -> bool:
        """Return whether an entry clips the gradients of an optimizer: its next step is that one's."""
        if not isinstance(entry, Clipped):
            return False
        later = (
            each for each in self.loop.tape.entries if isinstance(each, Stepped) and each.position >= entry.position
        )
        following = next(later, None)
        return following is not None and following.optimizer == optimizer

    def _find_clamp(self, optimizer: str) -> tuple[float, float] | None:
        """Return the interval to which a loop clamps the parameters of an optimizer."""
        own = set(self.loop.steps[optimizer][0].tensors)
        for each in self.loop.tape.entries:
            if not (isinstance(each, Called) and each.function in ("clamp_", "clip_") and each.args):
                continue
            given = dict(zip(("min", "max"), each.args[1:], strict=False)) | dict(each.options)
            low, high = given.get("min"), given.get("max")
            is_own = isinstance(each.args[0], Ref) and self._source(each.args[0].number) in own
            if is_own and isinstance(low, (int, float)) and isinstance(high, (int, float)):
                return float(low), float(high)
        return None

    def _source(self, number: int) -> int | None:
        """Return the parameter that a value is or shares memory with by `.data` or `detach`."""
        value = self.loop.tape.values[number]
        if value.tensor is not None:
            return value.tensor
        entry = self.loop.producers.get(number, (0, None))[1]
        if (
            isinstance(entry, Called)
            and entry.function in ("data.__get__", "detach")
            and isinstance(entry.args[0], Ref)
        ):
            return self._source(entry.args[0].number)
        return None

    def _write_average(self, average: Average) -> None:
        source, target = self._model_names[average.source], self._model_names[average.target]
        fields: dict[str, object] = {"copy" if average.decay == 0 else "ema": source, "into": target}
        if average.decay:
            fields |= {"decay": average.decay} if average.decay <= 0.9 else {"tau": average.tau}
        todo = average.todo
        if average.decay:
            fields |= {"init": "first_update"} if average.copies_first else {}
            fields |= {"buffers": average.buffers} if average.buffers else {}
        moved = self.loop.find_moves(average)
        for name, fires in self.loop.fired.items():
            if len(moved) < len(self.loop.iterations) and [each.iteration for each in fires] == moved:
                fields["every"] = self._update_names[name]
        if "every" not in fields:
            beat = find_beat(moved, len(self.loop.iterations) - (average in self.loop.early))
            fields |= {"every": beat.period} if beat.period > 1 else {}
            todo = todo or beat.problem
        self.values.ops[self._average_names[average]] = Line(
            at=self._find_place(average.positions),
            text=flow_style(fields),
            place=average.place,
            todo=self.values.note(todo, average.place),
        )

    def _write_model(self, model: Model) -> None:
        name, fields, todo = self._model_names[model.name], dict[str, object](), ""
        target = next((each for each in self.loop.averages if each.target == model.name), None)
        if target is not None and target.alike:
            fields["like"] = self._model_names[target.source]
        elif model.shape is not None:
            first = self.loop.tape.snapshots[0][1].get(next(iter(model.tensors)))
            start = (
                float(first.flat[0]) if first is not None and first.size and (first == first.flat[0]).all() else None
            )
            fields["parameter"] = {"shape": list(model.shape), **({"init": start} if start else {})}
            todo = "" if start is not None else "its initial values differ: write `weights`, or an `init`"
        elif model.layers is not None:
            fields["layers"] = model.layers
        else:
            fields["class"] = model.kind
            if model.arguments is None:
                todo = "write its arguments under `args`, or a function that returns it"
            elif model.arguments:
                fields["args"] = dict(model.arguments)
        self._models[name] = Line(text=flow_style(fields), todo=self.values.note(todo, NOWHERE))

    def _lay_out(self, updates: Iterable[str]) -> str:
        lines = [*(f"# {each}" for each in self.header), "graphspec: 1", f"name: {self.name}"]
        lines += self._write_precision()
        for title, section in (("inputs", self.values.input_lines), ("models", self._models), ("ops", self.values.ops)):
            if title == "ops":
                section = dict(sorted(section.items(), key=lambda each: each[1].at))
            if section:
                lines.append(f"{title}:")
                lines.extend(line for name, each in section.items() for line in _lay_line(name, each))
        shown = ", ".join(f"{each}.loss" for each in updates)
        return "\n".join([*lines, f"outputs: [{shown}]", ""])

    def _write_precision(self) -> list[str]:
        tape = self.loop.tape
        compute = next((each.autocast for each in tape.entries if isinstance(each, Ran) and each.autocast), "")
        fields: dict[str, object] = {"compute": compute} if compute else {}
        if any(True for _ in tape.trace.of(ScalerStep)):
            scale = next((each.scale for each in tape.trace.of(Backward) if each.scale), 1.0)
            fields = {"compute": "float32", **fields, "loss_scale": {"initial": scale}}
        return [f"precision: {flow_style(fields)}"] if fields else []


def _lay_line(name: str, line: Line) -> Iterator[str]:
    if line.todo:
        yield f"  # {TODO} {line.place}: {line.todo}" if line.place != NOWHERE else f"  # {TODO}: {line.todo}"
    if line.note:
        yield f"  # {line.note}"
    yield f"  {name}: {line.text}" + (f"  # {line.place}" if line.place != NOWHERE else "")


def _step_name(optimizer: str) -> str:
    word = "opt(?:im)?(?:i[sz]er)?"
    found = re.fullmatch(rf"(?:\w*\.)?(?:{word}_?(\w*)|(\w+?)_{word})", optimizer)
    part = (found[1] or found[2] or "") if found else re.sub(r"\W+", "_", optimizer)
    return f"step_{part}" if part else "step"


def _describe_beat(beat: Beat, ahead: int) -> str:
    """Return what an update that skips steps does in the loop, where a spec does it in other ones."""
    shown = ", ".join(str(beat.first + 1 + beat.period * turn) for turn in range(2))
    meant = ", ".join(str(beat.period * turn) for turn in (1, 2))
    return f"the loop does so in steps {shown}, ..., `every` in steps {meant}, ..." if beat.period > 1 and ahead else ""
