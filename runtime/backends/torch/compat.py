"""Private parts of torch, all in one module: written for torch 2.11 and newer."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, final

import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

OLDEST = (2, 11)
"""The first version with everything used here, and in the kernels of the library."""
Compile: TypeAlias = Callable[[Any, Sequence[torch.Tensor]], Callable[..., Any]]
"""A compiler of graphs, as torch.compile takes them for `backend`."""
__all__ = [
    "Compile",
    "DispatchMode",
    "Whole",
    "add_input",
    "can_capture",
    "capture_errors",
    "clear_workspaces",
    "copy_graph",
    "copying",
    "fake_mode",
    "find_compiler",
    "find_source",
    "find_written",
    "has_drawn",
    "is_alias",
    "is_batch_norm",
    "is_compiling_on",
    "is_draw",
    "is_fixed_size",
    "is_supported",
    "is_unsafe",
    "leave_open",
    "watched_checkpoints",
]


class DispatchMode(TorchDispatchMode):
    """A mode that sees every operation, and imports torch._dynamo for none.

    Torch wraps the handler of a mode to keep torch.compile from tracing it, and imports torch._dynamo for that at the
    first operation, which takes a second. Here the handler is wrapped once something else has imported it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        """Let operations be seen, by a handler that torch.compile does not trace."""
        own: Any = type(self)
        if "torch._dynamo" in sys.modules and not hasattr(own.__torch_dispatch__, "__wrapped__"):
            own.__torch_dispatch__ = torch.compiler.disable(own.__torch_dispatch__)
        return super().__enter__()


def is_supported() -> bool:
    """Return whether this torch is new enough."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


def is_batch_norm(module: nn.Module) -> bool:
    """Return whether a module normalizes over the batch, of any rank, synchronized or not."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def fake_mode() -> FakeTensorMode:
    """Return a new mode of fake tensors; its module is imported here, which takes a second."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def copying(mode: FakeTensorMode) -> AbstractContextManager[object]:
    """Return a context in which ``copy.deepcopy`` makes fake tensors of real ones."""
    from torch._subclasses.fake_tensor import FakeCopyMode

    return FakeCopyMode(mode)


def can_capture() -> bool:
    """Return whether this torch can trace gradients that are taken inside a graph."""
    import torch._dynamo.config as settings

    return hasattr(settings, "trace_autograd_ops")


def is_compiling_on() -> bool:
    """Return whether torch.compile makes graphs, and is not switched off by its settings or its stance."""
    import torch._dynamo.eval_frame as frames

    is_off = torch._dynamo.config.disable or os.environ.get("TORCHDYNAMO_DISABLE", "") == "1"
    return not is_off and frames._stance.stance in ("default", "fail_on_recompile")


def capture_errors() -> tuple[type[Exception], ...]:
    """Return the errors of functions that cannot be captured or compiled: nothing of them has run."""
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    return (TorchDynamoException, ConstraintViolationError, FailOnRecompileLimitHit)


def is_fixed_size(error: BaseException) -> bool:
    """Return whether a graph could not leave open the size that it should."""
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    return isinstance(error, ConstraintViolationError)


def leave_open(batch: Mapping[str, torch.Tensor], axes: Mapping[str, Sequence[int]]) -> Mapping[str, torch.Tensor]:
    """Return a batch whose sizes along some axes a graph that is captured with it leaves open.

    Marks are of tensors, so they are made on aliases of the caller's. Dynamo fixes a size of 0 or 1 in any case.
    """
    import torch._dynamo

    found = {name: each.detach() if axes.get(name) else each for name, each in batch.items()}
    for name, each in found.items():
        torch._dynamo.mark_dynamic(each, [axis for axis in axes.get(name, ()) if each.shape[axis] > 1])
    return found


OWN = ("aten", "prims", "prim", "keyed")
"""The namespaces of torch's own operators, and of draws."""


