"""Compilers that place communication wrongly, each with the case and the check that notice it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from compiler.batch.expansion import Expansion
from compiler.ir.instructions import CheckFinite, Transform
from compiler.passes.messages import Window
from compiler.types.calls import Placement
from tests.properties.mutant import Mutant
from tests.properties.mutations import Change, give

Combine = Callable[[Expansion, Any, str, str], None]


def change_combination(change: Callable[[Combine, Expansion, Any, str, str], None]) -> Change:
    """Return a wrong way to add the node that gives what all replicas have."""
    return lambda original: lambda *given: change(original, *given)


def leave_own(original: Combine, expansion: Expansion, node: Any, local: str, source: str) -> None:
    """Take the gradients of this replica for those of all."""
    if isinstance(node, Transform):
        expansion._add(replace(node, function=replace(node.function, name="join")), source)
    else:
        original(expansion, node, local, source)


def combine_twice(original: Combine, expansion: Expansion, node: Any, local: str, source: str) -> None:
    """Add up gradients that are added up already."""
    if isinstance(node, Transform):
        once = replace(node, id=f"{node.id}.once", output=f"{node.output}#once")
        original(expansion, once, local, source)
        uses = tuple(replace(use, value=once.output) for use in node.uses)
        original(expansion, replace(node, uses=uses, inputs=(once.output,)), once.output, source)
    else:
        original(expansion, node, local, source)


def keep_verdict(original: Combine, expansion: Expansion, node: Any, local: str, source: str) -> None:
    """Take the verdict of this replica for that of all."""
    if isinstance(node, CheckFinite):
        expansion._add(replace(node, scope=""), source)
    else:
        original(expansion, node, local, source)


def share_sums(original: Callable[..., str]) -> Callable[..., str]:
    """Take the mean of sums over the replicas for their sum."""

    def share(expansion: Expansion, value: str, micro_batch: int, **options: bool) -> str:
        is_sum = expansion.analysis.of(value) is Placement.PARTIAL_SUM
        name = expansion._name(value, micro_batch)
        if is_sum:
            return expansion._weigh(name, value, micro_batch, **options)
        return original(expansion, value, micro_batch, **options)

    return share


def bundle_all(original: object) -> Callable[[Sequence[Window], Sequence[int]], list[Sequence[Window]]]:
    """Let everything leave in one message, even what is waited for before."""
    return lambda windows, works: [windows]


NUMBERS, VERIFIER, MESSAGES = "numbers", "verifier", "messages"
MUTANTS = (
    Mutant(
        name="gradients-of-one",
        says="Gradients are not added up.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(leave_own),
        killer=NUMBERS,
        case="strangers",
    ),
    Mutant(
        name="added-up-twice",
        says="Gradients are added up twice.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(combine_twice),
        killer=NUMBERS,
        case="strangers",
    ),
    Mutant(
        name="verdict-of-one",
        says="A verdict is that of each process.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(keep_verdict),
        killer=NUMBERS,
        case="dropped",
    ),
    Mutant(
        name="mean-for-sum",
        says="A loss that is a sum counts by the share of rows.",
        place="batch.expansion:Expansion._share",
        change=share_sums,
        killer=NUMBERS,
        case="everything",
    ),
    Mutant(
        name="equal-shares",
        says="A loss that is a mean is added up without its share.",
        place="batch.expansion:Expansion._weigh",
        change=lambda original: lambda expansion, operand, value, micro_batch, **options: operand,
        killer=NUMBERS,
        case="twice",
    ),
    Mutant(
        name="before-the-window",
        says="Gradients are added up in every step of a window.",
        place="batch.expansion:Expansion._find_late",
        change=give(()),
        killer=MESSAGES,
        case="accumulated",
    ),
    Mutant(
        name="one-message",
        says="What is waited for leaves with what comes later.",
        place="passes.messages:_bundle",
        change=bundle_all,
        killer=VERIFIER,
        case="dcgan",
    ),
)
