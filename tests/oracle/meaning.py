"""Who happens before whom, which ops fire, and which version of a cell every op sees: by the letter of the definition.

Everything is computed by transitive closure and counting over the ops of a spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import cached_property

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import (
    AdaptOp,
    AssignOp,
    CallOp,
    CopyOp,
    EmaOp,
    ForwardOp,
    GradientOp,
    LossOp,
    MetricOp,
    Op,
    TransformOp,
    UpdateOp,
)
from tests.oracle.backs import WriteBack, back_of, with_backs
from tests.oracle.layers import has_buffers
from tests.oracle.likeness import find_root
from tests.oracle.storages import Storages

WRITERS = (UpdateOp, EmaOp, CopyOp, AssignOp)
Past = Mapping[str, frozenset[str]]


class Meaning:
    """One mode of a spec on batches of one data set, before it is known which ops fire together."""

    def __init__(self, spec: GraphSpec, mode: str, dataset: str = "") -> None:
        self.spec, self.mode, self.dataset = (spec := with_backs(spec)), mode, dataset
        self.ops = spec.ops
        self.whole = spec
        """The spec in which groups that are currently frozen are not."""
        self.storages = Storages(spec)
        self.derived = {name for name, op in spec.ops.items() if isinstance(op, AdaptOp)}
        self.owner = {value: name for name, op in spec.ops.items() for value in op.defines(name)}
        self.updated = {model for op in spec.ops.values() if isinstance(op, UpdateOp) for model in op.update}
        self.inputs = {name: self._find_inputs(op) for name, op in spec.ops.items()}
        self._known = dict[str, bool]()
        self._made_from = dict[str, frozenset[str]]()
        self._followed = dict[tuple[str, frozenset[str]], list[str]]()
        self.present = [name for name in spec.ops if self._is_present(name) or self._may_close(name)]
        self.sharing = {name: self._find_givers(name) for name in spec.ops}
        """By update: the updates whose gradients it adds to its own, for what both hold."""
        self.past = close(spec.ops, self._happens_before())

    # ------------------------------------------------------------ what ops are

    def _find_inputs(self, op: Op) -> tuple[str, ...]:
        """Return the ops whose values an op is made from."""
        found = (self.owner[reference.name] for reference in op.operands() if reference.name in self.owner)
        return tuple(dict.fromkeys(found))

    def _is_present(self, name: str) -> bool:
        if name not in self._known:
            op = self.ops[name]
            self._known[name] = op.runs_in(self.mode) and self._is_on(name, self.dataset) and self._has_inputs(name)
        return self._known[name]

    def takes(self, name: str) -> bool:
        """Return whether an op runs on batches of this data set: an update then takes its gradients of them."""
        return self._is_present(name)

    def _may_close(self, name: str) -> bool:
        """Return whether an update applies, or forgets, at the end of an epoch what it gathered on other data sets."""
        op = self.ops[name]
        return isinstance(op, UpdateOp) and op.window > 1 and op.at_epoch_end != "carry" and op.runs_in(self.mode)

    def _has_inputs(self, name: str) -> bool:
        return all(self._is_present(other) for other in self.inputs[name])

    def _is_on(self, name: str, dataset: str) -> bool:
        """Return whether an op lets itself be run on a batch of a data set."""
        words = self.ops[name].dataset or ()
        named = {word for word in words if word[0] != "!"}
        return f"!{dataset}" not in words and (not named or dataset in named)

    def is_partial(self, name: str) -> bool:
        """Return whether there are data sets on which an op does not run, for itself or what it is made from."""
        return name in self._partial

    @cached_property
    def _partial(self) -> frozenset[str]:
        """Return the ops that do not run on all data sets."""
        narrow = {name for name in self.ops if any(not self._is_on(name, dataset) for dataset in self._datasets)}
        return frozenset(name for name in self.ops if narrow and not narrow.isdisjoint({name, *self._origins(name)}))

    @cached_property
    def _datasets(self) -> set[str]:
        """Return the data sets that ops name."""
        return {word.removeprefix("!") for op in self.ops.values() for word in op.dataset or ()}

    def _origins(self, name: str) -> frozenset[str]:
        """Return all ops whose values an op is made from, near and far."""
        if name not in self._made_from:
            near = self.inputs[name]
            self._made_from[name] = frozenset(near).union(*(self._origins(one) for one in near))
        return self._made_from[name]

    def called(self, model: str) -> str:
        """Return the model that a derived one is made of; any other is itself."""
        return self.called(self.ops[model].adapt) if model in self.derived else model

    def runs_again(self, name: str) -> bool:
        """Return whether gradients run a forward again: it reads the model itself then, whatever its first run read."""
        op = self.ops[name]
        model = self.spec.models.get(self.called(op.forward))
        traits = None if model is None else model.traits
        return op.checkpoint or (traits is not None and traits.recomputes is True)

    def has_buffers(self, model: str) -> bool:
        """Return whether a model has BatchNorm."""
        layers = self.spec.models[find_root(self.spec, self.called(model))].layers
        return layers is not None and has_buffers(layers)

    def is_training(self, name: str) -> bool:
        """Return whether a forward runs as in training."""
        op = self.ops[name]
        if not isinstance(op, ForwardOp):
            return False
        if self.mode == "train":
            return self.called(op.forward) in self.updated if op.train is None else op.train
        return op.train is True and not Meaning(self.spec, "train")._is_present(name)

    @cached_property
    def training(self) -> frozenset[str]:
        """Return the train-mode forwards of models with buffers."""
        found = (name for name in self.present if self.is_training(name))
        return frozenset(name for name in found if self.has_buffers(self.ops[name].forward))

    def writes(self, name: str) -> frozenset[str]:
        """Return the cells that an op writes, slots and counters aside."""
        return self._written[name]

    def forget_writes(self) -> Meaning:
        """Return a copy that finds anew what ops write: they may be changed, to call averages of their models."""
        found = copy(self)
        found._followed = {}
        found.__dict__.pop("_written", None)
        return found

    @cached_property
    def _written(self) -> Mapping[str, frozenset[str]]:
        return {name: self._find_written(name, op) for name, op in self.ops.items()}

    def _find_written(self, name: str, op: Op) -> frozenset[str]:
        match op:
            case UpdateOp():
                return frozenset(self._holds(name) - self._left_to_others(name))
            case WriteBack():
                return frozenset(self.storages.cells(op.into))
            case EmaOp() | CopyOp():
                target = op.target(name) if isinstance(op, EmaOp) else op.into
                return frozenset({f"{target}.params"} | ({f"{target}.buffers"} if self.moves_buffers(name) else set()))
            case AssignOp():
                return frozenset({f"{op.assign}.state"})
            case ForwardOp() if name in self.training:
                return frozenset({f"{self.called(op.forward)}.buffers"})
            case _:
                return frozenset()

    def _holds(self, name: str) -> set[str]:
        """Return the cells of the models that an op updates."""
        op = self.ops[name]
        models = op.update if isinstance(op, UpdateOp) else ()
        return {cell for model in models for cell in self.storages.cells(model)}

    def _find_givers(self, name: str) -> tuple[str, ...]:
        if getattr(self.ops[name], "shared", None) != "sum":
            return ()
        return tuple(other for other in self.ops if other != name and self._holds(other) & self._owns(name))

    def _owns(self, name: str) -> set[str]:
        """Return the cells of an update that others hold with another optimizer."""
        mine = self._stepped_by(name)
        others = [self._stepped_by(other) for other in self.ops if other != name]
        return {cell for cell, one in mine.items() if any(other.get(cell, one) != one for other in others)}

    def _stepped_by(self, name: str) -> Mapping[str, str]:
        """Return whose optimizer an update steps each of its cells with."""
        op = self.ops[name]
        models = op.update if isinstance(op, UpdateOp) else ()
        return {cell: name if op.optimizer else model for model in models for cell in self.storages.cells(model)}

    def _left_to_others(self, name: str) -> set[str]:
        """Return the cells that another update steps for this one."""
        return {cell for other, givers in self.sharing.items() if name in givers for cell in self._owns(other)}

    def reads(self, name: str) -> list[str]:
        """Return the cells of parameters that a forward or a derived model reads; those of a derived model none."""
        op = self.ops[name]
        model = op.forward if isinstance(op, ForwardOp) else op.adapt
        return [
            cell for one in (model, *self.rates(name)) if one not in self.derived for cell in self.storages.cells(one)
        ]

    def rates(self, name: str) -> list[str]:
        """Return the models that are learning rates of a derived one."""
        op = self.ops[name]
        return [rate for _, rate in op.rates if isinstance(rate, str)] if isinstance(op, AdaptOp) else []

    def moves_buffers(self, name: str) -> bool:
        """Return whether an average or copy writes the buffers of its target."""
        op = self.ops[name]
        source = op.ema if isinstance(op, EmaOp) else op.copy_
        policies = (
            ("ignore",)
            if isinstance(op, WriteBack)
            else ()
            if isinstance(op, CopyOp)
            else (self.buffer_policy(name), self.whole_policy(name))
        )
        return self.has_buffers(source) and set(policies) != {"ignore"}

    def whole_policy(self, name: str) -> str:
        """Return what an average does with buffers of whole numbers, which have no average."""
        op = self.ops[name]
        return op.int_buffers or ("ignore" if self.buffer_policy(name) == "ignore" else "copy")

    def buffer_policy(self, name: str) -> str:
        """Return what an average does with buffers: its own word, else the target's, else the source's."""
        op = self.ops[name]
        holders = [self.spec.models.get(model) for model in (op.target(name), op.ema)]
        words = [op.buffers, op.float_buffers, *(holder.buffers for holder in holders if holder is not None), "ignore"]
        return next(word for word in words if word is not None)

    # ------------------------------------------------------------ happens-before

    def _happens_before(self) -> set[tuple[str, str]]:
        """Return data edges, declared edges, and every writer of an average's source before the average."""
        return {(other, name) for name in self.ops for other in self.inputs[name]} | self.declared

    @cached_property
    def declared(self) -> set[tuple[str, str]]:
        """Return the edges that no value gives."""
        pairs: set[tuple[str, str]] = set()
        for name, op in self.ops.items():
            pairs |= {(other, name) for other in op.after or ()}
            pairs |= {(other, name) for giver in self.sharing[name] for other in self.inputs[giver]}
            pairs |= {(op.every, name)} if isinstance(op.every, str) else set()
            if isinstance(op, EmaOp | CopyOp):
                source = op.ema if isinstance(op, EmaOp) else op.copy_
                cells = {*self.storages.cells(source), f"{source}.buffers"}
                pairs |= {(other, name) for other in self.find_followed(name, cells)}
        return pairs

    def find_followed(self, name: str, cells: set[str]) -> list[str]:
        """Return the writers that an average or copy comes after: in an iteration those in it, else no later ones."""
        key = name, frozenset(cells)
        if key not in self._followed:
            self._followed[key] = self._find_followed(name, cells)
        return self._followed[key]

    def _find_followed(self, name: str, cells: set[str]) -> list[str]:
        writers = [other for other in self.ops if other not in (name, back_of(name)) and self.writes(other) & cells]
        mine = [part.name for part in self.ops[name].within if part.repeat]
        around = {other: [part.name for part in self.ops[other].within if part.repeat] for other in writers}
        inside = [other for other in writers if mine and around[other][: len(mine)] == mine]
        later = {other for other in writers if self._is_later(self.ops[other], self.ops[name])}
        return inside or [other for other in writers if other not in later]

    def _is_later(self, one: Op, other: Op) -> bool:
        """Return whether an op is of a later iteration than another, of the outermost op that repeats both."""
        pairs = [(a, b) for a, b in zip(one.within, other.within, strict=False) if a.name != b.name]
        return (
            bool(pairs)
            and pairs[0][0].repeat is not None
            and pairs[0][0].repeat == pairs[0][1].repeat
            and (pairs[0][0].number > pairs[0][1].number)
        )

    # ------------------------------------------------------------ what fires

    @cached_property
    def gated(self) -> list[str]:
        """Return the ops of the mode, those before whose firing another's depends first."""
        return sorted(self.present, key=lambda name: len(self.past[name]))

    def firing(self, admitted: Iterable[str], gathering: Iterable[str] = ()) -> list[str]:
        """Return the ops that run where exactly some are admitted by their clocks, as listed.

        ``gathering``: updates that need their gradients, whether they are applied or not.
        """
        admitted = frozenset(admitted)
        absent = {name for name in self.present if self._is_absent(name, admitted)}
        pending = [self.owner[value] for value in self.demanded if value in self.owner]
        pending = [name for name in pending if name not in absent]
        consumed = {other for name in self.present for other in self.inputs[name]}
        pending += [n for n in self.present if isinstance(self.ops[n], WRITERS)]
        pending += [n for n in self.training if n not in consumed]
        pending = [name for name in pending if name in admitted]
        pending += [self.owner[value] for name in gathering for value in self.gathered(name)]
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                left_out = absent if self.is_loose(name) else frozenset()
                is_late = name in self.accumulating and name not in gathering
                pending.extend(other for other in self.inputs[name] if other not in left_out and not is_late)
        return [name for name in self.ops if name in found]

    @cached_property
    def accumulating(self) -> list[str]:
        """Return the updates that take the gradients of several steps."""
        return [name for name in self.present if isinstance(self.ops[name], UpdateOp) and self.ops[name].window > 1]

    def gathered(self, name: str) -> list[str]:
        """Return what an update gathers from in every step: its loss, or gradient sets before any transform."""
        op = self.ops[name]
        return [op.loss] if op.loss is not None else [one for value in op.gradients for one in self._sources(value)]

    def _sources(self, value: str) -> list[str]:
        """Return the gradient sets of which a set is made."""
        op = self.ops.get(self.owner.get(value, ""))  # an input is a number that sets are multiplied with
        match op:
            case GradientOp():
                return [value]
            case TransformOp():
                return [one for name in op.inputs for one in self._sources(name)]
            case CallOp():
                return [one for _, name in op.inputs.references() for one in self._sources(name)]
            case _:
                return []

    def is_sum(self, name: str) -> bool:
        """Return whether an op adds up what there is."""
        op = self.ops[name]
        return isinstance(op, CallOp) and op.call.name("torch") == "add"

    def is_loose(self, name: str) -> bool:
        """Return whether an op does without what is not there: a sum, or an output of parts."""
        op = self.ops[name]
        return isinstance(op, CallOp) and op.call.name("torch") in ("add", "stack", "either")

    def _is_absent(self, name: str, admitted: frozenset[str]) -> bool:
        """Return whether an op is a term that its clock does not admit, of a part that does not run, or of such."""
        if isinstance(self.ops[name], LossOp) or any(part.is_gated for part in self.ops[name].within):
            return name not in admitted
        terms = self.inputs[name] if self.is_loose(name) else ()
        return bool(terms) and all(self._is_absent(term, admitted) for term in terms)

    @cached_property
    def returned(self) -> tuple[str, ...]:
        """Return the values that a step returns where they were computed."""
        if self.spec.outputs is not None:
            known = {*self.present, None}
            return tuple(value for value in self.spec.outputs if self.owner.get(value) in known)
        kinds = (MetricOp, LossOp) if self.mode == "train" else (MetricOp,)
        return tuple(name for name in self.present if isinstance(self.ops[name], kinds))

    @property
    def demanded(self) -> tuple[str, ...]:
        """Return the values for which ops fire: outputs and metrics; of unnamed losses, those that feed no update."""
        metrics = [name for name in self.present if isinstance(self.ops[name], MetricOp)]
        if self.spec.outputs is not None:
            return (*self.returned, *metrics)
        feeding: set[str] = set()
        pending = [name for name in self.present if isinstance(self.ops[name], UpdateOp) and self.takes(name)]
        while pending:
            feeding |= (new := {other for name in pending for other in self.inputs[name]} - feeding)
            pending = list(new)
        return tuple(name for name in self.returned if name not in feeding)