def find_compiler(compiler: str | Compile) -> Compile:
    """Return the compiler of graphs that has a name."""
    if not isinstance(compiler, str):
        return compiler
    import torch._dynamo

    found: Any = torch._dynamo.lookup_backend(compiler)
    if compiler != "inductor":
        return found

    def compile_graph(graph: Any, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """Compile a graph.

        Of its inputs Dynamo's guards check sizes and strides, so that only others' operators may err. Inductor's own
        CUDA graphs would overwrite the results of a step in the next.
        """
        asserts = any(map(_is_foreign, graph.graph.nodes))
        return found(graph, inputs, config_patches={"size_asserts": asserts, "triton.cudagraphs": False})

    return compile_graph


def find_source(node: Any) -> str:
    """Return where an input of a graph comes from, in Python: ``G['net'].scale`` for one from a global."""
    name: Any = node._dynamo_source.name
    return name if isinstance(name, str) else name()  # a method before torch 2.12


def copy_graph(graph: Any) -> Any:
    """Return a copy of a graph that Dynamo has made, which keeps its own for itself, with what others ask of it."""
    nodes, known = torch.fx.Graph(), dict[Any, Any]()
    nodes.output(nodes.graph_copy(graph.graph, known))
    copied: Any = torch.fx.GraphModule(graph, nodes)  # with the parts that the nodes name
    for node in graph.graph.find_nodes(op="placeholder"):
        known[node]._dynamo_source = node._dynamo_source
    copied.meta, copied._param_name_to_source = graph.meta, graph._param_name_to_source
    return copied


def add_input(graph: Any, name: str, example: torch.Tensor) -> Any:
    """Return a new last input of a copy of a graph."""
    from torch._dynamo.source import LocalSource

    *_, last = graph.graph.find_nodes(op="placeholder")
    with graph.graph.inserting_after(last):
        node = graph.graph.placeholder(name)
    node.meta["example_value"], node._dynamo_source = example, LocalSource(name)
    return node


def is_unsafe(target: object) -> bool:
    """Return whether an operator says of itself that it must not be part of a CUDA graph."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.cudagraph_unsafe in target.tags


def clear_workspaces() -> None:
    """Free the memory that cuBLAS keeps for every stream; it takes other when it needs some."""
    torch._C._cuda_clearCublasWorkspaces()


@final
class Whole:
    """A function of a batch that becomes one graph for each size that is not left open, gradients included.

    The setting that lets torch.compile trace gradients is one of the process: it adds what can be captured.
    """

    def __init__(self, function: Callable[..., Any], compiler: str | Compile) -> None:
        import torch._dynamo.config
        from torch._dynamo.symbolic_convert import TensorifyState

        torch._dynamo.config.trace_autograd_ops = True
        compilers = [find_compiler(compiler)]

        def compile_tensors(graph: Any, inputs: Any) -> Any:
            """Compile a graph once Dynamo knows that it reads no tensor as a Python number.

            Dynamo keeps a symbol for every input that is a number of float64 on the CPU. Where a compiler does not use
            it, Dynamo traces again, and then leaves out what is written into such inputs (PyTorch 2.13).
            """
            for name in _find_float_symbols(inputs):
                TensorifyState.specialize(name)
            try:
                return compilers[0](graph, inputs)
            finally:
                TensorifyState.clear()

        self._function, self._state = function, TensorifyState
        # Dynamo keeps what compiles graphs: hence no method, which would keep the function, and a list to be emptied.
        self._compilers = compilers
        self._compiled = torch.compile(function, fullgraph=True, dynamic=False, backend=compile_tensors)
        self._made: list[tuple[Any, Callable[..., Any]]] = []

    def __call__(self, batch: Any) -> Any:
        """Run the graph whose guards hold; what functions compiled elsewhere left does not count when one is made."""
        for guards, code in self._made:
            if guards.cache_entry is not None and guards.root.check({"batch": batch}):
                return code(batch)
        self._state.clear()
        found = self._compiled(batch)
        # Guards, and the code that runs a graph where they hold. To run it so takes half of the time that torch.compile
        # takes around a graph: its wrapper prepares a tracer, which nothing needs here. Guards without an entry in the
        # cache of Dynamo belong to one that was emptied.
        entries, names = _find_entries(self._function), self._function.__globals__
        self._made = [(each.guard_manager, types.FunctionType(each.code, names)) for each in entries]
        return found

    def forget(self) -> None:
        """Free all graphs of the function, for good.

        Dynamo keeps them with its code, and finalizers of what they guard keep the guards: of neither does Python's
        collector know that they keep the function in turn.
        """
        frames: Any = torch._dynamo.eval_frame
        self._made = []
        self._compilers.clear()
        managers = [entry.guard_manager for entry in _find_entries(self._function)]
        for each in managers:
            vars(each).clear()
        if managers:
            frames.reset_code(self._function.__code__)


def _is_foreign(node: Any) -> bool:
    """Return whether a node calls an operator that is neither torch's own nor a keyed draw."""
    match node.target:
        case torch._ops.OpOverload(namespace=space):
            return space not in OWN
        case torch._ops.OpOverloadPacket(_qualified_op_name=name):
            return name.partition("::")[0] not in OWN
        case _:
            return False


def _find_entries(function: Callable[..., Any]) -> Sequence[Any]:
    """Return what Dynamo keeps with the code of a function; that of a decorator is the same for all functions."""
    import torch._dynamo

    is_own = inspect.isfunction(function) and not hasattr(function, "__wrapped__")
    return torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__) if is_own else ()


