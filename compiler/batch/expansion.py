"""Expansion: every batched node once for each micro-batch, and what splits and joins values around them.

Replicas are micro-batches in space: each runs its own part of the batch, which its micro-batches split further. A join
then adds up, or gathers, what the micro-batches have and after that what the replicas have. Passes then treat such a
step as any other: nodes, values, cells and edges are what they are without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.losses import find_added
from compiler.batch.making import Waiting, add_sets, check_everywhere, evaluate, reduce_set, rename, wait
from compiler.batch.placement import PlacementAnalysis
from compiler.batch.roles import Roles
from compiler.batch.shards import shard_sets
from compiler.ir.instructions import (
    Accumulate,
    CheckFinite,
    Evaluate,
    Gradient,
    Instruction,
    Random,
    TakeAccumulated,
)
from compiler.ir.instructions.start import ROWS
from compiler.ir.value import FunctionRef, Ref, Setting, Use
from compiler.types.calls import Placement

SHARE, OWN_SHARE = "batch#share", "own#share"
"""The values that say which part of the rows of the batch, or of this process, a micro-batch has, by its number."""


def name_in(name: str, micro_batch: int) -> str:
    """Return the name of a value or node in a micro-batch: ``fake#2``."""
    return f"{name}#{micro_batch}"


class Expansion(Struct, kw_only=True, dict=True):
    """The nodes of a mode under micro-batches, while they are made."""

    count: int
    nodes: Mapping[str, Instruction]
    analysis: PlacementAnalysis
    roles: Roles
    recorded: Collection[str]
    made: dict[str, Instruction] = {}
    copies: dict[str, tuple[str, ...]] = {}
    """Instruction -> its copies, in order; one that runs once is its own."""
    owners: dict[str, str] = {}
    """Value -> the node that defines it."""
    sources: dict[str, str] = {}
    """Node -> the node of the unsplit step next to which it is listed, or a value of its name."""
    shared: set[str] = set()
    """Shares that gradients differentiate."""
    joined: frozenset[str] = frozenset()
    """Values with a part of this replica and a whole."""
    wholes: dict[str, str] = {}
    """Value that is made of one of the spec, in parts or from parts -> that one."""
    late: frozenset[str] = frozenset()
    """Gradient sets that replicas add up after their window: nothing but the window uses them."""

    @property
    def is_replicated(self) -> bool:
        """Return whether replicas share the batch."""
        return self.analysis.spec.is_replicated

    def expand(self, returned: Iterable[str]) -> Mapping[str, Instruction]:
        """Return the nodes, what runs once first, then micro-batch by micro-batch; ``returned`` values are joined."""
        self.owners = {value: name for name, node in self.nodes.items() for value in node.provides}
        returned = tuple(returned)
        if self.is_replicated:
            self.late = frozenset(self._find_late(returned))
            self.joined = frozenset(self._find_joined(returned))
        split = [node for name, node in self.nodes.items() if name in self.roles.split]
        for node in split:
            self.copies[node.id] = tuple(self._copy(node, micro_batch) for micro_batch in self._micro_batches())
            if isinstance(node, Gradient) and node.output is not None:
                # each sum right after its micro-batch, so that only two sets are alive
                total, local = self._name(node.output, 1), self._own(node.output)
                for micro_batch in self._micro_batches()[1:]:
                    name = local if micro_batch == self.count else f"{node.output}#to{micro_batch}"
                    self._add(
                        add_sets(name, (total, name_in(node.output, micro_batch)), node, micro_batch), node.output
                    )
                    total = name
                if node.output in self.joined:
                    self._combine(reduce_set(node.output, total, node), total, node.output)
        self.shared = {node.derivative.loss for node in self.made.values() if node.derivative is not None}
        for name, node in self.nodes.items():
            if name not in self.roles.split:
                self.copies[name] = (name,)
                self._add_once(node)
        for value in returned:
            self._whole(value)
        if self.analysis.spec.is_sharded:  # updates take shards of gradient sets
            self.made, before = dict(shard_sets(self.made)), list[str]()
            for name in self.made:
                before.append(name)
                if name in self.sources:
                    self.sources |= dict.fromkeys(before, self.sources[name])
                    before.clear()
        order = {name: index for index, name in enumerate(self.nodes)}
        ranked = sorted(self.made.values(), key=lambda node: (node.micro_batch, order.get(self.sources[node.id], -1)))
        return {node.id: node for node in ranked}

    def _add_part(self, node: Instruction, source: str) -> None:
        """Add a node that runs on a part of the batch."""
        self._add(replace(node, is_replica=self.is_replicated), source)

    def _add_once(self, node: Instruction) -> None:
        """Add a node that runs once, on the values of the whole batch."""
        like = node.like if isinstance(node, Random) else None
        if like is not None and (self._is_split(like) or (self.is_replicated and self._is_local(like))):
            first = self._name(like, 1) if self._is_split(like) else like
            whole = self.analysis.of(like) is Placement.SHARDED
            self._add(replace(node, like=first, gathered=whole, uses=(Use(value=first, differentiable=False),)))
            return
        if isinstance(node, CheckFinite) and not self.late.isdisjoint(node.gradients):
            own_check, check = check_everywhere(node)
            self._add(own_check, node.id)
            self._combine(check, own_check.output, node.id)
            return
        if isinstance(node, TakeAccumulated) and node.output in self.joined:
            local = self._own(node.output)
            self._add(replace(node, output=local))
            self._combine(reduce_set(node.output, local, node), local, node.id)
            return
        if self.is_replicated and self.analysis.joins(node):  # the rows of replicas
            (read,), (output,) = node.refs, node.outputs
            own, axis = self._use(read.name, 1), self.analysis.axis(read.name)
            if node.function.name == "all_gather":
                sent = self._keep(read.name, 1) if read.name in self.joined else own  # the same is returned
                self._combine(_use_instead(node, own, axis=axis), sent, node.id)
                return
            # Of their mean each replica has a share.
            mean, share = self._record(f"{output}#own", output), self._record(f"{output}#own.share", output)
            function = FunctionRef(name="mean", builtin=True)
            made = replace(_use_instead(node, own, axis=axis), id=mean, label=f"evaluate {mean}", outputs=(mean,))
            self._add_part(replace(made, function=function), node.id)
            operands = (mean, self._add_shares(1, is_own=False))
            self._add_part(evaluate(share, "weigh", operands, (share,), like=node, free_early=True), node.id)
            self._combine(_use_instead(node, share), share, node.id)
            return
        named: dict[str, str] = {}  # inputs, of which a replica has its own rows
        for use in node.uses:
            if use.value not in self.late and (whole := self._whole(use.value)) != use.value:
                named[use.value] = whole
        if named:
            uses = tuple(replace(use, value=named.get(use.value, use.value)) for use in node.uses)
            node = replace(rename(node, lambda value: named.get(value, value), lambda value: value), uses=uses)
        self._add(node)

    # ------------------------------------------------------------ replicas

    def _find_late(self, returned: Iterable[str]) -> Iterable[str]:
        """Yield the gradient sets of replicas that go into windows and nowhere else."""
        kept, other = set[str](), set(returned)
        for node in self.nodes.values():
            into = kept if isinstance(node, Accumulate) else other
            if not isinstance(node, CheckFinite):
                into.update(use.value for use in node.uses)
        for value in kept - other:
            maker = self.nodes.get(self.owners.get(value, ""))
            if isinstance(maker, Gradient) and maker.output == value and self._is_split(value):
                yield value

    def _find_joined(self, returned: Iterable[str]) -> Iterable[str]:
        """Yield the values of which a replica has a part, and some node that runs once needs the whole."""
        late = {
            node.window for node in self.nodes.values() if isinstance(node, Accumulate) and node.gradients in self.late
        }
        pending = list(returned)
        for name, node in self.nodes.items():
            if isinstance(node, TakeAccumulated) and node.window in late:
                yield node.output
            if isinstance(node, Gradient) and node.output is not None and node.output not in self.late:
                pending.append(node.output)
            is_local = (isinstance(node, Random) and node.like is not None) or self.analysis.joins(node)
            if name not in self.roles.split and not is_local:
                pending.extend(use.value for use in node.uses if use.value not in self.late)
        for value in pending:
            if self._is_split(value):
                yield value
                if self.analysis.of(value) is Placement.RATIO:
                    pending.extend(use.value for use in self.nodes[self.owners[value]].uses)

    def _is_local(self, value: str) -> bool:
        """Return whether a value is an input with rows: a replica is given its own."""
        return value in self.analysis.spec.inputs and self.analysis.of(value) is Placement.SHARDED

    def _name(self, value: str, micro_batch: int) -> str:
        """Return the name of a value in a micro-batch; with one of them, that of the spec unless the whole has it."""
        return self._record(name_in(value, micro_batch), value) if self.count > 1 else self._own(value)

    def _own(self, value: str) -> str:
        """Return the name of what a replica has of a value: that of the spec, unless the whole has it."""
        return self._record(f"{value}#own", value) if value in self.joined else value

    def _record(self, name: str, value: str) -> str:
        """Record that a name is of what is made of a value of the spec, and return it."""
        self.wholes[name] = value
        return name

    def _number(self, micro_batch: int) -> int:
        """Return the number that the nodes of a micro-batch have: none, where there is one."""
        return micro_batch if self.count > 1 else 0

    def _gather(self, value: str, local: str, output: str, like: Instruction | None) -> None:
        """Add the node that joins what the replicas have of a value."""
        is_rows = self.analysis.of(value) is Placement.SHARDED
        options = {"axis": self.analysis.axis(value)} if is_rows else {}
        function = "all_rows" if is_rows else "all_sum"
        made = evaluate(
            f"{output}#gather", function, (local,), (output,), like=like, op=value, options=options, constant=True
        )
        self._combine(made, local, value)

    def _combine(self, node: Waiting, local: str, source: str) -> None:
        """Add a node that gives what all replicas have of a value, and the start of the message that it waits for."""
        parallel = self.analysis.spec.parallel
        compresses = parallel is not None and parallel.compress.keeps_rests
        start, waiting = wait(node, local, source, compresses=compresses)
        self._add(start, source)
        self._add(waiting, source)

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

    def _whole(self, value: str) -> str:
        """Join the parts of a value under its own name, which is returned; a value never split stays unchanged.

        An input keeps its name for the rows of the replica.

        A gradient set stays, too: it is summed while its parts are computed. A ratio is computed again from operands of
        the whole batch.
        """
        if self.is_replicated and self._is_local(value):
            whole = self._record(f"{value}#all", value)
            self._gather(value, value, whole, None)
            return whole
        if not self._is_split(value):
            return value
        node = self.nodes[self.owners[value]]
        if isinstance(node, Gradient) and node.output == value:
            return value
        if self.analysis.of(value) is Placement.RATIO:
            for use in node.uses:
                self._whole(use.value)
            uses = tuple(replace(use, differentiable=False) for use in node.uses)
            self._add(replace(node, id=f"{node.id}#all", uses=uses, differentiable=False), node.id)
            return value
        kept = [self._keep(value, micro_batch) for micro_batch in self._micro_batches()]
        is_rows = self.analysis.of(value) is Placement.SHARDED
        function, options = ("concat", {"axis": self.analysis.axis(value)}) if is_rows else ("add", {})
        local = self._own(value)
        if self.count > 1:
            made = evaluate(f"{value}#all", function, kept, (local,), like=node, options=options, constant=True)
            self._add(made, value)
        if self.is_replicated:
            self._gather(value, local if self.count > 1 else kept[0], value, node)
        return value

    def _keep(self, value: str, micro_batch: int) -> str:
        """Return a micro-batch's share of a value, detached so that the graph of the part can be freed."""
        node, number = self.nodes[self.owners[value]], self._number(micro_batch)
        share, name = self._share(value, micro_batch), self._name(value, micro_batch)
        is_apart = share != name and share not in self.shared
        if node.id not in self.recorded or is_apart:
            return share
        kept = self._record(f"{name}.kept", value)
        made = evaluate(kept, "stop", (share,), (kept,), like=node, micro_batch=number, constant=True, free_early=True)
        self._add(made, value)
        return kept

    # ------------------------------------------------------------ nodes that run for every micro-batch

    def _copy(self, node: Instruction, micro_batch: int) -> str:
        """Add the copy of a node for a micro-batch, and return its id."""
        copied = replace(
            rename(node, lambda value: self._use(value, micro_batch), lambda value: self._name(value, micro_batch)),
            id=name_in(node.id, micro_batch) if self.count > 1 else node.id,
            label=name_in(node.label, micro_batch) if self.count > 1 else node.label,
            uses=tuple(replace(use, value=self._use(use.value, micro_batch)) for use in node.uses),
            inner=tuple(self._name(value, micro_batch) for value in node.inner),
            micro_batch=self._number(micro_batch),
        )
        if isinstance(node, Gradient) and isinstance(copied, Gradient):
            is_own = node.op in find_added(self.analysis.spec)
            loss = self._share(node.loss, micro_batch, is_own=is_own)
            copied = replace(copied, loss=loss, uses=(Use(value=loss), *copied.uses[1:]))
        if isinstance(copied, Evaluate) and copied.family == "loss":
            copied = replace(copied, gathered=not copied.counted)
        self._add_part(copied, node.id)
        return copied.id

    def _use(self, value: str, micro_batch: int) -> str:
        """Return what a micro-batch uses of a value: its own part, or all of a whole value.

        A value that is computed for the whole batch is split.
        """
        if self.analysis.of(value) is Placement.REPLICATED:
            return value
        if self._is_split(value):
            return self._name(value, micro_batch)
        node = self.nodes[self.owners[value]] if value in self.owners else None
        whole = value
        if self.is_replicated and not self._is_local(value):
            whole, options = self._record(f"{value}#own", value), {"axis": self.analysis.axis(value)}
            made = evaluate(whole, "own_rows", (value,), (whole,), like=node, op=value, options=options, constant=True)
            self._add(made, value)
        if self.count == 1:
            return whole
        outputs = tuple(self._record(name_in(value, micro_batch), value) for micro_batch in self._micro_batches())
        options = {"count": self.count, "axis": self.analysis.axis(value)}
        place = "" if node is not None else self.analysis.place(value)
        made = evaluate(
            f"{value}#parts",
            "micro_batches",
            (whole,),
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

    def _share(self, value: str, micro_batch: int, *, is_own: bool = False) -> str:
        """Return a micro-batch's share of a value of the whole batch: shares sum to it; of rows they are parts.

        ``is_own``: of a value of this process's rows.
        """
        if is_own and self.count == 1:
            return self._name(value, micro_batch)
        match self.analysis.of(value):
            case Placement.SHARDED | Placement.PARTIAL_SUM:
                return self._name(value, micro_batch)
            case Placement.PARTIAL_MEAN | Placement.RATIO:
                return self._weigh(self._name(value, micro_batch), value, micro_batch, is_own=is_own)
            case Placement.REPLICATED:
                return self._weigh(value, value, micro_batch, is_own=is_own)
            case Placement.MIXED:
                return self._share_terms(value, micro_batch, is_own=is_own)

    def _weigh(self, operand: str, value: str, micro_batch: int, *, is_own: bool = False) -> str:
        """Return a value times a micro-batch's fraction of the rows."""
        share = self._name_share(value, micro_batch, is_own=is_own)
        like = self.nodes.get(self.owners.get(value, ""))
        operands, number = (operand, self._add_shares(micro_batch, is_own=is_own)), self._number(micro_batch)
        self._add_part(
            evaluate(share, "weigh", operands, (share,), like=like, op=value, micro_batch=number, free_early=True),
            value,
        )
        return share

    def _name_share(self, value: str, micro_batch: int, *, is_own: bool) -> str:
        """Return the name of a micro-batch's share of a value."""
        name = f"{self._name(value, micro_batch)}.{'own_share' if is_own else 'share'}"
        return self._record(name, value)

    def _share_terms(self, value: str, micro_batch: int, *, is_own: bool) -> str:
        """Return the share of a sum of means and sums: the same call on the shares of its terms."""
        call = self.nodes[self.owners[value]]
        assert isinstance(call, Evaluate)
        share = self._name_share(value, micro_batch, is_own=is_own)
        number = self._number(micro_batch)
        is_sum = call.function.name in ("add", "sub")
        named: dict[str, str] = {}
        arguments = list(call.arguments)
        for index, argument in enumerate(arguments):
            operand = argument.operand
            if isinstance(operand, Ref):
                is_term = is_sum or self.analysis.of(operand.name) is not Placement.REPLICATED
                named[operand.name] = self._share(operand.name, micro_batch, is_own=is_own) if is_term else operand.name
                arguments[index] = replace(argument, operand=Ref(name=named[operand.name]))
            elif is_sum:
                # a number that is added is multiplied with the micro-batch's fraction of the rows
                weighed = f"{share if is_own else self._name(value, micro_batch)}.number{index}"
                fraction = self._add_shares(micro_batch, is_own=is_own)
                made = evaluate(
                    weighed, "weigh", (fraction,), (weighed,), like=call, micro_batch=number, free_early=True
                )
                constant = replace(made.arguments[0], operand=operand)
                self._add_part(replace(made, arguments=(*made.arguments, constant)), value)
                arguments[index] = replace(argument, operand=Ref(name=weighed))
                named[weighed] = weighed
        old = {use.value: use for use in call.uses}
        made = replace(
            call,
            id=share,
            label=f"{call.label}#{micro_batch} as a share",
            micro_batch=number,
            uses=tuple(replace(old.get(name, Use(value=name)), value=new) for name, new in named.items()),
            free_early=True,
            arguments=tuple(arguments),
            outputs=(share,),
        )
        self._add_part(made, value)
        return share

    def _add_shares(self, micro_batch: int, *, is_own: bool) -> str:
        """Add the node that computes the share of the rows in every micro-batch, and return that of one."""
        entry = self.analysis.sized_input
        is_one, is_whole = self.count == 1, self.is_replicated and not is_own
        name = OWN_SHARE if is_own else SHARE
        outputs = (name,) if is_one else tuple(name_in(name, each) for each in self._micro_batches())
        function = "row_shares" if not is_whole else "rank_share" if is_one else "rank_shares"
        options = {} if is_one else {"count": self.count, "axis": self.analysis.axis(entry)}
        place = self.analysis.place(entry)
        made = evaluate(f"{name}s", function, (entry,), outputs, op=entry, place=place, options=options, constant=True)
        # the counts of rows travel while the step begins
        self._add(replace(made, message=ROWS) if is_whole else made)
        return outputs[micro_batch - 1]


def _use_instead(node: Evaluate, value: str, **options: Setting) -> Evaluate:
    """Return a call of one value on another, with options."""
    (read,) = node.refs
    (argument,) = node.arguments
    uses = tuple(replace(use, value=value) if use.value == read.name else use for use in node.uses)
    arguments = (replace(argument, operand=replace(read, name=value)),)
    return replace(node, arguments=arguments, uses=uses, options=options)