class Versions:
    """The versions of cells among the ops that fire together in one step."""

    def __init__(
        self,
        meaning: Meaning,
        firing: Iterable[str],
        gathering: Iterable[str] = (),
        *,
        runs: Iterable[str] | None = None,
        past: Past | None = None,
    ) -> None:
        self.meaning, self.firing, self.gathering = meaning, list(firing), list(gathering)
        self.runs, past = self.firing if runs is None else list(runs), meaning.past if past is None else past
        """What runs: every op once, or for every micro-batch."""
        self.past = {name: past[name] & frozenset(self.runs) for name in self.runs}
        self.training = self._order_training()
        self.ordered: dict[str, list[str]] = {}

    def _order_training(self) -> list[str]:
        """Return the train-mode forwards: repeatedly the first listed op of which all before it is done.

        Neighbours run part by part, all first parts and then all second ones, up to the first that must wait for more
        than the same part of those before it.
        """
        training = [name for name in self.runs if op_of(name) in self.meaning.training]
        pending, ordered = list(dict.fromkeys(map(op_of, training))), []
        while pending:
            open_ = {
                name: {other for other in training if op_of(other) in pending and op_of(other) != name}
                for name in pending
            }
            ready = (
                name
                for name in pending
                if not any(self.past[run] & open_[name] for run in training if op_of(run) == name)
            )
            ordered.append(next(ready))
            pending.remove(ordered[-1])
        found: list[str] = []
        together: list[str] = []
        for name in ordered:
            mine = [run for run in training if op_of(run) == name]
            if any(part_of(other) > part_of(run) for run in mine for other in self.past[run] & set(together)):
                found, together = found + sorted(together, key=part_of), []
            together += mine
        return found + sorted(together, key=part_of)

    def writers(self, cell: str) -> list[str]:
        """Return the writers of a cell in order: of buffers, train-mode forwards first."""
        if cell not in self.ordered:
            self.ordered[cell] = self._order(cell)
        return self.ordered[cell]

    def _order(self, cell: str) -> list[str]:
        found = [name for name in self.runs if cell in self.meaning.writes(op_of(name))]
        others = [name for name in found if name not in self.training]
        return [n for n in self.training if n in found] + sorted(others, key=lambda n: len(self.past[n] & set(found)))

    def seen(self, name: str, cell: str) -> int:
        """Return the version of a cell that an op sees: that of the newest write in its causal past."""
        writers = self.writers(cell)
        return max((writers.index(writer) + 1 for writer in writers if writer in self.past[name]), default=0)


def part_of(run: str) -> int:
    """Return the micro-batch of a run of an op, from 1; 0 for what runs once."""
    return int(run.partition("#")[2] or 0)


def op_of(run: str) -> str:
    """Return the op of one of its runs: ``fake`` of ``fake#2``."""
    return run.partition("#")[0]


def close(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> Past:
    """Return everything that happens before each op."""
    past: dict[str, set[str]] = {name: set() for name in names}
    for before, after in pairs:
        past[after].add(before)
    for middle in past:
        for name in past:
            if middle in past[name]:
                past[name] |= past[middle]
    return {name: frozenset(found) for name, found in past.items()}
