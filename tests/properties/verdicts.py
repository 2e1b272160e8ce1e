"""What comes of one random spec: agreement with the oracle, a rejection, nothing that can be judged, or a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from compiler import Plan
from graphspec.analysis.datasets import find_datasets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import GradientOp, UpdateOp
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.oracle.counts import find_ways
from tests.oracle.legality import find_circle
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import POLICIES, Tally, codes_of, compare
from tests.properties.plans import plan_of
from tests.properties.written import write_shorter

Document = Mapping[str, object]
Kind = Literal["agreed", "rejected", "degenerate", "mismatch", "refused", "error"]
FAILURES = ("mismatch", "refused", "error")
EXPECTED = "E-TWO-VERSIONS"
"""What may be wrong with a random spec, where the oracle finds no order: all else is valid."""
MANY = ("GS061", "E-CLOCKS")
"""Or it needs too many functions, or too long to repeat, where so many sets of ops can fire together."""
MOST = 256
EPOCHS = (2, 3, 5)
"""Steps of an epoch: of a window whose steps may be held, the compiler does not know with which epochs it ends."""
SEEDS = 64
"""Other seeds with which the oracle looks at first steps: what ends early may never meet some alternative with one."""
RARE = 480
"""Steps in which the oracle looks for a circle that the compiler found: alternatives inside others seldom meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a spec under all policies.

    ``what`` is the code of a rejection, why it is degenerate, what differed, or the error that was raised.
    """

    kind: Kind
    what: str = ""
    executed: int = 0
    """Programs that ran."""
    same: int = 0
    """Plans of another policy whose program is one that ran."""

    @property
    def is_failure(self) -> bool:
        """Whether the compiler or the oracle is wrong."""
        return self.kind in FAILURES

    def is_like(self, other: Verdict) -> bool:
        """Return whether two failures are of one sort: numbers differ, the same codes, the same type of error."""
        if self.kind != other.kind or self.kind == "mismatch":
            return self.kind == other.kind
        return self.what.partition(":")[0] == other.what.partition(":")[0]


def judge(document: Document, policies: Sequence[str] = POLICIES) -> Verdict:
    """Compile a document under every policy, run what came of it, and compare it with the oracle.

    What is compiled is written shorter, with expressions and blocks; the oracle is given what these mean.
    """
    tally = Tally()
    try:
        return _judge(document, policies, tally)
    except DegenerateError as error:
        return Verdict(kind="degenerate", what=str(error), executed=tally.executed, same=tally.same)
    except Exception as error:
        return Verdict(kind="error", what=f"{type(error).__name__}: {error}", executed=tally.executed)


def _judge(document: Document, policies: Sequence[str], tally: Tally) -> Verdict:
    spec, shorter = load(json.dumps(document) + "\n"), write_shorter(document)
    plans = [_plan(shorter, policy) for policy in policies]
    made = [plan for plan in plans if isinstance(plan, Plan)]
    if len(made) < len(plans):
        codes = sorted({plan for plan in plans if isinstance(plan, str)})
        is_expected = not made and (
            (codes == [EXPECTED] and _has_circle(document, spec)) or ({*codes} <= {*MANY} and may_need_many(spec))
        )
        return Verdict(kind="rejected" if is_expected else "refused", what=", ".join(codes))
    circle = find_circle(spec)
    if circle and not is_taken_apart(spec):
        return Verdict(kind="mismatch", what=f"compiled, though there is no order: {' -> '.join(circle)}")
    mismatch = compare(spec, made, tally)
    return Verdict(kind="mismatch" if mismatch else "agreed", what=mismatch, executed=tally.executed, same=tally.same)


def may_need_many(spec: GraphSpec) -> bool:
    """Return whether clocks, windows, draws and data sets have more combinations than a mode has functions."""
    factors = [1]
    alternatives: dict[str, int] = {}
    for op in spec.ops.values():
        factors.append(2 if op.every is not None or op.opens is not None or op.until is not None else 1)
        factors.append(3 if getattr(op, "accumulate", 1) != 1 else 1)  # the first of a window, its last, between
        for part in op.within:
            if part.choose is not None:
                alternatives[part.choose] = part.count + 1  # or none of them
    return prod(factors) * prod(alternatives.values()) * 2 ** len(find_datasets(spec)) > MOST


def _has_circle(document: Document, spec: GraphSpec) -> bool:
    """Return whether some step is in no order, with other draws than those of its seed where it chooses by chance."""
    if any(find_circle(spec, RARE, epoch) for epoch in EPOCHS):
        return True
    chooses = any(part.choose is not None for op in spec.ops.values() for part in op.within)
    seeds = (load(json.dumps({**document, "seed": seed}) + "\n") for seed in range(SEEDS if chooses else 0))
    return any(find_circle(one, epoch=epoch) for one in seeds for epoch in EPOCHS)


def is_taken_apart(spec: GraphSpec) -> bool:
    """Return whether a loss has terms that micro-batches or windows count in several ways: their sum is not waited for.

    The oracle orders them as one, so that it may find no order where there is one; the numbers decide.
    """
    updates = [op for op in spec.ops.values() if isinstance(op, UpdateOp)]
    losses = [op.loss for op in updates if op.loss is not None]
    losses += [op.gradient for op in spec.ops.values() if isinstance(op, GradientOp)]
    is_split = spec.micro_batches > 1 or any(op.window > 1 for op in updates)
    return is_split and any(len(find_ways(spec, loss)) > 1 for loss in losses)


def _plan(document: Document, policy: str) -> Plan | str:
    """Return a plan, or the codes of the errors."""
    try:
        return plan_of(document, policy)
    except SpecError as error:
        return codes_of(error)
