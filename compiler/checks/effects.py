"""Checks of what has no effect: W-DEAD, W-NO-OUTPUT, `defer: never` where it cannot be, images."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from compiler.facts.optimizers import find_averaging, find_optimizers
from compiler.ir.diagnose import span_of
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Gate
from compiler.ir.step_graph import Decision, StepGraph
from compiler.lower.average import find_interval
from compiler.lower.verdict import find_checked
from compiler.passes.commits import find_commit_groups, find_gradients, takes_part
from compiler.passes.datasets import check_windows
from compiler.passes.freeze import check_freezes
from compiler.timing.curves import check_scheduled, check_schedules
from compiler.timing.phases import check_phases
from compiler.timing.resolve import Timed, apply_pace, check_resets
from compiler.timing.units import Pace, assume_pace
from compiler.types.dimension import format_shape
from graphspec.analysis.scope import find_expression
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AssignOp, CallOp, CopyOp, EmaOp, GradientOp, LossOp, MetricOp, TransformOp, UpdateOp
from graphspec.declare.parameters import ConstraintSpec, RegularizerSpec
from graphspec.diagnostics import Diagnostic, Span


def check_shown(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield GS230 for a value of `run.images` whose shape is known and is not that of images."""
    images = graph.spec.run.images
    value = None if images is None else graph.values.get(images.value)
    shape = None if value is None else value.type.shape
    if images is None or shape is None:
        return
    channels = shape[1] if len(shape) == 4 else 1
    if len(shape) not in (3, 4) or (isinstance(channels, int) and channels not in (1, 3)):
        yield Diagnostic(
            code="GS230",
            message=f"'{images.value}' has the shape {format_shape(shape)}, which is not a row of images",
            span=graph.spec.span("run", "images", "value"),
            help="images are [n, height, width] or [n, channels, height, width] with 1 or 3 channels; `reshape` gives "
            "rows of pixels such a shape",
        )


