"""One iteration of a loop as a spec."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from graphspec.words import enumerate_words
from runtime.audit.trace import NOWHERE, Backward, GradientChange, Place, ScalerStep, Site, Write
from runtime.port.averages import Average
from runtime.port.loop_iterations import Iteration
from runtime.port.recorded_loop import Flow, Loop, find_beat
from runtime.port.rules import describe_rule, find_groups, find_moving, find_schedule, find_steppers
from runtime.port.tape import Called, Clipped, Model, Ran, Ref, Stepped, find_refs
from runtime.port.values import TODO, Line, Origin, Values, flow_style, free_name
from runtime.port.written_functions import Text

_MIXING = ("add", "sub", "mul", "lerp", "iadd", "isub", "imul", "addcmul")
"""Functions that averages are written with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A spec and what it was made of."""

    text: str
    inputs: Mapping[str, int]
    """Input -> its value in the iteration."""
    origins: Mapping[str, Origin]
    """Input -> by what it is known in other iterations, too."""
    losses: Mapping[str, tuple[Site, ...]]
    """Update -> the backwards of its loss, where all of that is its own."""
    todos: tuple[str, ...]
    questions: tuple[str, ...]
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
        self._shared: set[str] = set()
        """Optimizers that take a part of a loss."""

    def write(self) -> Ported:
        """Return the spec."""
        loop, values = self.loop, self.values
        losses = {name: self._write_loss(name) for name in loop.fired}
        self._ask()
        for name, loss in losses.items():
            self._write_update(name, loss)
        for average in loop.averages:
            self._write_average(average)
        used = [name for name in loop.tape.models if name in self._used]
        for name in used:
            self._write_model(loop.tape.models[name])
        written = {self._update_names[name]: loop.causes[name] for name in loop.fired}
        compared = {
            each: sites for each, sites in written.items() if each not in map(self._update_names.get, self._shared)
        }
        return Ported(
            text=self._lay_out(tuple(written)),
            inputs=values.inputs,
            origins=values.origins,
            losses=compared,
            todos=tuple(values.todos),
            questions=tuple(dict.fromkeys(values.questions)),
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
        for site in self.loop.causes[optimizer]:
            derived = self.flow.roots.get(site)
            for root in derived.roots if derived is not None else ():
                assert derived is not None
                place = derived.place
                number = self._undivided(root, windows)[0]
                found = self._find_terms(number, set(self.loop.trained[optimizer]))
                if found != [number]:
                    self._shared.add(optimizer)
                for each in found:
                    text = self.values.value(each)
                    is_result = isinstance(self.flow.producer(each), Ran)  # of a model: no loss by itself
                    terms.append(Text(f"mean({text.text})") if is_result else text)
        if not terms:
            terms = [Text(TODO)]
        return " + ".join(each.within(1) for each in terms), place

    def _find_terms(self, number: int, models: set[str]) -> list[int]:
        """Return the terms of a loss that reach some models: each of several optimizers has a loss for its own."""
        entry = self.flow.producer(number)
        refs = list(find_refs(entry.args)) if isinstance(entry, Called) else []
        if not isinstance(entry, Called) or entry.function.strip("_") not in ("add", "radd", "iadd") or len(refs) != 2:
            return [number]
        if all(self.flow.reaches(each) & models for each in refs):
            found = [self._find_terms(each, models) for each in refs]
            return [number] if found == [[each] for each in refs] else [*found[0], *found[1]]
        return [term for each in refs if self.flow.reaches(each) & models for term in self._find_terms(each, models)]

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
        models = [self._model_names[each] for each in self.loop.trained[optimizer] if not self._find_whole(each)]
        updated = models if models else [TODO]
        place = fires[-1].update.place
        fields: dict[str, object] = {"update": updated[0] if len(updated) == 1 else updated, "loss": loss[0]}
        rule, lacking = describe_rule(steps[0].rule, steps[0].groups[0])
        todos = [f"{lacking}: choose a rule" if lacking else ""]
        todos += ["its loss was not recorded: write it"] if loss[0] == TODO else []
        todos += ["the model that it steps was not seen to be called: write it"] if not models else []
        if optimizer not in self.loop.turns:
            fields["optimizer"] = rule
        plain = [each.update for each in fires if not each.update.closure]  # a closure gives gradients within the step
        if any(part.required and not part.has_gradient for each in plain for part in each.parts):
            fields["missing"] = "skip"  # as PyTorch does
            if optimizer in self.loop.turns and "betas" in steps[0].groups[0]:
                todos.append(
                    "PyTorch corrects the averages of a parameter by its own count of steps, a spec by one count"
                )
        todos += [self._find_rare_term(optimizer), *self._find_odd_gradients(optimizer)]
        curve, lacking = find_schedule(self.loop, optimizer)
        todos += [lacking, find_moving(self.loop, optimizer)]
        if curve is not None:
            fields["optimizer"] = {**(rule if isinstance(rule, dict) else {"name": rule}), "lr": curve}
        stepped = [each for each in self.loop.tape.entries if isinstance(each, Stepped)]
        for clip in (each for each in self.loop.tape.entries if isinstance(each, Clipped)):
            following = next((each for each in stepped if each.position >= clip.position), None)
            if following is not None and following.optimizer == optimizer:  # it clips for the step that comes next
                is_norm = clip.function == "clip_grad_norm_"
                fields["clip"] = {"norm": clip.limit, "eps": 1e-6} if is_norm else {"value": clip.limit}
                break
        limits = self._find_clamp(optimizer)
        if limits is not None:
            fields["constraint"] = {"clip": list(limits)}
        windows, note = max(len(each.gathered) for each in fires), ""
        if windows > 1:
            fields["accumulate"], todo = self._find_window(optimizer, windows)
            todos.append(todo)
        else:
            fired = [each.iteration for each in fires]
            beat = find_beat(fired, len(self.loop.iterations))
            fields |= {"every": beat.period} if beat.period > 1 else {}
            todos.append(beat.problem)
            if beat.period > 1 and self.loop.ahead:  # a spec does it in other steps
                shown = ", ".join(str(beat.first + 1 + beat.period * turn) for turn in range(2))
                meant = ", ".join(str(beat.period * turn) for turn in (1, 2))
                note = f"the loop does so in steps {shown}, ..., `every` in steps {meant}, ..."
        self.values.ops[self._update_names[optimizer]] = Line(
            at=self._find_place([each.position for each in fires]),
            text=flow_style(fields),
            place=place,
            todo=self.values.note("; ".join(filter(None, todos)), place),
            note=note,
        )

    def _find_window(self, optimizer: str, windows: int) -> tuple[object, str]:
        """Return how an update accumulates in the language, and what cannot be said of it."""
        sites = [each for each in self.loop.causes[optimizer] if each in self.flow.roots]
        roots = [root for site in sites for root in self.flow.roots[site].roots]
        divided = all(self._undivided(root, windows)[1] for root in roots)
        counts = [len(each.gathered) for each in self.loop.fired[optimizer]]
        shown = enumerate_words([str(each) for each in counts], conjunction="and")
        todo = f"it gathers {shown} backwards: see `on_epoch_end` of `accumulate`" if len(set(counts)) > 1 else ""
        return windows if divided else {"steps": windows, "reduce": "sum"}, todo

    def _find_odd_gradients(self, optimizer: str) -> Iterator[str]:
        """Yield what to do about gradients that the loop makes, clips or changes as an update of a spec does not."""
        values, roots = self.loop.tape.values, self.flow.roots
        found = [roots[site] for site in self.loop.causes[optimizer] if site in roots]
        given = [each.place for each in found if any(math.prod(values[root].shape) > 1 for root in each.roots)]
        if given:
            yield f"the backward of {given[0]} is given a gradient and has no loss: write the loss"
        events = self.loop.tape.trace.events[self.iteration.first : self.iteration.last]
        changes = [each for each in events if isinstance(each, GradientChange)]
        clipped: dict[Place, set[int]] = {}
        for each in changes:
            if each.function.startswith("clip_grad_norm"):
                clipped.setdefault(each.place, set()).add(each.tensor)
        # one norm over the gradients of several optimizers, or over some of one's
        own = set(self.loop.steps[optimizer][0].tensors)
        parts = (part for each in self.loop.fired[optimizer] for part in each.update.parts)
        having = {part.tensor for part in parts if part.has_gradient}
        others = {name: set(each[0].tensors) - own for name, each in self.loop.steps.items()}
        for place, tensors in clipped.items():
            joint = [name for name, each in others.items() if each & tensors]
            if joint and own & tensors:
                shown = " and ".join(joint)
                yield f"{place} clips by one norm over its gradients and those of {shown}: write one update"
                break
            if own & tensors and having - tensors:
                yield f"{place} clips some of its gradients, `clip` all of them: write an update for each part"
                break
        if any(
            each.change == "changed" and each.tensor in own and not each.function.startswith(("clip_grad", "unscale"))
            for each in changes
        ):
            yield "code of the loop changes its gradients: write a `transform`"

    def _find_rare_term(self, optimizer: str) -> str:
        """Return what to do about a backward, or a line in its loss, of only some steps, as of a lazy regularizer."""
        fires = self.loop.fired[optimizer]
        if any(len(each.gathered) > 1 for each in fires):
            return ""
        read = [{one.place for event in each.backwards for one in event.reads} for each in fires]
        for event in {event.site: event for each in fires for event in each.backwards}.values():
            steps = [
                index for index, each in enumerate(fires, 1) if any(event.site == it.site for it in each.backwards)
            ]
            others = [read[index - 1] for index in range(1, len(fires) + 1) if index not in steps]
            # of the same forwards others may take the gradient elsewhere: two losses at once in place of one by one
            if any(not {one.place for one in event.reads} <= each for each in others):
                shown = ", ".join(map(str, steps))
                part = f"the backward of {event.place} is a part of its steps {shown} of {len(fires)} alone"
                return f"{part}: see `every` of a term"
        made = [self.loop.find_lines(each) for each in fires]
        for site in {event.site: None for each in fires for event in each.backwards}:
            having = {index: lines[site] for index, lines in enumerate(made, 1) if site in lines}
            seen = Counter(part for lines in having.values() for part in lines)
            first = min((part for part, count in seen.items() if count < len(having)), default=None)
            if first is not None:
                shown = ", ".join(str(index) for index, lines in having.items() if first in lines)
                part = f"the term of {first.place} is a part of its loss in its steps {shown} of {len(fires)} alone"
                return f"{part}: see `every` of a term"
        return ""

    def _ask(self) -> None:
        """Ask what lines are for that write or compute with weights, and that are part of nothing that is written.

        Besides, ask for calls of models, where the program runs their `forward` itself and their parts count as models.
        """
        trace, begun = self.loop.tape.trace, self.loop.iterations[0].backwards[0].start
        averaged = {each.place for each in self.loop.averages}
        followed = {each.target for each in self.loop.averages if each.buffers in ("copy", "average")}
        start = self.loop.tape.snapshots[0][0]  # what is written before are initial numbers
        moved = {
            each.place: trace.tensors[each.tensor]
            for each in trace.events[start:]
            if isinstance(each, Write)
            and each.by == "code"
            and each.sources
            and not (trace.tensors[each.tensor].kind == "buffers" and self.loop.owners.get(each.tensor) in followed)
        }
        for place, tensor in moved.items():
            if place not in averaged and tensor.kind in ("params", "buffers"):
                self.values.questions.append(f"{place}: it writes {tensor.label}: for an average write an `ema`")
        known = {each.place for each in trace.of(Write)} | averaged
        makers = map(self.flow.made, self.flow.needed)
        known |= {each.place for each in makers if each is not None}
        for entry in self.loop.tape.entries:
            if not isinstance(entry, Called) or entry.position <= begun:
                continue
            if entry.place in known or entry.function.strip("_").removeprefix("r") not in _MIXING:
                continue
            following = next(iter(trace.events[entry.position : entry.position + 1]), None)
            if isinstance(following, Write) and following.place in averaged:
                continue
            tensors = (self._source(each) for each in entry.given)
            models = {self.loop.owners[each] for each in tensors if each is not None and each in self.loop.owners}
            if models:
                name = self._model_names[min(models)]
                self.values.questions.append(
                    f"{entry.place}: it computes with the weights of {name}: for an average write an `ema`"
                )
        ran = {each.place: each.inside for each in self.loop.tape.entries if isinstance(each, Ran) and each.inside}
        homes: dict[str, Place] = {}
        for place, name in ran.items():
            homes.setdefault(name, place)
        self.values.questions += [
            f"{place}: {name}.forward() runs without a call of {name}, so that its parts are models here: "
            f"call {name}() to have it as one"
            for name, place in homes.items()
        ]

    def _find_whole(self, model: str) -> str:
        """Return the model that has all tensors of another and more, as its part; empty for none."""
        models, own = self.loop.tape.models, self.loop.tape.models[model].tensors.keys()
        wholes = (each.name for each in models.values() if each.name in self._used and own < each.tensors.keys())
        return next(wholes, "") if own else ""

    def _find_place(self, positions: Sequence[int]) -> float:
        """Return the place on the tape of a write: that of the iteration, if it takes place there."""
        first, last = self.iteration.first, self.iteration.last
        position = next((each for each in positions if first <= each < last), last)
        return sum(each.position <= position for each in self.loop.tape.entries) - 0.5

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
            self._ask_for_weights(model)
        else:
            fields["class"] = model.kind
            if model.arguments is None:
                lacking_layer = f"{model.unknown} is no built-in layer: " if model.unknown else ""
                todo = f"{lacking_layer}write its arguments under `args`, or a function that returns it"
            elif model.arguments:
                fields["args"] = dict(model.arguments)
        steps = [self.loop.steps[name][0] for name in find_steppers(self.loop, model) if name in self.loop.turns]
        if steps:  # its updates share the state of one optimizer
            fields["optimizer"] = describe_rule(steps[0].rule, steps[0].groups[0])[0]
        groups, lacking = find_groups(self.loop, model)
        if whole := self._find_whole(model.name):
            groups, lacking = [], f"it is a part of {whole}: call the `method` of {whole} that calls it"
        if groups:
            fields["groups"] = groups[0] if len(groups) == 1 else groups
        todo = "; ".join(filter(None, (todo, lacking)))
        self._models[name] = Line(text=flow_style(fields), todo=todo)
        if todo:
            self.values.todos.append(f"models.{name}: {todo}")

    def _ask_for_weights(self, model: Model) -> None:
        """Ask for the initial numbers of a model, where lines after the one that makes it set some of them."""
        places: dict[int, list[Place]] = {}
        for each in self.loop.tape.trace.events[: self.loop.tape.snapshots[0][0]]:
            if isinstance(each, Write) and each.by == "code" and each.tensor in model.tensors:
                places.setdefault(each.tensor, []).append(each.place)
        place = next((each[-1] for each in places.values() if each[-1] != each[0]), None)
        if place is not None:
            name = self._model_names[model.name]
            self.values.questions.append(
                f"{place}: it sets the initial numbers of {name}: to keep them write `weights`"
            )

    def _lay_out(self, updates: Iterable[str]) -> str:
        header = [*self.header, *(f"{TODO} {each}" for each in dict.fromkeys(self.values.loose))]
        lines = [*(f"# {each}" for each in header), "graphspec: 1", f"name: {self.name}"]
        tape = self.loop.tape
        compute = next((each.autocast for each in tape.entries if isinstance(each, Ran) and each.autocast), "")
        precision: dict[str, object] = {"compute": compute} if compute else {}
        if any(True for _ in tape.trace.of(ScalerStep)):
            scale = next((each.scale for each in tape.trace.of(Backward) if each.scale), 1.0)
            precision = {"compute": "float32", **precision, "loss_scale": {"initial": scale}}
        if precision:
            lines.append(f"precision: {flow_style(precision)}")
        if any(each.replicated for each in tape.models.values()):
            lines.append("parallel: {kind: replicated}  # DistributedDataParallel")
        for title, section in (("inputs", self.values.input_lines), ("models", self._models), ("ops", self.values.ops)):
            if title == "ops":
                section = dict(sorted(section.items(), key=lambda each: each[1].at))
            lines += [f"{title}:"] if section else []
            for name, each in section.items():
                known = each.place != NOWHERE
                if each.todo:
                    lines.append(f"  # {TODO} {each.place}: {each.todo}" if known else f"  # {TODO}: {each.todo}")
                if each.note:
                    lines.append(f"  # {each.note}")
                lines.append(f"  {name}: {each.text}" + (f"  # {each.place}" if known else ""))
        shown = ", ".join(f"{each}.loss" for each in updates)
        return "\n".join([*lines, f"outputs: [{shown}]", ""])


def _step_name(optimizer: str) -> str:
    word = "opt(?:im)?(?:i[sz]er)?"
    found = re.fullmatch(rf"(?:\w*\.)?(?:{word}_?(\w*)|(\w+?)_{word})", optimizer)
    part = (found[1] or found[2] or "") if found else re.sub(r"\W+", "_", optimizer)
    return f"step_{part}" if part else "step"
