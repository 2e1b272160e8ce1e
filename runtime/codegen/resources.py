"""Names in emitted code: one readable, unique identifier for everything that a spec names."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec import Struct

from compiler.ir.instructions import (
    Accumulate,
    Apply,
    Blend,
    CheckFinite,
    Evaluate,
    Forward,
    Frozen,
    Gradient,
    Instruction,
    Store,
    Transform,
)
from compiler.ir.program import Function, InputDecl, Program, StateDecl
from compiler.ir.value import Constant
from compiler.timing.curves import find_scheduled
from runtime.codegen import syntax


def find_uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the values an instruction reads, in order, and the verdicts under which it writes."""
    return (*instruction.operands, *chain(*instruction.commits))


def find_functions(program: Program) -> tuple[Function, ...]:
    """Return the functions of all modes."""
    return tuple(function for mode in program.modes for function in mode.functions)


def find_instructions(program: Program) -> Iterator[Instruction]:
    """Yield the instructions of all functions."""
    for function in find_functions(program):
        yield from function.instructions


def find_training_modes(program: Program) -> frozenset[str]:
    """Return the modes in which an update is applied."""
    pairs = (
        (mode.mode, each) for mode in program.modes for function in mode.functions for each in function.instructions
    )
    return frozenset(mode for mode, each in pairs if isinstance(each, Apply))


def find_inputs(program: Program, function: Function) -> tuple[InputDecl, ...]:
    """Return the inputs a function needs: those it reads, and those whose free sizes a draw takes."""
    used, sizes = set[str](), set[str]()
    for instruction in function.instructions:
        used.update(find_uses(instruction))
        sizes.update(instruction.sizes)
    if program.inputs:
        used.update(find_sized_input(program, size, function).name for size in sizes)
    return tuple(entry for entry in program.inputs if entry.name in used)


def find_windows(program: Program) -> tuple[Accumulate, ...]:
    """Return the instructions that add to each window of a program."""
    instructions = find_instructions(program)
    return tuple({each.window: each for each in instructions if isinstance(each, Accumulate)}.values())


def find_checked(program: Program) -> tuple[CheckFinite, ...]:
    """Return the instructions that check the gradients of each update of a program."""
    instructions = find_instructions(program)
    return tuple({each.key: each for each in instructions if isinstance(each, CheckFinite)}.values())


def find_states(program: Program) -> tuple[StateDecl, ...]:
    """Return the states that the functions of a program read or write."""
    used = set[str]()
    for each in find_instructions(program):
        used.update(find_uses(each))
        if isinstance(each, Store):
            used.add(each.state)
    return tuple(state for state in program.states if state.name in used)


def find_sized_input(program: Program, size: str, function: Function) -> InputDecl:
    """Return the input from which a free size is read: the first declared with it that the function reads anyway.

    Where it reads none with it, the first declared with it, else the first: a batch of that mode must have it, too.
    """
    used = {name for instruction in function.instructions for name in find_uses(instruction)}
    inputs = sorted(program.inputs, key=lambda entry: entry.name not in used)
    return next((entry for entry in inputs if size in (entry.shape or ())), inputs[0])


def count_parts(program: Program) -> int:
    """Return how many micro-batches a step has."""
    return max((each.micro_batch for each in find_instructions(program)), default=0) or 1


def is_replicated(program: Program) -> bool:
    """Return whether several processes take a step together."""
    return program.parallel is not None


def is_lowered(forward: Forward) -> bool:
    """Return whether a model computes in another type than float32."""
    return forward.compute != "float32"


def is_typed(instruction: Evaluate) -> bool:
    """Return whether a result is in the type of the step, which the operands do not tell.

    `one_hot` is of it, and `where` of two numbers that are not both whole.
    """
    if not instruction.function.builtin or instruction.function.name != "where":
        return instruction.function.builtin and instruction.function.name == "one_hot"
    chosen = [each.operand for each in instruction.arguments[1:]]
    numbers = [each.value for each in chosen if isinstance(each, Constant)]
    return len(numbers) == len(chosen) and any(isinstance(each, float) for each in numbers)


def is_running(instruction: Instruction) -> bool:
    """Return whether the value of an instruction runs over several steps, or may, as for a user's metric."""
    if not isinstance(instruction, Evaluate) or instruction.family != "metric":
        return False
    return not (instruction.function.builtin and instruction.reset == "step")


class Chosen(Struct, frozen=True, kw_only=True):
    """Parameters of a model chosen by a pattern, for a constraint, a penalty or a rate of its own."""

    model: str
    match: str

    @property
    def key(self) -> str:
        """Return its key."""
        return f"{self.model} {self.match}"


