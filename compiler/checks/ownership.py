"""Checks of who writes what: E-OVERLAP, E-EMA-TARGET, E-BUFFERS, W-FROZEN-TRAIN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.facts.steppers import find_model_cells, find_owners, find_stepped_cells, find_steppers, is_sharing
from compiler.ir.cell import Cell, optimizer_cell
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Forward
from compiler.ir.mode_graph import ModeGraph
from compiler.passes.eval_averages import find_all_eval_averages
from graphspec.analysis.derived import find_derived
from graphspec.analysis.modes import find_reaches
from graphspec.declare.ops import MODES, CopyOp, EmaOp, ForwardOp, UpdateOp
from graphspec.diagnostics import Diagnostic


def check_overlap(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-OVERLAP for every parameter storage that two optimizers step and none is declared to step for all."""
    covered: set[str] = set()
    for cell, pairs in find_steppers(graph.spec).items():
        holders: dict[str, str] = {}  # the optimizers that step the cell, each with one update, `shared: sum` first
        for optimizer, name in pairs:
            known = holders.setdefault(optimizer, name)
            if is_sharing(graph.spec, name) and not is_sharing(graph.spec, known):
                holders[optimizer] = name
        sharing = [name for name in dict.fromkeys(holders.values()) if is_sharing(graph.spec, name)]
        if len(holders) == 1:
            continue
        covered.update(sharing)
        if len(sharing) == 1:
            yield from _check_owner(graph, cell, sharing[0])
        elif sharing:
            both = " and ".join(f"'{name}'" for name in sharing)
            yield Diagnostic(
                code="E-OVERLAP",
                message=f"{both} say `shared: sum`, and all of them step {cell}",
                span=span_of(graph.spec, sharing[-1], "shared"),
                label="one update steps it for all",
                help="keep it on one of them: the one whose optimizer steps what is shared",
            )
        else:
            (first, holder), (optimizer, op), *_ = holders.items()
            one, other = f"{optimizer_cell(first)} in '{holder}'", f"{optimizer_cell(optimizer)} in '{op}'"
            if op != holder:
                label = f"'{holder}' steps it with another optimizer"
                help = (
                    "step it once, in one update with one optimizer; or write `shared: sum` on the update whose "
                    "optimizer should step it with the sum of both gradients"
                )
            else:
                label = "two optimizers step it here"
                help = f"write `optimizer:` on '{op}', which then steps all its models"
            yield Diagnostic(
                code="E-OVERLAP",
                message=f"{cell} is stepped by two optimizers: {one}, {other}",
                span=span_of(graph.spec, op, "update"),
                label=label,
                help=help,
            )
    for name in find_model_cells(graph.spec):
        if is_sharing(graph.spec, name) and name not in covered:
            message = f"'{name}' says `shared: sum`, but no other optimizer steps what it steps"
            span = span_of(graph.spec, name, "shared")
            yield Diagnostic(code="E-OVERLAP", message=message, span=span, label="nothing is shared", help="remove it")


def _check_owner(graph: ModeGraph, cell: Cell, owner: str) -> Iterator[Diagnostic]:
    """Yield E-OVERLAP for an update that cannot leave a storage to another."""
    spec = graph.spec
    pairs = find_steppers(spec)[cell]
    stepper = next(optimizer for optimizer, name in pairs if name == owner)
    for optimizer, name in pairs:
        if name == owner:
            continue
        both = set(find_model_cells(spec)[owner]).intersection(find_model_cells(spec)[name]) - find_owners(spec).keys()
        if optimizer == stepper:
            message = f"'{owner}' steps {cell} for all, but '{name}' steps it as well, with the same optimizer"
            help = f"let '{owner}' be the one update that has this optimizer: add the losses"
        elif not find_stepped_cells(spec, name):
            message = f"'{owner}' steps {cell} for all, and nothing is left for '{name}' to step"
            help = "add the losses, and update once"
        elif both:
            message = f"'{owner}' and '{name}' step {cell} with two optimizers, and {min(both, key=str)} with one"
            help = f"leave the models of {min(both, key=str)} to one of the two"
        elif len(cell.owners) > 2:
            message = f"'{owner}' steps {cell} for all, but a group of three does not say which pairs share what"
            help = "step all of them in one update with one optimizer"
        else:
            continue
        yield Diagnostic(
            code="E-OVERLAP", message=message, span=span_of(spec, name, "update"), label="held by this too", help=help
        )


