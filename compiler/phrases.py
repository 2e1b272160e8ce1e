"""Short phrases for instructions, shared by every printed form of a plan."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.cells import is_optimizer
from compiler.instructions import Commit, Instruction
from compiler.operands import CellVersion, Ref


def flags_of(instruction: Instruction) -> tuple[str, ...]:
    """Return what is special about how an instruction runs."""
    detached = (each.operand for each in instruction.passed if isinstance(each.operand, Ref) and each.operand.detach)
    return (
        *instruction.flags,
        *((f"if {tell_commit(instruction.commits)}",) if instruction.commits else ()),
        *(f"{ref.name} detached" for ref in detached),
    )


def tell_commit(commits: Commit) -> str:
    """Return the verdicts under which a write takes place: `step_d.finite and step_g.finite`."""
    return " or ".join(" and ".join(way) for way in commits)


def cells_of(instruction: Instruction) -> str:
    """Return the versions an instruction reads and writes: ``discriminator.params@0 -> @1``; optimizers left out."""
    written = {at.cell: at for at in instruction.writes}
    shown = [
        f"{at} -> @{written[at.cell].version}" if at.cell in written else str(at) for at in _models(instruction.reads)
    ]
    read = {at.cell for at in instruction.reads}
    return ", ".join([*shown, *(f"-> {at}" for at in _models(instruction.writes) if at.cell not in read)])


def _models(versions: Iterable[CellVersion]) -> list[CellVersion]:
    """Return the accesses to models."""
    return [at for at in versions if not is_optimizer(at.cell)]
