"""What a step means, evaluated literally on the plain data of a document.

Slow, short, and sharing no code with the compiler. Only for documents whose ops all run in every step of train mode, as
those of ``random_steps`` do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, permutations

Pairs = set[tuple[str, str]]


@dataclass(kw_only=True)
class Item:
    """One thing that happens: of an update there are two, the gradient and the write."""

    name: str
    op: str
    inputs: list[str] = field(default_factory=list)
    """Values it is made from, whether or not a gradient flows back."""
    passing: list[str] = field(default_factory=list)
    """Those through which a gradient flows back."""
    makes: str | None = None
    reads: set[str] = field(default_factory=set)
    """Cells whose version is that of the causal past."""
    writes: set[str] = field(default_factory=set)
    is_write: bool = False
    """An update's, average's or copy's write."""
    is_training: bool = False
    """A train-mode forward of a model with buffers."""
    blocked: bool = False
    """No gradient passes through it."""
    snapshot: bool = False
    loss: str | None = None
    """What it differentiates, if it differentiates."""
    cells: set[str] = field(default_factory=set)
    values: list[str] = field(default_factory=list)
    """What it differentiates with respect to."""


class Naive:
    """The literal meaning of one document."""

    def __init__(self, document: dict, active: set[str] | None = None) -> None:
        self.document = document
        self.updated = {model for op in document["ops"].values() for model in as_list(op.get("update", []))}
        self.items = {item.name: item for name, op in document["ops"].items() for item in self._items(name, op)}
        self.maker = {item.makes: item.name for item in self.items.values() if item.makes}
        everything = closure(self.items, self._happens_before())
        self.items = {name: self.items[name] for name in self._firing(active)}
        self.past = {name: everything[name] & self.items.keys() for name in self.items}
        self.training = self._training_order()

    def _firing(self, active: set[str] | None) -> list[str]:
        """Return what runs in a step in which some updates, averages and copies are active (all: None), as listed.

        Nothing that runs for its statistics alone is expected: the outputs name every train-mode forward.
        """
        wanted = [item.name for item in self.items.values() if item.is_write and (active is None or item.op in active)]
        wanted += list(self.items) if active is None else [self.maker[value] for value in self.document["outputs"]]
        found: set[str] = set()
        while wanted:
            found.add(wanted.pop())
            inputs = {value for name in found for value in self.items[name].inputs if value in self.maker}
            wanted += {self.maker[value] for value in inputs} - found
        return [name for name in self.items if name in found]

    # ------------------------------------------------------------ what the ops do

    def has_buffers(self, model: str) -> bool:
        """Return whether a model, or the one it is like, has BatchNorm."""
        declared = self.document["models"][model]
        return self.has_buffers(declared["like"]) if "like" in declared else "batch_norm" in declared["layers"]

    def _items(self, name: str, op: dict) -> list[Item]:
        if "forward" in op:
            return [self._forward(name, op)]
        if "update" in op:
            cells = {f"{model}.params" for model in as_list(op["update"])}
            slots = {f"{model}.optimizer" for model in as_list(op["update"])}
            gradient = Item(name=f"{name}.gradient", op=name, inputs=[op["loss"]], passing=[op["loss"]], makes=name)
            gradient.loss, gradient.cells = op["loss"], cells
            return [gradient, Item(name=name, op=name, inputs=[name], writes=cells | slots, is_write=True)]
        if "ema" in op or "copy" in op:
            return [self._follow(name, op)]
        if "gradient" in op:
            item = Item(
                name=name, op=name, inputs=[op["gradient"], op["wrt"]], makes=name, blocked=op.get("stop", False)
            )
            item.passing, item.loss, item.values = list(item.inputs), op["gradient"], [op["wrt"]]
            return [item]
        inputs = [value for value in as_list(op["inputs"]) if isinstance(value, str)]
        blocked = op.get("call") == "stop"
        return [Item(name=name, op=name, inputs=inputs, passing=[] if blocked else inputs, makes=name, blocked=blocked)]

    def _forward(self, name: str, op: dict) -> Item:
        model = op["forward"]
        training = op.get("train", model in self.updated) and self.has_buffers(model)
        item = Item(name=name, op=name, inputs=[op["inputs"]], passing=[op["inputs"]], makes=name)
        item.reads = {f"{model}.params"} | ({f"{model}.buffers"} if self.has_buffers(model) and not training else set())
        item.writes = {f"{model}.buffers"} if training else set()
        item.is_training, item.blocked, item.snapshot = training, op.get("stop", False), op.get("snapshot", False)
        return item

    def _follow(self, name: str, op: dict) -> Item:
        source, target = op.get("ema") or op["copy"], op["into"]
        kept = self.has_buffers(source) and op.get("buffers") != "ignore"
        item = Item(name=name, op=name, is_write=True)
        item.reads, item.writes = (
            {f"{model}.params"} | ({f"{model}.buffers"} if kept else set()) for model in (source, target)
        )
        return item

    # ------------------------------------------------------------ happens-before and versions

    def _happens_before(self) -> Pairs:
        pairs = {
            (self.maker[value], item.name)
            for item in self.items.values()
            for value in item.inputs
            if value in self.maker
        }
        for name, op in self.document["ops"].items():
            pairs |= {(other, name) for other in as_list(op.get("after", []))}
            if "ema" in op or "copy" in op:
                source = op.get("ema") or op["copy"]
                cells = {f"{source}.params", f"{source}.buffers"}
                pairs |= {(item.name, name) for item in self.items.values() if item.writes & cells}
        return pairs

    def _training_order(self) -> list[str]:
        pending, ordered = [item.name for item in self.items.values() if item.is_training], []
        while pending:
            ordered.append(next(name for name in pending if not self.past[name] & set(pending)))
            pending.remove(ordered[-1])
        return ordered

    def writers(self, cell: str) -> list[str]:
        """Return the writers of a cell in order."""
        names = [item.name for item in self.items.values() if cell in item.writes]
        later = sorted((n for n in names if n not in self.training), key=lambda n: len(self.past[n] & set(names)))
        return [name for name in self.training if name in names] + later

    def version(self, name: str, cell: str) -> int:
        """Return the version of a cell that an item reads: the newest among the writes in its causal past."""
        writers = self.writers(cell)
        return max((writers.index(writer) + 1 for writer in writers if writer in self.past[name]), default=0)

    def versions(self) -> dict[str, dict[str, int]]:
        """Return the version of every cell that every forward, average and copy reads."""
        return {
            item.name: {cell: self.version(item.name, cell) for cell in item.reads}
            for item in self.items.values()
            if item.reads
        }

    def has_unordered_writes(self) -> bool:
        """Return whether two updates, averages or copies write one cell without order."""
        writes = [item for item in self.items.values() if item.is_write]
        return any(
            first.writes & second.writes
            and first.name not in self.past[second.name]
            and second.name not in self.past[first.name]
            for first in writes
            for second in writes
            if first is not second
        )

    # ------------------------------------------------------------ paths

    def path(self, gradient: str) -> set[str]:
        """Return P(g): what lies on a differentiable way from its targets to its loss, with inner gradients' ways."""
        item = self.items[gradient]
        return self._between(self.maker.get(item.loss), item.cells, set(item.values))

    def _between(self, name: str | None, cells: set[str], values: set[str]) -> set[str]:
        """Return the items between the targets and an item, itself included; nothing where no way leads there."""
        if name is None or self.items[name].blocked:
            return set()
        item = self.items[name]
        found, starts = set(), bool(item.reads & cells)
        for value in item.passing:
            starts = starts or value in values
            found |= self._between(self.maker.get(value), cells, values)
        if item.loss is not None:
            inner = self.path(name)
            starts = starts or any(self.items[member].reads & cells for member in inner)
            starts = starts or any(value in values for member in inner for value in self.items[member].passing)
            found |= inner if starts or found else set()
        return found | {name} if starts or found else set()

    def gradients(self) -> list[str]:
        """Return the items that differentiate."""
        return [item.name for item in self.items.values() if item.loss is not None]

    # ------------------------------------------------------------ what must precede what

    def constraints(self, *, keeps_cells: bool = True) -> tuple[Pairs, Pairs]:
        """Return the ordering constraints, and those among them that clones of buffers could lift."""
        rigid = {(before, name) for name in self.items for before in self.past[name]}
        for item in self.items.values():
            for cell in item.reads:
                rigid |= self._around(item.name, cell, self.version(item.name, cell))
        for cell in {cell for item in self.items.values() for cell in item.writes}:
            writers = self.writers(cell)
            rigid |= set(pairwise(writers))
        kept = self._kept() if keeps_cells else (set(), set())
        return rigid | kept[0], kept[1]

    def _around(self, name: str, cell: str, version: int) -> Pairs:
        writers = self.writers(cell)
        before = {(writers[version - 1], name)} if version > 0 else set()
        return before | ({(name, writers[version])} if version < len(writers) else set())

    def _kept(self) -> tuple[Pairs, Pairs]:
        """Return what holds because a pending gradient reads the cells themselves: parameters, then buffers."""
        rigid, soft = set(), set()
        for gradient in self.gradients():
            for item in (self.items[name] for name in self.path(gradient)):
                for cell in () if item.snapshot else item.reads:
                    later = self.writers(cell)[self.version(item.name, cell) :]
                    (soft if cell.endswith(".buffers") else rigid).update((gradient, writer) for writer in later[:1])
                for cell in () if item.snapshot else item.writes:
                    followers = [name for name in self.writers(cell) if self.items[name].is_write]
                    soft.update((gradient, writer) for writer in followers[:1])
        return rigid, soft

    # ------------------------------------------------------------ deferrals

    def deferred(self, sequence: list[str], pairs: Pairs) -> set[str]:
        """Return the updates of which some predecessor stands after their own gradient."""
        position = {name: index for index, name in enumerate(sequence)}
        updates = [name for name, op in self.document["ops"].items() if "update" in op]
        return {
            name
            for name in updates
            if any(position[before] > position[f"{name}.gradient"] for before, after in pairs if after == name)
        }

    def fewest(self, pairs: Pairs) -> int:
        """Return the least possible number of deferrals, by trying every order of the updates' gradients."""
        past = closure(self.items, pairs)
        updates = [name for name, op in self.document["ops"].items() if "update" in op]
        return min(count_deferred(past, order) for order in permutations(updates) if is_legal(past, order))


