"""Names in emitted code: for everything a spec names one readable identifier that clashes with nothing."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.program import Apply, Evaluate, Gradient, Instruction, Program, Transform
from runtime.effects import find_definitions, find_functions

FIXED = (
    "FUNCTIONS", "METRICS", "MODELS", "OPTIMIZERS", "annotations", "batch", "batch_size", "build", "clock", "copy",
    "device", "dtype", "end_epoch", "fired", "gates", "given", "made", "make_models", "metric", "mode", "model",
    "models", "name", "number", "outputs", "random", "seed", "step",
)  # fmt: skip
"""Identifiers that every emitted module uses itself."""
Wish = tuple[str, str, str]
"""Kind, key, and the identifier that something would like to have."""
CHECKS = ("checks", "")
"""Kind and key of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The identifiers of one emitted module, by what they stand for: (``value``, ``fake``) -> ``fake``."""

    table: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

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
        """Return the local variable of the tape for the gradient of an op."""
        return self.table["tape", op]

    def generators(self, model: str) -> str:
        """Return the list of what a user's model draws random numbers from."""
        return self.table["generators", model]

    def metric(self, mode: str, op: str) -> str:
        """Return the global variable of a running metric of a mode."""
        return self.table["metric", f"{mode} {op}"]

    def joint(self, models: tuple[str, ...]) -> str:
        """Return the list of the parameters of several models."""
        return self.table["joint", " ".join(models)]

    def part(self, covers: tuple[str, ...], model: str) -> str:
        """Return the slice of a model's gradients in a set over several models."""
        return self.table["part", " ".join((*covers, model))]

    def imported(self, path: str) -> str:
        """Return the dotted name under which a user's ``pkg.mod:Name`` is known after its import."""
        home, _, rest = import_key(path).partition(" ")
        return ".".join((self.table["import", home], *rest.split()))

    @property
    def checks(self) -> str:
        """Return the global variable of the checks of a debug build; empty in others."""
        return self.table.get(CHECKS, "")

    def function(self, function: str) -> str:
        """Return the name of an emitted step function."""
        return self.table["function", function]


def choose_names(program: Program, taken: Iterable[str], *, wishes: Iterable[Wish] = (), debug: bool = False) -> Names:
    """Return the identifiers of a module: models first, then values, then what is derived from them.

    ``taken`` are the names of the support library and of the framework; keywords, builtins and the module's own names
    are avoided as well. ``wishes`` are those of the framework, which come last.
    """
    used = {*FIXED, *taken, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
    table: dict[tuple[str, str], str] = {}
    first = ((*CHECKS, "checks"),) if debug else ()
    for kind, key, wish in (*first, *_wishes(program), *wishes):
        if (kind, key) not in table:
            table[kind, key] = _free(wish, used)
            used.add(table[kind, key])
    return Names(table=table)


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
        yield from (("value", value, value) for each in function.instructions for value in find_definitions(each))
    for function in find_functions(program):
        yield "function", function.name, function.name
    yield from _derived(program)


def _derived(program: Program) -> Iterator[Wish]:
    """Yield the wishes for lists, slices, optimizers and imports."""
    for model in program.models:
        yield "parameters", model.name, f"{model.name}_params"
        yield "weights", model.name, f"{model.name}_weights"
        yield "buffers", model.name, f"{model.name}_buffers"
        yield "taps", model.name, f"{model.name}_taps"
        if model.class_path is not None:
            yield _import_wish(model.class_path)
    for optimizer in program.optimizers:
        rule = optimizer.rule if optimizer.builtin else "optimizer"
        yield "optimizer", optimizer.name, f"{optimizer.name}_{rule}"
        if len(optimizer.models) > 1:
            yield "joint", " ".join(optimizer.models), "_".join((*optimizer.models, "params"))
        if not optimizer.builtin:
            yield _import_wish(optimizer.rule)
    for function in find_functions(program):
        for instruction in function.instructions:
            yield from _sets(instruction)
            if isinstance(instruction, Evaluate) and instruction.family == "metric":
                yield "metric", f"{function.mode} {instruction.op}", f"{function.mode}_{instruction.op}"


def _sets(instruction: Instruction) -> Iterator[Wish]:
    """Yield the wishes for lists over several models, their slices, and users' functions."""
    match instruction:
        case Gradient() if len(instruction.models) > 1:
            yield "joint", " ".join(instruction.models), "_".join((*instruction.models, "params"))
        case Apply():
            for part in instruction.parts:
                if len(part.models) > 1:
                    yield "joint", " ".join(part.models), "_".join((*part.models, "params"))
                for model in part.models if part.covers != part.models else ():
                    covers = " ".join((*part.covers, model))
                    yield "part", covers, f"{model}_part"
        case Evaluate() | Transform() if not instruction.function.builtin:
            yield _import_wish(instruction.function.name)
        case _:
            return


def import_key(path: str) -> str:
    """Return ``pkg.mod:Outer`` of ``pkg.mod:Outer.Inner``, then, behind spaces, what follows as attributes."""
    module, _, attribute = path.partition(":")
    first, *rest = attribute.split(".")
    return " ".join((f"{module}:{first}", *rest))


def _import_wish(path: str) -> Wish:
    """Return the wish for the name of a user's class or function."""
    home = import_key(path).partition(" ")[0]
    return "import", home, home.partition(":")[2]
