"""Compiled programs with one thing changed: an update written too early, a graph not kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from compiler import Plan
from compiler.ir.instructions import (
    AllFinite,
    Apply,
    CheckFinite,
    Commit,
    Gradient,
    Instruction,
    ResolveOverflow,
    Transform,
)
from compiler.ir.program import Function, Mode, Program
from compiler.ir.step_graph import Because, Decision, StepGraph
from graphspec.declare.ops import CallOp, ForwardOp, LossOp, MetricOp, RandomOp, UpdateOp
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from tests.oracle.layers import walk
from tests.oracle.likeness import find_root


def emit_changed(program: Program) -> str:
    """Return a program as source text, for the backend that it is compiled for."""
    if program.backend == "torch":
        return emit_module(program, TORCH).text
    from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW

    return emit_module(program, TENSORFLOW).text


AMONG_WRITES = {"raw", "waw", "declared", "implied"}


LINEAR = {"add", "sub", "neg", "mean", "sum", "lerp", "concat", "split"}
"""Functions of which PyTorch saves nothing."""
Excuse = Literal["", "commuting", "thin", "resting", "unseen", "inner"]
"""Why a deferral, or a graph that is kept, may turn out needless.

It only keeps the order of writes of the same weights, which may commute; or it protects what saves nothing of its own,
such as a model of one tensor or a sum, or a part of a model that is currently frozen; or nobody sees the numbers of the
forward that would see other weights; or what two gradients share is only the path of a third that one of them
differentiates again.
"""


def find_deferred(plan: Plan) -> Iterator[tuple[Function, Apply, Program, Excuse]]:
    """Yield every deferral by a hazard, no verdict: its function, its write, the program without it, an excuse."""
    for function in plan.program.mode("train").functions:
        graph = plan.graphs[function.name]
        hazards = (_without_choice(one) for one in graph.decisions if one.code == "DEFER")
        found = [one for one in hazards if one.because and not _awaits(one, graph)]
        late = {one.subject: _excuse(plan, one, find_frozen(function)) for one in found}
        for instruction in function.instructions:
            if isinstance(instruction, Apply) and instruction.op in late:
                hurried = change_function(plan.program, function, _hurry(function, instruction))
                yield function, instruction, hurried, late[instruction.op]


def _without_choice(decision: Decision) -> Decision:
    """Return a decision without what `defer: end` or the order chose: only hazards can turn out needless."""
    hazards = tuple(reason for reason in decision.because if reason.edge not in ("defer", "order"))
    return replace(decision, because=hazards)


def _awaits(decision: Decision, graph: StepGraph) -> bool:
    """Return whether a write waits for verdicts of others, or for a penalty that is only added where these skip it."""
    conditional = {node.op for node in graph.nodes.values() if is_conditional(node)}
    return any(reason.edge == "verdict" or reason.op in conditional for reason in decision.because)


def is_conditional(instruction: Instruction) -> bool:
    """Return whether an instruction adds a penalty only where verdicts say that earlier updates are skipped."""
    return isinstance(instruction, Transform) and bool(instruction.unless)


def find_frozen(function: Function) -> frozenset[str]:
    """Return the models of which some parameters are currently frozen."""
    gradients = (each for each in function.instructions if isinstance(each, Gradient))
    return frozenset(model for each in gradients for model, _ in each.frozen)


def _excuse(plan: Plan, decision: Decision, resting: frozenset[str]) -> Excuse:
    rest = [reason for reason in decision.because if reason.edge not in AMONG_WRITES]
    if all(_is_thin(plan, one) for one in rest):
        return "thin" if rest else "commuting"
    if all(one.edge == "backward-war" and one.cell.partition(".")[0] in resting for one in rest):
        return "resting"
    return "unseen" if all(_is_unseen(plan, one) for one in rest) else ""


def _is_thin(plan: Plan, reason: Because) -> bool:
    tensors = {name for name, model in plan.spec.models.items() if model.parameter is not None}
    return reason.edge == "backward-war" and reason.cell.partition(".")[0] in tensors


def _is_unseen(plan: Plan, reason: Because) -> bool:
    """Return whether a reason is a forward whose numbers nobody sees: none but statistics taken before any weight."""
    op = plan.spec.ops[reason.op]
    if reason.edge != "war" or not isinstance(op, ForwardOp) or _is_shown(plan, reason.op):
        return False
    layers = plan.spec.models[find_root(plan.spec, op.forward)].layers or ()
    return [path for path, layer in walk(layers) if layer.kind == "batch_norm"] in ([], ["0"])


def _is_shown(plan: Plan, name: str) -> bool:
    """Return whether the numbers of an op reach an output or an update; a draw ``like`` them takes a size."""
    ops, op = plan.spec.ops, plan.spec.ops[name]
    made = {*op.defines(name)}
    returned = made & {*(plan.spec.outputs or ())} or (plan.spec.outputs is None and isinstance(op, LossOp | MetricOp))
    if returned or isinstance(op, UpdateOp):
        return True
    users = (other for other, one in ops.items() if made & {each.name for each in one.operands()})
    return any(_is_shown(plan, user) for user in users if not isinstance(ops[user], RandomOp))


def _hurry(function: Function, write: Apply) -> tuple[Instruction, ...]:
    """Return the instructions with a write right behind the gradients it applies, and its verdict over them."""
    rest = [_spell_out_end(one, function) for one in function.instructions if one is not write]
    wanted = {part.gradients for part in write.parts}
    wanted |= {one.output for one in rest if isinstance(one, CheckFinite) and one.op == write.op}
    place = 1 + max(index for index, one in enumerate(rest) if wanted.intersection(one.defines))
    known = {value for one in rest[:place] for value in one.defines}
    commits = limit(spell_out(write.commits, function), known)
    return (*rest[:place], replace(write, commits=commits), *rest[place:])


def _spell_out_end(instruction: Instruction, function: Function) -> Instruction:
    """Return an instruction; the end of a step with the verdicts of groups one by one, as a hurried write has them."""
    if not isinstance(instruction, ResolveOverflow):
        return instruction
    conditional = tuple((op, spell_out(commits, function)) for op, commits in instruction.conditional)
    return replace(instruction, conditional=conditional)


def spell_out(commits: Commit, function: Function) -> Commit:
    """Return a condition with the verdicts of groups one by one."""
    combined = {one.output: one.verdicts for one in function.instructions if isinstance(one, AllFinite)}
    return tuple(tuple(each for name in way for each in combined.get(name, (name,))) for way in commits)


def limit(commits: Commit, known: set[str]) -> Commit:
    """Return what is known of a condition; nothing where that is nothing."""
    ways = tuple(tuple(verdict for verdict in way if verdict in known) for way in commits)
    return ways if all(ways) else ()


def find_kept(plan: Plan) -> Iterator[tuple[Function, Gradient, Program, Excuse]]:
    """Yield every gradient that keeps its graph: its function, the program in which it does not, an excuse."""
    for function in plan.program.mode("train").functions:
        for instruction in function.instructions:
            if isinstance(instruction, Gradient) and instruction.retain_graph and not instruction.create_graph:
                freed = replace(instruction, retain_graph=False)
                changed = tuple(freed if one is instruction else one for one in function.instructions)
                excuse = _excuse_keeping(plan, plan.graphs[function.name], instruction)
                yield function, instruction, change_function(plan.program, function, changed), excuse


def _excuse_keeping(plan: Plan, graph: StepGraph, gradient: Gradient) -> Excuse:
    made = gradient.defines
    name = next(each for each in graph.paths if graph.nodes[each].defines == made)
    later = (_find_own(graph, other) for other in graph.flags.retained[name])
    shared = frozenset[str]().union(*later) & _find_own(graph, name)
    if not shared:
        return "inner"
    return "thin" if all(_saves_nothing(plan, one) for one in shared) else ""


def _saves_nothing(plan: Plan, name: str) -> bool:
    match plan.spec.ops.get(name.partition("#")[0]):
        case CallOp(call=call):
            return call.name("torch") in LINEAR
        case ForwardOp(forward=model):
            return model in plan.spec.models and plan.spec.models[model].parameter is not None
        case _:
            return False


def _find_own(graph: StepGraph, gradient: str) -> frozenset[str]:
    """Return the part of a path that depends on the targets: not what only an inner gradient runs through."""
    makers = {value: name for name, node in graph.nodes.items() for value in node.defines}
    derivative, own, before = graph.nodes[gradient].derivative, set[str](), -1
    while len(own) > before:
        before = len(own)
        for name in graph.paths[gradient].nodes:
            used = {use.value for use in graph.nodes[name].uses}
            if used & {*derivative.values} or {read.cell for read in graph.nodes[name].reads} & derivative.cells:
                own.add(name)
            own |= {name} if own & {makers.get(value) for value in used} else set()
    return frozenset(own)


def change_function(program: Program, function: Function, instructions: tuple[Instruction, ...]) -> Program:
    """Return a program with other instructions in one of its functions."""
    changed = replace(function, instructions=instructions)
    train: Mode = "train"
    modes = tuple(
        replace(mode, functions=tuple(changed if one is function else one for one in mode.functions))
        if mode.mode == train
        else mode
        for mode in program.modes
    )
    return replace(program, modes=modes)
