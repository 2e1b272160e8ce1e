"""Checks of replicas: E-REPLICAS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.batch.gathering import Unshared
from compiler.batch.losses import find_added, find_reductions
from compiler.batch.placement import is_gathering
from compiler.facts.models import find_layers
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Apply, Blend, CheckFinite, Evaluate, Forward, Gradient, Instruction, Transform
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Program
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AdaptOp, EmaOp
from graphspec.diagnostics import Diagnostic

BY_ELEMENT = frozenset(
    {
        *("sgd", "adam", "adamw", "adagrad", "lion", "ftrl", "rprop", "schedule_free_sgd", "schedule_free_adamw"),
        *("rmsprop", "adadelta", "adamax", "nadam"),
    }
)
"""Rules of optimizers that step each element by what they keep for it: they step a shard as they step the whole."""
BOUNDS = frozenset({"clip", "non_negative"})
"""Constraints on each element."""
WHOLE = "write `parallel: {kind: replicated}`"


def check_replicas(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for what several processes cannot do together."""
    if not spec.is_replicated:
        for name, model in spec.models.items():
            if any(layer.options.get("sync") is True for layer in find_layers(model.layers or ())):
                yield Diagnostic(
                    code="E-REPLICAS",
                    message=f"'{name}' normalizes over the rows of all processes (`sync: true`), and there is one",
                    span=spec.span("models", name, key=True),
                    label="has no others to agree with",
                    help="remove `sync`, or add `parallel: {kind: replicated}`",
                )
        return
    # A gradient that is taken once combines in one way, so all updates that use it must want the same.
    for taken, wanted in find_reductions(spec).items():
        (first, one), *others = wanted.items()
        for name, other in others:
            if other != one:
                said = name if "reduce" in spec.ops[name].model_fields_set else first
                yield Diagnostic(
                    code="E-REPLICAS",
                    message=f"'{first}' takes '{taken}' with `reduce: {one}`, and '{name}' with `reduce: {other}`",
                    span=spec.span("ops", said, "reduce", key=True),
                    label="combines one gradient in two ways",
                    help="let each update take a gradient of its own, or write the same `reduce` in both",
                )
                break
    if backend != "torch":
        yield from _find_torch_only(spec, backend)
    for name, op in spec.ops.items():
        if isinstance(op, AdaptOp) and find_reaches(spec)[name].modes - {"infer"}:
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"'{name}' adapts '{op.adapt}' by a gradient of the whole batch, "
                "but each replica has only part of it",
                span=spec.span("ops", name, key=True),
                label="needs all rows",
                help="remove `parallel`",
            )


def _find_torch_only(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for what only processes of PyTorch do."""
    found: list[tuple[tuple[str, ...], str, str]] = []
    if spec.is_sharded:
        found.append((("parallel",), "shards are", "write `kind: replicated`"))
    if spec.parallel is not None and spec.parallel.compress.kind != "none":
        found.append((("parallel", "compress"), "compressed gradients are", "remove `compress`"))
    for name, model in spec.models.items():
        if any(layer.options.get("sync") is True for layer in find_layers(model.layers or ())):
            found.append((("models", name), "`batch_norm` with `sync` is", "remove `sync`"))
    for op in (name for name, op in spec.ops.items() if isinstance(op, EmaOp) and op.use.recompute_buffers is not None):
        found.append((("ops", op), "`recompute_buffers` with `parallel` is", "remove it"))
    for path, what, help in found:
        yield Diagnostic(
            code="E-REPLICAS",
            message=f"{what} not built for the backend '{backend}'",
            span=spec.span(*path),
            label="runs on PyTorch only",
            help=f"{help}, or choose the backend 'torch'",
        )


def check_reduced_tables(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for tables whose gradients are rows: every replica has others, which are not added up."""
    for model in program.models if spec.is_replicated else ():
        if model.has_rows:
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"a table of '{model.name}' has sparse gradients, and replicas add up whole gradients",
                span=spec.span("models", model.name, key=True),
                label="its gradients are rows",
                help="remove `sparse` from the embedding, or remove `parallel`",
            )


