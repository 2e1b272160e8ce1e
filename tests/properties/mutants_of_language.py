"""Mutants of the parts of the language that came late."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.ir.instructions import Adapt, Instruction
from compiler.ir.value import Constant, Ref
from graphspec.declare.ops import AdaptOp, EmaOp
from graphspec.read.source import Document
from tests.properties import mutations as to
from tests.properties.mutant import Mutant
from tests.properties.mutants_of_library import FUNCTIONS, change_call

Nodes = tuple[Instruction, ...]


def read_later(value: object, *arguments: object) -> object:
    """Return the batch of the iteration behind that of an input."""
    names = {"batch_1.x": "batch_2.x", "batch_2.x": "x"}
    return names.get(value, value) if isinstance(value, str) else value


def begin_later(document: Document) -> tuple[Document]:
    """Return a document in which the first op of the last phase is in the one before."""
    data = document.data
    if not isinstance(data, Mapping) or not isinstance(phases := data.get("phases"), list):
        return (document,)
    *rest, before, last = phases
    moved = [*rest, [*before, last[0]], *([last[1:]] if last[1:] else [])]
    return (replace(document, data={**data, "phases": moved}),)


def learn_nothing(nodes: Nodes, *arguments: object) -> Nodes:
    """Return a derived model with the rate that a learned one begins with."""
    return tuple(
        replace(each, rate=Constant(value=0.2)) if isinstance(each, Adapt) and isinstance(each.rate, Ref) else each
        for each in nodes
    )


def leave_groups(nodes: Nodes, *arguments: object) -> Nodes:
    """Return a derived model with one rate."""
    return tuple(replace(each, groups=()) if isinstance(each, Adapt) else each for each in nodes)


def round_to_nearest(nodes: Nodes, *arguments: object) -> Nodes:
    """Return an average without draws."""
    return tuple(replace(each, rounding="nearest") for each in nodes)


MUTANTS_OF_LANGUAGE = (
    Mutant(
        name="batches-of-the-next",
        says="An iteration reads the batch of the next one.",
        place="graphspec.expand.bindings:_Binder._find_rows",
        change=to.change(read_later),
        killer="numbers",
        case="batches",
    ),
    Mutant(
        name="phases-begin-later",
        says="The first op of the last phase is in the phase before it.",
        place="graphspec.loading:apply_phases",
        change=to.change_arguments(begin_later),
        killer="numbers",
        case="phased",
    ),
    Mutant(
        name="rates-learn-nothing",
        says="A learned rate of a derived model keeps its initial value.",
        place="lower.table:LOWERINGS",
        change=to.change_row(AdaptOp, learn_nothing),
        killer="numbers",
        case="learned-rate",
    ),
    Mutant(
        name="rates-of-groups-unread",
        says="All parameters of a derived model have one rate.",
        place="lower.table:LOWERINGS",
        change=to.change_row(AdaptOp, leave_groups),
        killer="numbers",
        case="learned-rate",
    ),
    Mutant(
        name="never-rounded-at-random",
        says="An average that is to be rounded at random is rounded to the nearest.",
        place="lower.table:LOWERINGS",
        change=to.change_row(EmaOp, round_to_nearest),
        killer="numbers",
        case="normalized",
    ),
    Mutant(
        name="norms-keep-nothing",
        says="The vectors of a spectral norm are not buffers of its model.",
        place="facts.models:BUFFERED",
        change=lambda kinds: kinds - {"spectral_norm"},
        killer="numbers",
        case="normalized",
    ),
    Mutant(
        name="greatest-for-least",
        says="`topk` ignores `largest`.",
        place=FUNCTIONS,
        change=change_call("call", "topk", unused=("largest",)),
        killer="numbers",
        case="ordered",
    ),
    Mutant(
        name="first-class-as-blank",
        says="`ctc` ignores its `blank`.",
        place=FUNCTIONS,
        change=change_call("loss", "ctc", unused=("blank",)),
        killer="numbers",
        case="ordered",
    ),
)