def check_average_targets(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-EMA-TARGET for an ema or copy into a model that an update writes, or into its own source."""
    updates = {model: name for name, op in graph.spec.ops.items() if isinstance(op, UpdateOp) for model in op.update}
    for name, op in graph.spec.ops.items():
        if not isinstance(op, EmaOp | CopyOp):
            continue
        target = op.target(name) if isinstance(op, EmaOp) else op.into
        source = op.ema if isinstance(op, EmaOp) else op.copy_
        help = "declare a separate model as the target, with `like:`"
        if set(graph.models[target].cells) & set(graph.models[source].cells):
            message = f"'{name}' writes into its own source: '{target}' shares parameters with '{source}'"
        elif target in updates:
            message = f"'{target}' is written by the {op.kind} '{name}' and stepped by the update '{updates[target]}'"
        else:
            continue
        span = span_of(graph.spec, name, "into")
        yield Diagnostic(code="E-EMA-TARGET", message=message, span=span, label="the target", help=help)


def check_buffer_policy(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-BUFFERS where an average does not say what happens to buffers, or says what cannot be.

    It is a warning as long as a class is only assumed to have buffers: `build` inspects the class and decides.
    """
    calls: dict[str, list[Forward]] = {}
    for node in graph.nodes.values():
        if isinstance(node, Forward):
            calls.setdefault(node.model, []).append(node)
    for name, op in graph.spec.ops.items():
        if not isinstance(op, EmaOp):
            continue
        source, target = graph.models[op.ema], graph.models[op.target(name)]
        policy = op.buffer_policy or target.policy or source.policy
        forwards = calls.get(target.name, [])
        trained = next((node.op for node in forwards if node.train), None)
        if op.use.recompute_buffers is not None:
            yield from _check_recomputed(graph, name, op, policy, forwards)
        if source.buffers and policy is None:
            message = f"'{name}' averages '{op.ema}'"
            help = "write `buffers: copy`, `average` or `ignore`"
            if "buffers" in source.assumed:
                yield Diagnostic(
                    code="E-BUFFERS",
                    severity="warning",
                    message=f"{message} but does not say what happens to buffers, which the model is assumed to have: "
                    "its class declares no `traits`",
                    span=span_of(graph.spec, name, "ema"),
                    label="an error when the step is built, if it has buffers",
                    help=f"{help}, or `traits: {{buffers: false}}` on the model",
                )
            else:
                yield Diagnostic(
                    code="E-BUFFERS",
                    message=f"{message}, which has buffers, but does not say what happens to them",
                    span=span_of(graph.spec, name, "ema"),
                    label="this model has buffers",
                    help=help,
                )
        elif source.buffers and policy == "ignore" and op.use.eval == "swap":
            yield Diagnostic(
                code="E-BUFFERS",
                message=f"'{name}' stands in for '{op.ema}' in evaluation, but its buffers keep their initial values",
                span=span_of(graph.spec, name, "use"),
                label="evaluates with the average's own buffers",
                help="write `buffers: copy` or `buffers: average`",
            )
        elif source.buffers and policy != "ignore" and trained is not None:
            yield Diagnostic(
                code="E-BUFFERS",
                message=f"'{name}' writes the buffers of '{target.name}', and so does '{trained}', in train mode",
                span=span_of(graph.spec, name, "buffers"),
                label=f"policy {policy}",
                help=f"write `buffers: ignore` on '{name}', or remove `train: true` from '{trained}'",
            )


def _check_recomputed(
    graph: ModeGraph, name: str, op: EmaOp, policy: str | None, forwards: Sequence[Forward]
) -> Iterator[Diagnostic]:
    """Yield E-BUFFERS where the statistics of an average cannot be computed anew, or would mean something else."""
    reaches = find_reaches(graph.spec)
    trained = [each.op for each in forwards if "train" in reaches[each.op].modes]
    if not graph.models[op.ema].batch_coupled:
        message = f"'{name}' computes the statistics of '{op.ema}' anew, which has no batch_norm"
        label, help = "there are no statistics", "remove `recompute_buffers`"
    elif policy != "copy":
        message = f"'{name}' computes its statistics anew, and its policy for buffers is '{policy}'"
        label, help = "they would count in what comes later", "write `buffers: copy`, or leave `buffers` out"
    elif trained:
        message = f"'{trained[0]}' calls '{name}' in training, with statistics that evaluations compute anew"
        label = "how often the run evaluates would change what it learns"
        help = f"remove `recompute_buffers`, or let '{trained[0]}' call another average"
    else:
        return
    yield Diagnostic(
        code="E-BUFFERS",
        message=message,
        span=span_of(graph.spec, name, "use"),
        label=label,
        help=help,
    )


def check_frozen_train(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-FROZEN-TRAIN for a model that no update writes and that has buffers, run in train mode."""
    ignored = {
        op.target(name) for name, op in graph.spec.ops.items() if isinstance(op, EmaOp) and op.buffer_policy == "ignore"
    }
    for name, op in graph.spec.ops.items():
        if not isinstance(op, ForwardOp) or not op.train or name not in graph.nodes:
            continue
        model = graph.models[find_derived(graph.spec).get(op.forward, op.forward)]
        if not model.updated and model.buffers and model.policy != "ignore" and model.name not in ignored:
            yield Diagnostic(
                code="W-FROZEN-TRAIN",
                severity="warning",
                message=f"'{op.forward}' is never updated, but '{name}' runs it in train mode: its buffers change",
                span=span_of(graph.spec, name, "train"),
                label="its statistics will drift",
                help="remove `train: true`, or declare `buffers: ignore` on the model if you mean that",
            )


def check_swaps(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-SWAP where two averages stand in for one model, or a model is written while one stands in for it."""
    owners: dict[str, str] = {}
    for average in find_all_eval_averages(graph.spec):
        first = owners.setdefault(average.model, average.op)
        if first != average.op:
            yield Diagnostic(
                code="E-SWAP",
                message=f"'{first}' and '{average.op}' both stand in for '{average.model}' in evaluation",
                span=span_of(graph.spec, average.op, "use"),
                label="only one average can",
                help=f"remove `use` from one of them, and call its average by name: `forward: {average.target}`",
            )
        for name, op in graph.spec.ops.items():
            if not (isinstance(op, UpdateOp) and average.model in op.update):
                continue
            if any(op.runs_in(mode) for mode in MODES if mode != "train"):
                yield Diagnostic(
                    code="E-SWAP",
                    message=f"'{name}' updates '{average.model}' in a mode in which '{average.op}' stands in for it",
                    span=span_of(graph.spec, name, "mode"),
                    label="the forwards of that mode are those of the average",
                    help=f"update it in train mode only, or remove `use` from '{average.op}'",
                )
