"""What is added to some random specs at the very end: all parts of the language that came after the first ones.

It is drawn behind everything else, so that a seed whose spec gets nothing of it gives the spec that it always gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.properties.absent import add_gaps
from tests.properties.averages import round_at_random
from tests.properties.combinations import combine
from tests.properties.counted import count_losses
from tests.properties.datasets import change_optimizers, name_datasets
from tests.properties.derived import add_derived, derive_class, learn_rates
from tests.properties.epochs import end_with_epochs
from tests.properties.folded import fold_values
from tests.properties.followers import follow_rules
from tests.properties.functions import add_functions
from tests.properties.graphs import checkpoint, evaluate_in_training, recompute
from tests.properties.kept import keep_terms
from tests.properties.lazy import add_lazy_terms
from tests.properties.library import add_library, normalize_weights
from tests.properties.micro_batches import split_batch
from tests.properties.moved import move_rows
from tests.properties.nested import add_nested
from tests.properties.opened import add_open_losses
from tests.properties.overflow import add_overflow
from tests.properties.parted import add_parts, add_wide_parts
from tests.properties.ported import port
from tests.properties.precise import add_precision
from tests.properties.scheduled import add_schedules
from tests.properties.sequences import add_sequences
from tests.properties.shared import share_models
from tests.properties.slopes import add_slopes
from tests.properties.states import add_states
from tests.properties.terms import add_terms
from tests.properties.tied import share_modules
from tests.properties.transformed import add_transforms
from tests.properties.windows import accumulate

if TYPE_CHECKING:
    from tests.properties.specs import Draft

FURTHER: tuple[Callable[[Draft], None], ...] = (
    recompute,
    evaluate_in_training,
    add_lazy_terms,
    add_states,
    add_transforms,
    add_schedules,
    add_terms,
    add_sequences,
    accumulate,
    name_datasets,
    change_optimizers,
    add_gaps,
    share_models,
    add_precision,
    split_batch,
    add_overflow,
    port,
    end_with_epochs,
    combine,
    count_losses,
)
"""Each adds ops to a draft, or fields to those that are there, and leaves it alone where it finds no place.

What looks at whole losses comes last.
"""
LATEST: tuple[Callable[[Draft], None], ...] = (add_open_losses, fold_values, add_slopes)
PARTED = 0.08
"""The share of the drafts with a part that is repeated or chosen."""
NEWEST: tuple[Callable[[Draft], None], ...] = (move_rows, share_modules, keep_terms)
RECENT: tuple[tuple[Callable[[Draft], None], float], ...] = (
    (add_functions, 0.1),
    (add_wide_parts, 0.06),
    (add_derived, 0.04),
    (derive_class, 0.05),
    (learn_rates, 0.6),
    (normalize_weights, 0.04),
    (round_at_random, 0.3),
    (add_nested, 0.06),
)
"""What came last of all, each with the share of the drafts that get it, by numbers of its own."""


def add_further(draft: Draft) -> None:
    """Add up to five of these to more than half of the drafts, and checkpoints to a quarter of all."""
    if FURTHER and draft.chance(0.62):
        chosen = draft.random.sample(FURTHER, draft.random.randint(1, min(5, len(FURTHER))))
        for add in sorted(chosen, key=FURTHER.index):
            add(draft)
    if draft.chance(0.25):
        checkpoint(draft)


def add_latest(draft: Draft) -> None:
    """Add one or two of these to a quarter of the drafts."""
    if draft.chance(0.25):
        for add in draft.random.sample(LATEST, draft.random.choice([1, 1, 2])):
            add(draft)


def add_last(draft: Draft) -> None:
    """Add a part that is repeated or chosen to some drafts."""
    if draft.chance(PARTED):
        add_parts(draft)


def add_newest(draft: Draft) -> None:
    """Add one or two of these to one draft in fifteen, unless an update is skipped wherever any other is."""
    if draft.chance(0.065) and all(op.get("on_overflow") != "all" for op in draft.ops.values()):
        for add in draft.random.sample(NEWEST, draft.random.choice([1, 1, 2])):
            add(draft)
    follow_rules(draft)


def add_library_parts(draft: Draft) -> None:
    """Add layers, calls and losses that came after all of these to one draft in twenty."""
    if draft.chance(0.05):
        add_library(draft)


def add_later(draft: Draft) -> None:
    """Add derived models to one draft in sixteen."""
    if draft.chance(1 / 16):
        add_derived(draft)
