"""Names in emitted code: for everything a spec names one readable identifier that clashes with nothing."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.ir.instructions import Apply, Evaluate, Gather, Gradient, Instruction, Resting, Transform
from compiler.ir.program import Program
from compiler.timing.curves import find_scheduled
from runtime.effects import find_functions
from runtime.emission.patterns import pattern_wishes, resting_key

FIXED = (
    "FUNCTIONS", "METRICS", "MODELS", "OPTIMIZERS", "STATE", "WEIGHTS", "WINDOWS", "annotations", "batch",
    "batch_size", "build", "clock", "committed", "copy", "dataset", "device", "dtype", "end_epoch", "fired",
    "gates", "given", "loss_scale", "made", "make_models", "metric", "mode", "model", "models", "name",
    "number", "outputs", "random", "seed", "step", "verdicts",
)  # fmt: skip
"""Identifiers that every emitted module uses itself."""
Wish = tuple[str, str, str]
"""Kind, key, and the identifier that something would like to have."""
CHECKS, NORMS = ("checks", ""), ("norms", "")
"""Kind and key of the checks, and of what measures gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a module does beside its step, for those who look on."""

    debug: bool = False
    """Check what every instruction made or wrote."""
    norms: bool = False
    """Measure the gradients of every update."""
    profile: bool = False
    """The code of every op stands in a range of its name, for profilers."""


PLAIN = Extras()
"""Nothing but the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The identifiers of one emitted module, by what they stand for: (``value``, ``fake``) -> ``fake``."""

    table: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
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

    def resting(self, models: tuple[str, ...], resting: Resting) -> str:
        """Return the places, in a set over some models, of the parameters that are frozen for now."""
        return self.table["resting", resting_key(models, resting)]

    def chosen(self, key: str) -> str:
        """Return the list of the parameters that a pattern chooses, by the model and the pattern."""
        return self.table["chosen", key]

    def penalties(self, output: str) -> str:
        """Return the list of the penalties that are added to a gradient set, by what comes of it."""
        return self.table["penalties", output]

    def buffers(self, model: str) -> str:
        """Return the list of a model's buffers."""
        return self.table["buffers", model]

    def taps(self, model: str) -> str:
        """Return the dictionary of what a model's hooks saw."""
        return self.table["taps", model]

    def optimizer(self, name: str) -> str:
        """Return the global variable of an optimizer."""
        return self.table["optimizer", name]

    def tape(self, op: str) -> str:
        """Return the local variable of the tape for the gradient of an op, or of its micro-batch ``op#2``."""
        return self.table["tape", op]

    def window(self, window: str) -> str:
        """Return the global variable of the gradients that an update has gathered."""
        return self.table["window", window]

    def generators(self, model: str) -> str:
        """Return the list of what a user's model draws random numbers from."""
        return self.table["generators", model]

    def metric(self, mode: str, op: str) -> str:
        """Return the global variable of a running metric of a mode."""
        return self.table["metric", f"{mode} {op}"]

    def joint(self, models: tuple[str, ...]) -> str:
        """Return the list of the parameters of several models."""
        return self.table["joint", " ".join(models)]

    def own(self, optimizer: str) -> str:
        """Return the list of the parameters of an optimizer that shares some with another."""
        return self.table["own", optimizer]

    def own_places(self, optimizer: str) -> str:
        """Return where the gradients of those stand in the set that it is given."""
        return self.table["own places", optimizer]

    def common(self, models: tuple[str, ...], others: tuple[str, ...]) -> str:
        """Return the places, in two gradient sets, of the parameters that both have."""
        return self.table["common", " ".join((*models, "|", *others))]

    def part(self, covers: tuple[str, ...], model: str) -> str:
        """Return the slice of a model's gradients in a set over several models."""
        return self.table["part", " ".join((*covers, model))]

    def scheduled(self, number: str) -> str:
        """Return the function that reads a number that follows a schedule."""
        return self.table["schedule", number]

    def imported(self, path: str) -> str:
        """Return the dotted name under which a user's ``pkg.mod:Name`` is known after its import."""
        home, _, rest = import_key(path).partition(" ")
        return ".".join((self.table["import", home], *rest.split()))

    @property
    def checks(self) -> str:
        """Return the global variable of the checks of a debug build; empty in others."""
        return self.table.get(CHECKS, "")

    @property
    def norms(self) -> str:
        """Return the global variable of what measures the gradients of updates; empty where nobody asked for it."""
        return self.table.get(NORMS, "")

    def function(self, function: str) -> str:
        """Return the name of an emitted step function."""
        return self.table["function", function]