def find_chosen(program: Program) -> tuple[Chosen, ...]:
    """Return the choices of constraints, penalties and rates, each once."""
    found: dict[Chosen, None] = {}
    for each in find_instructions(program):
        found.update((Chosen(model=model, match=match), None) for model, match in each.chosen)
        uses = each.projections if isinstance(each, Apply) else each.penalties if isinstance(each, Transform) else ()
        found.update((Chosen(model=use.model, match=use.match), None) for use in uses if use.match is not None)
    return tuple(found)


def averaged_keys(blend: Blend) -> tuple[str, str]:
    """Return the keys of the places of the parameters that are averaged, and of those that are copied."""
    return f"{blend.op} averaged", f"{blend.op} copied"


def find_selective(program: Program) -> tuple[Blend, ...]:
    """Return the averages that patterns choose parameters for, each once."""
    found: dict[str, Blend] = {}
    for each in find_instructions(program):
        if isinstance(each, Blend) and (each.match is not None or each.exclude is not None):
            found[each.op] = each
    return tuple(found.values())


def find_penalized(program: Program) -> tuple[Transform, ...]:
    """Return the instructions that add penalties to a set, one for each set."""
    found: dict[str, Transform] = {}
    for each in find_instructions(program):
        if isinstance(each, Transform) and each.penalties:
            found[each.output] = each
    return tuple(found.values())


def find_frozen(program: Program) -> tuple[tuple[tuple[str, ...], Frozen], ...]:
    """Return the sets of models in which parameters are currently frozen, with these, each once."""
    found: dict[tuple[tuple[str, ...], Frozen], None] = {}
    for each in find_instructions(program):
        if isinstance(each, Gradient | Transform | Accumulate) and each.frozen:
            found[each.models, each.frozen] = None
    return tuple(found)


def find_joint(program: Program) -> tuple[tuple[str, ...], ...]:
    """Return the sets of several models whose parameters are used as one list, each once."""
    found: list[tuple[str, ...]] = []
    for each in find_instructions(program):
        match each:
            case Gradient() | Accumulate():
                found.append(each.models)
            case Transform():
                # What is cut out of a joint gradient is a set of its own, which optimizers and others may divide again.
                found += [each.models] if each.covers or each.weights or each.frozen or each.penalties else []
                found += each.spans
            case _:
                pass
    for optimizer in program.optimizers:
        found += [optimizer.models, optimizer.excluded]
    return tuple(dict.fromkeys(models for models in found if len(models) > 1))


def frozen_key(models: tuple[str, ...], frozen: Frozen) -> str:
    """Return the key of the places of parameters that are currently frozen."""
    return " ".join((*models, "|", *chain(*frozen)))


def pattern_requests(program: Program) -> Iterator[NameRequest]:
    """Yield the names needed for the lists that patterns make."""
    for model in program.models:
        if model.frozen:
            yield "frozen", model.name, f"{model.name}_frozen"
    for models, frozen in find_frozen(program):
        yield "frozen places", frozen_key(models, frozen), f"{'_'.join(models)}_frozen_places"
    for chosen in find_chosen(program):
        yield "chosen", chosen.key, f"{chosen.model}_chosen"
    for each in find_selective(program):
        yield from (("chosen", key, key.replace(" ", "_")) for key in averaged_keys(each))
    for each in find_penalized(program):
        yield "penalties", each.output, f"{each.op}_penalties"


def chosen_list(model: str, match: str | None, names: Names) -> ast.expr:
    """Return the list of the parameters of a model that are stepped, or those that a pattern chooses."""
    return syntax.name(names.parameters(model) if match is None else names.chosen(f"{model} {match}"))


FIXED = (
    "AVERAGES", "COMPRESSORS", "FUNCTIONS", "METRICS", "MODELS", "OPTIMIZERS", "STATE", "WEIGHTS", "WINDOWS",
    "annotations", "batch", "batch_size", "build", "clock", "committed", "copy", "dataset", "device", "dtype",
    "end_epoch", "fired", "gates", "given", "loss_scale", "made", "make_models", "metric", "mode", "model", "models",
    "name", "number", "outputs", "random", "replicas", "seed", "shards", "step", "step_dtype", "verdicts",
)  # fmt: skip
"""Identifiers that every emitted module uses itself."""
NameRequest = tuple[str, str, str]
"""Kind, key, and the preferred identifier of something."""
CHECKS, NORMS = ("checks", ""), ("norms", "")
"""Kind and key of the checks, and of the register that measures gradients."""


