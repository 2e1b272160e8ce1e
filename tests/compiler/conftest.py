"""Compile steps written as text, and ask the plan for facts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from compiler import Plan, compile_step
from compiler.ir.step_graph import StepGraph
from compiler.ir.verify import verify
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.loading import load

PROGRAMS = Path(__file__).parents[1] / "golden" / "valid"
"""Published training steps, one file each."""

PRELUDE = """\
graphspec: 1
name: step
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  a: {layers: [{linear: 4}, {linear: 4}], optimizer: sgd}
  b: {layers: [{linear: 4}, {linear: 4}], optimizer: sgd}
  c: {layers: [{linear: 4}, {linear: 4}], optimizer: sgd}
  n: {layers: [{linear: 4}, batch_norm, {linear: 4}], optimizer: sgd}
  m: {layers: [{linear: 4}, batch_norm, {linear: 4}], optimizer: sgd}
  slow_a: {like: a}
  slower_a: {like: a}
  slow_n: {like: n}
"""
"""Plain models a, b and c, n and m with BatchNorm, and models that follow some of them."""
APART = ("join_gradients=false",)
"""A setting: every update has a gradient of its own."""


def document(ops: str, prelude: str = PRELUDE) -> str:
    """Return a document from the text of its ops; a line `outputs: [...]` at the left stays at the top level.

    Every update has a gradient of its own, so that an order is about several.
    """
    text = textwrap.dedent(ops).strip("\n")
    lines = [line if line.startswith("outputs:") else f"  {line}" for line in text.split("\n")]
    return prelude + "ops:\n" + "\n".join(lines) + "\njoin_gradients: false\n"


def compiled(ops: str, *, prelude: str = PRELUDE, backend: str = "torch", order: str = "fewest") -> Plan:
    """Compile a step from the text of its ops; the invariants are verified after every pass."""
    return compiled_document(document(ops, prelude), backend=backend, order=order)


def compiled_document(
    source: str | Path, *, backend: str = "torch", order: str = "fewest", settings: Sequence[str] = ()
) -> Plan:
    """Compile a whole document, or a file; the invariants are verified after every pass."""
    return compile_step(load(source, settings), backend, order, hook=verify)


def program(name: str, *, backend: str = "torch", order: str = "fewest", settings: Sequence[str] = ()) -> Plan:
    """Compile one of the published training steps."""
    return compiled_document(PROGRAMS / f"{name}.yaml", backend=backend, order=order, settings=settings)


def problems(ops: str, *, prelude: str = PRELUDE, backend: str = "torch", order: str = "fewest") -> list[Diagnostic]:
    """Return what the compiler has to say about a step, errors and warnings."""
    spec = load(document(ops, prelude))
    try:
        plan = compile_step(spec, backend, order, hook=verify)
    except SpecError as error:
        return list(error.diagnostics)
    return list(plan.warnings)


def told(found: list[Diagnostic]) -> list[tuple[str, str]]:
    """Return the code of every diagnostic with the first word of the line it points to: the op, mostly."""
    return [(problem.code, _pointed(problem)) for problem in found]


def _pointed(problem: Diagnostic) -> str:
    """Return the op a diagnostic is about, by the first name its message quotes."""
    quoted = problem.message.split("'")
    return quoted[1] if len(quoted) > 2 else ""


def codes(ops: str, **options: str) -> list[str]:
    """Return the codes of everything the compiler has to say about a step."""
    return [problem.code for problem in problems(ops, **options)]


def graph_of(plan: Plan, function: str = "train_step") -> StepGraph:
    """Return what the passes found out about one function."""
    return plan.graphs[function]


def events(plan: Plan, mode: str = "train", function: int = 0) -> list[str]:
    """Return the sequence of a function as `kind op`, as the published format has it."""
    instructions = plan.to_json(mode)["functions"][function]["instructions"]
    return [f"{one['kind']} {one['op']}" for one in instructions if one["kind"] not in ("release", "emit")]


def find_instruction(plan: Plan, event: str, mode: str = "train", function: int = 0) -> dict:
    """Return one instruction, named as in `events`, in the published format."""
    instructions = plan.to_json(mode)["functions"][function]["instructions"]
    return next(one for one in instructions if f"{one['kind']} {one['op']}" == event)


def reads(plan: Plan, op: str, mode: str = "train", kind: str = "forward") -> list[str]:
    """Return the cell versions that an op reads."""
    return find_instruction(plan, f"{kind} {op}", mode)["reads"]


def deferred(plan: Plan, function: str = "train_step") -> set[str]:
    """Return the updates that are deferred in one function."""
    return {decision.subject for decision in graph_of(plan, function).decisions if decision.code == "DEFER"}


def decided(plan: Plan, code: str, function: str = "train_step") -> set[str]:
    """Return the ops about which a decision was taken."""
    return {decision.subject for decision in graph_of(plan, function).decisions if decision.code == code}


def hazards(plan: Plan, kind: str, function: str = "train_step") -> set[tuple[str, str]]:
    """Return the edges of one kind, as pairs of nodes."""
    return {(edge.before, edge.after) for edge in graph_of(plan, function).edges if edge.hazard.value == kind}
