"""The checks of the compiler, as data: each yields diagnostics, none raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compiler.checks.effects import check_clip_scope, check_interval, check_no_effect, check_shown
from compiler.checks.gradients import check_bootstrap, check_left_targets, check_loss_terms, check_targets
from compiler.checks.micro_batches import check_counts, check_summed
from compiler.checks.missing_terms import check_datasets, check_evaluated, check_lazy_terms
from compiler.checks.ownership import (
    check_average_targets,
    check_buffer_policy,
    check_frozen_train,
    check_overlap,
    check_swaps,
)
from compiler.checks.recomputed import check_derived_calls, check_recomputed
from compiler.checks.sparse import check_row_sets
from compiler.checks.versions import check_adversary, check_mixed, check_stale
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import StepGraph
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic

__all__ = ["GRAPH_CHECKS", "MODE_CHECKS", "OWNERSHIP_CHECKS", "check_recomputed"]

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
