"""Expansion: every batched node once for each micro-batch, and what splits and joins values around them.

Passes then treat a micro-batched step as any other: nodes, values, cells and edges are what they are without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from compiler.batch.making import add_sets, evaluate, rename
from compiler.batch.placement import PlacementAnalysis
from compiler.batch.roles import Roles
from compiler.ir.instructions import Evaluate, Gradient, Instruction, Random
from compiler.ir.value import Ref, Use
from compiler.types.calls import Placement

SHARE = "batch#share"
"""The value that says which part of the rows a micro-batch has, by its number."""


def name_in(name: str, micro_batch: int) -> str:
    """Return the name of a value or node in a micro-batch: ``fake#2``."""
    return f"{name}#{micro_batch}"


@dataclass(kw_only=True)
class Expansion:
    """The nodes of a mode under micro-batches, while they are made."""

    count: int
    nodes: Mapping[str, Instruction]
    analysis: PlacementAnalysis
    roles: Roles
    recorded: Collection[str]
    made: dict[str, Instruction] = field(default_factory=dict[str, Instruction])
    copies: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Instruction -> its copies, in order; one that runs once is its own."""
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """Value -> the node that defines it."""
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """Node -> the node of the unsplit step next to which it is listed, or a value of its name."""
    shared: set[str] = field(default_factory=set[str])
    """Shares that gradients differentiate."""

    def expand(self, returned: Iterable[str]) -> Mapping[str, Instruction]:
        """Return the nodes, what runs once first, then micro-batch by micro-batch; ``returned`` values are joined."""
        self.owners = {value: name for name, node in self.nodes.items() for value in node.provides}
        split = [node for name, node in self.nodes.items() if name in self.roles.split]
        for node in split:
            self.copies[node.id] = tuple(self._copy(node, micro_batch) for micro_batch in self._micro_batches())
            if isinstance(node, Gradient) and node.output is not None:
                # each sum right after its micro-batch, so that only two sets are alive
                total = name_in(node.output, 1)
                for micro_batch in self._micro_batches()[1:]:
                    name = node.output if micro_batch == self.count else f"{node.output}#to{micro_batch}"
                    self._add(
                        add_sets(name, (total, name_in(node.output, micro_batch)), node, micro_batch), node.output
                    )
                    total = name
        self.shared = {node.derivative.loss for node in self.made.values() if node.derivative is not None}
        for name, node in self.nodes.items():
            if name not in self.roles.split:
                self.copies[name] = (name,)
                if isinstance(node, Random) and node.like is not None and self._is_split(node.like):
                    first, whole = name_in(node.like, 1), self.analysis.of(node.like) is Placement.SHARDED
                    uses = (Use(value=first, differentiable=False),)
                    self._add(replace(node, like=first, gathered=whole, uses=uses))
                else:
                    for use in node.uses:
                        self._whole(use.value)
                    self._add(node)
        for value in returned:
            self._whole(value)
        order = {name: index for index, name in enumerate(self.nodes)}
        ranked = sorted(self.made.values(), key=lambda node: (node.micro_batch, order.get(self.sources[node.id], -1)))
        return {node.id: node for node in ranked}

    def _micro_batches(self) -> range:
        """Return the numbers of the micro-batches."""
        return range(1, self.count + 1)

    def _add(self, node: Instruction, source: str = "") -> None:
        """Add a node, once; ``source``: the node or value next to which it is listed, if not itself."""
        self.made.setdefault(node.id, node)
        self.sources.setdefault(node.id, source or node.id)

    # ------------------------------------------------------------ nodes that run once

    def _is_split(self, value: str) -> bool:
        """Return whether only the parts of a value exist."""
        return self.owners.get(value) in self.roles.split

    def _whole(self, value: str) -> None:
        """Join the parts of a value under its own name; a value that was never split stays unchanged.

        So does a gradient set, which is summed as its parts are computed. A ratio is computed again, from operands of
        the whole batch.
        """
        if not self._is_split(value):
            return
        node = self.nodes[self.owners[value]]
        if isinstance(node, Gradient) and node.output == value:
            return
        if self.analysis.of(value) is Placement.RATIO:
            for use in node.uses:
                self._whole(use.value)
            uses = tuple(replace(use, differentiable=False) for use in node.uses)
            self._add(replace(node, id=f"{node.id}#all", uses=uses, differentiable=False), node.id)
            return
        kept: list[str] = []
        for micro_batch in self._micro_batches():
            share, name = self._share(value, micro_batch), name_in(value, micro_batch)
            is_apart = share != name and share not in self.shared
            if node.id in self.recorded and not is_apart:  # detached, so that the graph of the part can be freed
                detached = f"{name}.kept"
                made = evaluate(
                    detached,
                    "stop",
                    (share,),
                    (detached,),
                    like=node,
                    micro_batch=micro_batch,
                    constant=True,
                    free_early=True,
                )
                self._add(made, value)
                share = detached
            kept.append(share)
        is_rows = self.analysis.of(value) is Placement.SHARDED
        function, options = ("concat", {"axis": self.analysis.axis(value)}) if is_rows else ("add", {})
        self._add(evaluate(f"{value}#all", function, kept, (value,), like=node, options=options, constant=True), value)

    # ------------------------------------------------------------ nodes that run for every micro-batch

    def _copy(self, node: Instruction, micro_batch: int) -> str:
        """Add the copy of a node for a micro-batch, and return its id."""
        copied = replace(
            rename(node, lambda value: self._use(value, micro_batch), lambda value: name_in(value, micro_batch)),
            id=name_in(node.id, micro_batch),
            label=name_in(node.label, micro_batch),
            uses=tuple(replace(use, value=self._use(use.value, micro_batch)) for use in node.uses),
            inner=tuple(name_in(value, micro_batch) for value in node.inner),
            micro_batch=micro_batch,
        )
        if isinstance(node, Gradient) and isinstance(copied, Gradient):
            loss = self._share(node.loss, micro_batch)
            copied = replace(copied, loss=loss, uses=(Use(value=loss), *copied.uses[1:]))
        if isinstance(copied, Evaluate) and copied.family == "loss":
            copied = replace(copied, gathered=not copied.counted)
        self._add(copied, node.id)
        return copied.id

    def _use(self, value: str, micro_batch: int) -> str:
        """Return what a micro-batch uses of a value: its own part, or all of a whole value.

        A value that is computed for the whole batch is split.
        """
        if self.analysis.of(value) is Placement.REPLICATED:
            return value
        if self._is_split(value):
            return name_in(value, micro_batch)
        node = self.nodes[self.owners[value]] if value in self.owners else None
        outputs = tuple(name_in(value, micro_batch) for micro_batch in self._micro_batches())
        options = {"count": self.count, "axis": self.analysis.axis(value)}
        place = "" if node is not None else self.analysis.place(value)
        made = evaluate(
            f"{value}#parts",
            "micro_batches",
            (value,),
            outputs,
            like=node,
            op=value,
            place=place,
            options=options,
            constant=True,
        )
        self._add(made, value)
        return name_in(value, micro_batch)

    # ------------------------------------------------------------ shares

    def _share(self, value: str, micro_batch: int) -> str:
        """Return a micro-batch's share of a value of the whole batch: shares sum to it; of rows they are parts."""
        match self.analysis.of(value):
            case Placement.SHARDED | Placement.PARTIAL_SUM:
                return name_in(value, micro_batch)
            case Placement.PARTIAL_MEAN | Placement.RATIO:
                return self._weigh(name_in(value, micro_batch), value, micro_batch)
            case Placement.REPLICATED:
                return self._weigh(value, value, micro_batch)
            case Placement.MIXED:
                return self._share_terms(value, micro_batch)

    def _weigh(self, operand: str, value: str, micro_batch: int) -> str:
        """Return a value times a micro-batch's fraction of the rows."""
        self._add_shares()
        share = f"{name_in(value, micro_batch)}.share"
        like = self.nodes.get(self.owners.get(value, ""))
        operands = (operand, name_in(SHARE, micro_batch))
        self._add(
            evaluate(share, "weigh", operands, (share,), like=like, op=value, micro_batch=micro_batch, free_early=True),
            value,
        )
        return share

    def _share_terms(self, value: str, micro_batch: int) -> str:
        """Return the share of a sum of means and sums: the same call on the shares of its terms."""
        call = self.nodes[self.owners[value]]
        assert isinstance(call, Evaluate)
        share = f"{name_in(value, micro_batch)}.share"
        is_sum = call.function.name in ("add", "sub")
        named: dict[str, str] = {}
        arguments = list(call.arguments)
        for index, argument in enumerate(arguments):
            operand = argument.operand
            if isinstance(operand, Ref):
                is_term = is_sum or self.analysis.of(operand.name) is not Placement.REPLICATED
                named[operand.name] = self._share(operand.name, micro_batch) if is_term else operand.name
                arguments[index] = replace(argument, operand=Ref(name=named[operand.name]))
            elif is_sum:
                # a number that is added is multiplied with the micro-batch's fraction of the rows
                self._add_shares()
                weighed = f"{name_in(value, micro_batch)}.number{index}"
                fraction = (name_in(SHARE, micro_batch),)
                made = evaluate(
                    weighed, "weigh", fraction, (weighed,), like=call, micro_batch=micro_batch, free_early=True
                )
                number = replace(made.arguments[0], operand=operand)
                self._add(replace(made, arguments=(*made.arguments, number)), value)
                arguments[index] = replace(argument, operand=Ref(name=weighed))
                named[weighed] = weighed
        old = {use.value: use for use in call.uses}
        made = replace(
            call,
            id=share,
            label=f"{call.label}#{micro_batch} as a share",
            micro_batch=micro_batch,
            uses=tuple(replace(old.get(name, Use(value=name)), value=new) for name, new in named.items()),
            free_early=True,
            arguments=tuple(arguments),
            outputs=(share,),
        )
        self._add(made, value)
        return share

    def _add_shares(self) -> None:
        """Add the node that computes the share of the rows in every micro-batch."""
        entry = self.analysis.sized_input
        outputs = tuple(name_in(SHARE, micro_batch) for micro_batch in self._micro_batches())
        options = {"count": self.count, "axis": self.analysis.axis(entry)}
        place = self.analysis.place(entry)
        self._add(
            evaluate(
                "batch#shares", "row_shares", (entry,), outputs, op=entry, place=place, options=options, constant=True
            )
        )
