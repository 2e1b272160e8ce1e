"""What `write_back` means: one more op behind an average, which copies the parameters back into the model."""

from __future__ import annotations

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp


class WriteBack(CopyOp):
    """Copy the parameters of an average into the model that it averages, after so many writes of that."""

    average: str = ""
    """The op that averages."""


def back_of(average: str) -> str:
    """Return the name of the op by which a model takes an average."""
    return f"{average}.write_back"


def with_backs(spec: GraphSpec) -> GraphSpec:
    """Return a spec in which every `write_back` is an op of its own, which `after` the average means as well."""
    averages = {name: op for name, op in spec.ops.items() if isinstance(op, EmaOp) and op.use.write_back is not None}
    if not averages or back_of(next(iter(averages))) in spec.ops:
        return spec
    ops = {}
    for name, op in spec.ops.items():
        backs = tuple(back_of(other) for other in op.after or () if other in averages)
        ops[name] = op.model_copy(update={"after": (*op.after, *backs)}) if backs else op
        if name in averages:
            fields = {"mode": op.mode, "dataset": op.dataset, "within": op.within, "start": op.start}
            made = WriteBack.model_construct(copy_=op.target(name), into=op.ema, average=name)
            ops[back_of(name)] = made.model_copy(update={**fields, "every": op.use.write_back.every})
    return spec.model_copy(update={"ops": ops})
