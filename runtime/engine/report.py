"""Reporting: the report of a step, made when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from compiler import Plan
from compiler.ir.instructions import AllFinite, Apply, CheckFinite
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.program import Function, Gate, ModeProgram, window_of
from graphspec.declare.ops import UpdateOp
from runtime.codegen.resources import find_functions
from runtime.engine.optimizer import Optimizer
from runtime.engine.overflow import NOTHING, Overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one update did in a step: whether it fired, why or why not, and the state of its optimizers.

    >>> import numpy as np
    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> step = build(plan, device="cpu")
    >>> _ = step({"image": np.zeros((4, 1, 8, 8), np.float32)})
    >>> update = step.report.updates["step_g"]
    >>> update.fired, update.skipped, dict(update.iterations), dict(update.learning_rates)
    (True, False, {'generator': 1}, {'generator': 0.0005})
    """

    name: str
    fired: bool
    reason: str
    """Why it fired or not: `every 5 steps`, `it starts at step 100`, `it follows 'critic', which did not fire`."""
    iterations: Mapping[str, int]
    """The updates that each of its optimizers has applied so far, for this update or another."""
    learning_rates: Mapping[str, float]
    """The learning rate that each of its optimizers used in this step; empty where the update did not fire."""
    skipped: bool = False
    """It was due, but skipped because of gradients that are not finite; ``reason`` says whose."""
    nonfinite: str | None = None
    """The first parameter whose gradient is not finite, as in `net.0.weight`; None without one, or unchecked."""
    gradient_norm: float | None = None
    """The Euclidean norm of its gradients over its whole window, without the loss scale and before clipping; None where
    it was not measured, or the step was built without `norms`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepReport:
    """What the last step did.

    >>> import numpy as np
    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> step = build(plan, device="cpu", norms=True)
    >>> _ = step({"image": np.zeros((4, 1, 8, 8), np.float32)})
    >>> step.report
    StepReport(step=1, mode='train', fired=('step_d', 'step_g'))
    >>> update = step.report.updates["step_d"]
    >>> update.fired, update.reason, update.gradient_norm > 0
    (True, 'every step', True)
    """

    step: int
    """Its number in its mode, from 1."""
    mode: str
    fired: tuple[str, ...]
    """The updates and averages that fired."""
    held: tuple[str, ...] = ()
    """The updates and averages that were due, but skipped."""
    scale_before: float | None = None
    """The loss scale of the step; None without one."""
    scale_after: float | None = None
    """The loss scale after the step."""
    dataset: str | None = None
    """The data set of its batch, if one was given."""
    updates: Mapping[str, UpdateReport] = field(default_factory=dict[str, UpdateReport], compare=False)
    """Every update of the spec by name, in the order of the spec."""

    def __repr__(self) -> str:
        """Return the fields that have a value, without the updates, which are long."""
        always = {"step": self.step, "mode": self.mode, "fired": self.fired}
        scales = {"scale_before": self.scale_before, "scale_after": self.scale_after}
        optional = {"held": self.held or None, **scales, "dataset": self.dataset}
        shown = {**always, **{name: each for name, each in optional.items() if each is not None}}
        return f"StepReport({', '.join(f'{name}={each!r}' for name, each in shown.items())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Reports what a step of a plan did, from the gated ops that fired."""

    plan: Plan
    optimizers: Mapping[str, Optimizer]
    overflow: Overflow = NOTHING
    norms: Mapping[str, float] = field(default_factory=dict[str, float])
    """The norms of the gradients of updates that were measured, in this step or another."""
    names: Callable[[str], tuple[str, ...]] = lambda model: ()
    """The parameters of a model, in order."""

    def report(self, mode: str, step: int, gated: frozenset[str], dataset: str | None = None) -> StepReport:
        """Return the report of a step of a mode: its number, the ops with a gate that fired, its batch's data set."""
        program = self.plan.program.mode(mode)
        chosen = dataset or ""
        functions = (each for each in program.functions if chosen in (each.datasets or (chosen,)))
        function = next(each for each in functions if frozenset(each.gated) == gated)
        held = tuple(op for op in function.active if op in self.overflow.held)
        names = [name for name, op in self.plan.spec.ops.items() if isinstance(op, UpdateOp)]
        return StepReport(
            step=step,
            mode=mode,
            fired=tuple(op for op in function.active if op not in held),
            dataset=dataset,
            held=held,
            scale_before=self.overflow.scale_before,
            scale_after=self.overflow.scale_after,
            updates={name: self._update(name, program, step, function, chosen) for name in names},
        )

    def _update(
        self,
        name: str,
        program: ModeProgram,
        step: int,
        function: Function,
        dataset: str,
    ) -> UpdateReport:
        """Return the report of one update, with what verdicts say of it."""
        fired, gated = name in function.active, frozenset(function.gated)
        cells = _find_optimizers(name, find_functions(self.plan.program))
        rates = {cell: self.optimizers[cell].used_rate for cell in _find_optimizers(name, (function,))}
        is_here = any(name in each.active for each in program.functions)
        gate = next((each for each in program.gates if each.op == name), None)
        nonfinite = None
        checks = [each for each in function.instructions if isinstance(each, CheckFinite)]
        for check in checks:  # what an earlier step found is not reported again
            if check.op == name and check.key in self.overflow.places:
                models = (model for span in check.spans for model in span)
                parameters = [f"{model}.{each}" for model in models for each in self.names(model)]
                nonfinite = parameters[self.overflow.places[check.key]]
                break
        reason = f"it does not run in mode {program.mode}"
        if is_here:
            reason = _format_reason(gate, step, gated, program, dataset)
        update = UpdateReport(
            name=name,
            fired=fired,
            gradient_norm=self.norms.get(name) if fired else None,
            nonfinite=nonfinite,
            reason=reason,
            iterations={cell: self.optimizers[cell].iterations for cell in cells},
            learning_rates={cell: rate for cell, rate in rates.items() if rate is not None},
        )
        if not (fired and name in self.overflow.held):
            return update
        # The update was held by the verdicts under which it takes place: on its gradients, or those of other updates.
        writes = (each for each in function.instructions if isinstance(each, Apply) and each.op == name)
        combined = {each.output: each.verdicts for each in function.instructions if isinstance(each, AllFinite)}
        conditions = (condition for each in writes for condition in find_verdicts(each.commits))
        verdicts = {verdict for condition in conditions for verdict in combined.get(condition, (condition,))}
        found = (each for each in checks if each.output in verdicts)
        guilty = dict.fromkeys(each.op for each in found if not self.overflow.given[each.key])
        listed = ", ".join(f"'{each}'" for each in guilty) or "every step of its window"
        reason, norm = f"gradients of {listed} are not finite", update.gradient_norm if guilty else None
        return replace(update, fired=False, skipped=True, reason=reason, learning_rates={}, gradient_norm=norm)


