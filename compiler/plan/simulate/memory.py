"""The memory that a step takes on each of several processes, as if no value were freed before its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from msgspec import Struct

from compiler.ir.instructions import Accumulate, Evaluate, Forward, Gradient, Random
from compiler.ir.program import Function
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.messages import BYTES, NUMBER, Message
from compiler.plan.simulate.timeline import Rows
from compiler.plan.simulate.work import Work, add_up, count_slots, find_layer_works, find_results


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes of one process."""

    weights: int
    """Parameters and buffers of all models, averages included; of shards with the largest layer, which is gathered."""
    slots: int
    gradients: int
    """Gradient sets, and the windows and rests that are kept of them."""
    messages: int
    """What is sent is copied into one piece."""
    values: int
    """The batch, and the results of layers and functions."""

    @property
    def total(self) -> int:
        """Return all together."""
        return self.weights + self.slots + self.gradients + self.messages + self.values


class Holdings(Struct, frozen=True, kw_only=True):
    """What a function holds, for any number of processes."""

    parameters: int
    buffers: int
    slots: int
    gradients: int
    largest: int
    """The parameters of the largest layer."""
    values: Mapping[Rows, Work]
    """The numbers among its values, with sizes that are free."""


def find_holdings(plan: CompiledStep, function: Function) -> Holdings:
    """Return the tensors that a function keeps in memory."""
    program = plan.program
    forwards = [each for each in function.instructions if isinstance(each, Forward)]
    layers = {id(each): find_layer_works(plan, each) for each in forwards}
    sets = {each.op: each.models for each in function.instructions if isinstance(each, Gradient) and each.output}
    windows = {each.window: each.models for each in function.instructions if isinstance(each, Accumulate)}
    compress = None if program.parallel is None else program.parallel.compress
    rests = sets if compress is not None and compress.options else {}
    kept = (*sets.values(), *windows.values(), *rests.values())
    values: dict[Rows, list[Work]] = {"own": [find_results(plan, [each.name for each in program.inputs])], "part": []}
    for each in function.instructions:
        rows: Rows = "part" if each.micro_batch else "own"
        if each.micro_batch > 1:  # the one before it is forgotten
            continue
        if isinstance(each, Forward) and each.graph and not each.checkpoint:
            found = [layer.results for layer in layers[id(each)]]
            values[rows] += found or [find_results(plan, each.defines)]
        elif isinstance(each, Forward | Evaluate | Random):
            values[rows].append(find_results(plan, each.defines))
    return Holdings(
        parameters=sum(_weigh(plan, model.name) for model in program.models),
        buffers=sum(prod(each.shape) * BYTES[each.dtype] for model in program.models for each in model.buffers),
        slots=sum(
            NUMBER * count_slots(optimizer, each.shape)
            for optimizer in program.optimizers
            for name in optimizer.models
            for each in program.model(name).parameters
        ),
        gradients=sum(_weigh(plan, name) for models in kept for name in models),
        largest=NUMBER * max((each.parameters for found in layers.values() for each in found), default=0),
        values={rows: add_up(found) for rows, found in values.items()},
    )


def estimate_memory(
    plan: CompiledStep,
    holdings: Holdings,
    messages: Sequence[Message],
    processes: int,
    sizes: Mapping[Rows, Mapping[str, int]],
) -> Memory:
    """Return the memory of one of some processes, given the rows that it has."""
    is_divided = plan.program.is_sharded and processes > 1
    parts = processes if is_divided else 1
    return Memory(
        weights=ceil(holdings.parameters / parts) + (holdings.largest if is_divided else 0) + holdings.buffers,
        slots=ceil(holdings.slots / parts),
        gradients=holdings.gradients,
        messages=sum(each.size or 0 for each in messages) if processes > 1 else 0,
        values=round(NUMBER * sum(work.count(sizes[rows]) for rows, work in holdings.values.items())),
    )


def _weigh(plan: CompiledStep, model: str) -> int:
    """Return the bytes of the parameters of a model, as far as they are known."""
    return sum(prod(each.shape) * BYTES[each.dtype] for each in plan.program.model(model).parameters)