def is_legal(past: dict[str, set[str]], order: tuple[str, ...]) -> bool:
    """Return whether the gradients can be taken in an order."""
    pairs = [(first, second) for index, first in enumerate(order) for second in order[index + 1 :]]
    return not any(f"{second}.gradient" in past[f"{first}.gradient"] for first, second in pairs)


def count_deferred(past: dict[str, set[str]], order: tuple[str, ...]) -> int:
    """Return how many updates cannot follow their gradient at once when gradients are taken in an order.

    An update must wait iff something before it can only come after its own gradient, or after a later one.
    """
    count = 0
    for index, update in enumerate(order):
        own, later = f"{update}.gradient", {f"{other}.gradient" for other in order[index + 1 :]}
        count += any(name in later or past[name] & later or own in past[name] for name in past[update] - {own})
    return count


def closure(names: object, pairs: Pairs) -> dict[str, set[str]]:
    """Return everything before each name, itself too where the pairs go round in a circle."""
    past: dict[str, set[str]] = {name: set() for name in names}
    for before, after in pairs:
        past[after].add(before)
    for middle in past:
        for name in past:
            if middle in past[name]:
                past[name] |= past[middle]
    return past


def is_circular(names: object, pairs: Pairs) -> bool:
    """Return whether the pairs go round in a circle."""
    return any(name in past for name, past in closure(names, pairs).items())


def as_list(value: object) -> list:
    """Return a list as it is, and anything else as a list of one."""
    return value if isinstance(value, list) else [value]