def _find_float_symbols(inputs: Any) -> Iterator[str]:
    """Yield the symbols that Dynamo keeps for numbers among the inputs of a graph."""
    from torch._guards import detect_fake_mode
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    mode = detect_fake_mode(inputs)
    shapes = None if mode is None else mode.shape_env
    for symbol in () if shapes is None else shapes.backed_var_to_val:
        if symbol_is_type(symbol, SymT.FLOAT):
            yield str(symbol)


LOOK = "aten::_amp_foreach_non_finite_check_and_unscale_"
"""The op by which the library checks gradients: it writes them unchanged, times one."""


def find_written(operation: Any, positional: tuple[object, ...], named: Mapping[str, object]) -> Iterator[torch.Tensor]:
    """Yield the arguments that an operation writes into, where anything may change in them."""
    if operation._schema.name == LOOK:
        return
    for number, argument in enumerate(operation._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = positional[number] if number < len(positional) else named.get(argument.name)
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, torch.Tensor):
                    yield each


def is_alias(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share their memory."""
    return torch._C._is_alias_of(one, other)  # pyright: ignore[reportAttributeAccessIssue]


def is_draw(target: object) -> bool:
    """Return whether the target of a node of a graph is an operation that draws, at least in training."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def has_drawn(operation: Any, positional: tuple[object, ...], named: Mapping[str, object]) -> bool:
    """Return whether an operation draws random numbers when it is called with some arguments.

    An operation with a dropout of 0, such as an attention, is of a kind that draws, but does not.
    """
    if torch.Tag.nondeterministic_seeded not in operation.tags:
        return False
    is_dropout = "dropout" in operation._schema.name
    for number, argument in enumerate(operation._schema.arguments):
        if argument.name in ("dropout_p", "dropout") or (is_dropout and argument.name == "p"):
            share = positional[number] if number < len(positional) else named.get(argument.name, argument.default_value)
            return share != 0
    return True


@contextmanager
def watched_checkpoints(watch: Callable[[bool], AbstractContextManager[object]]) -> Iterator[None]:
    """Call every function that `torch.utils.checkpoint` will call again inside a context made by ``watch``.

    ``watch`` takes whether torch's random numbers are the same the second time.
    """
    module, reentrant = torch.utils.checkpoint, torch.utils.checkpoint.CheckpointFunction
    generate, apply = module._checkpoint_without_reentrant_generator, reentrant.apply

    def generated(function: Any, preserve: bool = True, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Wrap a call that runs between the two halves of this generator."""
        with watch(preserve):
            yield from generate(function, preserve, *args, **kwargs)

    def applied(function: Any, preserve: bool, *args: Any) -> Any:
        """Wrap a call that runs inside."""
        with watch(preserve):
            return apply(function, preserve, *args)

    vars(module)["_checkpoint_without_reentrant_generator"] = generated
    reentrant.apply = applied  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        vars(module)["_checkpoint_without_reentrant_generator"] = generate
        del reentrant.apply