def check_interval(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-INTERVAL for an average whose decay cannot count writes, because its interval is not constant."""
    for name, op in graph.spec.ops.items():
        if not isinstance(op, EmaOp) or find_interval(graph.spec, op) is not None:
            continue
        if op.correction == "compound" or (op.formula is not None and op.formula.kind != "uniform"):
            yield Diagnostic(
                code="E-INTERVAL",
                message=f"how often '{op.ema}' is written between two firings of '{name}' is not a constant number",
                span=span_of(graph.spec, name, "every"),
                label="so the decay per firing has no one value",
                help="write `decay:` or `tau:`, which hold per firing, `interval_correction: none`, or a number, as "
                "in `every: 2`, which counts the updates that took place",
            )


def check_clip_scope(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-CLIP for a clip over given gradients that also cover models the update does not step."""
    for name, op in graph.spec.ops.items():
        if isinstance(op, UpdateOp) and op.clip is not None and op.gradients is not None:
            covered = {model for value in op.gradients for model in graph.values[value].models}
            others = sorted(covered.difference(op.update))
            if others:
                yield Diagnostic(
                    code="E-CLIP",
                    message=f"the clip of '{name}' would count gradients of {', '.join(others)} too",
                    span=span_of(graph.spec, name, "clip"),
                    label="over the gradients of its own models only",
                    help=f"take gradients for {', '.join(op.update)} alone, or clip the whole set with "
                    "`transform: clip_norm` before the updates",
                )


def check_dead(spec: GraphSpec, live: Mapping[str, frozenset[str]]) -> Iterator[Diagnostic]:
    """Yield W-DEAD for an op that fires in no mode, given the ops that fire by mode.

    One of a block is reported if it fires in no use of it.
    """
    firing = frozenset[str]().union(*live.values())
    if firing.issuperset(spec.ops):
        return
    needed = {_find_written(spec, name) for name in firing & spec.ops.keys()}
    for name, op in spec.ops.items():
        is_part = find_expression(op) not in (None, name)  # the whole expression is reported
        written = _find_written(spec, name)
        if name in firing or is_part or (written is not None and written in needed):
            continue
        match op:
            case EmaOp(ema=source) | CopyOp(copy_=source):
                message = f"'{name}' never runs: nothing in the step writes its source '{source}'"
                help = f"follow a model that an update, ema or copy writes, or remove '{name}'"
            case _:
                message = f"nothing uses '{name}': it never runs"
                help = "use its value, list it under `outputs:`, or remove it"
        needed.add(written)
        span = span_of(spec, name)
        yield Diagnostic(code="W-DEAD", severity="warning", message=message, span=span, label="never runs", help=help)


def check_idle(spec: GraphSpec, gates: Iterable[Gate], firing: Iterable[Gate]) -> Iterator[Diagnostic]:
    """Yield GS120 for every write that fires in no step of training, though what it follows does in some.

    ``gates`` are all of the mode, ``firing`` those that open in some step.
    """
    open_ops = {gate.op for gate in firing}
    idle = [gate for gate in gates if gate.op not in open_ops]
    never = {gate.op for gate in idle}
    for gate in idle:
        op = spec.ops.get(gate.op)
        if not isinstance(op, UpdateOp | EmaOp | CopyOp | AssignOp) or any(map(never.issuperset, gate.follows)):
            continue
        if isinstance(op, UpdateOp) and op.at_epoch_end == "drop" and op.until is None:
            field, why = "accumulate", f"an epoch ends before its window of {op.window} steps is full, and discards it"
            help = "write `on_epoch_end: carry` or `flush`, or make the window shorter"
        else:
            field = "until" if op.until is not None else "every"
            why = "there is no step in which its clock and what it follows admit it"
            help = "look at `every`, `start`, `until` and `accumulate`, its own and those of what it follows"
        message = f"op '{gate.op}' never runs: {why}"
        yield Diagnostic(code="GS120", message=message, span=span_of(spec, gate.op, field), help=help)


def check_returned(spec: GraphSpec, live: Collection[str], graphs: Mapping[str, StepGraph]) -> Iterator[Diagnostic]:
    """Yield W-NO-OUTPUT for a spec without `outputs` whose train step updates models and returns nothing.

    ``live`` and ``graphs``: the ops that fire in train mode, and the graphs of its functions.
    """
    updates = [(name, op) for name, op in spec.ops.items() if isinstance(op, UpdateOp) and name in live]
    if spec.outputs is not None or not updates or any(graph.outputs for graph in graphs.values()):
        return
    name, update = updates[0]
    differentiated = (op.gradient for op in spec.ops.values() if isinstance(op, GradientOp))
    named = update.loss or next(differentiated, "loss")
    yield Diagnostic(
        code="W-NO-OUTPUT",
        severity="warning",
        message="the train step returns nothing: without `outputs` it returns metrics and `loss` ops, and has none",
        span=span_of(spec, name, "loss") or span_of(spec, name),
        label="computed, and not returned" if update.loss else "trains unseen",
        help=f"write `outputs: [{named}]`, or `outputs: []` if nothing is logged",
    )


def _find_written(spec: GraphSpec, name: str) -> Span | None:
    """Return where an op is written, the same for all uses of its block; None where that is not known."""
    span = span_of(spec, name)
    return None if span is None else replace(span, via=())


def check_defer_never(spec: GraphSpec, graph: StepGraph, decisions: tuple[Decision, ...]) -> Iterator[Diagnostic]:
    """Yield E-DEFER for an update that says `defer: never` and must be deferred."""
    for decision in decisions:
        op = spec.ops.get(decision.subject)
        if decision.code == "DEFER" and isinstance(op, UpdateOp) and op.defer == "never":
            yield Diagnostic(
                code="E-DEFER",
                message=f"'{decision.subject}' says `defer: never`, but its write has to wait",
                span=span_of(spec, decision.subject, "defer"),
                notes=(decision.text,),
                label="cannot be",
                help="remove `defer: never`, write `snapshot: true` on the forward that is read later, or compile "
                "with `--order fewest`, which spares it where any order does",
            )


def check_backend(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-BACKEND for every class or function that has no path for the backend."""
    for name, model in spec.models.items():
        if model.class_ is not None and model.class_path(backend) is None:
            yield _missing(f"model '{name}'", "class", backend, spec.span("models", name, "class"))
    for name, op in spec.ops.items():
        match op:
            case (
                CallOp(call=function)
                | LossOp(loss=function)
                | MetricOp(metric=function)
                | TransformOp(transform=function)
            ) if function.find(backend) is None:
                yield _missing(f"op '{name}'", "function", backend, span_of(spec, name))
            case _:
                pass


def _missing(subject: str, what: str, backend: str, span: Span | None) -> Diagnostic:
    """Return the diagnostic of a name that only other backends have."""
    return Diagnostic(
        code="E-BACKEND",
        message=f"{subject} has no {what} for the backend '{backend}'",
        span=span,
        label=f"nothing for {backend} here",
        help=f"add `{backend}: pkg.mod:Name`, or choose another backend",
    )


def check_skip_scope(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-SKIP-SCOPE where all updates must form one group but one happens before another's gradient."""
    asking = next((node.op for node in graph.nodes.values() if node.overflow == "all"), "")
    for group in find_commit_groups(graph) if asking else ():
        updates = [node.id for node in group if takes_part(node)]
        for node in group:
            gradients = find_gradients(graph.nodes, node, graph.producers)
            early = (first for each in gradients for first in graph.causality.past(each, updates))
            for first in dict.fromkeys(graph.nodes[each].op for each in early):
                yield Diagnostic(
                    code="E-SKIP-SCOPE",
                    message=f"'{asking}' says `on_overflow: all`, but '{first}' happens before the gradient of "
                    f"'{node.op}', and could not be undone",
                    span=span_of(spec, asking, "on_overflow"),
                    label="one update cannot wait for the other's gradient",
                    help="write `on_overflow: group`: what happens before the same updates is skipped together",
                )


def check_pace(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every duration in a unit of unknown length."""
    yield from (*check_schedules(spec, pace), *check_scheduled(spec, pace), *check_phases(spec, pace))
    yield from (*check_freezes(spec, pace), *check_windows(spec, pace), *check_resets(spec, pace))


def check_durations(
    spec: GraphSpec, timed: Timed, pace: Pace, *, pending: bool
) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """Return the problems of durations, and notes for those that need a length which is known at run time only.

    ``timed`` is the spec at the pace. Without ``pending`` there are no such notes: an unknown length is a problem. What
    is wrong regardless of lengths is always a problem.
    """
    uncounted = (*timed.problems, *check_pace(timed.spec, pace))
    left = tuple(dict.fromkeys(replace(each, severity="note") for each in uncounted if pending and each.is_pending))
    problems = [each for each in uncounted if not (pending and each.is_pending)]
    if left:
        assumed = assume_pace(pace)
        later = apply_pace(spec, assumed)
        others = (*later.problems, *check_pace(later.spec, assumed))
        problems.extend(each for each in others if each.code == "E-PACE")
    return tuple(problems), left


FIELDS = ("groups", "constraint", "regularizer")


def check_terms(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-BACKEND for functions without a path for the backend, and for groups that its optimizers cannot have."""
    terms: list[tuple[str, str, str, ConstraintSpec | RegularizerSpec]] = []
    for name, model in spec.models.items():
        terms.extend(("models", name, "constraint", each) for each in model.constraint or ())
        terms.extend(("models", name, "regularizer", each) for each in model.regularizer or ())
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            terms.extend(("ops", name, "constraint", each) for each in op.constraint or ())
    for section, name, field, term in terms:
        if term.function is not None and term.function.find(backend) is None:
            message = f"the {field} of {section[:-1]} '{name}' has no function for the backend '{backend}'"
            help = f"add `{backend}: pkg.mod:fn`, or choose another backend"
            yield Diagnostic(code="E-BACKEND", message=message, span=spec.span(section, name, field), help=help)
    if backend != "tensorflow":
        return
    # A class of Keras has one rate for all parameters and cannot step them in groups.
    cells = (cell for cell in find_optimizers(spec) if cell.optimizer.class_ is not None)
    for model in dict.fromkeys(model for cell in cells for model in cell.models):
        for index, group in enumerate(spec.models[model].groups):
            is_early = group.until is not None and group.lr_scale is None and group.weight_decay is None
            windows = [op for op in spec.ops.values() if isinstance(op, UpdateOp) and model in op.update]
            if is_early and any(op.window > 1 for op in windows):
                message = f"a Keras optimizer steps '{model}': it cannot leave out parameters that unfreeze in a window"
                yield Diagnostic(
                    code="E-BACKEND",
                    message=message,
                    span=spec.span("models", model, "groups", index, "frozen"),
                    help="use an optimizer by `name`, or choose another backend",
                )
            elif not (group.is_frozen or is_early):
                message = f"a Keras optimizer steps '{model}': it has one rate and one decay for all parameters"
                span = spec.span("models", model, "groups", index)
                help = "use an optimizer by `name`, remove the group, or choose another backend"
                yield Diagnostic(code="E-BACKEND", message=message, span=span, help=help)


def check_averaging(spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield E-EMA-TARGET for an average by `schedule_free` of a model that no one schedule-free optimizer steps."""
    for name, op in spec.ops.items():
        if isinstance(op, EmaOp) and op.schedule_free and not find_averaging(spec, op.ema):
            yield Diagnostic(
                code="E-EMA-TARGET",
                message=f"`schedule_free` needs a model that one schedule-free optimizer steps, found '{op.ema}'",
                span=spec.span("ops", name, "schedule_free", key=True),
                help="use the rule `schedule_free_sgd` or `schedule_free_adamw`, or write a `decay`",
            )


def find_idle(spec: GraphSpec) -> Iterator[str]:
    """Yield a sentence for every field without effect: settings of models that no update steps, and of windows."""
    updated = {model for op in spec.ops.values() if isinstance(op, UpdateOp) for model in op.update}
    for name, model in spec.models.items():
        written = [f"`{field}`" for field in FIELDS if field in model.model_fields_set]
        if written and name not in updated:
            yield f"no update steps model '{name}', which makes {' and '.join(written)} of no effect"
    checked = find_checked(spec)
    updates = ((name, op) for name, op in spec.ops.items() if isinstance(op, UpdateOp) and name not in checked)
    for name, op in updates:
        if op.accumulate is not None and op.accumulate.on_nonfinite != "drop":  # the default says nothing
            yield f"nothing checks the gradients of '{name}' (`on_overflow`): `on_nonfinite` has no effect"