class Extras(Struct, frozen=True, kw_only=True):
    """Instrumentation: what a module does in addition to its step."""

    debug: bool = False
    """Check the results and writes of every instruction."""
    norms: bool = False
    """Measure the gradients of every update."""
    profile: bool = False
    """The code of every op stands in a range of its name, for profilers."""


PLAIN = Extras()
"""No instrumentation."""


class Names(Struct, frozen=True, kw_only=True):
    """The identifiers of one emitted module, by what they name: (``value``, ``fake``) -> ``fake``."""

    table: dict[tuple[str, str], str] = {}
    profile: bool = False
    """The code of every op stands in a range of its name, for profilers."""

    def value(self, name: str) -> str:
        """Return the local variable of a value or input."""
        return self.table["value", name]

    def model(self, name: str) -> str:
        """Return the global variable of a model."""
        return self.table["model", name]

    def parameters(self, model: str) -> str:
        """Return the list of a model's parameters that gradients are taken for."""
        return self.table["parameters", model]

    def weights(self, model: str) -> str:
        """Return the list of all of a model's parameters."""
        return self.table["weights", model]

    def frozen(self, model: str) -> str:
        """Return the list of a model's parameters that are never stepped."""
        return self.table["frozen", model]

    def frozen_places(self, models: tuple[str, ...], frozen: Frozen) -> str:
        """Return the places, in a set over some models, of the parameters that are currently frozen."""
        return self.table["frozen places", frozen_key(models, frozen)]

    def chosen(self, key: str) -> str:
        """Return the list of the parameters that a pattern chooses, by the model and the pattern."""
        return self.table["chosen", key]

    def penalties(self, output: str) -> str:
        """Return the list of the penalties that are added to a gradient set, by the resulting set."""
        return self.table["penalties", output]

    def buffers(self, model: str) -> str:
        """Return the list of a model's buffers."""
        return self.table["buffers", model]

    def taps(self, model: str) -> str:
        """Return the dictionary of the results that a model's hooks record."""
        return self.table["taps", model]

    def optimizer(self, name: str) -> str:
        """Return the global variable of an optimizer."""
        return self.table["optimizer", name]

    def tape(self, op: str) -> str:
        """Return the local variable of the tape for the gradient of an op, or of its micro-batch ``op#2``."""
        return self.table["tape", op]

    def window(self, window: str) -> str:
        """Return the global variable of the gradients that an update has accumulated."""
        return self.table["window", window]

    def generators(self, model: str) -> str:
        """Return the list of a user's model's sources of random numbers."""
        return self.table["generators", model]

    def metric(self, mode: str, op: str) -> str:
        """Return the global variable of a running metric of a mode."""
        return self.table["metric", f"{mode} {op}"]

    def compressor(self, message: str) -> str:
        """Return the global variable of what was not sent of a gradient set, by its message."""
        return self.table["compressor", message]

    def joint(self, models: tuple[str, ...]) -> str:
        """Return the list of the parameters of one or several models."""
        return self.parameters(models[0]) if len(models) == 1 else self.table["joint", " ".join(models)]

    def own(self, optimizer: str) -> str:
        """Return the list of the parameters of an optimizer that shares some with another."""
        return self.table["own", optimizer]

    def own_places(self, optimizer: str, covers: tuple[str, ...]) -> str:
        """Return the places of their gradients in the sets over some models that it is given."""
        return self.table["own places", " ".join((*covers, "|", optimizer))]

    def common(self, models: tuple[str, ...], others: tuple[str, ...]) -> str:
        """Return the places, in two gradient sets, of the parameters that both have."""
        return self.table["common", " ".join((*models, "|", *others))]

    def part(self, covers: tuple[str, ...], models: tuple[str, ...]) -> str:
        """Return the slice of the gradients of a model, or of some that share parameters, in a set over several."""
        return self.table["part", " ".join((*covers, "|", *models))]

    def scheduled(self, number: str) -> str:
        """Return the function that reads a number that follows a schedule."""
        return self.table["schedule", number]

    def imported(self, path: str) -> str:
        """Return the dotted name of a user's ``pkg.mod:Name`` after its import."""
        home, _, rest = import_key(path).partition(" ")
        return ".".join((self.table["import", home], *rest.split()))

    @property
    def checks(self) -> str:
        """Return the global variable of the checks of a debug build; empty in others."""
        return self.table.get(CHECKS, "")

    @property
    def norms(self) -> str:
        """Return the global variable of the register that measures gradients of updates; empty without it."""
        return self.table.get(NORMS, "")

    def function(self, function: str) -> str:
        """Return the name of an emitted step function."""
        return self.table["function", function]


