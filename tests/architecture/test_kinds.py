"""A kind of op is added in one file and one line per layer: a made-up one is added here, and goes all the way.

Beside it, mechanically: every kind is in the table of its layer, and no pass is about all kinds at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import jsonschema
import numpy as np
import pytest

import compiler.lower.table
import runtime.codegen.lower
from compiler import Plan, compile_step
from compiler.ir.instructions import KINDS, InstructionBase
from compiler.ir.value import Fields, Names, Use
from compiler.plan.schema import plan_schema
from graphspec.declare.ops import KINDS as OPS
from graphspec.declare.ops import OpBase, Reference
from graphspec.loading import load
from runtime.api import build, emit
from runtime.codegen import syntax
from runtime.codegen.dialect import Lowered
from runtime.codegen.lower import LOWERINGS
from runtime.codegen.scope import line_of

ROOT = Path(__file__).parents[2]
TABLES = {"compiler/ir/instructions/__init__.py", "runtime/codegen/lower/__init__.py"}
"""What names every kind of instruction, in a line each."""
MOST = 9
"""More kinds than that nothing else names, about half of them: it would be about all."""

SPEC = """
graphspec: 1
name: probe
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.05}}
ops:
  y: {forward: net, inputs: x}
  turn_0: {call: mul, inputs: [y, 1.0]}
  loss: {loss: mse, inputs: [turn_0, 1.0]}
  learn: {update: net, loss: loss}
