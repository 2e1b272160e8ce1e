"""Mutants of what a step is made of: lazy terms, windows, and other parts of the language that came later."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from compiler import NO_TERMS
from compiler.ir.digraph import Causality, close
from compiler.ir.instructions import Accumulate, Instruction
from compiler.ir.program import Gate
from compiler.lower.accumulate import Windows
from compiler.types.dimension import UNKNOWN
from graphspec.declare.ops import LossOp, TransformOp
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def count_once(found: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Let a lazy term count once."""
    return tuple(replace(node, times=1) for node in found)


def look_away(found: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Let a transform read no weights."""
    return tuple(replace(node, reads=()) for node in found)


def gather_as_it_is(windows: Windows, value: str) -> str:
    """Gather a set where it is used, behind its transforms."""
    return windows._add_window(value)


def count_one_row(found: Instruction, *arguments: object) -> Instruction:
    """Let a window count a step that adds nothing to it once."""
    return replace(found, reduce="steps") if isinstance(found, Accumulate) else found


def never_open(found: tuple[Gate, ...], *arguments: object) -> tuple[Gate, ...]:
    """Let every update be applied in each step that it takes part in."""
    return tuple(replace(gate, every=1) if gate.op + ".window" in str(gate.follows) else gate for gate in found)


def forget_order(nodes: Mapping[str, Instruction], causality: Causality, conditions: object) -> tuple:
    """Let nothing be known of which update is applied first."""
    return nodes, close(dict.fromkeys(causality.pasts, ()), causality.places), conditions


def count_no_updates(original: Callable[..., object]) -> Callable[..., object]:
    """Let a schedule belong to no optimizer."""
    return lambda **fields: original(**{**fields, "cells": ()})


def keep_by_axis(original: Callable[..., object]) -> object:
    """Let a call over micro-batches leave the rows unless it goes over the first axis."""
    return lambda call: original(replace(call, result=UNKNOWN))


def forget_shapes(spec: object, types: object) -> tuple:
    """Let nothing be known of the shapes of values."""
    return spec, {}


MUTANTS_OF_TERMS = (
    Mutant(
        name="penalties-of-every-update",
        says="Every update of a model adds its penalties.",
        place="passes.select:penalize_once",
        change=lambda original: lambda nodes, causality, conditions: nodes,
        killer="numbers",
        case="penalized",
    ),
    Mutant(
        name="penalties-as-listed",
        says="The first listed update adds the penalties, even if another is applied first.",
        place="passes.select:penalize_once",
        change=to.change_arguments(forget_order),
        killer="numbers",
        case="penalized",
    ),
    Mutant(
        name="window-of-one",
        says="An accumulating update is applied in every step that it gathers from.",
        place="passes.activate:find_gates",
        change=to.change(never_open),
        killer="numbers",
        case="windows",
    ),
    Mutant(
        name="transforms-in-every-step",
        says="Transforms run before the window, in every step.",
        place="lower.accumulate:Windows.accumulate",
        change=lambda original: gather_as_it_is,
        killer="numbers",
        case="windows",
    ),
    Mutant(
        name="steps-count-alike",
        says="Losses that are sums are not added up over a window.",
        place="lower.accumulate:find_reduce",
        change=to.give("steps"),
        killer="numbers",
        case="windows",
    ),
    Mutant(
        name="counts-by-rows",
        says="Ignored elements of a loss count nevertheless, over steps and micro-batches.",
        place="passes.document:find_counted",
        change=to.give({}),
        killer="numbers",
        case="left-out",
    ),
    Mutant(
        name="elements-by-rows",
        says="A mean over sequences counts the rows of a batch, regardless of their lengths.",
        place="passes.pipeline:find_uneven",
        change=to.give(frozenset()),
        killer="numbers",
        case="sequences",
    ),
    Mutant(
        name="sums-undivided",
        says="Gradients of sums over micro-batches are not divided by the total count.",
        place="lower.terms:_divide",
        change=to.give(()),
        killer="numbers",
        case="left-out",
    ),
    Mutant(
        name="taken-away-is-added",
        says="A subtracted term of a loss is added if its gradient is taken separately.",
        place="lower.terms:FunctionRef",
        change=lambda original: lambda name, builtin: original(name=name.replace("neg", "abs"), builtin=builtin),
        killer="numbers",
        case="left-out",
    ),
    Mutant(
        name="absent-as-one-row",
        says="A step without a term with its own count contributes one row of it.",
        place="passes.presence:_leave_out",
        change=to.change(count_one_row),
        killer="numbers",
        case="absent-terms",
    ),
    Mutant(
        name="seeds-forgotten",
        says="A gradient that is taken term by term ignores `grad_outputs`.",
        place="lower.accumulate:find_seeds",
        change=to.give(()),
        killer="numbers",
        case="absent-terms",
    ),
    Mutant(
        name="products-by-rows",
        says="Over micro-batches a loss times a parameter counts by rows, even if it has its own count.",
        place="passes.document:find_whole",
        change=to.give(frozenset()),
        killer="numbers",
        case="absent-terms",
    ),
    Mutant(
        name="weights-unread",
        says="A write does not wait for a transform that reads the previous weights.",
        place="lower.table:LOWERINGS",
        change=to.change_row(TransformOp, look_away),
        killer="numbers",
        case="weighed",
    ),
    Mutant(
        name="clip-before-after",
        says="A clip by weights does not see a write that its update comes after.",
        place="passes.order:_is_bare_reader",
        change=to.give(False),
        killer="numbers",
        case="weighed",
    ),
    Mutant(
        name="lazy-counts-once",
        says="A lazy term counts once, regardless of how many steps omit it.",
        place="lower.table:LOWERINGS",
        change=to.change_row(LossOp, count_once),
        killer="numbers",
        case="lazy",
    ),
    Mutant(
        name="never-absent",
        says="A lazy term is computed in every step.",
        place="passes.activate:find_absent",
        change=to.give(frozenset()),
        killer="numbers",
        case="lazy",
    ),
    Mutant(
        name="clip-uncounted",
        says="A clip that counts updates does not wait for those before its own.",
        place="lower.transform:find_scheduled",
        change=to.give(()),
        killer="numbers",
        case="counted",
    ),
    Mutant(
        name="terms-count-steps",
        says="The schedule of a penalty or constraint counts steps, not the updates of its optimizer.",
        place="timing.curves:ScheduledField",
        change=count_no_updates,
        killer="numbers",
        case="moved-terms",
    ),
    Mutant(
        name="states-unread",
        says="An assignment does not wait for readers of the previous state.",
        place="lower.table:read_states",
        change=lambda original: lambda node, states: node,
        killer="numbers",
        case="state",
    ),
    Mutant(
        name="terms-inside-sums",
        says="The summands inside a sum over rows are terms of a loss.",
        place="checks.gradients:ADDITIVE",
        change=lambda original: original | {"sum"},
        killer="versions",
        case="sums-of-rows",
    ),
    Mutant(
        name="unreached-refused",
        says="A model that a loss never reaches is rejected, even if its update has a policy for absent gradients.",
        place="checks.gradients:_may_miss",
        change=to.change(lambda found, *arguments: False),
        killer="versions",
        case="unreached",
    ),
    Mutant(
        name="rows-lie-first",
        says="The rows of a batch are assumed along the first axis, even if an op moved them.",
        place="types.values:_is_reduced",
        change=to.change_arguments(lambda op, known: (op, UNKNOWN)),
        killer="numbers",
        case="moved-rows",
    ),
    Mutant(
        name="products-add-nothing-up",
        says="A matrix product over the rows of a batch is a mean.",
        place="types.values:SUMMING",
        change=lambda original: original - {"matmul"},
        killer="numbers",
        case="moved-rows",
    ),
    Mutant(
        name="rows-of-parts-lie-first",
        says="The rows of a micro-batch are assumed along the first axis, even if an op moved them.",
        place="types.calls:Called._keeps_rows",
        change=keep_by_axis,
        killer="numbers",
        case="moved-parts",
    ),
    Mutant(
        name="counted-without-shapes",
        says="The check for sums next to means runs before shapes are known.",
        place="passes.pipeline:infer_values",
        change=to.change_arguments(forget_shapes),
        killer="mistakes",
    ),
    Mutant(
        name="own-terms-unread",
        says="The penalties and constraints of Keras layers are not read.",
        place="runtime.backends.tensorflow.observe_traits:find_terms",
        change=to.give(NO_TERMS),
        killer="numbers on TensorFlow",
        case="own-terms",
    ),
)