def choose_names(
    program: Program, taken: Iterable[str], *, name_requests: Iterable[NameRequest] = (), extras: Extras = PLAIN
) -> Names:
    """Return the identifiers of a module: models first, then values, then what is derived from them.

    ``taken`` are the names of the support library and of the framework; keywords, builtins and the module's own names
    are avoided as well. ``name requests`` are those of the framework, which come last.
    """
    used = {*FIXED, *taken, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
    table: dict[tuple[str, str], str] = {}
    watching = {(*CHECKS, "checks"): extras.debug, (*NORMS, "norms"): extras.norms}
    first = (request for request, is_wanted in watching.items() if is_wanted)
    for kind, key, request in (*first, *_name_requests(program), *name_requests):
        if (kind, key) not in table:
            identifier = re.sub(r"\W", "_", request, flags=re.ASCII)
            if identifier.startswith("__"):  # Python's own names look like this
                identifier = identifier.lstrip("_") or "value"
            while identifier in used:
                identifier += "_"
            table[kind, key] = identifier
            used.add(identifier)
    return Names(table=table, profile=extras.profile)


def _name_requests(program: Program) -> Iterator[NameRequest]:
    """Yield (kind, key, preferred identifier) of everything that needs a name, the most descriptive names first."""
    for model in program.models:
        yield "model", model.name, model.name
    for entry in program.inputs:
        yield "value", entry.name, entry.name
    for function in find_functions(program):
        yield from (("value", value, value) for each in function.instructions for value in each.defines)
    for function in find_functions(program):
        yield "function", function.name, function.name
    yield from pattern_requests(program)
    for model in program.models:
        yield "parameters", model.name, f"{model.name}_params"
        yield "weights", model.name, f"{model.name}_weights"
        yield "buffers", model.name, f"{model.name}_buffers"
        yield "taps", model.name, f"{model.name}_taps"
        if model.class_path is not None:
            yield _import_wish(model.class_path)
    for name in dict.fromkeys(each.name for use in find_instructions(program) for each in find_scheduled(use)):
        yield "schedule", name, name.replace(".", "_") if "." in name else f"{name}_schedule"
    for optimizer in program.optimizers:
        rule = optimizer.rule if optimizer.builtin else "optimizer"
        yield "optimizer", optimizer.name, f"{optimizer.name}_{rule}"
        if optimizer.is_partial:
            yield "own", optimizer.name, f"{optimizer.name}_own"
        if not optimizer.builtin:
            yield _import_wish(optimizer.rule)
    for models in find_joint(program):
        yield "joint", " ".join(models), "_".join((*models, "params"))
    for function in find_functions(program):
        for instruction in function.instructions:
            yield from map(_import_wish, instruction.functions)
            yield from _sets(instruction)
            if instruction.keeps_rest_of:
                yield "compressor", instruction.keeps_rest_of, f"{instruction.op}_compressor"
            if isinstance(instruction, Evaluate) and instruction.family == "metric":
                yield "metric", f"{function.mode} {instruction.op}", f"{function.mode}_{instruction.op}"


def _sets(instruction: Instruction) -> Iterator[NameRequest]:
    """Yield the names needed for windows, slices of sets over several models, and what two of these share."""
    match instruction:
        case Accumulate():
            yield "window", instruction.window, f"{instruction.window}_window"
        case Apply():
            for part in instruction.parts:
                if part.excluded or part.is_divided:
                    yield "own places", " ".join((*part.covers, "|", part.optimizer)), f"{part.optimizer}_places"
                groups = (*((each,) for each in part.models), part.models) if part.covers != part.models else ()
                for models in groups:
                    yield "part", " ".join((*part.covers, "|", *models)), "_".join((*models, "part"))
        case Transform(covers=covers, models=models) if covers:
            yield "part", " ".join((*covers, "|", *models)), "_".join((*models, "part"))
        case Transform(spans=(models, *others)):
            for each in others:
                yield "common", " ".join((*models, "|", *each)), f"{instruction.op}_common"
        case _:
            return


def import_key(path: str) -> str:
    """Return ``pkg.mod:Outer`` of ``pkg.mod:Outer.Inner``, then its attributes, each after a space."""
    module, _, attribute = path.partition(":")
    first, *rest = attribute.split(".")
    return " ".join((f"{module}:{first}", *rest))


def _import_wish(path: str) -> NameRequest:
    """Return the request for the name of a user's class or function."""
    home = import_key(path).partition(" ")[0]
    return "import", home, home.partition(":")[2]