"""


# -------------------------------------------------------- graphspec: graphspec/declare/ops/swapped.py, and its line


class SwappedOp(OpBase):
    """Give two values the other way round: what it defines are `name_0` and `name_1`.

    It stands in a spec as if it had been read: documents are read by a union that is made of the table.
    """

    swapped: tuple[str, str]

    @property
    def kind(self) -> str:
        """Return the key of this kind."""
        return "swapped"

    def defines(self, name):
        """Return two values."""
        return (f"{name}_0", f"{name}_1")

    def operands(self) -> Iterator[Reference]:
        """Yield both."""
        yield from (Reference(path=("swapped", at), name=each, role="value") for at, each in enumerate(self.swapped))


# ---------------------------------------------------------------- compiler: one file of instructions, one of ops


class Swap(InstructionBase, frozen=True, kw_only=True):
    """Give two values the other way round."""

    inputs: tuple[str, str]
    outputs: tuple[str, ...]

    FIELDS: ClassVar[Fields] = {"inputs": Names, "outputs": Names}

    @property
    def defines(self):
        """Return both."""
        return self.outputs

    @property
    def operands(self):
        """Return both."""
        return self.inputs

    @property
    def recorded(self):
        """Return that a graph goes on."""
        return True

    @property
    def phrase(self):
        """Return what becomes of which."""
        return f"{', '.join(self.outputs)} = swap of {', '.join(self.inputs)}"

    def export(self):
        """Return both."""
        return {"inputs": [*self.inputs], "outputs": [*self.outputs]}


def lower_swapped(name, op, context):
    """Return its node."""
    place, made = context.place(name), op.defines(name)
    uses = tuple(Use(value=each) for each in op.swapped)
    return (Swap(id=name, op=name, label=name, place=place, uses=uses, inputs=op.swapped, outputs=made),)


# ---------------------------------------------------------------- runtime: one function, and its line


def lower_swap(instruction, scope):
    """Return ``first, second = b, a``."""
    names = [syntax.name(scope.names.value(each)) for each in reversed(instruction.inputs)]
    targets = [ast.Name(id=scope.names.value(each), ctx=ast.Store()) for each in instruction.outputs]
    statement = ast.Assign(targets=[ast.Tuple(elts=targets, ctx=ast.Store())], value=ast.Tuple(elts=names))
    return Lowered(code=(line_of(instruction, statement),))


@pytest.fixture
def added(monkeypatch):
    """Write the lines of the tables; give what compiles a spec with such an op for a backend."""
    rows = (
        dict([compiler.lower.table._row(SwappedOp, lower_swapped)]),
        dict([runtime.codegen.lower._row(Swap, lower_swap)]),
    )
    monkeypatch.setattr(compiler.lower.table, "LOWERINGS", {**compiler.lower.table.LOWERINGS, **rows[0]})
    monkeypatch.setattr(runtime.codegen.lower, "LOWERINGS", {**LOWERINGS, **rows[1]})
    monkeypatch.setattr("compiler.plan.schema.KINDS", (*KINDS, Swap))

    def compiled(backend: str) -> Plan:
        spec = load(SPEC)
        ops = {name: SwappedOp(swapped=("x", "y")) if name == "turn_0" else op for name, op in spec.ops.items()}
        ops = {name.removesuffix("_0"): op for name, op in ops.items()}
        return compile_step(spec.model_copy(update={"ops": ops}), backend)

    return compiled


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_new_kind_is_planned_explained_drawn_exported_and_emitted(added, backend):
    plan = added(backend)
    assert "swap      turn_0, turn_1 = swap of x, y" in plan.text()
    assert "swap turn_0, turn_1 = swap of x, y" in plan.explain("turn")
    assert "turn_0, turn_1 = swap of x, y" in plan.mermaid()
    assert "turn_0, turn_1 = (y, x)" in emit(plan)
    jsonschema.validate(plan.to_json(), plan_schema())
    (exported,) = (each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "swap")
    assert exported == {
        "kind": "swap",
        "op": "turn",
        "id": "turn",
        "inputs": ["x", "y"],
        "outputs": ["turn_0", "turn_1"],
    }


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "tensorflow")]
)
def test_a_new_kind_runs(added, backend, debug):
    x = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    ours, plain = build(added(backend), debug=debug), build(compile_step(load(SPEC), backend))
    losses = [float(ours({"x": x})["loss"]) for _ in range(3)]
    assert losses == [float(plain({"x": x})["loss"]) for _ in range(3)]  # the gradient goes through it
    assert losses[0] > losses[1] > losses[2]


def test_a_kind_of_instruction_that_leaves_a_question_open_is_refused_when_it_is_defined() -> None:
    with pytest.raises(TypeError, match="Mute does not answer defines, operands, recorded, phrase, export"):
        type("Mute", (InstructionBase,), {"FIELDS": {}, "__module__": __name__})


def test_every_kind_has_its_line_in_the_table_of_each_layer():
    assert set(LOWERINGS) == set(KINDS)
    assert set(compiler.lower.table.LOWERINGS) == set(OPS.values())


def test_every_kind_in_which_a_number_may_change_tells_where():
    changing = re.compile(r"\b(Scheduled|Setting|Operand|Argument|Penalty|Projection)\b")
    for kind in KINDS:
        may_change = any(changing.search(str(vars(each).get("__annotations__"))) for each in kind.__mro__)
        assert may_change == (kind.settings is not InstructionBase.settings), kind


def test_nothing_but_the_tables_is_about_all_kinds():
    named = {
        path.relative_to(ROOT).as_posix(): _find_named(path)
        for layer in ("compiler", "runtime")
        for path in (ROOT / layer).rglob("*.py")
    }
    assert {path for path, found in named.items() if len(found) == len(KINDS)} == TABLES
    wide = {path: found for path, found in named.items() if path not in TABLES and len(found) > MOST}
    assert wide == {}, "ask a property of the instruction in place of its class: docs/adr/0019-kinds.md"


def _find_named(path: Path) -> set[str]:
    """Return the kinds of instructions that a module imports."""
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if "compiler.ir.instructions" in text else ()
    ours = (
        each
        for each in nodes
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("compiler.ir.instructions")
    )
    return {alias.name for each in ours for alias in each.names} & {kind.__name__ for kind in KINDS}
