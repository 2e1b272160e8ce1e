"""Expansion: every batched node once for each micro-batch, and what splits and joins values around them.

Passes then treat a micro-batched step as any other: nodes, values, cells and edges are what they are without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from compiler.batch.calls import Kind
from compiler.batch.making import add_sets, evaluate, rename
from compiler.batch.reading import Reading
from compiler.batch.roles import Roles
from compiler.ir.instructions import Evaluate, Gradient, Instruction, Random
from compiler.ir.value import Operand, Ref, Use

SHARE = "batch#share"
"""The value that says which part of the rows a micro-batch has, by its number."""


def part_of(name: str, part: int) -> str:
    """Return the name of a value or node in a micro-batch: ``fake#2``."""
    return f"{name}#{part}"


@dataclass(kw_only=True)
class Expansion:
    """The nodes of a mode under micro-batches, while they are made."""

    count: int
    nodes: Mapping[str, Instruction]
    reading: Reading
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
        for name in (name for name in self.nodes if name in self.roles.split):
            self.copies[name] = tuple(self._copy(self.nodes[name], part) for part in self._parts())
            self._add_sets(self.nodes[name])
        self.shared = {node.derivative.loss for node in self.made.values() if node.derivative is not None}
        for name in (name for name in self.nodes if name not in self.roles.split):
            self.copies[name] = (name,)
            self._keep(self.nodes[name])
        for value in returned:
            self._whole(value)
        order = {name: index for index, name in enumerate(self.nodes)}
        ranked = sorted(self.made.values(), key=lambda node: (node.part, order.get(self.sources[node.id], -1)))
        return {node.id: node for node in ranked}

    def _parts(self) -> range:
        """Return the numbers of the micro-batches."""
        return range(1, self.count + 1)

    def _add(self, node: Instruction, source: str = "") -> None:
        """Add a node, once; ``source``: the node or value next to which it is listed, if not itself."""
        self.made.setdefault(node.id, node)
        self.sources.setdefault(node.id, source or node.id)

    # ------------------------------------------------------------ nodes that run once

    def _keep(self, node: Instruction) -> None:
        """Add a node that runs once; its operands are whole or get joined."""
        if isinstance(node, Random) and self._is_parted(node.like):
            first = part_of(str(node.like), 1)
            whole = self.reading.kind(str(node.like)) is Kind.ROWS
            self._add(replace(node, like=first, gathered=whole, uses=(Use(value=first, differentiable=False),)))
            return
        for use in node.uses:
            self._whole(use.value)
        self._add(node)

    def _is_parted(self, value: str | None) -> bool:
        """Return whether only the parts of a value exist."""
        return value is not None and self.owners.get(value) in self.roles.split

    def _whole(self, value: str) -> None:
        """Join the parts of a value under its own name; a value that was never split stays unchanged."""
        owner = self.owners.get(value)
        if owner not in self.roles.split or self._is_set(value):
            return
        node = self.nodes[owner]
        if self.reading.kind(value) is Kind.RATIO:
            self._repeat(node)
            return
        kept = [self._kept(value, part, node) for part in self._parts()]
        is_rows = self.reading.kind(value) is Kind.ROWS
        function, options = ("concat", {"axis": self.reading.axis(value)}) if is_rows else ("add", {})
        self._add(evaluate(f"{value}#all", function, kept, (value,), like=node, options=options, constant=True), value)

    def _repeat(self, node: Instruction) -> None:
        """Add a node once, with operands of the whole batch."""
        for use in node.uses:
            self._whole(use.value)
        uses = tuple(replace(use, differentiable=False) for use in node.uses)
        self._add(replace(node, id=f"{node.id}#all", uses=uses, differentiable=False), node.id)

    def _kept(self, value: str, part: int, node: Instruction) -> str:
        """Return a micro-batch's part of a joined value, detached, so that its graph can be freed."""
        share = self._share(value, part)
        is_apart = share != part_of(value, part) and share not in self.shared
        if is_apart or node.id not in self.recorded:
            return share
        kept = f"{part_of(value, part)}.kept"
        self._add(evaluate(kept, "stop", (share,), (kept,), like=node, part=part, constant=True, prompt=True), value)
        return kept

    def _is_set(self, value: str) -> bool:
        """Return whether a value is a gradient set, which is summed as its parts are computed."""
        owner = self.nodes[self.owners[value]]
        return isinstance(owner, Gradient) and owner.output == value

    # ------------------------------------------------------------ nodes that run for every micro-batch

    def _copy(self, node: Instruction, part: int) -> str:
        """Add the copy of a node for a micro-batch, and return its id."""
        copied = replace(
            rename(node, lambda value: self._use(value, part), lambda value: part_of(value, part)),
            id=part_of(node.id, part),
            label=part_of(node.label, part),
            uses=tuple(replace(use, value=self._use(use.value, part)) for use in node.uses),
            inner=tuple(part_of(value, part) for value in node.inner),
            part=part,
        )
        if isinstance(node, Gradient) and isinstance(copied, Gradient):
            loss = self._share(node.loss, part)
            copied = replace(copied, loss=loss, uses=(Use(value=loss), *copied.uses[1:]))
        if isinstance(copied, Evaluate) and copied.family == "loss":
            copied = replace(copied, gathered=not copied.counted)
        self._add(copied, node.id)
        return copied.id

    def _use(self, value: str, part: int) -> str:
        """Return what a micro-batch uses of a value: its own part, or all of a whole value."""
        if self.reading.kind(value) is Kind.WHOLE:
            return value
        if not self._is_parted(value):
            self._split(value)
        return part_of(value, part)

    def _split(self, value: str) -> None:
        """Add the split of a value of the whole batch."""
        node = self.nodes[self.owners[value]] if value in self.owners else None
        outputs = tuple(part_of(value, part) for part in self._parts())
        options = {"count": self.count, "axis": self.reading.axis(value)}
        place = "" if node is not None else self.reading.place(value)
        made = evaluate(
            f"{value}#parts",
            "parts",
            (value,),
            outputs,
            like=node,
            op=value,
            place=place,
            options=options,
            constant=True,
        )
        self._add(made, value)

    def _add_sets(self, node: Instruction) -> None:
        """Add the sums of a gradient's sets: each right after its micro-batch, so that only two sets are alive."""
        if not isinstance(node, Gradient) or node.output is None:
            return
        total = part_of(node.output, 1)
        for part in self._parts()[1:]:
            name = node.output if part == self.count else f"{node.output}#to{part}"
            self._add(add_sets(name, (total, part_of(node.output, part)), node, part), node.output)
            total = name

    # ------------------------------------------------------------ shares

    def _share(self, value: str, part: int) -> str:
        """Return a micro-batch's share of a value of the whole batch: shares sum to it; of rows they are parts."""
        match self.reading.kind(value):
            case Kind.ROWS | Kind.SUM:
                return part_of(value, part)
            case Kind.MEAN | Kind.RATIO:
                return self._weigh(part_of(value, part), value, part)
            case Kind.WHOLE:
                return self._weigh(value, value, part)
            case Kind.MIXED:
                return self._share_terms(value, part)

    def _weigh(self, operand: str, value: str, part: int) -> str:
        """Return a value times a micro-batch's fraction of the rows."""
        self._add_shares()
        share = f"{part_of(value, part)}.share"
        like = self.nodes.get(self.owners.get(value, ""))
        operands = (operand, part_of(SHARE, part))
        self._add(evaluate(share, "weigh", operands, (share,), like=like, op=value, part=part, prompt=True), value)
        return share

    def _share_terms(self, value: str, part: int) -> str:
        """Return the share of a sum of means and sums: the same call on the shares of its terms."""
        call = self.nodes[self.owners[value]]
        assert isinstance(call, Evaluate)
        share = f"{part_of(value, part)}.share"
        is_sum = call.function.name in ("add", "sub")
        named: dict[str, str] = {}
        arguments = list(call.arguments)
        for index, argument in enumerate(arguments):
            operand = argument.operand
            if isinstance(operand, Ref):
                is_term = is_sum or self.reading.kind(operand.name) is not Kind.WHOLE
                named[operand.name] = self._share(operand.name, part) if is_term else operand.name
                arguments[index] = replace(argument, operand=Ref(name=named[operand.name]))
            elif is_sum:
                weighed = self._weigh_number(value, index, operand, part)
                arguments[index] = replace(argument, operand=Ref(name=weighed))
                named[weighed] = weighed
        old = {use.value: use for use in call.uses}
        made = replace(
            call,
            id=share,
            label=f"{call.label}#{part} as a share",
            part=part,
            uses=tuple(replace(old.get(name, Use(value=name)), value=new) for name, new in named.items()),
            prompt=True,
            arguments=tuple(arguments),
            outputs=(share,),
        )
        self._add(made, value)
        return share

    def _weigh_number(self, value: str, index: int, operand: Operand, part: int) -> str:
        """Return a number that is added to a sum, times a micro-batch's fraction of the rows."""
        self._add_shares()
        name = f"{part_of(value, part)}.number{index}"
        like = self.nodes[self.owners[value]]
        made = evaluate(name, "weigh", (part_of(SHARE, part),), (name,), like=like, part=part, prompt=True)
        self._add(replace(made, arguments=(*made.arguments, replace(made.arguments[0], operand=operand))), value)
        return name

    def _add_shares(self) -> None:
        """Add the node that computes the share of the rows in every micro-batch."""
        entry = self.reading.sized_input
        outputs = tuple(part_of(SHARE, part) for part in self._parts())
        options = {"count": self.count, "axis": self.reading.axis(entry)}
        place = self.reading.place(entry)
        self._add(
            evaluate("batch#shares", "shares", (entry,), outputs, op=entry, place=place, options=options, constant=True)
        )
