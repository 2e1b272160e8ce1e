"""Validation: the rules a spec keeps beyond the types of its fields, as one tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from graphspec.analysis.scope import RuleContext, build_scope
from graphspec.check.data import check_sources
from graphspec.check.derived import check_derived, check_spectral
from graphspec.check.functions import check_arguments, check_dimensions, check_functions, check_models, check_outputs
from graphspec.check.gradients import check_coverage, check_losses, check_reductions, check_sets
from graphspec.check.names import (
    check_clashes,
    check_document,
    check_likeness,
    check_ops,
    check_repeats,
    check_spelling,
    check_ties,
)
from graphspec.check.options import check_group_optimizers, check_layers, check_optimizer_options, check_optimizers
from graphspec.check.timing import (
    check_batches,
    check_datasets,
    check_evaluation,
    check_images,
    check_iterations,
    check_meetings,
    check_modes,
    check_recomputed,
    check_watched,
    check_windows,
)
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, sort_diagnostics
from graphspec.limits import MOST_PROBLEMS

Rule = Callable[[RuleContext], Iterable[Diagnostic]]

RULES: tuple[Rule, ...] = (
    check_spelling,
    check_clashes,
    check_ops,
    check_document,
    check_likeness,
    check_ties,
    check_optimizers,
    check_layers,
    check_optimizer_options,
    check_group_optimizers,
    check_functions,
    check_arguments,
    check_outputs,
    check_models,
    check_losses,
    check_sets,
    check_coverage,
    check_reductions,
    check_derived,
    check_spectral,
    check_repeats,
    check_batches,
    check_iterations,
    check_windows,
    check_modes,
    check_datasets,
    check_sources,
    check_meetings,
    check_dimensions,
    check_evaluation,
    check_recomputed,
    check_images,
    check_watched,
)
"""Every rule; each reports all it finds, and none relies on another having passed."""


def validate(spec: GraphSpec, broken: frozenset[str] = frozenset(), *, blind: bool = False) -> tuple[Diagnostic, ...]:
    """Return the problems of a spec, sorted by place; of each rule at most one more than the limit of a report.

    ``broken`` names what is declared but could not be read, and ``blind`` says that whole sections could not:
    references to those are not reported.
    """
    scope = build_scope(spec, broken, blind=blind)
    return sort_diagnostics(each for rule in RULES for each in islice(rule(scope), MOST_PROBLEMS + 1))
