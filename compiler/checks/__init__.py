"""The checks of the compiler, as data: each yields diagnostics, none raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compiler.checks.effects import (
    check_averaging,
    check_backend,
    check_clip_scope,
    check_interval,
    check_shown,
    check_terms,
)
from compiler.checks.gradients import check_bootstrap, check_left_targets, check_loss_terms, check_targets
from compiler.checks.micro_batches import check_counts, check_summed
from compiler.checks.missing_terms import check_datasets, check_evaluated, check_lazy_terms
from compiler.checks.no_effect import check_no_effect
from compiler.checks.ownership import (
    check_average_targets,
    check_buffer_policy,
    check_frozen_train,
    check_overlap,
    check_swaps,
)
from compiler.checks.recomputed import check_derived_calls, check_recomputed
from compiler.checks.replicas import check_compressed, check_reduced_tables, check_replicas, check_shards
from compiler.checks.sparse import check_lazy, check_row_sets, check_tables
from compiler.checks.versions import check_adversary, check_mixed, check_stale
from compiler.facts.parameters import check_matrices, check_patterns, find_known_names
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Program
from compiler.ir.step_graph import StepGraph
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic

__all__ = ["GRAPH_CHECKS", "MODE_CHECKS", "OWNERSHIP_CHECKS", "PROGRAM_CHECKS", "SPEC_CHECKS", "check_recomputed"]

SPEC_CHECKS: tuple[Callable[[GraphSpec, str], Iterable[Diagnostic]], ...] = (
    check_backend,
    check_replicas,
    check_terms,
    lambda spec, backend: check_averaging(spec),
)
"""Checks of a spec for a backend, before any op is lowered."""

OWNERSHIP_CHECKS: tuple[Callable[[ModeGraph], Iterable[Diagnostic]], ...] = (
    check_overlap,
    check_average_targets,
    check_buffer_policy,
    check_swaps,
    check_frozen_train,
    check_interval,
    check_clip_scope,
    check_derived_calls,
)
"""Checks that do not depend on the order of ops, so they can run where there is none."""

MODE_CHECKS: tuple[Callable[[ModeGraph], Iterable[Diagnostic]], ...] = (
    check_loss_terms,
    check_targets,
    check_bootstrap,
    check_no_effect,
    check_shown,
    check_counts,
    check_summed,
    check_lazy_terms,
    check_evaluated,
    check_datasets,
    check_row_sets,
)
"""Checks of a whole mode, before it is known which ops fire together."""

GRAPH_CHECKS: tuple[Callable[[GraphSpec, StepGraph], Iterable[Diagnostic]], ...] = (
    check_left_targets,
    check_stale,
    check_mixed,
    check_adversary,
)
"""Checks of one set of ops that fire together, after versions (which need an order of all writers) are known."""

PROGRAM_CHECKS: tuple[Callable[[GraphSpec, Program], Iterable[Diagnostic]], ...] = (
    lambda spec, program: check_patterns(spec, find_known_names(program.models)),
    lambda spec, program: check_matrices(
        spec, {model.name: {each.name: each.shape for each in model.parameters} for model in program.models}
    ),
    check_lazy,
    check_tables,
    check_reduced_tables,
    check_compressed,
    check_shards,
)
"""Checks of the whole program: what optimizers step and replicas send depends on the parameters of all models."""