def choose_names(
    program: Program, taken: Iterable[str], *, wishes: Iterable[Wish] = (), extras: Extras = PLAIN
) -> Names:
    """Return the identifiers of a module: models first, then values, then what is derived from them.

    ``taken`` are the names of the support library and of the framework; keywords, builtins and the module's own names
    are avoided as well. ``wishes`` are those of the framework, which come last.
    """
    used = {*FIXED, *taken, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
    table: dict[tuple[str, str], str] = {}
    watching = {(*CHECKS, "checks"): extras.debug, (*NORMS, "norms"): extras.norms}
    first = (wish for wish, is_wanted in watching.items() if is_wanted)
    for kind, key, wish in (*first, *_wishes(program), *wishes):
        if (kind, key) not in table:
            table[kind, key] = _free(wish, used)
            used.add(table[kind, key])
    return Names(table=table, profile=extras.profile)


def _free(wish: str, used: set[str]) -> str:
    """Return the wished identifier, with as many underscores behind it as it takes to be free."""
    identifier = re.sub(r"\W", "_", wish, flags=re.ASCII)
    if identifier.startswith("__"):  # Python's own names look like this
        identifier = identifier.lstrip("_") or "value"
    while identifier in used:
        identifier += "_"
    return identifier


def _wishes(program: Program) -> Iterator[Wish]:
    """Yield (kind, key, wished identifier) of everything that needs a name, the most telling names first."""
    for model in program.models:
        yield "model", model.name, model.name
    for entry in program.inputs:
        yield "value", entry.name, entry.name
    for function in find_functions(program):
        yield from (("value", value, value) for each in function.instructions for value in each.defines)
    for function in find_functions(program):
        yield "function", function.name, function.name
    yield from _derived(program)


def _derived(program: Program) -> Iterator[Wish]:
    """Yield the wishes for lists, slices, optimizers and imports."""
    yield from pattern_wishes(program)
    for model in program.models:
        yield "parameters", model.name, f"{model.name}_params"
        yield "weights", model.name, f"{model.name}_weights"
        yield "buffers", model.name, f"{model.name}_buffers"
        yield "taps", model.name, f"{model.name}_taps"
        if model.class_path is not None:
            yield _import_wish(model.class_path)
    for name in dict.fromkeys(each.name for use in _instructions(program) for each in find_scheduled(use)):
        yield "schedule", name, name.replace(".", "_") if "." in name else f"{name}_schedule"
    for optimizer in program.optimizers:
        rule = optimizer.rule if optimizer.builtin else "optimizer"
        yield "optimizer", optimizer.name, f"{optimizer.name}_{rule}"
        if len(optimizer.models) > 1:
            yield "joint", " ".join(optimizer.models), "_".join((*optimizer.models, "params"))
        if optimizer.beside:
            yield "own", optimizer.name, f"{optimizer.name}_own"
            yield "own places", optimizer.name, f"{optimizer.name}_places"
            yield from (_joint(models) for models in (optimizer.models, optimizer.beside) if len(models) > 1)
        if not optimizer.builtin:
            yield _import_wish(optimizer.rule)
    for function in find_functions(program):
        for instruction in function.instructions:
            yield from map(_import_wish, instruction.functions)
            yield from _sets(instruction)
            if isinstance(instruction, Evaluate) and instruction.family == "metric":
                yield "metric", f"{function.mode} {instruction.op}", f"{function.mode}_{instruction.op}"


def _instructions(program: Program) -> Iterator[Instruction]:
    """Yield the instructions of all functions."""
    return (instruction for function in find_functions(program) for instruction in function.instructions)


def _sets(instruction: Instruction) -> Iterator[Wish]:
    """Yield the wishes for lists over several models, and their slices."""
    match instruction:
        case Gradient() if len(instruction.models) > 1:
            yield _joint(instruction.models)
        case Gather():
            yield "window", instruction.window, f"{instruction.window}_window"
            if len(instruction.models) > 1:
                yield _joint(instruction.models)
        case Transform(weights=True) | Transform(resting=(_, *_)) if len(instruction.models) > 1:
            yield _joint(instruction.models)
        case Apply():
            for part in instruction.parts:
                if len(part.models) > 1:
                    yield "joint", " ".join(part.models), "_".join((*part.models, "params"))
                for model in (*part.models, " ".join(part.models)) if part.covers != part.models else ():
                    covers = " ".join((*part.covers, model))
                    yield "part", covers, f"{model}_part"
        case Transform(spans=(models, *others)):
            for each in others:
                yield "common", " ".join((*models, "|", *each)), f"{instruction.op}_common"
            yield from (_joint(each) for each in (models, *others) if len(each) > 1)
        case _:
            return


def _joint(models: tuple[str, ...]) -> Wish:
    """Return the wish for the list of the parameters of several models."""
    return "joint", " ".join(models), "_".join((*models, "params"))


def import_key(path: str) -> str:
    """Return ``pkg.mod:Outer`` of ``pkg.mod:Outer.Inner``, then, behind spaces, what follows as attributes."""
    module, _, attribute = path.partition(":")
    first, *rest = attribute.split(".")
    return " ".join((f"{module}:{first}", *rest))


def _import_wish(path: str) -> Wish:
    """Return the wish for the name of a user's class or function."""
    home = import_key(path).partition(" ")[0]
    return "import", home, home.partition(":")[2]
