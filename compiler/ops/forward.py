"""Lowering of ``forward``: call a model."""

from __future__ import annotations

from compiler.cells import buffers_of
from compiler.facts import ModelFacts
from compiler.instructions import Forward
from compiler.ir import Node, Read, Write
from compiler.ops.context import Lowering, lower_inputs, uses_of
from graphspec.ops import ForwardOp


def lower_forward(name: str, op: ForwardOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a forward: it reads weights and buffers, and in train mode writes the buffers."""
    owner = context.models[op.forward]
    train = _is_training(name, op, owner, context)
    model = context.models[context.averages.get(op.forward, op.forward)]
    again = model.recomputes or op.checkpoint
    arguments = lower_inputs(name, op.inputs, context)
    instruction = Forward(
        op=name,
        place=context.place(name),
        model=model.name,
        arguments=arguments,
        outputs=tuple(output.name for output in op.outputs if output.tap is None) if op.outputs else (name,),
        named=op.outputs is not None,
        taps=tuple((output.name, output.tap) for output in op.outputs or () if output.tap is not None),
        method=op.method,
        train=train,
        snapshot="all" if op.snapshot and not again else "none",
        checkpoint=op.checkpoint,
        draws=model.rng and (train or context.spec.models[model.root].class_ is not None),
        stop=op.stop,
        compute=model.compute,
    )
    node = Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"forward {name}",
        uses=uses_of(arguments),
        defines=op.defines(name),
        inner=_find_inner(instruction, model),
        reads=_reads(model, train=train, kept=again or not op.snapshot, again=again),
        writes=(Write(cell=buffers_of(model.name), statistics=True),) if train and model.buffers else (),
        model=model.name,
        differentiable=not op.stop,
        place=instruction.place,
    )
    return (node,)


def _find_inner(instruction: Forward, model: ModelFacts) -> tuple[str, ...]:
    """Return the taps that are what the model goes on with: not copies in another type, nor of what runs again."""
    is_copied = instruction.compute != "float32" or model.recomputes
    return () if is_copied else tuple(value for value, _ in instruction.taps)


def _is_training(name: str, op: ForwardOp, model: ModelFacts, context: Lowering) -> bool:
    """Return whether the model runs in train mode: as written, else where some update owns it.

    Other modes than train always evaluate, except for an op that says ``train: true`` and never runs in train mode.
    """
    if context.mode == "train":
        return model.updated if op.train is None else op.train
    return op.train is True and "train" not in context.reaches[name].modes


def _reads(model: ModelFacts, *, train: bool, kept: bool, again: bool) -> tuple[Read, ...]:
    """Return the cells a call reads; autograd keeps them unless the call runs on clones.

    A recomputed call reads the model itself again, not clones.
    """
    parameters = tuple(Read(cell=cell, saved=kept, again=again) for cell in model.cells)
    if not model.buffers:
        return parameters
    return (*parameters, Read(cell=buffers_of(model.name), saved=kept, again=again, streaming=train))
