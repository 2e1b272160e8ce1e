"""Profiling: the code of every op in a range of its name, where a step is built to be profiled."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.instructions import Emit, Instruction, Release
from runtime.emission import syntax
from runtime.emission.scope import Lowered, Scope, line_of
from runtime.emission.text import Block


def in_range(instruction: Instruction, lowered: Lowered, scope: Scope) -> Lowered:
    """Return the code of an instruction inside ``with record_function("step_d"):``; as it is where nobody profiles.

    What is forgotten and what is returned takes no time.
    """
    if not scope.names.profile or isinstance(instruction, (Release, Emit)) or not lowered.code:
        return lowered
    header = line_of(instruction, syntax.within(scope.dialect.range(instruction.op)))
    return replace(lowered, code=(Block(header=header, body=lowered.code),))
