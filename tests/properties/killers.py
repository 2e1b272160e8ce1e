"""The properties that mutants of the analysis are tried on, one random spec at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from random import Random

from graphspec.declare.graph import GraphSpec
from graphspec.loading import load
from tests.oracle.legality import find_circle
from tests.oracle.meaning import Meaning, Versions
from tests.oracle.optimizers import DegenerateError
from tests.oracle.order import Order
from tests.properties.agreement import POLICIES, Tally, try_spec
from tests.properties.flags import find_flags, meant_flags
from tests.properties.necessity import Ground, undo_deferrals
from tests.properties.outcomes import has_outcome
from tests.properties.plans import find_sequence, plan_of
from tests.properties.rejections import random_rejected
from tests.properties.special import Case, document_of, kept_of
from tests.properties.specs import base_spec
from tests.properties.test_firing_sets import walk_at, walk_clocks
from tests.properties.test_order import deferred_in, derives_all, find_idle, find_live, orders_of
from tests.properties.test_rejections import codes
from tests.properties.test_retain import find_gradients, find_sharing
from tests.properties.ties import UNDECLARED, find_refusals, find_shared


def fails(name: str, case: Case) -> bool:
    """Return whether a property does not hold for a spec, or what it runs stops with an error."""
    try:
        return not PROPERTIES[name](case)
    except DegenerateError:
        return False
    except (RuntimeError, KeyError, NameError):
        return True


def agrees(case: Case) -> bool:
    """Compare the numbers with the oracle, under three policies."""
    return not try_spec(document_of(case), POLICIES, Tally())


def agrees_elsewhere(case: Case) -> bool:
    """Compare the numbers on TensorFlow with the oracle."""
    from tests.conformance.random_specs import run_few

    return not try_spec(document_of(case), POLICIES[:1], Tally(), run_few)


def keeps_order(case: Case) -> bool:
    """Look whether all that the definition orders is in order."""
    return all(
        find_sequence(function).index(before) < find_sequence(function).index(after)
        for _, function, _, pairs in orders_of(document_of(case), "fewest")
        for before, after in pairs
    )


def is_early(case: Case) -> bool:
    """Look whether every write stands as early as it may."""
    return not any(
        True for one in orders_of(document_of(case), "listed") for _ in find_idle(one[0], one[1], one[2], one[3])
    )


def defers_right(case: Case) -> bool:
    """Compare the deferred updates with those that must wait by the definition."""
    return all(
        deferred_in(plan, function) == order.find_late(find_sequence(function), pairs)
        for plan, function, order, pairs in orders_of(document_of(case), "listed")
        if derives_all(plan, function, order)
    )


def defers_least(case: Case) -> bool:
    """Compare the number of deferrals with the least of all orders."""
    return all(
        len(deferred_in(plan, function)) == order.find_fewest(pairs)
        for plan, function, order, pairs in orders_of(document_of(case), "fewest")
        if derives_all(plan, function, order) and 2 <= len(order.updates) <= 5
    )


def retains_right(case: Case) -> bool:
    """Compare the graphs that are kept with those that later gradients share."""
    found = [(find_gradients(one[1]), one[2]) for one in orders_of(document_of(case), "fewest")]
    return all({name for name in kept if kept[name]} == find_sharing(list(kept), order) for kept, order in found)


def flags_right(case: Case) -> bool:
    """Compare what is recorded, frozen and detached with what the paths of the definition say."""
    return all(
        flags == meant_flags(name, order)
        for _, function, order, _ in orders_of(document_of(case), "fewest")
        for name, flags in find_flags(function).items()
    )


def needs_deferrals(case: int) -> bool:
    """Undo every deferral."""
    ground = Ground(plan=lambda seed, order: plan_of(document_of(seed), order))
    return not undo_deferrals([case], ground=ground).needless


def rejects_mistakes(case: Case) -> bool:
    """Look whether a mistake is told by its code."""
    if isinstance(case, int):
        document, mistake = random_rejected(Random(case), base_spec)
    else:
        kept = kept_of(case)
        document, mistake = kept["document"], kept["mistake"]
    return mistake.partition(" ")[0] in codes(document)


def accepts_right(case: Case) -> bool:
    """Look whether exactly those specs are rejected in which something would need two versions at once."""
    document = document_of(case)
    spec = load(json.dumps(document) + "\n")
    return is_clocked(spec) or codes(document) == ({"E-TWO-VERSIONS"} if needs_two_versions(spec) else set())


def finds_order(case: Case) -> bool:
    """Look whether a spec is rejected exactly where no step of it can be put in order."""
    document = document_of(case)
    return codes(document) == ({"E-TWO-VERSIONS"} if find_circle(load(json.dumps(document) + "\n")) else set())


def has_functions(case: Case) -> bool:
    """Look whether every set of ops that fires together has a function, and every function such a set."""
    if isinstance(case, int):
        found = walk_clocks(case)
    else:
        kept = kept_of(case)
        found = walk_at(kept["document"], kept["epoch"], kept["epoch"])
    return found is None or not found.problem


def is_clocked(spec: GraphSpec) -> bool:
    """Return whether some op does not fire in every step, so that there is more than one order to look at."""
    return any(op.every is not None or op.start is not None or op.until is not None for op in spec.ops.values())


def needs_two_versions(spec: GraphSpec) -> bool:
    """Return whether the order of the definition is circular, even with all buffers cloned."""
    meaning = Meaning(spec, "train")
    before: dict[str, set[str]] = {}
    for first, second in Order(Versions(meaning, meaning.firing(find_live(meaning, set(meaning.present))))).hard:
        before.setdefault(second, set()).add(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return True
    return False


def tells_ties(case: Case) -> bool:
    """Look whether what models share is refused exactly where nothing says that they do."""
    document = document_of(case)
    return find_refusals(document) == (set(), {UNDECLARED} if find_shared(document) else set())


PROPERTIES: Mapping[str, Callable[..., bool]] = {
    "numbers": agrees,
    "numbers on TensorFlow": agrees_elsewhere,
    "order": keeps_order,
    "earliest": is_early,
    "deferred": defers_right,
    "fewest": defers_least,
    "retain": retains_right,
    "flags": flags_right,
    "necessity": needs_deferrals,
    "mistakes": rejects_mistakes,
    "versions": accepts_right,
    "orders": finds_order,
    "functions": has_functions,
    "ties": tells_ties,
    "outcomes": has_outcome,
}
TESTS: Mapping[str, str] = {
    "numbers": "test_agreement.test_random_specs_give_the_numbers_of_the_oracle",
    "numbers on TensorFlow": "test_agreement.test_random_specs_give_the_numbers_of_the_oracle",
    "order": "test_order.test_every_sequence_keeps_the_order_of_the_definition",
    "earliest": "test_order.test_no_write_stands_later_than_its_last_predecessor_requires",
    "deferred": "test_order.test_deferred_is_what_must_wait_for_something_behind_its_own_gradient",
    "fewest": "test_order.test_fewest_is_the_least_of_all_orders_of_up_to_five_updates",
    "retain": "test_retain.test_a_gradient_keeps_its_graph_iff_a_later_one_shares_its_path",
    "flags": "test_mutants.test_graphs_are_recorded_frozen_and_cut_as_the_definition_says",
    "necessity": "test_necessity.test_every_deferral_is_needed",
    "mistakes": "test_rejections.test_a_mistake_in_a_random_spec_is_told_by_its_code_alone",
    "versions": "test_mutants.test_exactly_those_specs_are_rejected_that_need_two_versions_at_once",
    "orders": "test_mutants.test_a_spec_is_rejected_exactly_where_the_oracle_finds_no_order",
    "functions": "test_firing_sets.test_so_it_is_for_clocks_of_every_kind",
    "ties": "test_ties.test_random_specs_are_refused_exactly_where_what_they_share_is_not_declared",
    "outcomes": "test_mutants.test_what_is_worked_out_by_hand_comes_of_small_specs",
}
"""The test that asks for each property of many specs."""
