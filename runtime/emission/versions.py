"""Comments about versions: which weights an instruction reads, and which it writes."""

from __future__ import annotations

from compiler.ir.instructions import InstructionBase


def read_comment(instruction: InstructionBase, model: str) -> str:
    """Return the version of a model's parameters that an instruction reads, ``discriminator@1``."""
    version = _find(instruction, model, "reads")
    return "" if version is None else f"{model}@{version}"


def write_comment(instruction: InstructionBase, models: tuple[str, ...]) -> str:
    """Return the versions an instruction makes, ``discriminator@0 -> @1``."""
    made = ((model, _find(instruction, model, "writes")) for model in models)
    return ", ".join(f"{model}@{version - 1} -> @{version}" for model, version in made if version is not None)


def _find(instruction: InstructionBase, model: str, field: str) -> int | None:
    """Return the version of a model's parameters that is read or written."""
    cells = instruction.reads if field == "reads" else instruction.writes
    return next((cell.version for cell in cells if cell.cell == f"{model}.params"), None)