def _find_optimizers(name: str, functions: Iterable[Function]) -> tuple[str, ...]:
    """Return the optimizers that an update applies in some functions."""
    instructions = (each for function in functions for each in function.instructions)
    applies = (each for each in instructions if isinstance(each, Apply) and each.op == name)
    return tuple(dict.fromkeys(part.optimizer for each in applies for part in each.parts))


def _format_reason(gate: Gate | None, step: int, gated: frozenset[str], program: ModeProgram, dataset: str) -> str:
    """Return why an op fired in a step, or why not."""
    if gate is None:
        return "every step"
    if gate.start is not None and step < gate.start:
        return f"it starts at step {gate.start}"
    if gate.datasets and dataset not in gate.datasets:
        return f"it runs on batches of {' and '.join(each or 'no data set' for each in gate.datasets)}"
    if gate.until is not None and step > gate.until:
        return f"it ended with step {gate.until}"
    if gate.clock == "steps" or not gate.follows:
        on = f" on {' and '.join(each or 'no data set' for each in gate.datasets)}" if gate.datasets else ""
        every = f"every {gate.every} steps{on}" if gate.every > 1 else f"every step{on}"
        start = "" if gate.start is None else f" from step {gate.start} on"
        end = "" if gate.until is None else f" through step {gate.until}"
        return f"{every}{start}{end}" if gate.last is None else f"{every}{start}{end} through update {gate.last}"
    if gate.follows == ((window_of(gate.op),),):  # an update that accumulates
        own = next((each for each in program.gates if each.op == window_of(gate.op)), None)
        if own is not None and own.op not in gated:
            return _format_reason(own, step, gated, program, dataset)
        return f"it takes the gradients of {gate.every} steps"
    free = gated | ({name for each in program.functions for name in each.active} - {each.op for each in program.gates})
    missing = [group for group in gate.follows if free.isdisjoint(group)]
    if missing and any((each.op,) == missing[0] and each.draw for each in program.gates):
        return f"it is in {_join(missing[0])}, which was not drawn"
    if missing:
        return f"it follows {_join(missing[0])}, which did not fire"
    followed = " and ".join(_join(group) for group in gate.follows)
    return f"it follows {followed}" if gate.every == 1 else f"every {gate.every} times after {followed}"


def _join(names: tuple[str, ...]) -> str:
    """Return names as `'a' or 'b'`."""
    return " or ".join(f"'{name}'" for name in names)
