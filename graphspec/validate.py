"""Validation: the rules a spec keeps beyond the types of its fields, as one tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from graphspec.diagnostics import Diagnostic, sort_diagnostics
from graphspec.graph import GraphSpec
from graphspec.limits import MOST_PROBLEMS
from graphspec.rules.calling import check_functions
from graphspec.rules.datasets import check_datasets, check_meetings
from graphspec.rules.dimensions import check_dimensions
from graphspec.rules.gradients import check_coverage, check_losses, check_sets
from graphspec.rules.layering import check_layers
from graphspec.rules.listing import check_repeats
from graphspec.rules.modelling import check_likeness, check_optimizers, check_ties
from graphspec.rules.naming import check_clashes, check_spelling
from graphspec.rules.optimizing import check_optimizer_options
from graphspec.rules.references import check_document, check_ops
from graphspec.rules.results import check_models, check_outputs
from graphspec.rules.running import check_evaluation, check_watched
from graphspec.rules.timing import check_modes, check_windows
from graphspec.scope import Scope, build_scope

Rule = Callable[[Scope], Iterable[Diagnostic]]

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
    check_functions,
    check_outputs,
    check_models,
    check_losses,
    check_sets,
    check_coverage,
    check_repeats,
    check_windows,
    check_modes,
    check_datasets,
    check_meetings,
    check_dimensions,
    check_evaluation,
    check_watched,
)
"""Every rule; each reports all it finds, and none relies on another having passed."""


def validate(spec: GraphSpec, broken: frozenset[str] = frozenset(), *, blind: bool = False) -> tuple[Diagnostic, ...]:
    """Return the problems of a spec, sorted by place: every one, or of each rule as many as are told at most, and one.

    ``broken`` names what is declared but could not be read, and ``blind`` says that whole sections could not:
    nothing is held against a reference to those.
    """
    scope = build_scope(spec, broken, blind=blind)
    return sort_diagnostics(each for rule in RULES for each in islice(rule(scope), MOST_PROBLEMS + 1))
