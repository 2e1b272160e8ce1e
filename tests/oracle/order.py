"""What must run before what, by the letter of the definition; the gradient of an update and its write stand apart.

``hard`` pairs always hold. ``soft`` ones, by the forward they protect, hold unless that forward runs on clones of its
buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations

from graphspec.declare.ops import AdaptOp, CopyOp, EmaOp, ForwardOp, GradientOp, TransformOp, UpdateOp
from tests.oracle.groups import Groups
from tests.oracle.meaning import WRITERS, Versions, close
from tests.oracle.paths import Paths

Pairs = set[tuple[str, str]]


class Order:
    """The constraints among the ops that fire together."""

    def __init__(self, versions: Versions) -> None:
        self.versions, self.meaning = versions, versions.meaning
        self.ops, self.paths = self.meaning.ops, Paths(self.meaning, frozenset(versions.firing))
        self.updates = [name for name in versions.firing if isinstance(self.ops[name], UpdateOp)]
        self.taking = [name for name in self.updates if self.ops[name].window == 1 or name in versions.gathering]
        self.taking += [name for name in versions.gathering if name not in self.updates]
        derived = [f"{name}.gradient" for name in self.taking if self.ops[name].loss is not None]
        gathers = [f"{name}.gather" for name in versions.gathering]
        self.nodes = [*versions.firing, *derived, *gathers]
        taken = [name for name in versions.firing if isinstance(self.ops[name], GradientOp)]
        self.gradients = [*derived, *taken]
        self.groups = Groups(self.meaning, versions.firing, versions.gathering)
        self.hard = self._happens_before() | self._reads() | self._writes() | self._kept_parameters() | self._judged()
        self.hard |= self._gathered() | self._shared() | self._penalized()
        kept = self._kept_buffers()
        self.hard |= {pair for name, pairs in kept.items() if self.meaning.runs_again(name) for pair in pairs}
        self.soft = {name: pairs for name, pairs in kept.items() if not self.meaning.runs_again(name)}

    def constraints(self, cloned: frozenset[str] = frozenset()) -> Pairs:
        """Return what must precede what where some forwards run on clones of their buffers."""
        return self.hard | {pair for forward, pairs in self.soft.items() if forward not in cloned for pair in pairs}

    def _happens_before(self) -> Pairs:
        """Return happens-before; what an update's gradient needs is its loss, whatever its write waits for."""
        pairs = {(before, name) for name in self.versions.firing for before in self.versions.past[name]}
        for name in self.taking:
            loss = self.ops[name].loss
            if loss is not None:
                owner = self.meaning.owner[loss]
                behind = [name] if name in self.updates else self._find_behind(name)
                pairs |= {(f"{name}.gradient", other) for other in behind}
                pairs |= {(owner, f"{name}.gradient")}
                pairs |= {(before, f"{name}.gradient") for before in self.versions.past[owner]}
        return pairs

    def _find_behind(self, name: str) -> list[str]:
        """Return what comes after an update that only gathers: it waits for the gradient, as the update would."""
        return [other for other in self.versions.firing if name in self.meaning.past[other]]

    def _cells(self, name: str) -> list[str]:
        """Return the cells of which an op reads the version in its causal past."""
        read = [one.name for one in self.ops[name].operands() if one.role != "state"]
        states = [f"{one}.state" for one in read if one in self.meaning.spec.state]
        return [*self._model_cells(name), *states]

    def _model_cells(self, name: str) -> list[str]:
        """Return the cells of models that an op reads."""
        op = self.ops[name]
        match op:
            case ForwardOp():
                evaluated = self.meaning.has_buffers(op.forward) and name not in self.meaning.training
                buffers = f"{self.meaning.called(op.forward)}.buffers"
                return [*self.meaning.reads(name), *([buffers] if evaluated else [])]
            case AdaptOp():
                return self.meaning.reads(name)
            case EmaOp() | CopyOp():
                source = op.ema if isinstance(op, EmaOp) else op.copy_
                buffers = [f"{source}.buffers"] if self.meaning.moves_buffers(name) else []
                return [*self.meaning.storages.cells(source), *buffers]
            case TransformOp() if op.transform.name("torch") == "clip_agc":
                return [f"{holder}.params" for holder in self.paths.find_set(name)]
            case _:
                return []

    def _next(self, name: str, cell: str) -> list[str]:
        """Return the writer of the version after the one an op sees."""
        seen = self.versions.seen(name, cell)
        return self.versions.writers(cell)[seen : seen + 1]

    def _reads(self) -> Pairs:
        """Return read after write and write after read."""
        pairs: Pairs = set()
        for name in self.versions.firing:
            for cell in self._cells(name):
                seen = self.versions.seen(name, cell)
                pairs |= {(writer, name) for writer in self.versions.writers(cell)[max(0, seen - 1) : seen]}
                pairs |= {(name, writer) for writer in self._next(name, cell)}
        return pairs

    def _writes(self) -> Pairs:
        """Return write after write."""
        cells = {cell for name in self.versions.firing for cell in self.meaning.writes(name)}
        return {pair for cell in cells for pair in pairwise(self.versions.writers(cell))}

    def _on_path(self, gradient: str) -> list[str]:
        """Return the forwards on a path that read the weights themselves, not clones."""
        found = (name for name in self.paths.path(gradient) if isinstance(self.ops[name], ForwardOp))
        return [name for name in found if not self.ops[name].snapshot or self.meaning.runs_again(name)]

    def _kept_parameters(self) -> Pairs:
        """Return backward-WAR: a pending gradient still reads the parameters of the forwards on its path."""
        return {
            (gradient, writer)
            for gradient in self.gradients
            for name in self._on_path(gradient)
            for cell in self.meaning.reads(name)
            for writer in self._next(name, cell)
        }

    def _kept_buffers(self) -> Mapping[str, Pairs]:
        """Return buffer-WAR by forward: of evaluations all later writers wait, of training ones averages and copies."""
        found: dict[str, Pairs] = {}
        for gradient in self.gradients:
            for name in self._on_path(gradient):
                cell = f"{self.meaning.called(self.ops[name].forward)}.buffers"
                writers = [w for w in self.versions.writers(cell) if isinstance(self.ops[w], WRITERS)]
                later = writers[:1] if name in self.meaning.training else self._next(name, cell)
                found.setdefault(name, set()).update((gradient, writer) for writer in later)
        return found

    def _judged(self) -> Pairs:
        """Return verdict: every gradient of a commit group before the write of each member."""
        return {
            (gradient, name)
            for name in self.updates
            if name in self.taking
            for other in self.groups.judges(name)
            for gradient in self._find_gradients(other)
        }

    def _gathered(self) -> Pairs:
        """Return what windows ask for: gradients before they are gathered, and that before whatever comes after."""
        pairs: Pairs = set()
        for name in self.versions.gathering:
            judges = [name, *self.groups.judges(name)]
            pairs |= {(gradient, f"{name}.gather") for other in judges for gradient in self._find_gradients(other)}
            pairs |= {(f"{name}.gather", other) for other in (name, *self._find_behind(name)) if other in self.nodes}
        return pairs

    def _shared(self) -> Pairs:
        """Return what an update waits for that steps what others hold: their gradients, as they would apply them."""
        pairs: Pairs = set()
        for name in (one for one in self.updates if self.ops[one].shared is not None):
            held = self._held(name)
            for other in (one for one in self.taking if one in self.updates and one != name and held & self._held(one)):
                values = [self.meaning.owner[value] for value in self.ops[other].gradients or ()]
                windows = [f"{other}.gather"] if other in self.versions.gathering else []
                pairs |= {(before, name) for before in (*self._find_gradients(other), *values, *windows)}
        return pairs

    def _penalized(self) -> Pairs:
        """Return what an update keeps waiting whose penalties are of the weights with which the step begins.

        They are its own unless an earlier update of the model is applied for certain where it is.
        """
        pairs: Pairs = set()
        for name in (one for one in self.updates if one in self.taking and self.ops[one].loss is not None):
            for model in (one for one in self.ops[name].update if self.meaning.spec.models[one].regularizer):
                writers = self.versions.writers(f"{model}.params")
                earlier = writers[: writers.index(name)] if name in writers else []
                updates = [one for one in earlier if one in self.updates]
                if not any(set(self.groups.judges(one)) <= set(self.groups.judges(name)) for one in updates):
                    pairs |= {(f"{name}.gradient", one) for one in earlier}
        return pairs

    def _held(self, name: str) -> set[str]:
        """Return the cells of the parameters of an update's models."""
        return {cell for model in self.ops[name].update for cell in self.meaning.storages.cells(model)}

    def _find_gradients(self, name: str) -> list[str]:
        """Return the gradients that an update is made from."""
        if self.ops[name].loss is not None:
            return [f"{name}.gradient"]
        return [self.meaning.owner[value] for value in self.meaning.gathered(name)]

    # ------------------------------------------------------------ questions about sequences

    def find_late(self, sequence: Sequence[str], pairs: Pairs) -> set[str]:
        """Return the updates of which something that must precede their write stands after their own gradient."""
        position = {name: index for index, name in enumerate(sequence)}
        return {
            after
            for before, after in pairs
            if after in self.updates and before != f"{after}.gather"
            if position[before] > position[f"{after}.gradient"]
        }

    def find_fewest(self, pairs: Pairs) -> int:
        """Return the least number of updates that have to wait, by trying every order of their gradients."""
        past = close(self.nodes, pairs)
        return min(_count(past, order) for order in permutations(self.updates) if _is_legal(past, order))


def _is_legal(past: Mapping[str, frozenset[str]], order: Sequence[str]) -> bool:
    """Return whether gradients can be taken in an order."""
    return not any(
        f"{second}.gradient" in past[f"{first}.gradient"]
        for index, first in enumerate(order)
        for second in order[index + 1 :]
    )


def _count(past: Mapping[str, frozenset[str]], order: Sequence[str]) -> int:
    """Count the updates of which something before their write needs their own gradient, or one taken later."""
    waiting = 0
    for index, update in enumerate(order):
        own = f"{update}.gradient"
        unready = {own, *(f"{other}.gradient" for other in order[index + 1 :])}
        waiting += any(name in unready or past[name] & unready for name in past[update] - {own, f"{update}.gather"})
    return waiting
