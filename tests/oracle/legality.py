"""Whether a step can be put in order at all: the letter of the definition, run by run, for every set of ops that fires.

Nothing is scheduled here. What must precede what is written down for every run of every op, for the gradients that
updates take and for their windows; a spec is legal where that goes round in no circle, whichever forwards run on
clones of their buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from random import Random

from graphspec.analysis.datasets import find_datasets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AdaptOp, CallOp, CopyOp, EmaOp, ForwardOp, GradientOp, TransformOp, UpdateOp
from tests.oracle.backs import with_backs
from tests.oracle.clocks import Clocks, Pace
from tests.oracle.groups import Groups
from tests.oracle.meaning import WRITERS, Meaning, Versions, op_of, part_of
from tests.oracle.parts import Parts
from tests.oracle.paths import Paths
from tests.oracle.resting import find_resting
from tests.oracle.settling import settle

Pairs = set[tuple[str, str]]
Names = tuple[str, ...]
Fired = tuple[Meaning, Names, Names, tuple[tuple[str, str], ...], frozenset[str]]
"""A mode, the ops that fire in it together, the updates that gather, the averages that stand in for models, and the
models that are frozen whole."""
KEEPING = ("clip_norm", "clip_value")
"""Transforms that give finite gradients where they are given finite ones."""
STEPS = 24
"""Steps of training that are looked at: two periods of all clocks of a random spec."""


def find_circle(spec: GraphSpec, steps: int = STEPS, epoch: int = Pace().epoch) -> tuple[str, ...]:
    """Return a circle in what must precede what, in the first step that has one; nothing where every step is legal.

    ``steps``: how many of training are looked at, several times with other data sets and other updates held back.
    ``epoch``: how many make an epoch.
    """
    seen: set[tuple[object, ...]] = set()
    for mode in ("train", "eval"):
        for chance in range(4 if find_datasets(spec) or any(Runs.has_verdicts(spec)) else 1):
            walk = _walk(spec, mode, steps, Random(chance) if chance else None, Pace(epoch=epoch))
            for meaning, firing, gathering, used, resting in walk:
                key = mode, meaning.dataset, firing, gathering, used, resting
                if key not in seen:
                    seen.add(key)
                    settled = settle(meaning, 0, Clocks(Pace()), dict(used))
                    circle = find_cycle(Runs(settled, firing, gathering, resting).pairs())
                    if circle:
                        return circle
    return ()


def find_cycle(pairs: Pairs) -> tuple[str, ...]:
    """Return what goes round in a circle, nothing where there is an order."""
    before: dict[str, set[str]] = {}
    for first, second in pairs:
        before.setdefault(second, set()).add(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def _walk(spec: GraphSpec, mode: str, steps: int, random: Random | None, pace: Pace) -> Iterator[Fired]:
    """Yield what runs in the steps of a mode; by chance some updates are held, and data sets come in any order."""
    spec, clocks = with_backs(spec), Clocks(pace)
    names = find_datasets(spec) or ("",)
    averages = {name: op for name, op in spec.ops.items() if isinstance(op, EmaOp) and op.use.eval == "swap"}
    meanings = {name: Meaning(spec, mode, name) for name in names}
    for number in range(steps):
        meaning = meanings[names[number % len(names)] if random is None else random.choice(names)]
        firing = meaning.firing(clocks.admit(meaning), clocks.gathering)
        used = {op.ema: op.target(name) for name, op in averages.items()} if mode != "train" and number % 2 else {}
        resting = find_resting(spec, number + 1, clocks) if mode == "train" else frozenset[str]()
        yield meaning, tuple(firing), tuple(sorted(clocks.gathering)), tuple(used.items()), resting
        updates = [name for name in firing if isinstance(spec.ops[name], UpdateOp) and any(Runs.has_verdicts(spec))]
        clocks.note(meaning, firing, {name for name in updates if random is not None and random.random() < 0.5})


class Runs:
    """The runs of the ops that fire together in one step, and what must precede what among them."""

    def __init__(
        self, meaning: Meaning, firing: Sequence[str], gathering: Sequence[str], resting: Collection[str] = ()
    ) -> None:
        self.meaning, self.ops, self.parts = meaning, meaning.ops, Parts(meaning)
        self.firing, self.gathering = list(firing), list(gathering)
        self.versions = Versions(
            meaning, self.firing, self.gathering, runs=self.parts.listed(self.firing), past=self.parts.past
        )
        self.paths = Paths(meaning, frozenset(firing), resting)
        self.groups = Groups(meaning, firing, self.gathering)
        updates = [name for name in self.firing if isinstance(self.ops[name], UpdateOp)]
        self.applied = updates
        self.taking = [name for name in updates if self.ops[name].window == 1] + self.gathering

    @staticmethod
    def has_verdicts(spec: GraphSpec) -> Iterator[bool]:
        """Yield whether each update may be held back."""
        for op in spec.ops.values():
            yield isinstance(op, UpdateOp) and (spec.loss_scale is not None or op.on_overflow not in (None, "apply"))

    def pairs(self) -> Pairs:
        """Return everything that must precede something else, but for what clones of buffers can lift."""
        found = {(before, run) for run in self.versions.runs for before in self.versions.past[run]}
        for name in self.taking:
            found |= self._taken(name)
        for run in self.versions.runs:
            for cell in self._cells(op_of(run)):
                seen, writers = self.versions.seen(run, cell), self.versions.writers(cell)
                found |= {(writer, run) for writer in writers[max(0, seen - 1) : seen]}
                found |= {(run, writer) for writer in writers[seen : seen + 1]}
        cells = {cell for run in self.versions.runs for cell in self.meaning.writes(op_of(run))}
        found |= {pair for cell in cells for pair in pairwise(self.versions.writers(cell))}
        return {
            (one, other) for one, other in found | self._kept() | self._windows() | self._verdicts() if one != other
        }

    # ------------------------------------------------------------ gradients

    def _gradients(self, name: str) -> list[str]:
        """Return the gradients that an update is made from, of all micro-batches."""
        op = self.ops[name]
        if op.loss is None:
            return [run for value in self.meaning.gathered(name) for run in self.parts.names(self.meaning.owner[value])]
        if self.parts.is_batched(op.loss) and self.parts.count > 1:
            return [f"{name}.gradient#{part}" for part in range(1, self.parts.count + 1)]
        return [f"{name}.gradient"]

    def _run(self, name: str, part: int) -> str:
        """Return the run of an op in a micro-batch, or the only one."""
        return f"{name}#{part}" if part and name in self.parts.split else name

    def _taken(self, name: str) -> Pairs:
        """Return what the gradients of an update's own loss come after, and what comes after them."""
        if self.ops[name].loss is None:
            return set()
        owner, found = self.meaning.owner[self.ops[name].loss], set[tuple[str, str]]()
        later = self._behind(name) if name not in self.applied else [name]
        for gradient in self._gradients(name):
            runs = self.parts.names(owner) if part_of(gradient) == 0 else [self._run(owner, part_of(gradient))]
            found |= {(run, gradient) for run in runs}
            found |= {(before, gradient) for run in runs for before in self.versions.past.get(run, ())}
            found |= {(gradient, other) for other in later}
        return found

    def _behind(self, name: str) -> list[str]:
        """Return what comes after an update that only gathers, or after one that adds its gradients to its own."""
        adding = {other for other, givers in self.meaning.sharing.items() if name in givers}
        return [run for run in self.versions.runs if {name, *adding} & {*self.meaning.past[op_of(run)]}]

    def _kept(self) -> Pairs:
        """Return backward-WAR: a gradient reads the parameters of the forwards on its path, of its micro-batch."""
        found: Pairs = set()
        taken = [run for run in self.versions.runs if isinstance(self.ops[op_of(run)], GradientOp)]
        taken += [one for name in self.taking if self.ops[name].loss is not None for one in self._gradients(name)]
        for gradient in taken:
            for name in self.paths.path(op_of(gradient)):
                if isinstance(self.ops[name], AdaptOp):
                    cells = [cell for rate in self.meaning.rates(name) for cell in self.meaning.storages.cells(rate)]
                    found |= {(gradient, each) for each in self._next_writers(name, cells)}
                if not isinstance(self.ops[name], ForwardOp):
                    continue
                if self.ops[name].snapshot and not self.meaning.runs_again(name):
                    continue
                part = part_of(gradient)
                for run in [self._run(name, part)] if part or name not in self.parts.split else self.parts.names(name):
                    found |= {(gradient, each) for each in self._next_writers(run, self.meaning.reads(name))}
                    if self.meaning.runs_again(name):
                        found |= {(gradient, writer) for writer in self._next_buffers(run)}
        return found

    def _next_writers(self, run: str, cells: list[str]) -> set[str]:
        """Return the writers of what comes behind the versions that an op sees."""
        seen = {cell: self.versions.seen(run, cell) for cell in cells}
        return {writer for cell in cells for writer in self.versions.writers(cell)[seen[cell] : seen[cell] + 1]}

    def _next_buffers(self, run: str) -> list[str]:
        """Return the writer of buffers that a forward would not see when it runs again.

        One in training normalizes with its batch: only an average or a copy changes what it finds.
        """
        cell = f"{self.meaning.called(self.ops[op_of(run)].forward)}.buffers"
        writers = self.versions.writers(cell)
        if op_of(run) in self.meaning.training:
            return [writer for writer in writers if isinstance(self.ops[op_of(writer)], WRITERS)][:1]
        seen = self.versions.seen(run, cell)
        return writers[seen : seen + 1]

    # ------------------------------------------------------------ cells

    def _cells(self, name: str) -> list[str]:
        """Return the cells of which an op reads the version in its causal past."""
        op = self.ops[name]
        read = [one.name for one in op.operands() if one.role != "state"]
        found = [f"{one}.state" for one in read if one in self.meaning.spec.state]
        match op:
            case ForwardOp():
                found += self.meaning.reads(name)
                is_read = self.meaning.has_buffers(op.forward) and name not in self.meaning.training
                found += [f"{self.meaning.called(op.forward)}.buffers"] if is_read else []
            case AdaptOp():
                found += self.meaning.reads(name)
            case EmaOp() | CopyOp():
                source = op.ema if isinstance(op, EmaOp) else op.copy_
                found += self.meaning.storages.cells(source)
                found += [f"{source}.buffers"] if self.meaning.moves_buffers(name) else []
            case TransformOp() if op.transform.name("torch") == "clip_agc":
                found += [f"{holder}.params" for holder in self.paths.find_set(name)]
            case _:
                pass
        return found

    # ------------------------------------------------------------ windows, groups, shared storages

    def _windows(self) -> Pairs:
        """Return what verdicts, windows and shared storages ask for."""
        found: Pairs = set()
        for name in self.taking:
            judged = [one for other in self.groups.judges(name) for one in self._gradients(other)]
            gathers = [f"{name}.gather"] if name in self.gathering else []
            own = self._gradients(name)
            found |= {(gradient, write) for gradient in (*judged, *own) for write in gathers}
            found |= {(gather, run) for gather in gathers for run in (*self._behind(name), name)}
            found |= {(gradient, name) for gradient in (*judged, *own) if name in self.applied}
        for name in (one for one in self.applied if self.ops[one].shared is not None):
            for other in (one for one in self.taking if one in self.applied and one in self.meaning.sharing[name]):
                windows = [f"{other}.gather"] if other in self.gathering else []
                values = [run for one in self.ops[other].gradients or () for run in self._made(one)]
                found |= {(before, name) for before in (*self._gradients(other), *values, *windows)}
        return found

    # ------------------------------------------------------------ verdicts

    def _verdicts(self) -> Pairs:
        """Return what verdicts come after, and which windows and updates wait for them."""
        found: Pairs = set()
        for name in self.taking:
            if self.ops[name].window == 1:
                found |= {(gradient, f"{name}.verdict") for gradient in self._gradients(name)}
                found |= {(before, f"{name}.verdict") for before in self._before_slopes(name) | self._looked_at(name)}
            writes = [*([f"{name}.gather"] if name in self.gathering else [name] if name in self.applied else [])]
            waits = {f"{other}.verdict" for other in self.groups.judges(name)} | self._paced(name)
            found |= {(one, write) for one in waits for write in writes}
        for name in self.taking:
            found |= {(one, f"{name}.sound") for one in self._before_sound(name)}
            slopes = self._before_slopes(name)  # of the weights that its gradients see: the first ones, as all are held
            found |= {(one, f"{name}.slopes") for one in slopes}
            if slopes and name in self.gathering and name in self.applied:
                found.add((f"{name}.gather", f"{name}.slopes"))  # slopes are added to the window when it is taken
            seen = self._behind_gradients(name)
            writers = [self.versions.writers(f"{model}.params") for model in self.ops[name].update if slopes]
            later = [[writer for writer in each if writer not in seen] for each in writers]
            found |= {(f"{name}.slopes", writer) for each in later for writer in each[:1]}
        return found

    def _behind_gradients(self, name: str) -> set[str]:
        """Return what comes before the gradients that an update takes or is given."""
        op = self.ops[name]
        made = self.parts.names(self.meaning.owner[op.loss]) if op.loss is not None else self._gradients(name)
        return {before for run in made for before in self.versions.past.get(run, ())}

    def _before_slopes(self, name: str) -> set[str]:
        """Return what tells whether an update adds the slopes of penalties: where all before it may be held."""
        found: set[str] = set()
        for model in self.ops[name].update:
            writers = self.versions.writers(f"{model}.params")
            earlier = writers[: writers.index(name)] if name in writers else []
            earlier = [one for one in earlier if isinstance(self.ops[one], UpdateOp)]
            if self.meaning.spec.models[model].regularizer and all(self._may_be_held(one, name) for one in earlier):
                # one that goes by another of them is applied only where that is
                leading = [one for one in earlier if self.ops[one].every not in earlier]
                found |= {one for other in leading for one in self._before_sound(other)}
        return found

    def _looked_at(self, name: str) -> set[str]:
        """Return what a verdict looks at behind the gradients as they were taken: what may be infinite by itself."""
        op, found = self.ops[name], set[str]()
        pending = [*(op.gradients or ())]
        # the slopes of penalties are added to these, and the sums looked at, also where an earlier update adds them
        penalized = {model for model in op.update if self.meaning.spec.models[model].regularizer}
        found |= {run for one in pending if {*self.paths.find_set(one)} & penalized for run in self._made(one)}
        while pending:
            value = pending.pop()
            made = self.ops.get(self.meaning.owner.get(value, ""))
            if self.paths.find_set(value) and isinstance(made, TransformOp | CallOp):
                is_kept = isinstance(made, TransformOp) and made.transform.name("torch") in KEEPING
                found |= set[str]() if is_kept else {*self._made(value)}
                pending += made.inputs if is_kept else ()
        if op.clip is not None and op.clip.agc is not None:  # which looks at the weights
            found |= {*(op.after or ()), *([op.every] if isinstance(op.every, str) else [])} & {*self.versions.runs}
        return found

    def _may_be_held(self, earlier: str, name: str) -> bool:
        """Return whether an update may be held in a step in which another, behind it, is applied."""
        every = self.ops[name].every
        if isinstance(every, str) and every in self.applied:
            return every != earlier and self._may_be_held(earlier, every)
        leader = self.ops[earlier].every  # which takes it along where it is held
        if isinstance(leader, str) and leader in self.applied and leader != name and self._may_be_held(leader, name):
            return True
        if self.ops[earlier].window > 1:
            return self.ops[earlier].on_overflow != "apply" and self.groups.has_verdict(earlier)
        if self.ops[name].window > 1 and self.ops[earlier].on_overflow != "apply":
            return self.groups.has_verdict(earlier)  # a window holds gradients of other steps, too
        return not {*self._judges(earlier)} <= {*self._judges(name)}

    def _judges(self, name: str) -> Iterator[str]:
        """Yield whose verdicts hold an update, and the windows added to its gradients: the sum may be infinite."""
        yield from self.groups.judges(name)
        givers = [one for one in self.meaning.sharing[name] if one in self.applied and self.ops[one].window > 1]
        yield from (f"{one}.window" for one in givers if self.groups.has_verdict(one))

    def _paced(self, name: str) -> set[str]:
        """Return what tells whether the update that another goes by is held."""
        every = self.ops[name].every
        if not isinstance(every, str) or every not in self.applied:
            return set()
        is_judged = self.groups.has_verdict(every) and self.ops[every].on_overflow != "apply"
        return {f"{every}.sound"} if is_judged else set()

    def _before_sound(self, name: str) -> set[str]:
        """Return what tells whether an update is held: its group, its window, and what others add to its gradients."""
        own = {f"{name}.gather"} if name in self.gathering else set[str]()
        own |= self._looked_at(name) if name in self.gathering and self.groups.has_verdict(name) else set[str]()
        own |= {f"{other}.verdict" for other in self.groups.judges(name) if self.ops[other].window == 1}
        givers = [one for one in self.meaning.sharing[name] if one in self.applied]
        return own | {one for giver in givers for one in self._before_sound(giver)} | self._paced(name)

    def _made(self, value: str) -> list[str]:
        """Return the runs that make a value."""
        return self.parts.names(self.meaning.owner[value])
