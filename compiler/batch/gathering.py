"""Calls that read the rows of all processes: what is made of them is the same on each, and so is its gradient.

A process takes the gradient of its share of a loss: the loss times its fraction of the rows, where all have the same
one. What arrives at gathered rows is then that fraction of their gradient, on every process, so that each finds that of
its own rows without a message. This holds as long as nothing on the way differs between processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from compiler.batch.placement import PlacementAnalysis, is_gathering
from compiler.facts.models import ModelFacts
from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction
from compiler.ir.step_graph import GradientPath
from compiler.ir.value import Ref
from compiler.passes.order import sort_by_data
from compiler.types.calls import ADDITIVE, Placement, has_batch, is_linear_call
from compiler.types.dimension import UNKNOWN

BOTH = "gather what it is combined with as well, so that every process computes the same"


class Unshared(Struct, frozen=True, kw_only=True):
    """Why processes cannot share an op that reads gathered values, and what to do instead."""

    message: str
    label: str
    help: str


def find_crossing(nodes: Mapping[str, Instruction], paths: Mapping[str, GradientPath]) -> frozenset[str]:
    """Return the gradients that reach the rows of a process through those of all."""
    return frozenset(name for name, path in paths.items() if any(is_gathering(nodes[each]) for each in path.nodes))


class Gathering(Struct, frozen=True, kw_only=True):
    """The nodes of a mode of which some gather rows, and how each is placed between processes."""

    nodes: Mapping[str, Instruction]
    paths: Mapping[str, GradientPath]
    analysis: PlacementAnalysis
    split: Collection[str]
    """The nodes that run on the rows of a process."""
    models: Mapping[str, ModelFacts]

    def find_unshared(self) -> Mapping[str, Unshared]:
        """Return the nodes that mix gathered values with what differs between processes."""
        # Operands do not fit together where some have the rows of a process, and some those of all.
        found: dict[str, Unshared] = {}
        rows = set[str]()
        """Gathered values that have the rows of all."""
        for name in sort_by_data(self.nodes):
            node = self.nodes[name]
            if is_gathering(node) and (problem := self._check(node)) is not None:
                found[name] = problem
            used = [use.value for use in node.uses if use.value in self.analysis.gathered]
            mixed = [value for value in used if value in rows]
            if name not in self.split:
                is_of_rows = bool(mixed) or self.analysis.joins(node)
                rows.update(each for each in node.defines if is_of_rows and self._has_rows(each, node))
                if used and isinstance(node, Forward) and node.train and self.models[node.model].is_synced:
                    read = f"'{node.op}' reads the rows of all processes"
                    message = f"{read}, and '{node.model}' adds up what each has (`sync: true`)"
                    label = "counts every row once for each process"
                    help = "leave `sync` out: what is gathered is the whole batch"
                    found[name] = Unshared(message=message, label=label, help=help)
            elif mixed and not (isinstance(node, Gradient) and not node.grad_outputs):
                message = f"'{node.op}' mixes '{mixed[0]}', which has the rows of all processes, with the rows of one"
                found[name] = Unshared(message=message, label="reads rows that do not belong together", help=BOTH)
        return found or {name: why for gradient in self.paths for name, why in self._find_uneven(gradient)}

    def _check(self, node: Evaluate) -> Unshared | None:
        """Return why the rows of a value cannot be gathered."""
        (gathered,) = node.refs
        value, name = gathered.name, node.function.name
        placement = self.analysis.of(value)
        if placement not in (Placement.SHARDED, Placement.REPLICATED):
            return Unshared(
                message=f"'{node.op}' gathers '{value}', a number of the batch, which has no rows",
                label=f"`{name}` needs rows",
                help="gather the rows that it is made of",
            )
        if placement is Placement.SHARDED and name == "all_mean" and self.analysis.axis(value) != 0:
            return Unshared(
                message=f"'{node.op}' takes the mean over axis 0 of '{value}', whose rows lie along axis "
                f"{self.analysis.axis(value)}",
                label="is no mean over rows",
                help="`permute` the value first, or take `mean` of what `all_gather` gives",
            )
        return None

    def _has_rows(self, value: str, node: Instruction) -> bool:
        """Return whether a result of gathered rows has the rows of all, too; unless known, it may."""
        shape = self.analysis.types.get(value, UNKNOWN).shape
        if shape is not None:
            return has_batch(shape)
        is_number = isinstance(node, Evaluate) and node.family in ("loss", "metric") and node.reduction != "none"
        is_number |= is_gathering(node) and node.function.name == "all_mean"
        return not is_number and value not in self.analysis.scalars

    def _find_uneven(self, gradient: str) -> Iterator[tuple[str, Unshared]]:
        """Yield the nodes on the path of a gradient from which gathered rows get another one on every process."""
        path, reached = self.paths[gradient], set[str]()
        for name in (name for name in self.paths if name in path.nodes):
            if any(self.analysis.joins(self.nodes[each]) for each in self.paths[name].nodes):
                op = self.nodes[name].op
                message = f"the gradient '{op}' goes back through gathered rows, and is differentiated again"
                label = "its own gradient differs between processes"
                help = "take it of a loss on the rows of each process, or `stop` it"
                yield name, Unshared(message=message, label=label, help=help)
        for name in sort_by_data({each: self.nodes[each] for each in path.nodes}):
            node = self.nodes[name]
            if self.analysis.joins(node):
                reached.update(node.outputs)
                continue
            if isinstance(node, Gradient) and name in self.split:
                continue  # it differentiates nodes that are on the path themselves
            used = [use.value for use in node.uses if use.value in reached and (use.value, name) in path.uses]
            reached.update(node.defines if used else ())
            uneven = next((value for value in used if name in self.split and not self._is_even(node, value)), None)
            if uneven is not None:
                made = f"the gradient of '{node.op}' by '{uneven}', which is made of gathered rows,"
                label = "combines a gathered value with the rows of one process"
                help = f"{BOTH}, or `stop` '{uneven}'"
                yield name, Unshared(message=f"{made} differs between processes", label=label, help=help)

    def _is_even(self, node: Instruction, value: str) -> bool:
        """Return whether the gradient by a value is the same on all processes: of a term of a sum, or scaled alike."""
        if not isinstance(node, Evaluate) or node.family != "call" or not node.function.builtin:
            return False
        if any(self.analysis.of(each) is Placement.SHARDED for each in node.outputs):
            return False
        refs = [each.operand for each in node.arguments]
        placements = [self.analysis.of(each.name) if isinstance(each, Ref) else Placement.REPLICATED for each in refs]
        if node.function.name in ADDITIVE:
            return True
        is_scaled = self.analysis.of(value) is not Placement.REPLICATED
        return is_scaled and is_linear_call(node.function.name, placements)
