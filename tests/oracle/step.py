"""One step of a mode: the versions of all cells, the results of all writes, and the values of all ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from graphspec.declare.ops import (
    CallOp,
    ClipSpec,
    CopyOp,
    EmaOp,
    ForwardOp,
    GradientOp,
    MetricOp,
    RandomOp,
    TransformOp,
    UpdateOp,
)
from graphspec.declare.schedules import ScheduleSpec
from tests.oracle.averages import either_way, mix, nearest
from tests.oracle.draws import Draws
from tests.oracle.gradients import differentiate, find_reached
from tests.oracle.meaning import Meaning, Versions
from tests.oracle.numbers import Array, Reals
from tests.oracle.parts import Parts
from tests.oracle.settling import settle_updates
from tests.oracle.slots import Optimizers
from tests.oracle.terms import add_penalties, constrain, is_frozen
from tests.oracle.transforms import clip, complete, transform
from tests.oracle.verdicts import Verdicts
from tests.oracle.windows import Windows
from tests.oracle.world import SecondOrderError, Target, World

State = Mapping[str, np.ndarray]
Gradients = Mapping[Target, np.ndarray]


class StepValues:
    """What one step means, given the state it begins with."""

    def __init__(
        self,
        meaning: Meaning,
        firing: list[str],
        *,
        gathering: Iterable[str] = (),
        batch: State,
        start: Mapping[str, State],
        optimizers: Optimizers,
        draws: Draws,
        number: int,
        states: State,
        windows: Windows,
        firings: Mapping[str, int],
        blur: Callable[[str, tuple[int, ...]], np.ndarray] | None = None,
    ) -> None:
        self.meaning, self.parts = meaning, Parts(meaning)
        self.versions = Versions(meaning, firing, runs=self.parts.listed(firing), past=self.parts.past)
        self.batch, self.start, self.optimizers = batch, start, optimizers
        self.draws, self.number = draws, number
        self.states, self.windows, self.firings = states, windows, firings
        self.blur = blur
        """What a call of layers is multiplied by, to see whether something hangs on its last digits."""
        self.verdicts = Verdicts(self, firing, gathering)
        self.base = World(self, Reals(), {})
        self.left: dict[str, State] = {}
        self.made: dict[tuple[str, int], State] = {}
        self.stepped: dict[str, Mapping[str, State]] = {}
        self.finals: dict[str, Gradients] = {}
        self.ways: dict[str, list[Gradients]] = {}
        """By update: all that its final gradients are made of, behind the gradients as they were taken."""
        self.sets: dict[str, Gradients] = {}
        self.measured: dict[str, tuple[float, int]] = {}

    # ------------------------------------------------------------ cells

    def parameters(self, model: str, version: int) -> State:
        """Return the parameters of a model at a version."""
        return self._cell(f"{model}.params", model, version)

    def buffers(self, model: str, version: int) -> State:
        """Return the buffers of a model at a version."""
        return self._cell(f"{model}.buffers", model, version)

    def _cell(self, cell: str, model: str, version: int) -> State:
        if (cell, version) not in self.made:
            buffers = cell.endswith(".buffers")
            if version == 0:
                made = {k: v for k, v in self.start[model].items() if is_buffer(k) == buffers}
            else:
                made = self._written(self.versions.writers(cell)[version - 1], cell, model, version - 1)
            self.made[cell, version] = made
        return self.made[cell, version]

    def _written(self, writer: str, cell: str, model: str, before: int) -> State:
        """Return what a writer makes of the version before it."""
        name, _, part = writer.partition("#")
        op = self.meaning.ops[name]
        match op:
            case UpdateOp() | EmaOp() | CopyOp() if self.verdicts.is_held(writer):
                return self._cell(cell, model, before)
            case ForwardOp():
                self.base.at(int(part or 0)).value(op.defines(name)[0])
                return self.left[writer]
            case UpdateOp():
                return self.apply(writer)[model]
            case EmaOp() | CopyOp():
                return self._follow(writer, op, cell, self._cell(cell, model, before))
            case _:
                raise AssertionError(f"{writer} writes nothing")

    def _follow(self, name: str, op: EmaOp | CopyOp, cell: str, old: State) -> State:
        """Return an average, or a copy, of what an op sees of its source."""
        source, part = (op.ema if isinstance(op, EmaOp) else op.copy_), cell.rpartition(".")[2]
        holders = self.meaning.storages.holders(source) if part == "params" else (source,)
        seen = {holder: self.versions.seen(name, f"{holder}.{part}") for holder in holders}
        new = {key: value for one in seen for key, value in self._cell(f"{one}.{part}", one, seen[one]).items()}
        if isinstance(op, CopyOp):
            return {key: new[key] for key in old}
        if op.schedule_free and part == "params":
            gaps = self.optimizers.find_gaps(self, seen)
            return {key: value - gaps.get(key, 0.0) for key, value in new.items()}
        return {key: self._average(name, op, (number, key), old[key], new[key]) for number, key in enumerate(old)}

    def _average(self, name: str, op: EmaOp, place: tuple[int, str], old: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Return one parameter or buffer of an average, as its policy says."""
        number, key = place
        if is_buffer(key):
            is_whole = key.endswith("num_batches_tracked")
            policy = self.meaning.whole_policy(name) if is_whole else self.meaning.buffer_policy(name)
            policy = "copy" if op.schedule_free and policy == "average" else policy  # there is no decay
        else:
            is_chosen = op.match is None or re.search(op.match, key)
            is_left_out = op.exclude is not None and re.search(op.exclude, key)
            policy = "average" if is_chosen and not is_left_out else "copy"
        made = mix(op, self.firings[name], old, new) if policy == "average" else {"copy": new, "ignore": old}[policy]
        if is_buffer(key) or op.dtype is None:
            return made
        if op.rounding != "stochastic":
            return nearest(op.dtype, made)
        # Every parameter draws under the name of the average and its own number among the parameters.
        shares = self.draws.numbers(self.meaning.mode, self.number, f"{name}.{number}", 0, made.shape, "uniform")
        return either_way(op.dtype, made, shares)

    def seen_state(self, name: str, reader: str) -> np.ndarray:
        """Return a declared state as an op sees it."""
        return self.state(name, self.versions.seen(reader, f"{name}.state"))

    def state(self, name: str, version: int) -> np.ndarray:
        """Return a declared state at a version."""
        if version == 0:
            return self.states[name]
        writer = self.versions.writers(f"{name}.state")[version - 1]
        if self.verdicts.is_held(writer):
            return self.state(name, version - 1)
        value = self.base.operand(self.meaning.ops[writer].value, writer)[0]
        return np.broadcast_to(value, self.states[name].shape) if value.ndim == 0 else value

    def final_state(self, name: str) -> np.ndarray:
        """Return what a declared state is after the step."""
        return self.state(name, len(self.versions.writers(f"{name}.state")))

    def final(self, model: str) -> State:
        """Return what a holder has after the step."""
        found: dict[str, np.ndarray] = {}
        for part in ("params", "buffers"):
            cell = f"{model}.{part}"
            found |= self._cell(cell, model, len(self.versions.writers(cell)))
        return found

    # ------------------------------------------------------------ gradients and updates

    def targets(self, models: tuple[str, ...], *, whole: bool = False) -> Mapping[Target, tuple[int, ...]]:
        """Return all parameters of some models with their shapes, by holder: what they share is one target.

        ``whole``: those that are currently frozen as well.
        """
        spec = self.meaning.whole if whole else self.meaning.spec
        return {
            (holder, name): value.shape
            for holder in self.meaning.storages.all_holders(models)
            for name, value in self.start[holder].items()
            if not is_buffer(name) and not is_frozen(spec, self.meaning.storages, holder, name)
        }

    def gradient_values(self, world: World, name: str, op: GradientOp) -> Mapping[str, Array]:
        """Return the gradients by values that an op defines; its set over models is kept beside."""
        if world is not world.base and not world.numbers.keeps_graph:
            raise SecondOrderError(name)
        models, values = op.split({*self.start, *self.meaning.derived})
        shapes = {("", value): world.base.value(value).shape[1:] for value in values}
        seed = op.grad_outputs[0] if op.grad_outputs else None
        wanted = shapes if world is not world.base else {**self.find_wanted(models), **shapes}
        found = differentiate(world, op.gradient, wanted, seed, is_own=name in self.parts.added)
        names = op.defines(name)
        if models and world is world.base:
            held = find_reached(world, op.gradient, wanted, seed) if op.unconnected == "skip" else wanted
            run = world.run_of(name)
            self.sets[run] = {self.find_own(key): value for key, value in found.items() if key[0] and key in held}
        outputs = {out: found["", value][None] for out, value in zip(names[bool(models) :], values, strict=True)}
        return {**({names[0]: None} if models else {}), **outputs}

    def find_wanted(self, models: tuple[str, ...]) -> Mapping[Target, tuple[int, ...]]:
        """Return the targets of a gradient: parameters of models, or the weights of a derived one in their place."""
        derived = [model for model in models if model in self.meaning.derived]
        own = self.targets(tuple(self.meaning.called(model) for model in models))
        return {(derived[0], ".".join(key)): shape for key, shape in own.items()} if derived else own

    def find_own(self, target: Target) -> Target:
        """Return the parameter in whose place a target is."""
        holder, _, name = target[1].partition(".")
        return (holder, name) if target[0] in self.meaning.derived else target

    def differentiate_again(self, world: World, value: str) -> Mapping[Target, Array]:
        """Return a gradient set in a world in which it is differentiated."""
        op = self.meaning.ops[self.meaning.owner[value]]
        if not world.numbers.keeps_graph:
            raise SecondOrderError(value)
        models, _ = op.split({*self.start, *self.meaning.derived})
        is_own = self.meaning.owner[value] in self.parts.added
        found = differentiate(world, op.gradient, self.find_wanted(models), is_own=is_own)
        return {self.find_own(key): slope[None] for key, slope in found.items()}

    def gradients(self, value: str) -> Gradients:
        """Return a gradient set."""
        if value not in self.sets:
            owner = self.meaning.owner[value]
            op = self.meaning.ops[owner]
            if isinstance(op, GradientOp):
                self.sets[value] = self._take(owner)
            elif isinstance(op, TransformOp):
                self.sets[value] = transform(self, value, op)
            else:
                self.sets[value] = self._combine(op)
        return self.sets[value]

    def _take(self, name: str) -> Gradients:
        """Return the gradient set of an op: the sum over the micro-batches, where it is taken for each."""
        for world in self.base.parts if name in self.parts.split else [self.base]:
            world.evaluate(name)
        return add([self.sets[run] for run in self.parts.names(name)])

    def _combine(self, op: CallOp) -> Gradients:
        """Return what ``add``, ``mul`` or ``lerp`` makes of gradient sets and numbers."""
        operands = [one for _, one in op.inputs.items()]
        sets = [self.gradients(one) for one in operands if isinstance(one, str) and self._is_set(one)]
        parts = {key: [self._element(one, key) for one in operands] for key in complete(sets)[0]}
        if op.call.name("torch") == "mul":
            parts = {key: part for key, part in parts.items() if all(key in one for one in sets)}
        match op.call.name("torch"):
            case "add":
                return {key: sum(part) for key, part in parts.items()}
            case "sub":
                return {key: a - b for key, (a, b) in parts.items()}
            case "mul":
                return {key: np.prod(np.broadcast_arrays(*part), axis=0) for key, part in parts.items()}
            case _:
                return {key: a + weight * (b - a) for key, (a, b, weight) in parts.items()}

    def models_of(self, name: str) -> tuple[str, ...]:
        """Return the models that a gradient set covers."""
        op = self.meaning.ops[self.meaning.owner[name]]
        if isinstance(op, GradientOp):
            return tuple(map(self.meaning.called, op.split({*self.start, *self.meaning.derived})[0]))
        named = op.inputs if isinstance(op, TransformOp) else [one for _, one in op.inputs.references()]
        return self.models_of(next(one for one in named if self._is_set(one)))

    def _is_set(self, name: str) -> bool:
        """Return whether a name is that of a gradient set."""
        op = self.meaning.ops.get(self.meaning.owner.get(name, ""))
        match op:
            case GradientOp():
                models, _ = op.split({*self.start, *self.meaning.derived})
                return bool(models) and op.defines(self.meaning.owner[name])[0] == name
            case TransformOp():
                return True
            case CallOp():
                return any(self._is_set(one) for _, one in op.inputs.references())
            case _:
                return False

    def _element(self, operand: str | float, key: Target) -> np.ndarray | float:
        if not isinstance(operand, str):
            return operand
        return self.gradients(operand).get(key, 0.0) if self._is_set(operand) else self.base.value(operand)[0]

    def apply(self, name: str) -> Mapping[str, State]:
        """Return the parameters of all models of an update after it, by holder."""
        if name not in self.stepped:
            op = self.meaning.ops[name]
            found = self.shared_gradients(name, op)
            found = {key: g for key, g in found.items() if f"{key[0]}.params" in self.meaning.writes(name)}
            made = self.optimizers.step(self, name, op, found)
            self.stepped[name] = constrain(self, name, op, made, found)
        return self.stepped[name]

    def shared_gradients(self, name: str, op: UpdateOp) -> Gradients:
        """Return the final gradients of an update with those that others give it."""
        found = dict(self.final_gradients(name, op))
        for giver in self.meaning.sharing[name]:
            if giver in self.versions.firing:
                given = self.final_gradients(giver, self.meaning.ops[giver])
                held = self.meaning.storages.all_holders(op.update)
                found |= {key: g + found.get(key, 0.0) for key, g in given.items() if key[0] in held}
        return found

    def final_gradients(self, name: str, op: UpdateOp) -> Gradients:
        """Return the gradients of an update as it applies them, or gives them to another."""
        if name not in self.finals:
            found: Gradients
            way: list[Gradients] = []
            if op.window > 1:
                found = self.windows.whole(self, name, op, way)
            elif op.loss is not None:
                found = self.own_gradients(op)
            else:
                found = {key: g for value in op.gradients for key, g in self.gradients(value).items()}
                way += [self.gradients(value) for value in self.find_made(op.gradients)]
            found = {key: g for key, g in found.items() if key[0] in self.meaning.storages.all_holders(op.update)}
            # A window has zeros already, but of what was frozen in all of its steps.
            if op.missing == "zero" and (op.window == 1 or op.loss is None):
                found = {key: np.zeros(shape) for key, shape in self.targets(op.update).items()} | found
            found = add_penalties(self, name, op, found)
            self.ways[name] = [*way, found]
            found = clip(self, name, self._settle_clip(name, op), found) if op.clip is not None else found
            self.finals[name] = found
            self.ways[name].append(found)
        return self.finals[name]

    def find_made(self, values: Iterable[str]) -> list[str]:
        """Return the gradient sets that some are, or are made of, but for gradients as they were taken."""
        found: list[str] = []
        for value in values:
            op = self.meaning.ops.get(self.meaning.owner.get(value, ""))
            if isinstance(op, TransformOp | CallOp) and self._is_set(value):
                named = op.inputs if isinstance(op, TransformOp) else [one for _, one in op.inputs.references()]
                found += [value, *self.find_made(named)]
        return found

    def own_gradients(self, op: UpdateOp) -> Gradients:
        """Return the gradients of an update's own loss."""
        worlds = self.base.parts if self.parts.is_batched(op.loss) and self.base.parts else [self.base]
        is_own = self.parts.adds(op)
        return add([self._differentiate(each, op.loss, op.update, op.missing, is_own=is_own) for each in worlds])

    def term_gradients(
        self, loss: str, term: str, models: tuple[str, ...], missing: str, seed: str | None
    ) -> Gradients:
        """Return the gradients of one term of a loss; of one that counts, those of its sum."""
        worlds = self.base.parts if self.parts.is_batched(loss) and self.base.parts else [self.base]
        return add([self._differentiate(world, f"{loss}|{term}", models, missing, seed) for world in worlds])

    def count(self, loss: str) -> int:
        """Return what a loss counts in a step."""
        worlds = self.base.parts if loss in self.parts.split else [self.base]
        return sum(world.counted(loss, self.meaning.ops[loss])[1] for world in worlds)

    def _differentiate(
        self,
        world: World,
        loss: str,
        models: tuple[str, ...],
        missing: str,
        seed: str | None = None,
        *,
        is_own: bool = False,
    ) -> Gradients:
        """Return the gradients of a loss, or of what a micro-batch adds to it, times a constant."""
        targets = self.targets(models)
        found = differentiate(world, loss, targets, seed, is_own=is_own)
        held = find_reached(world, loss, targets, seed) if missing == "skip" else targets
        return {key: g for key, g in found.items() if key in held}

    def _settle_clip(self, name: str, op: UpdateOp) -> ClipSpec:
        """Return the clip of an update behind the updates that its optimizer has applied before."""
        if not any(isinstance(each, ScheduleSpec) for each in (op.clip.limit, op.clip.eps)):
            return op.clip
        return settle_updates(op.clip, self.optimizers.applied(self, name, op))

    # ------------------------------------------------------------ calls of models, draws, metrics

    def masks(self, name: str) -> Callable[[tuple[int, ...], float], np.ndarray]:
        """Return what draws the masks of one call, each with the next number of the op."""
        drawn = iter(range(1000))

        def mask(shape: tuple[int, ...], p: float) -> np.ndarray:
            numbers = self.draws.numbers(self.meaning.mode, self.number, name, next(drawn), shape, "uniform")
            return (numbers >= p).astype(np.float64)

        return mask

    def draw(self, name: str, op: RandomOp) -> np.ndarray:
        """Return what a ``random`` op draws."""
        rows = next(value.shape[0] for value in self.batch.values())
        shape = self._shape_of(op.like) if op.like else [rows if s == "batch" else s for s in op.shape]
        kind = {"normal": "normal", "permutation": "bits"}.get(op.random, "uniform")
        found = self.draws.numbers(self.meaning.mode, self.number, name, 0, shape, kind)
        o = op.args
        match op.random:
            case "normal":
                return found * o.get("std", 1.0) + o.get("mean", 0.0)
            case "uniform":
                return found * (o.get("high", 1.0) - o.get("low", 0.0)) + o.get("low", 0.0)
            case "bernoulli":
                return (found < o.get("p", 0.5)).astype(np.float64)
            case "randint":
                return np.floor(found * (o["high"] - o.get("low", 0))).astype(np.int64) + o.get("low", 0)
            case _:
                return np.argsort(found, kind="stable")

    def _shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value; of one that comes in micro-batches the first tells it, by its share of rows."""
        if self.meaning.owner.get(name) not in self.parts.split:
            return self.base.value(name).shape[1:]
        rows = next(value.shape[0] for value in self.batch.values())
        _, *shape = self.base.parts[0].value(name).shape
        own = len(np.array_split(np.arange(rows), self.parts.count)[0])
        return tuple([shape[0] * rows // own, *shape[1:]] if shape else shape)

    def measure(self, name: str, op: MetricOp) -> np.ndarray:
        """Return a metric of this batch, and note it with its rows; what ran before is added by the oracle."""
        operands = [self.base.operand(one, name) for _, one in op.inputs.items()]
        if op.metric.name("torch") == "mean":
            found = operands[0].mean()
        else:
            found = (operands[0].argmax(axis=2) == operands[1]).mean()
        self.measured[name] = (float(found), operands[0].shape[1] if operands[0].ndim > 1 else 1)
        return np.asarray(found)


def add(sets: list[Gradients]) -> Gradients:
    """Return the sum of gradient sets: of what is there in some of them."""
    return {key: sum(each[key] for each in sets if key in each) for one in sets for key in one}


def is_buffer(name: str) -> bool:
    """Return whether a tensor of a model is a running statistic, or the vector that a spectral norm keeps."""
    return name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked", "u")
