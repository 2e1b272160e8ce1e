"""From a spec to a plan: every mode, every set of ops that fire together, all problems in one report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches

from msgspec.structs import replace

from compiler.batch.losses import find_counted
from compiler.checks import PROGRAM_CHECKS, SPEC_CHECKS
from compiler.checks.effects import check_dead, check_durations, check_returned
from compiler.declare import (
    declare_inputs,
    declare_loss_scale,
    declare_models,
    declare_optimizers,
    declare_parallel,
    declare_states,
)
from compiler.facts.models import Observations, describe_models
from compiler.ir.diagnose import DiagnosticSink
from compiler.ir.hazard_table import TABLES
from compiler.ir.program import Program
from compiler.ir.verify import verify
from compiler.passes.document import Context, Document, begin_document
from compiler.passes.functions import CompiledMode, compile_mode
from compiler.passes.pipeline import DOCUMENT, Hook, run_passes
from compiler.passes.policies import POLICIES
from compiler.plan.notes import find_notes
from compiler.plan.plan import Plan
from compiler.timing.resolve import apply_pace, check_modes
from compiler.timing.units import Pace, complete_pace
from compiler.types.infer_types import find_uncalled
from graphspec.analysis.datasets import find_datasets
from graphspec.analysis.modes import find_modes
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import require_kind, sort_diagnostics
from graphspec.startup import paused_collection


@paused_collection
def compile_step(
    spec: GraphSpec,
    backend: str = "torch",
    order: str = "fewest",
    observed: Observations | None = None,
    hook: Hook | None = None,
    pace: Pace | None = None,
    *,
    pending: bool = False,
) -> Plan:
    """Compile a spec for a backend, ``torch`` or ``tensorflow``; nothing that the spec names is imported.

    - ``order``: the policy that chooses between valid schedules, ``fewest``, ``listed``, ``latest`` or ``memory``.
    - ``pace``: the lengths of an epoch, a batch and a run, which convert durations to steps, where the spec has none.
    - ``pending``: leave out parts that need an unknown length, and list them in ``plan.pending``. Such a plan can be
      inspected, but not built. By default they are errors.
    - ``observed``: the traits of user classes that a backend has observed.
    - ``hook``: called after every pass over the graph of a step with the name of the pass and the graph.

    Raises SpecError with every error of the spec, and ValueError for an unknown backend or policy.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> print(plan.text().splitlines()[0])
    simultaneous-gan: train step for torch, order fewest
    >>> plan.warnings
    ()
    """
    require_kind(spec, GraphSpec, "`compile_step` takes a spec", "load it first: `compile_step(load(path))`")
    _require(backend, TABLES, "backend")
    _require(order, POLICIES, "order policy")
    if hook is None and os.environ.get("STEPGRAPH_VERIFY"):
        hook = verify
    known = complete_pace(spec, pace)
    timed = apply_pace(spec, known)
    sink = DiagnosticSink(spec=timed.spec)
    context = Context(
        spec=timed.spec, table=TABLES[backend], policy=POLICIES[order], pace=known, observed=observed, sink=sink
    )
    sink.report(problem for check in SPEC_CHECKS for problem in check(spec, backend))
    sink.stop_on_errors()
    document = run_passes(begin_document(context, describe_models(timed.spec, observed)), DOCUMENT, context)
    if document is None:
        raise sink.error()
    found = document.structure
    context = replace(context, types={} if found.problems else found.types, models=document.models)
    modes = {mode: compile_mode(document, mode, context, hook) for mode in find_modes(spec.ops, spec.run.eval)}
    live = {mode: each.live for mode, each in modes.items()}
    uncounted, left = check_durations(spec, timed, known, pending=pending)
    sink.report((*document.structure.problems, *check_dead(spec, live), *uncounted))
    sink.report(each for mode, found in modes.items() for each in check_modes(spec, mode, found.program.gates))
    sink.stop_on_errors()
    if "train" in modes:
        sink.report(check_returned(spec, live["train"], modes["train"].graphs))
    sink.report(find_uncalled(spec, document.whole.everything, document.models))
    sink.stop_on_errors()
    program = _declare(document, tuple(modes.values()), context)
    program = replace(program, uncounted=tuple(each.message for each in left))
    sink.report(problem for check in PROGRAM_CHECKS for problem in check(spec, program))
    sink.stop_on_errors()
    graphs = {name: graph for each in modes.values() for name, graph in each.graphs.items()}
    types = document.structure.types
    of_parts = {name: types[of] for graph in graphs.values() for name, of in graph.wholes.items() if of in types}
    return Plan(
        spec=spec,
        program=program,
        graphs=graphs,
        warnings=sink.in_order(),
        notes=find_notes(spec, document.models, find_counted(spec, "train", document.values, observed)),
        pace=known,
        types={**of_parts, **types},
        pending=sort_diagnostics(left),
    )


def _declare(document: Document, modes: tuple[CompiledMode, ...], context: Context) -> Program:
    """Return the program: what it declares, and its modes."""
    spec, backend = context.spec, context.table.backend
    return Program(
        name=spec.name,
        backend=backend,
        order=context.policy.name,
        seed=spec.seed,
        rng=spec.rng,
        inputs=declare_inputs(spec),
        models=declare_models(spec, document.models, document.structure, backend),
        optimizers=declare_optimizers(spec, backend, context.pace),
        modes=tuple(each.program for each in modes),
        states=declare_states(spec),
        parallel=declare_parallel(spec),
        loss_scale=declare_loss_scale(spec),
        datasets=find_datasets(spec),
    )


def _require(name: str, known: Mapping[str, object], what: str) -> None:
    """Raise ValueError for a name that is not in a table."""
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"no {what} '{name}': known are {', '.join(known)}{hint}")
