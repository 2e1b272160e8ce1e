"""What iterations and alternatives are as ops: the facts of their ops, their outputs, and the rows that they read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from graphspec.declare.blocks import ChooseOp, RepeatOp, SometimesOp
from graphspec.declare.durations import Duration
from graphspec.declare.ops import AdaptOp, CopyOp, EmaOp, UpdateOp
from graphspec.declare.ops.base import OpBase
from graphspec.declare.options import BATCH
from graphspec.expand.copies import Use
from graphspec.expand.plain import listed
from graphspec.read.source import Path, Plain
from graphspec.words import did_you_mean

ContainerOp = RepeatOp | ChooseOp | SometimesOp
"""An op that holds its own ops."""


def describe_part(use: Use, op: ContainerOp) -> Plain:
    """Return what an op says of an iteration or alternative that it belongs to: an entry of its `within`."""
    assert use.of is not None
    number: dict[str, Plain] = {"number": use.number}
    match op:
        case RepeatOp():
            start, until = op.find_span(use.number)
            moments = {key: each for key, each in {"start": start, "until": until}.items() if each is not None}
            return {"repeat": use.of.name, **number, "count": op.most, **moments}
        case ChooseOp():
            shares = [each.p for each in op.choose]
        case SometimesOp():
            shares = [op.sometimes, 1 - op.sometimes]
    *ends, _ = accumulate(shares, initial=0.0)
    low, high = [*ends, 1.0][use.number - 1 : use.number + 1]  # the last is not a sum that misses 1 by a rounding error
    return {"choose": use.of.name, **number, "count": len(shares), "low": min(low, 1.0), "high": min(high, 1.0)}


def list_outputs(op: ContainerOp) -> tuple[str, ...]:
    """Return the values of its parts that an op gives."""
    return tuple(op.else_) if isinstance(op, SometimesOp) else op.outputs


def find_output_problem(
    value: str, use: Use, op: ContainerOp, known: Collection[str], made: OpBase | None
) -> tuple[str, str, str] | None:
    """Return the message, label and help for an output that is no value of a part; ``made`` is the op of that name."""
    whose = f"alternative {use.number} of " if isinstance(op, ChooseOp) else ""
    if value not in known:
        help = "every alternative has all outputs" if whose else "name a value of its ops"
        return f"{whose}'{use.op}' has no value '{value}'", did_you_mean(value, known), help
    if isinstance(made, AdaptOp):
        help = f"call it inside, in a `forward` op; further inner steps are ops that follow it, as in `adapt: {value}`"
        return f"'{value}' of '{use.op}' is a derived model, and outputs are values", "", help
    if made is not None and value not in made.defines(value):
        return f"'{value}' of '{use.op}' has no value", "", "name a value of its ops"
    return None


def give_output(op: ContainerOp, values: Sequence[Plain]) -> dict[str, Plain]:
    """Return the op that makes an output of an op from the values of its parts.

    Iterations are stacked; of alternatives there is one.
    """
    return {"call": "stack" if isinstance(op, RepeatOp) else "either", "inputs": [*values]}


def has_rows(name: str, data: Mapping[str, Plain]) -> bool:
    """Return whether a value of a document may have one row per sample; inputs and states say so."""
    states, inputs = data.get("state"), data.get("inputs")
    if isinstance(states, dict) and name in states:
        return False
    declared = inputs.get(name) if isinstance(inputs, dict) else None
    shape = declared.get("shape") if isinstance(declared, dict) else None
    return not isinstance(shape, list) or BATCH in shape


def cut_rows(
    value: Plain, short: str, parts: Sequence[Use], op: RepeatOp, held: Mapping[str, Plain]
) -> dict[str, dict[str, Plain]]:
    """Return the ops that cut a value into parts, of which each iteration reads its own by its local name.

    There is one cut for every number of iterations, which stands in the steps with so many. ``held`` are the fields
    that hold for what the iterations are made of.
    """
    assert parts[0].of is not None
    rows, names = f"{parts[0].of.name}.rows", [f"{use.name}.{short}" for use in parts]
    if isinstance(op.repeat, int):
        return {f"{rows}.{short}": {**_split(value, names), **held}}
    around, found = listed(held.get("within")), dict[str, dict[str, Plain]]()
    for count, moments in op.find_stages():
        cut = [f"{rows}.{count}.{short}.{number}" for number in range(1, count + 1)]
        stage: Plain = {"repeat": rows, "number": count, "count": op.most, **moments}
        found[f"{rows}.{count}.{short}"] = {**_split(value, cut), **held, "within": [*around, stage]}
    for use, name in zip(parts, names, strict=True):
        counts = [count for count, _ in op.find_stages() if count >= use.number]
        made: Plain = [f"{rows}.{count}.{short}.{use.number}" for count in counts]
        found[name] = {"call": "either", "inputs": made, **held, "within": [*around, describe_part(use, op)]}
    return found


def _split(value: Plain, names: Sequence[str]) -> dict[str, Plain]:
    """Return the op that splits a value into rows of these names."""
    return {"call": "split_rows", "inputs": value, "args": {"count": len(names)}, "outputs": [*names]}


def check_batches(
    repeats: Mapping[str, RepeatOp], around: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, str]]:
    """Yield ops whose iterations cannot have the rows that they ask for, each with the message and the remedy.

    ``around`` has the names of what holds an op, the innermost first.
    """
    taking: dict[str, int] = {}  # how many batches a step takes for an op
    for name, op in repeats.items():
        outer = {repeats[each].batch for each in around[name] if each in repeats}
        if op.batch != "reuse" and op.batch in outer:
            yield name, f"`batch: {op.batch}` stands inside another", "write `batch: reuse` on one of them"
        elif op.batch == "next" and "split" in outer:  # its rows are cut before it reads them
            message = "`batch: next` stands inside `batch: split`, which cuts one batch"
            yield name, message, "write `next` on the outer one and `split` on the inner one, or `reuse` on either"
        if op.batch == "next":
            taking[name] = op.most
            (first, count), *_ = taking.items()
            if op.most != count:
                message = f"a step takes {count} batches for '{first}' and {op.most} for '{name}'"
                yield name, message, "let all of them repeat equally often"


def draws_rows(op: Mapping[str, Plain]) -> bool:
    """Return whether an op draws numbers for every row of the batch."""
    shape = op.get("shape") if "random" in op else None
    return isinstance(shape, list) and BATCH in shape


def check_repeated(name: str, repeat: str, op: OpBase) -> Iterator[tuple[str, Path, str]]:
    """Yield what an op cannot be in an iteration of a `repeat`: the message, the field, and the remedy.

    The names are those that the user wrote.
    """
    if isinstance(op, UpdateOp) and op.optimizer is not None:
        message = f"every iteration of '{repeat}' would have an optimizer of its own for '{name}'"
        yield message, ("optimizer",), "declare it on the model: all iterations then share its slots and its count"
    if isinstance(op, EmaOp):  # what an average counts, each iteration would count by itself
        if op.into is None:
            message = f"every iteration of '{repeat}' would keep an average '{name}' of its own"
            yield message, ("ema",), "write `into` with a model that all iterations write"
        if op.halving is not None and op.halving.unit != "updates":
            path: Path = ("half_life",) if op.half_life is not None else ("decay", "half_life")
            several = f"'{repeat}' runs '{name}' several times in a step"
            message = f"{several}, and a half-life in anything but updates is not clear"
            yield message, path, "count updates: `half_life: 500 updates`"
        if op.start is not None and op.start.unit == "updates":
            message = f"`start: {op.start}` of '{name}' counts updates, of which '{repeat}' has several in a step"
            yield message, ("start",), "count steps: `start: 100 steps`"
        back = op.use.write_back
        if back is not None and back.every > 1:
            message = f"`write_back` of '{name}' counts iterations of '{repeat}', which this version does not"
            help = "write `every: 1`, or put the op outside, where it runs once per step"
            yield message, ("use", "write_back", "every"), help
        if op.use.eval == "swap":
            message = f"'{name}' would stand in for its source once for every iteration of '{repeat}'"
            yield message, ("use", "eval"), "put the average outside, or evaluate it with a forward of its own"
    if isinstance(op, EmaOp | CopyOp) and isinstance(op.every, Duration):
        message = f"`every: {op.every}` of '{name}' is a stretch of the run, but '{repeat}' counts its iterations"
        yield message, ("every",), "write a number of iterations that write the source: `every: 10`"
