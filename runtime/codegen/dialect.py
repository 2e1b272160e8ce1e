"""Dialect: how one framework writes the parts that every emitted step has."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from runtime.codegen import syntax
from runtime.codegen.flow import find_gradient_paths, find_rerun, find_row_sets, find_sent

if TYPE_CHECKING:
    from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction, ResolveOverflow
    from compiler.ir.program import Function, LayerDecl, ModelDecl, OptimizerDecl, Program
    from runtime.codegen.callee import Resolved
    from runtime.codegen.flow import Flow
    from runtime.codegen.needs import Needs
    from runtime.codegen.resources import NameRequest, Names
    from runtime.codegen.scheduled_numbers import Form
    from runtime.codegen.support_code import Imported, Library
    from runtime.codegen.text import Block, Code, Line


Graph = Literal["without", "either", "with"]
"""Whether code must run without a graph, may, or must run with one."""


class Global(Struct, frozen=True, kw_only=True):
    """A global variable that ``build`` assigns."""

    name: str
    value: ast.expr
    comment: str = ""
    place: tuple[str, str] = ("", "")


class Dialect(ABC):
    """The differences between frameworks in emitted code; the modules next to this one have the common parts.

    Expressions are passed and returned as syntax trees.
    """

    title: str
    """The name of the framework: ``PyTorch``."""
    framework: str
    """The package that the module imports: ``torch``."""
    model_type: str
    """The annotation of models."""
    dtype: str
    """The default type of parameters."""
    prefix: str
    """The module of the types: ``torch``."""
    held: str
    """The annotation of a state."""
    own: Mapping[str, Imported]
    """The imports of the module's own lines, by the name they use."""
    reserved: tuple[str, ...]
    """Identifiers that only this framework's modules use."""
    stack: str
    """The container of consecutive layers."""
    direct: Mapping[str, str]
    """Rules of optimizers with a class of the library, which steps whole lists with explicit gradients."""
    wrapped: Mapping[str, str]
    """Rules for which the framework's own class is used directly."""
    pace: str
    """The expression from which `paced` reads the steps."""
    decay: str = "Decay"
    """The class of the decay of an average that counts how often it took place."""
    feeds: bool = False
    """The host gives such numbers to the functions before each step."""

    freezing: str = "frozen"
    """The context in which no gradient of some parameters is recorded."""
    window: str = "Window"
    """The class of what adds up the gradients of several steps."""
    own_window: str = ""
    """The class where every replica has its own; empty where it is no other."""
    verdicts: str = "Verdicts"
    """The class of the verdicts of a step."""
    loss_scale: str = "LossScale"
    """The class of the loss scale."""
    asks_late: bool = False
    """The host asks the device for verdicts as late as it can; up to there the device decides which writes stay."""
    grouped: str = "Grouped"
    """The class of an optimizer of the library with groups of parameters."""
    sources: Mapping[str, str] = MappingProxyType({"native": "NativeRandom", "portable": "PortableRandom"})
    """The classes of the sources of random numbers, by `rng`."""

    build_doc: str
    """The docstring of ``build``."""

    @abstractmethod
    def library(self) -> Library:
        """Return the support code."""

    def name_requests(self, program: Program) -> Iterator[NameRequest]:
        """Yield the names that only this framework's modules need."""
        return iter(())

    def registers(self) -> tuple[str, ...]:
        """Return further dictionaries that ``build`` fills."""
        return ()

    @abstractmethod
    def function(self, function: Function, context: EmitContext) -> Block:
        """Return the function of one active set."""

    # ------------------------------------------------------------ instructions

    @abstractmethod
    def forward(self, instruction: Forward, scope: EmitScope) -> Lowered:
        """Return the call of a model."""

    @abstractmethod
    def gradient(self, instruction: Gradient, scope: EmitScope) -> Lowered:
        """Return the gradient of a loss."""

    @abstractmethod
    def resolve_overflow(self, instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
        """Return the end of a step with verdicts."""

    @abstractmethod
    def all_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return whether all of some truth values on the device are true."""

    @abstractmethod
    def any_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return whether any of some truth values on the device is true."""

    @abstractmethod
    def verdict_options(self, context: EmitContext) -> dict[str, ast.expr]:
        """Return the arguments of the verdicts of a step."""

    @abstractmethod
    def range(self, op: str) -> ast.expr:
        """Return the context in which a profiler attributes work to an op."""

    @abstractmethod
    def output(self, value: ast.expr) -> ast.expr:
        """Return a value that carries a graph, as the step returns it."""

    # ------------------------------------------------------------ values

    @abstractmethod
    def detach(self, value: ast.expr) -> ast.expr:
        """Return a value that passes no gradient back."""

    @abstractmethod
    def unite(self, values: Sequence[ast.expr]) -> ast.expr:
        """Return the rows of several values, one after the other."""

    @abstractmethod
    def cut(self, value: ast.expr, first: ast.expr, count: int) -> ast.expr:
        """Return so many parts of the rows of a value, each with as many as another value has; two fit any rows."""

    @abstractmethod
    def present(self, gradients: ast.expr) -> ast.expr:
        """Return a gradient set that may miss gradients in which every gradient that may be present is a tensor."""

    @abstractmethod
    def shape(self, value: ast.expr) -> ast.expr:
        """Return the sizes of a value."""

    @abstractmethod
    def with_rows(self, shape: ast.expr, rows: ast.expr) -> ast.expr:
        """Return sizes with another number of rows in the first place."""

    @abstractmethod
    def call(self, instruction: Evaluate, scope: EmitScope) -> Resolved:
        """Return how a built-in function is called."""

    @abstractmethod
    def layer(self, layer: LayerDecl) -> Resolved:
        """Return how a built-in layer is constructed."""

    def has_operators(self, instruction: Evaluate, scope: EmitScope) -> bool:
        """Return whether Python's operators mean the same as the built-in calls, for the operands of this one."""
        return True

    def multiply(self, factor: ast.expr, value: ast.expr) -> ast.expr:
        """Return a number times a value of any floating type."""
        return syntax.binary(factor, ast.Mult(), value)

    @abstractmethod
    def scheduled(self, read: ast.expr, form: Form) -> ast.expr:
        """Return the reader of a number that changes with the steps, in the form in which it is used."""

    def leading(self) -> tuple[ast.expr, ...]:
        """Return the arguments of a running metric before its inputs."""
        return ()

    # ------------------------------------------------------------ states

    @abstractmethod
    def read_state(self, held: ast.expr) -> ast.expr:
        """Return a state with its value at this place, which later writes do not change."""

    @abstractmethod
    def return_state(self, held: ast.expr) -> ast.expr:
        """Return a state as the step returns it."""

    @abstractmethod
    def store(self, held: ast.expr, value: ast.expr, *, is_number: bool) -> ast.stmt:
        """Return the write of a state."""

    def state_place(self) -> tuple[ast.expr, ...]:
        """Return further arguments of the initial state."""
        return ()

    # ------------------------------------------------------------ construction

    @abstractmethod
    def parameters(self, model: ModelDecl, variable: ast.expr, *, chosen: bool) -> ast.expr:
        """Return the list of a model's parameters; ``chosen``: only those that its class marks as trainable."""

    @abstractmethod
    def named(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return the parameters of a model with their names, in pairs."""

    @abstractmethod
    def buffers(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return the list of a model's buffers."""

    @abstractmethod
    def random(self) -> tuple[str, ...]:
        """Return the arguments of the source of random numbers."""

    @abstractmethod
    def metric_path(self, name: str) -> str:
        """Return the name of a built-in metric."""

    @abstractmethod
    def metric(self, path: ast.expr, mode: str) -> tuple[ast.expr, ...]:
        """Return the arguments of a running metric, after the clock."""

    def unknown_options(self, optimizer: OptimizerDecl) -> frozenset[str]:
        """Return the options that the class of an optimizer takes in another form."""
        return frozenset()

    def build_parameters(self) -> tuple[tuple[str, ast.expr | None], ...]:
        """Return further parameters of ``build``."""
        return ()

    def place(self, lines: tuple[Code, ...]) -> tuple[Code, ...]:
        """Return the lines of ``build`` in the context of the device, where the framework has one."""
        return lines

    def model_options(self, model: ModelDecl) -> dict[str, ast.expr]:
        """Return further keywords of the construction of a built-in model."""
        return {}

    def seeding(self, model: ModelDecl) -> tuple[ast.expr, ...]:
        """Return the contexts in which a model is made: that of its seed, where making it may draw."""
        return (syntax.call("forked_seed", syntax.name("seed"), syntax.constant(model.name)),)

    def made(self, model: ModelDecl, made: ast.expr) -> Iterator[ast.stmt]:
        """Yield the lines after a model is made, before it gets its initial weights."""
        return iter(())

    def copied(self, model: ModelDecl, made: ast.expr) -> ast.expr:
        """Return a copy of a model that was made before."""
        return syntax.call("copy.deepcopy", made)

    def lowered(self, model: ModelDecl, made: ast.expr) -> Iterator[ast.stmt]:
        """Yield the lines that set the type in which a copy computes, where its original got it at construction."""
        return iter(())

    @abstractmethod
    def finished(self, made: str) -> ast.expr:
        """Return the dictionary of all models that ``make_models`` returns."""

    def first_globals(self, needs: Needs) -> Iterator[Global]:
        """Yield global variables that are made before the models are inspected."""
        return iter(())

    def drawing(self, model: ModelDecl, names: Names) -> Iterator[Global]:
        """Yield the attributes that ``build`` looks up on a user's model that draws random numbers."""
        return iter(())

    def last_lines(self, context: EmitContext, needs: Needs) -> Iterator[Line]:
        """Yield lines of ``build`` once everything is made."""
        return iter(())

    # ------------------------------------------------------------ dispatch

    @abstractmethod
    def table_lines(self, context: EmitContext) -> Iterator[Code]:
        """Yield the module's table of functions, by mode and active set."""

    @abstractmethod
    def start_lines(self, needs: Needs) -> Iterator[Line]:
        """Yield the lines of ``step`` after the start of its clock and gates."""

    def step_arguments(self, needs: Needs) -> tuple[ast.expr, ...]:
        """Return the arguments of a function after the batch."""
        return ()

    def is_numbered(self, needs: Needs) -> bool:
        """Return whether ``step`` itself needs the step number."""
        return needs.random


class EmitContext(Struct, frozen=True, kw_only=True):
    """A module under construction: its program, its names, and its dialect."""

    program: Program
    names: Names
    dialect: Dialect
    needs: Needs


class EmitScope(Struct, frozen=True, kw_only=True, dict=True):
    """The surroundings of an instruction: the program, the names, and the facts about its function."""

    program: Program
    names: Names
    dialect: Dialect
    needs: Needs
    flow: Flow
    switches: Mapping[str, bool]
    """By op of a forward: the mode (train or not) to switch its model to just before."""
    mode: str
    function: Function
    tapes: Mapping[int, str] = {}
    """The variable of the tape of every gradient, by the id of the instruction, where the framework has tapes."""
    inlined: Mapping[str, Evaluate] = {}
    """By value: the part of an expression that is written where the value is read."""
    checked: frozenset[str] = frozenset()
    """Gradient sets with a verdict, and the values derived from them."""
    open_sets: frozenset[str] = frozenset()
    """Gradient sets whose content may depend on earlier steps, or on verdicts."""
    floating: frozenset[str] = frozenset()
    """The values that are known to be floating, of the type of the step."""

    @cached_property
    def makers(self) -> Mapping[str, Instruction]:
        """Return the instruction that makes each value of the function."""
        return {value: each for each in self.function.instructions for value in each.defines}

    @cached_property
    def by_op(self) -> Mapping[str, Sequence[Instruction]]:
        """Return the instructions of each op."""
        found: dict[str, list[Instruction]] = {}
        for each in self.function.instructions:
            found.setdefault(each.op, []).append(each)
        return found

    @cached_property
    def rerun(self) -> Mapping[int, tuple[int, Forward]]:
        """Return, by id, the forwards that run again when a gradient is taken through them, each with its position."""
        return find_rerun(self.function, self.program)

    @cached_property
    def paths(self) -> Mapping[int, frozenset[int]]:
        """Return, by the id of every gradient, the ids of the instructions on its path."""
        return find_gradient_paths(self.function.instructions, self.makers, self.program)

    @cached_property
    def row_sets(self) -> frozenset[str]:
        """Return the gradient sets in which tables have rows."""
        return find_row_sets(self.function)

    @cached_property
    def sent(self) -> frozenset[str]:
        """Return the values that messages take to other processes."""
        return find_sent(self.function)


class Lowered(Struct, frozen=True, kw_only=True):
    """The code of one instruction; neighbours that run ``without`` a graph share one ``no_grad`` block."""

    code: tuple[Code, ...]
    graph: Graph = "with"
