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
from compiler.ir.instructions import Evaluate, Gradient, Random
from compiler.ir.step_graph import Derivative, Node, Use
from compiler.ir.value import Operand, Ref

SHARE = "batch#share"
"""The value that says which part of the rows a micro-batch has, by its number."""


def part_of(name: str, part: int) -> str:
    """Return the name of a value or node in a micro-batch: ``fake#2``."""
    return f"{name}#{part}"


@dataclass(kw_only=True)
class Expansion:
    """The nodes of a mode under micro-batches, while they are made."""

    count: int
    nodes: Mapping[str, Node]
    reading: Reading
    roles: Roles
    recorded: Collection[str]
    made: dict[str, Node] = field(default_factory=dict[str, Node])
    copies: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Node -> its copies, in order; one that runs once is its own."""
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """Value -> the node that defines it."""
    shared: set[str] = field(default_factory=set[str])
    """Shares that gradients differentiate."""

    def expand(self, returned: Iterable[str]) -> Mapping[str, Node]:
        """Return the nodes, what runs once first, then micro-batch by micro-batch; ``returned`` values are joined."""
        self.owners = {value: name for name, node in self.nodes.items() for value in node.defines}
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
        ranked = sorted(self.made.values(), key=lambda node: (node.part, order.get(node.id.partition("#")[0], -1)))
        return {node.id: node for node in ranked}

    def _parts(self) -> range:
        """Return the numbers of the micro-batches."""
        return range(1, self.count + 1)

    def _add(self, node: Node) -> None:
        """Add a node, once."""
        self.made.setdefault(node.id, node)

    # ------------------------------------------------------------ nodes that run once

    def _keep(self, node: Node) -> None:
        """Add a node that runs once; its operands are whole or get joined."""
        instruction = node.instruction
        if isinstance(instruction, Random) and self._is_parted(instruction.like):
            first = part_of(str(instruction.like), 1)
            whole = self.reading.kind(str(instruction.like)) is Kind.ROWS
            drawn = replace(instruction, like=first, gathered=whole)
            self._add(replace(node, instruction=drawn, uses=(Use(value=first, differentiable=False),)))
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
        self._add(evaluate(f"{value}#all", function, kept, (value,), like=node, options=options, constant=True))

    def _repeat(self, node: Node) -> None:
        """Add a node once, with operands of the whole batch."""
        for use in node.uses:
            self._whole(use.value)
        uses = tuple(replace(use, differentiable=False) for use in node.uses)
        self._add(replace(node, id=f"{node.id}#all", uses=uses, differentiable=False))

    def _kept(self, value: str, part: int, node: Node) -> str:
        """Return a micro-batch's part of a joined value, detached, so that its graph can be freed."""
        share = self._share(value, part)
        is_apart = share.endswith(".share") and share not in self.shared
        if is_apart or node.id not in self.recorded:
            return share
        kept = f"{part_of(value, part)}.kept"
        self._add(evaluate(kept, "stop", (share,), (kept,), like=node, part=part, constant=True, prompt=True))
        return kept

    def _is_set(self, value: str) -> bool:
        """Return whether a value is a gradient set, which is summed as its parts are computed."""
        instruction = self.nodes[self.owners[value]].instruction
        return isinstance(instruction, Gradient) and instruction.output == value

    # ------------------------------------------------------------ nodes that run for every micro-batch

    def _copy(self, node: Node, part: int) -> str:
        """Add the copy of a node for a micro-batch, and return its id."""
        instruction = rename(node.instruction, lambda value: self._use(value, part), lambda value: part_of(value, part))
        derivative = node.derivative
        uses = tuple(replace(use, value=self._use(use.value, part)) for use in node.uses)
        if isinstance(instruction, Gradient) and isinstance(node.instruction, Gradient) and derivative is not None:
            loss = self._share(node.instruction.loss, part)
            instruction = replace(instruction, loss=loss)
            uses = (Use(value=loss), *uses[1:])
            derivative = self._derive(derivative, loss, part)
        if isinstance(instruction, Evaluate) and instruction.family == "loss":
            instruction = replace(instruction, gathered=not instruction.counted)
        name = part_of(node.id, part)
        copied = replace(
            node,
            id=name,
            instruction=replace(instruction, part=part),
            label=part_of(node.label, part),
            uses=uses,
            defines=tuple(part_of(value, part) for value in node.defines),
            inner=tuple(part_of(value, part) for value in node.inner),
            derivative=derivative,
            part=part,
        )
        self._add(copied)
        return name

    def _derive(self, derivative: Derivative, loss: str, part: int) -> Derivative:
        """Return what the copy of a gradient differentiates."""
        return replace(derivative, loss=loss, values=tuple(self._use(each, part) for each in derivative.values))

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
        self._add(made)

    def _add_sets(self, node: Node) -> None:
        """Add the sums of a gradient's sets: each right after its micro-batch, so that only two sets are alive."""
        instruction = node.instruction
        if not isinstance(instruction, Gradient) or instruction.output is None:
            return
        total = part_of(instruction.output, 1)
        for part in self._parts()[1:]:
            name = instruction.output if part == self.count else f"{instruction.output}#to{part}"
            self._add(add_sets(name, (total, part_of(instruction.output, part)), instruction, node, part))
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
        self._add(evaluate(share, "weigh", operands, (share,), like=like, op=value, part=part, prompt=True))
        return share

    def _share_terms(self, value: str, part: int) -> str:
        """Return the share of a sum of means and sums: the same call on the shares of its terms."""
        node = self.nodes[self.owners[value]]
        call = node.instruction
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
        instruction = replace(call, arguments=tuple(arguments), outputs=(share,), part=part)
        old = {use.value: use for use in node.uses}
        uses = tuple(replace(old.get(name, Use(value=name)), value=new) for name, new in named.items())
        label = f"{node.label}#{part} as a share"
        made = replace(node, id=share, label=label, instruction=instruction, uses=uses, defines=(share,), part=part)
        self._add(replace(made, prompt=True))
        return share

    def _weigh_number(self, value: str, index: int, operand: Operand, part: int) -> str:
        """Return a number that is added to a sum, times a micro-batch's fraction of the rows."""
        self._add_shares()
        name = f"{part_of(value, part)}.number{index}"
        like = self.nodes[self.owners[value]]
        made = evaluate(name, "weigh", (part_of(SHARE, part),), (name,), like=like, part=part, prompt=True)
        assert isinstance(made.instruction, Evaluate)
        arguments = (*made.instruction.arguments, replace(made.instruction.arguments[0], operand=operand))
        self._add(replace(made, instruction=replace(made.instruction, arguments=arguments)))
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
