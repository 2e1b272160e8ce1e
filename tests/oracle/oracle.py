"""The oracle: a spec, its state, and what every step returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, MetricOp, UpdateOp
from tests.oracle.backs import with_backs
from tests.oracle.clocks import Clocks, Pace, last_step, written_name
from tests.oracle.draws import Draws
from tests.oracle.initial import Shapes, initial_state
from tests.oracle.meaning import Meaning
from tests.oracle.scaling import LossScale
from tests.oracle.settling import settle
from tests.oracle.slots import Cell, Optimizers
from tests.oracle.states import begin
from tests.oracle.step import State, StepValues
from tests.oracle.storages import Storages
from tests.oracle.windows import Held, Windows


class Oracle:
    """What a spec means, step by step, from the initial weights on.

    ``shapes`` are those of all parameters and buffers: the only thing it is told beside the spec.
    """

    def __init__(self, spec: GraphSpec, shapes: Shapes, seed: int | None = None, pace: Pace | None = None) -> None:
        self.spec, self.seed = (spec := with_backs(spec)), spec.seed if seed is None else seed
        self.shapes, self.storages = shapes, Storages(spec)
        first = {model: initial_state(spec, model, known, self.seed) for model, known in shapes.items()}
        self.held = self.storages.gather(first)
        """All parameters and buffers by holder: what models share is held once."""
        self.states: State = {name: begin(name, one, self.seed) for name, one in spec.state.items()}
        self.clocks, self.draws = Clocks(pace or Pace()), Draws(self.seed)
        self.cells: Mapping[str, Cell] = {}
        self.gathered: Held = {}
        self.scale = LossScale(spec)
        self.meanings: dict[tuple[str, str], Meaning] = {}
        self.running: dict[tuple[str, str], tuple[float, int, int]] = {}
        self.last: StepValues | None = None
        self.blur: Callable[[str, tuple[int, ...]], np.ndarray] | None = None
        self.is_vague = False
        """Whether something that has happened hangs on a gradient that may be zero up to rounding."""

    @property
    def state(self) -> Mapping[str, State]:
        """Return the parameters and buffers of every model, by the names that it calls them, and the states."""
        found = {model: {name: self._read(model, name) for name in known} for model, known in self.shapes.items()}
        return {**found, "state": self.states} if self.states else found

    @property
    def counters(self) -> State:
        """Return how often every optimizer was applied, and the loss scale, if there is one."""
        updates = {name: op for name, op in self.spec.ops.items() if isinstance(op, UpdateOp)}
        owned = {model for op in updates.values() if op.shared is not None for model in op.update}
        own = {name: (name,) if op.optimizer is not None else op.update for name, op in updates.items()}
        cells = {cell for name, each in own.items() for cell in each if updates[name].shared or cell not in owned}
        found = dict.fromkeys(cells, np.array(0))
        for cell, one in self.cells.items():
            owner, _, epoch = cell.partition(" ")
            found[owner if epoch in ("", "1") else f"{owner}@{epoch}"] = np.array(one.applied)
        return found if self.spec.loss_scale is None else {**found, "loss_scale": np.array(self.scale.now)}

    def _read(self, model: str, name: str) -> np.ndarray:
        holder, key = self.storages.place(model, name)
        return self.held[holder][key]

    def disturb(
        self, change: Callable[[np.ndarray], np.ndarray], factor: Callable[[tuple[int, ...]], np.ndarray]
    ) -> None:
        """Begin with other weights: what a function makes of those there are. ``factor`` does the same to calls.

        So two calls of layers that give the same differ in their last digits, as they may on any machine.
        """
        self.held = {holder: {key: change(value) for key, value in one.items()} for holder, one in self.held.items()}
        self.blur = cache(lambda name, shape: factor(shape))

    def step(self, batch: State, mode: str = "train", dataset: str | None = None) -> State:
        """Take one step on a batch of a data set, and return its outputs."""
        place = mode, dataset or ""
        meaning = self.meanings.setdefault(place, Meaning(self.spec, *place))
        firing = meaning.firing(self.clocks.admit(meaning), self.clocks.gathering)
        step = self.last = StepValues(
            settle(meaning, self._count_finished(mode), self.clocks, self._find_standins() if mode != "train" else {}),
            firing,
            gathering=self.clocks.gathering,
            batch=batch,
            start=self.held,
            optimizers=Optimizers(self.spec, self.cells, self._count_finished(mode) // self.clocks.pace.epoch + 1),
            draws=self.draws,
            number=self.clocks.steps[mode],
            states=self.states,
            windows=Windows(self.spec, self.gathered, self.clocks.gathering, self._ends_epoch(mode)),
            firings=self._number_firings(mode, firing),
            blur=self.blur,
        )
        returned = [value for value in meaning.returned if value in self.states or meaning.owner[value] in firing]
        outputs = {value: self._output(step, value) for value in returned}
        for name in firing:
            if isinstance(self.spec.ops[name], MetricOp) and name not in outputs:
                self._output(step, name)
        self.held = {holder: step.final(holder) for holder in self.held}
        self.states = {name: step.final_state(name) for name in self.states}
        self.gathered = step.windows.final(step, firing)
        self.cells = step.optimizers.final(step)
        self.is_vague |= step.optimizers.is_vague
        if step.verdicts.are_found():
            self.scale.follow(finite=step.verdicts.are_finite())
        self.clocks.note(meaning, firing, step.verdicts.find_held())
        return outputs

    def _number_firings(self, mode: str, firing: list[str]) -> Mapping[str, int]:
        """Return which firing of an average one of this step is, the iterations of a step one after another."""
        found, earlier = dict[str, int](), dict[str, int]()
        averages = [(name, op) for name, op in self.spec.ops.items() if isinstance(op, EmaOp)]
        for name, op in sorted(averages, key=lambda each: [part.number for part in each[1].within]):
            written = written_name(name, op)
            found[name] = self.clocks.number(name, op, mode, earlier.get(written, 0))
            earlier[written] = earlier.get(written, 0) + (name in firing)
        return found

    def _count_finished(self, mode: str) -> int:
        """Return the train steps before a step that has begun."""
        return self.clocks.steps.get("train", 0) - (mode == "train")

    def _ends_epoch(self, mode: str) -> bool:
        """Return whether the step that has begun is the last of an epoch."""
        return mode == "train" and self.clocks.steps[mode] % self.clocks.pace.epoch == 0

    def _find_standins(self) -> Mapping[str, str]:
        """Return the averages that stand in for their models outside training."""
        ops = self.spec.ops.items()
        averages = {name: op for name, op in ops if isinstance(op, EmaOp) and op.use.eval == "swap"}
        return {op.ema: op.target(name) for name, op in averages.items() if name in self.clocks.averaged}

    def _output(self, step: StepValues, value: str) -> np.ndarray:
        if value in self.states:
            return step.final_state(value)
        found = step.base.value(value)[0]
        op = self.spec.ops[step.meaning.owner[value]]
        return np.asarray(self._run_on(step, value, op)) if isinstance(op, MetricOp) else found

    def _count_steps(self, op: MetricOp, mode: str) -> int | None:
        """Return after how many steps a metric starts anew; None: never in a pass over the data of other modes."""
        if isinstance(op.reset, str) or (mode != "train" and op.reset.unit != "steps"):
            return None
        return last_step(op.reset, self.clocks.pace)

    def _run_on(self, step: StepValues, name: str, op: MetricOp) -> float:
        """Return the running mean of a metric since its reset, every batch with its rows."""
        value, rows = step.measured[name]
        since = {"step": step.number, "epoch": 0, "never": 0}
        long = self._count_steps(op, step.meaning.mode)
        window = since[op.reset] if isinstance(op.reset, str) else 0 if long is None else (step.number - 1) // long
        total, seen, before = self.running.get((step.meaning.mode, name), (0.0, 0, window))
        if before != window:
            total, seen = 0.0, 0
        self.running[step.meaning.mode, name] = (total + value * rows, seen + rows, window)
        return (total + value * rows) / (seen + rows)