def check_gathered(graph: ModeGraph, unshared: Mapping[str, Unshared]) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for ops that combine what is gathered with what differs between processes."""
    for name, why in unshared.items():
        if name in graph.nodes:
            span = span_of(graph.spec, graph.nodes[name].op)
            yield Diagnostic(code="E-REPLICAS", message=why.message, span=span, label=why.label, help=why.help)


def check_added(graph: ModeGraph, parts: Mapping[str, Instruction]) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for gradients that are no sum of what processes have on their own rows; ``parts``: their nodes.

    Those of a loss with a count of its own are divided by the count of all, and what depends on no rows is one for all.
    """
    added = find_added(graph.spec)
    paths = (path.nodes for name, path in graph.paths.items() if graph.nodes[name].op in added)
    recorded = frozenset[str]().union(*paths)
    found: dict[str, tuple[str, str]] = {}
    for name, node in graph.nodes.items():
        if isinstance(node, Evaluate) and node.counted and name in recorded:
            found[node.op] = (f"'{node.op}' is divided by a count of its own, over all processes", "has its own count")
        if is_gathering(node) and name in recorded:
            message = f"'{node.op}' gathers the rows of all processes, and each takes the gradient on its own"
            found[node.op] = (message, "is made of rows of others")
    for node in parts.values():
        if isinstance(node, Gradient) and node.models and not node.is_replica and node.op in added:
            why = f"'{node.loss}' depends on no rows, so its gradient is the same on every process"
            found[node.op] = (f"{why}, and `reduce: sum` adds up others", "is the gradient of one loss for all")
    for op, (message, label) in found.items():
        yield Diagnostic(
            code="E-REPLICAS",
            message=message,
            span=span_of(graph.spec, op),
            label=label,
            help="write `reduce: mean`, which is one process on all rows, and multiply the loss",
        )


def check_compressed(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for a verdict about gradients that are sent in part: what is left of them would be kept."""
    if spec.parallel is None or not (spec.is_replicated and spec.parallel.compress.keeps_rests):
        return
    instructions = (each for mode in program.modes for one in mode.functions for each in one.instructions)
    for op in dict.fromkeys(each.op for each in instructions if isinstance(each, CheckFinite)):
        kind = spec.parallel.compress.kind
        yield Diagnostic(
            code="E-REPLICAS",
            message=f"'{op}' may be skipped, and what `compress: {kind}` keeps of its gradients cannot be taken back",
            span=span_of(spec, op),
            label="depends on a verdict",
            help="write `compress: bf16`, or leave out what skips updates (`loss_scale`, `on_nonfinite`)",
        )


def check_shards(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for what needs whole weights outside of a forward, where processes keep shards of them."""
    if not program.is_sharded:
        return
    for optimizer in program.optimizers:
        if not optimizer.builtin or optimizer.rule not in BY_ELEMENT:
            takes = "reads whole parameters" if optimizer.builtin else "may read whole parameters"
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"'{optimizer.rule}' {takes}, of which a process keeps a shard",
                span=spec.span("models", optimizer.models[0], "optimizer"),
                label="needs whole weights",
                help=f"choose one of {', '.join(sorted(BY_ELEMENT))}, or {WHOLE}",
            )
    for model in program.models:
        if model.tied:
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"'{model.name}' shares parameters with '{model.tied[0]}', and a model has its own shards",
                span=spec.span("models", model.name, key=True),
                label="shares parameters",
                help=f"let one model hold both, or {WHOLE}",
            )
    found: dict[tuple[str, str], None] = {}
    instructions = (each for mode in program.modes for one in mode.functions for each in one.instructions)
    found.update((pair, None) for each in instructions for pair in _find_whole(each))
    for op, what in found:
        yield Diagnostic(
            code="E-REPLICAS",
            message=f"'{op}' {what}, of which a process keeps a shard",
            span=span_of(spec, op),
            label="needs whole weights",
            help=f"remove it, or {WHOLE}",
        )


def _find_whole(node: Instruction) -> Iterator[tuple[str, str]]:
    """Yield ops that need whole weights, and what they do with them."""
    match node:
        case Forward(snapshot="all"):
            yield node.op, f"runs on a copy of the weights of '{node.model}'"
        case Transform(weights=True):
            yield node.op, f"compares gradients with whole weights (`{node.function.name}`)"
        case Transform(is_sharded=False) if node.penalties:
            terms = [each.function for each in node.penalties if each.function is not None]
            yield node.op, f"adds a penalty ({', '.join(terms)})" if terms else "adds a penalty to a whole gradient set"
        case Apply():
            for each in node.projections:
                if each.kind not in BOUNDS:
                    yield node.op, f"makes weights satisfy `{each.kind}`"
        case Blend(rounding="stochastic"):
            yield node.op, "uses stochastic rounding over whole tensors"
        case _:
            return
