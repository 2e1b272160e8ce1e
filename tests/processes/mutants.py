"""Compilers that place communication wrongly, and support code that communicates wrongly: with what notices each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from compiler.batch.expansion import Expansion
from compiler.ir.instructions import Accumulate, CheckFinite, Evaluate, Gradient, Instruction, Transform
from compiler.passes.messages import Window
from compiler.types.calls import Placement
from runtime.codegen.support_code import Support
from tests.processes.cases import ADDED_UP, BUCKETS, COMPRESSED, REPLICATED, SHARDED, Run
from tests.properties.mutant import Mutant
from tests.properties.mutations import Change, change, change_options, give


@dataclass(frozen=True, slots=True, kw_only=True)
class Misplaced(Mutant):
    """A mutant that processes train with."""

    run: Run = REPLICATED


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


def leave_value(original: Combine, expansion: Expansion, node: Any, local: str, source: str) -> None:
    """Take what this replica has of a number for what all have."""
    if isinstance(node, Evaluate) and node.function.name == "all_sum":
        expansion._add(replace(node, family="call", function=replace(node.function, name="stop")), source)
    else:
        original(expansion, node, local, source)


def leave_count(original: Combine, expansion: Expansion, node: Any, local: str, source: str) -> None:
    """Take the count of this replica for that of all."""
    if source.endswith(".count"):
        leave_value(original, expansion, node, local, source)
    else:
        original(expansion, node, local, source)


def find_all_late(expansion: Expansion, returned: object) -> Iterator[str]:
    """Yield every gradient set that goes into a window, whatever else uses it."""
    kept = {node.gradients for node in expansion.nodes.values() if isinstance(node, Accumulate)}
    for node in expansion.nodes.values():
        if isinstance(node, Gradient) and node.output is not None and node.output in kept:
            yield node.output


def place_ratio(found: Placement, *_: object) -> Placement:
    """Take a quotient of what replicas have for a mean over their rows."""
    return Placement.PARTIAL_MEAN if found is Placement.RATIO else found


def forget_own(original: Callable[..., str]) -> Callable[..., str]:
    """Weigh the loss of a process by its share of all rows."""
    return lambda expansion, value, micro_batch, **_: original(expansion, value, micro_batch)


def check_alone(original: Callable[..., Iterator[Instruction]]) -> Callable[..., Iterator[Instruction]]:
    """Take the verdict over shards of this process for that of all."""
    return lambda sharding, node: iter((node,)) if isinstance(node, CheckFinite) else original(sharding, node)


def edit(old: str, new: str) -> Change:
    """Return support code in which some text is another, for the modules of the mutant alone."""

    def load(original: Callable[[Support, str], object]) -> Callable[[Support, str], object]:
        def load_edited(support: Support, library: str) -> object:
            definitions = tuple(
                replace(each, source=each.source.replace(old, new)) if old in each.source else each
                for each in support.definitions
            )
            assert definitions != support.definitions, old
            return original(replace(support, definitions=definitions), f"{library}, {old} -> {new}")

        return load_edited

    return load


NUMBERS, VERIFIER, MESSAGES, BYTES, ERROR = "numbers", "verifier", "messages", "bytes", "error"
SUPPORT = "runtime.engine.load:_load_support"
_BF16, _THRESHOLD, _POWERSGD = COMPRESSED[1], COMPRESSED[2], COMPRESSED[4]
MUTANTS = (
    Misplaced(
        name="gradients-of-one",
        says="Gradients are not added up.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(leave_own),
        killer=NUMBERS,
        case="strangers",
    ),
    Misplaced(
        name="added-up-twice",
        says="Gradients are added up twice.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(combine_twice),
        killer=NUMBERS,
        case="strangers",
    ),
    Misplaced(
        name="verdict-of-one",
        says="A verdict is that of each process.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(keep_verdict),
        killer=NUMBERS,
        case="dropped",
    ),
    Misplaced(
        name="mean-for-sum",
        says="A loss that is a sum counts by the share of rows.",
        place="batch.expansion:Expansion._share",
        change=share_sums,
        killer=NUMBERS,
        case="everything",
    ),
    Misplaced(
        name="equal-shares",
        says="A loss that is a mean is added up without its share.",
        place="batch.expansion:Expansion._weigh",
        change=lambda original: lambda expansion, operand, value, micro_batch, **options: operand,
        killer=NUMBERS,
        case="twice",
    ),
    Misplaced(
        name="before-the-window",
        says="Gradients are added up in every step of a window.",
        place="batch.expansion:Expansion._find_late",
        change=give(()),
        killer=MESSAGES,
        case="accumulated",
    ),
    Misplaced(
        name="one-message",
        says="What is waited for leaves with what comes later.",
        place="passes.messages:_bundle",
        change=bundle_all,
        killer=VERIFIER,
        case="dcgan",
    ),
    Misplaced(
        name="numbers-of-one",
        says="A loss that is returned is that of each process.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(leave_value),
        killer=NUMBERS,
        case="everything",
    ),
    Misplaced(
        name="window-of-a-shared-set",
        says="A set that goes into a window is added up after it, although an update uses it before.",
        place="batch.expansion:Expansion._find_late",
        change=lambda original: find_all_late,
        killer=NUMBERS,
        case="window of a shared set",
    ),
    Misplaced(
        name="mean-of-quotients",
        says="A quotient of sums over all rows is the mean of the quotients.",
        place="batch.placement:PlacementAnalysis.of",
        change=change(place_ratio),
        killer=NUMBERS,
        case="counted",
    ),
    Misplaced(
        name="counts-of-one",
        says="A loss with a count of its own is divided by that of each process.",
        place="batch.expansion:Expansion._combine",
        change=change_combination(leave_count),
        killer=NUMBERS,
        case="counted",
    ),
    Misplaced(
        name="draws-of-the-first",
        says="Every process takes the first rows of a draw for the whole batch.",
        place=SUPPORT,
        change=edit("sum(sizes[: self.rank])", "0"),
        killer=NUMBERS,
        case="penalty",
    ),
    Misplaced(
        name="ranks-reversed",
        says="Rows are gathered from the last process to the first.",
        place=SUPPORT,
        change=edit("torch.cat(kept)", "torch.cat(kept[::-1])"),
        killer=NUMBERS,
        case="everything",
    ),
    Misplaced(
        name="own-buffers",
        says="Running statistics are never shared.",
        place="runtime.codegen.lower:_share_buffers",
        change=give(()),
        killer=NUMBERS,
        case="rank0",
    ),
    Misplaced(
        name="sum-of-buffers",
        says="Running statistics are added up.",
        place=SUPPORT,
        change=edit("bucket.div_(self.count)", "bucket"),
        killer=NUMBERS,
        case="mean",
    ),
    Misplaced(
        name="gradient-of-own-statistics",
        says="BatchNorm agrees about statistics, and each process takes its own gradient.",
        place=SUPPORT,
        change=edit("Summed.apply(gradients[0].contiguous())", "gradients[0]"),
        killer=NUMBERS,
        case="synced",
    ),
    Misplaced(
        name="variance-of-one",
        says="BatchNorm agrees about the mean, and not about the variance.",
        place=SUPPORT,
        change=edit("Summed.apply(apart.square().sum(axes)) / count", "apart.square().mean(axes)"),
        killer=NUMBERS,
        case="synced",
    ),
    Misplaced(
        name="share-of-a-gradient",
        says="Rows that are gathered get the gradient of a share of the loss.",
        place=SUPPORT,
        change=edit("own / replicas.share(own)", "own"),
        killer=NUMBERS,
        case="contrastive",
    ),
    Misplaced(
        name="counted-by-each",
        says="A loss of gathered rows counts on every process in whole.",
        place="batch.expansion:Expansion._weigh",
        change=lambda original: (
            lambda expansion, operand, value, micro_batch, **options: (
                operand
                if expansion.analysis.of(value) is Placement.REPLICATED
                else original(expansion, operand, value, micro_batch, **options)
            )
        ),
        killer=NUMBERS,
        case="temperature",
    ),
    Misplaced(
        name="one-by-one",
        says="Nothing leaves with anything else.",
        place="passes.messages:_bundle",
        change=lambda original: lambda windows, works: [[each] for each in windows],
        killer=MESSAGES,
        case="strangers",
    ),
    Misplaced(
        name="held-back",
        says="Gradient sets wait for each other, whatever runs between them.",
        place="passes.messages:_bundle",
        change=lambda original: lambda windows, works: original(windows, ()),
        killer=MESSAGES,
        case="strangers",
    ),
    Misplaced(
        name="mean-in-place-of-a-sum",
        says="With `reduce: sum`, the loss of a process counts by its share of all rows.",
        place="batch.expansion:Expansion._share",
        change=forget_own,
        killer=NUMBERS,
        case="added",
        run=ADDED_UP,
    ),
    Misplaced(
        name="reduce-of-all",
        says="What an update says of its own gradient is not read: `parallel` says it for all.",
        place="batch.expansion:find_added",
        change=lambda original: lambda spec: frozenset(spec.ops if spec.parallel.reduce == "sum" else ()),
        killer=NUMBERS,
        case="added by updates",
    ),
    Misplaced(
        name="shares-of-all-rows",
        says="With `reduce: sum`, micro-batches have shares of all rows, and not of those of their process.",
        place="batch.expansion:Expansion._add_shares",
        change=lambda original: lambda expansion, part, *, is_own: original(expansion, part, is_own=False),
        killer=NUMBERS,
        case="added in parts",
        run=ADDED_UP,
    ),
    Misplaced(
        name="not-compressed",
        says="Gradients are sent in whole.",
        place="batch.expansion:wait",
        change=change_options(compresses=False),
        killer=NUMBERS,
        case="sent",
        run=_THRESHOLD,
    ),
    Misplaced(
        name="forgotten",
        says="What is left out of a gradient is not sent later.",
        place=SUPPORT,
        change=edit("self.rests[place] + each", "each.clone()"),
        killer=NUMBERS,
        case="sent",
        run=_THRESHOLD,
    ),
    Misplaced(
        name="rest-of-all",
        says="What a process leaves out is measured by what all have sent.",
        place=SUPPORT,
        change=edit("(left[place] @ own[place].T)", "(left[place] @ self.factors[place].T)"),
        killer=NUMBERS,
        case="sent",
        run=_POWERSGD,
    ),
    Misplaced(
        name="losses-shortened",
        says="Losses are rounded as gradients are.",
        place=SUPPORT,
        change=edit("in places.items() if in_sets[place]}", "in places.items()}"),
        killer=NUMBERS,
        case="sent",
        run=_BF16,
    ),
    Misplaced(
        name="sent-again",
        says="The message for what is left of a set sends all of it.",
        place=SUPPORT,
        change=edit("return bool(self.sent) and all(", "return False and all("),
        killer=BYTES,
        case="strangers",
        run=BUCKETS,
    ),
    Misplaced(
        name="memory-in-use",
        says="A message is written over one that still has its sums.",
        place=SUPPORT,
        change=edit("user() is None", "True"),
        killer=NUMBERS,
        case="strangers",
        run=BUCKETS,
    ),
    Misplaced(
        name="no-buckets",
        says="No gradient leaves while others are taken.",
        place="runtime.backends.torch.codegen.gradient:sending",
        change=lambda original: lambda instruction, code, parallel, scope: code,
        killer=BYTES,
        case="strangers",
        run=BUCKETS,
    ),
    Misplaced(
        name="shards-of-one",
        says="Each process takes its own gradients for its rows of the parameters.",
        place=SUPPORT,
        change=edit("dist.reduce_scatter(reduced, list(bucket.unbind()))", "reduced.copy_(bucket[self.replicas.rank])"),
        killer=NUMBERS,
        case="dcgan",
        run=SHARDED,
    ),
    Misplaced(
        name="first-shards",
        says="Of a set that all have, every process takes the first rows.",
        place=SUPPORT,
        change=edit("whole.narrow(0, begin, len(parameter))", "whole.narrow(0, 0, len(parameter))"),
        killer=NUMBERS,
        case="surgery",
        run=SHARDED,
    ),
    Misplaced(
        name="mixed-in-shards",
        says="A transform that mixes a set takes the shards of each process.",
        place="batch.shards:_is_by_element",
        change=give(True),
        killer=NUMBERS,
        case="surgery",
        run=SHARDED,
    ),
    Misplaced(
        name="length-of-one",
        says="A clip takes the length of the shards of each process.",
        place=SUPPORT,
        change=edit("torch.linalg.vector_norm(torch.stack(found), dim=0)", "own"),
        killer=NUMBERS,
        case="everything",
        run=SHARDED,
    ),
    Misplaced(
        name="counted-on-each",
        says="A length has a parameter without rows as often as there are processes.",
        place=SUPPORT,
        change=edit("if self.replicas.rank:  # what", "if False:  # what"),
        killer=NUMBERS,
        case="varied",
        run=SHARDED,
    ),
    Misplaced(
        name="verdict-of-shards",
        says="The verdict over shards is that of each process.",
        place="batch.shards:_Sharding._place",
        change=check_alone,
        killer=NUMBERS,
        case="corner",
        run=SHARDED,
    ),
    Misplaced(
        name="freed-too-early",
        says="Weights are freed before a gradient of a gradient reads them.",
        place="passes.flags:find_gathered",
        change=give(frozenset()),
        killer=ERROR,
        case="penalty alone",
        run=SHARDED,
    ),
    Misplaced(
        name="never-released",
        says="What was gathered for such a gradient is read again after the weights were written.",
        place=SUPPORT,
        change=edit("for each in self.models[id(model)][0]:", "for each in ():"),
        killer=NUMBERS,
        case="penalty alone",
        run=SHARDED,
    ),
)
