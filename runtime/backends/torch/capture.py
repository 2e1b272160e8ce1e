"""Capture: the functions of a step that trains, each as one graph that holds autograd and optimizers too."""

from __future__ import annotations

import re
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, final

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import nn

from compiler.ir.instructions import (
    Accumulate,
    Apply,
    Forward,
    Gradient,
    Instruction,
    ResetAccumulator,
    ResolveOverflow,
    RestoreAccumulator,
    TakeAccumulated,
)
from compiler.ir.program import Function, Program
from compiler.timing.curves import find_scheduled
from graphspec.declare.graph import GraphSpec
from runtime.backends.torch.compat import (
    Compile,
    Whole,
    can_capture,
    capture_errors,
    find_compiler,
    is_compiling_on,
    is_fixed_size,
    leave_open,
)
from runtime.backends.torch.execution import ERRORS, Loaded
from runtime.backends.torch.replay import Recorded, Recorder, find_recorder
from runtime.codegen.lower.overflow import SCALE, VERDICTS
from runtime.codegen.resources import find_training_modes, is_running
from runtime.engine.load import find_named, name_subject
from runtime.problems import quiet

Step = Callable[[Mapping[str, torch.Tensor]], dict[str, object]]
Report = Callable[[str], None]
Sizes = tuple[Sequence[int | str], ...]
COMPILER: str | Compile = "inductor"
"""What compiles the graphs."""
RAISED = re.compile(r"(?:Value|Type|Runtime)Error\((['\"])((?:(?!\1).)+)\1\)")
"""An error that a function of the step raises with a sentence, as Dynamo shows it."""


class _Traced(Exception):
    """A graph that was captured in a trial would run now."""


@final
class Captured(Struct, kw_only=True):
    """One function of a step as one graph for every size of batch; it is made when a batch of that size first comes.

    A size that is left open is 0, 1, or any other: then there is one graph for all others.
    The host computes the numbers of a step before the graph, and counts updates after it.
    """

    title: str
    """Its mode, and what fires in it: ``train (step_d, average)``."""
    function: Step
    optimizers: Sequence[tuple[Any, Sequence[str]]]
    """The optimizers that it applies, each with the ops that do."""
    fed: Sequence[Any]
    """Numbers of ops, which are computed before it."""
    windows: Sequence[Any]
    verdicts: Any
    """Its verdicts, None where it has none: with these the host asks the device, once, after the graph."""
    scale: Any
    """The loss scale, or None."""
    taps: Sequence[dict[str, Any]]
    """Results of inner layers, by model; a call whose results no op reads leaves them there."""
    modes: Sequence[tuple[nn.Module, bool]]
    """Modules, each with whether it is in training when the graph begins."""
    report: Report
    recorded: Recorded | None
    """How its graphs are recorded, where the device can."""
    compiled: Whole
    free: Mapping[str, Sequence[int]] = {}
    """The axes of inputs along which their sizes are left open."""
    made: list[float] = []
    """How many seconds each graph took to compile."""
    sizes: set[Sizes] = set()
    """The sizes of the batches so far."""
    reason: str = ""
    """Why it runs eagerly after all."""

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> dict[str, object]:
        """Take the step of this function; where it cannot be compiled, say so and take it eagerly from then on.

        Dynamo and compilers raise before anything of a graph has run.
        """
        if self.reason or not is_compiling_on():
            return self.function(batch)
        self.feed()
        sizes = self.find_sizes(batch) if self.free else tuple(each.shape for each in batch.values())
        try:
            return self.run(batch, sizes)
        except capture_errors() as error:
            if not self.free:
                self.reason = explain(error)
                warnings.warn(f"{self.title} runs eagerly: {self.reason}", stacklevel=2)
                return self.function(batch)
            self.free, self.compiled, self.sizes = {}, Whole(self.function, COMPILER), set()
            self.report(f"{self.title} is a graph for each size of batch: {explain(error)}")
            return self(batch)

    def run(self, batch: Mapping[str, torch.Tensor], sizes: Sizes) -> dict[str, object]:
        """Run the graph, and count what it has done: what ends this early leaves a step that has begun to write."""
        outputs = self.compiled(batch) if sizes in self.sizes else self.begin(batch, sizes)
        self.settle()
        return outputs

    def find_sizes(self, batch: Mapping[str, torch.Tensor]) -> Sizes:
        """Return the sizes of the inputs of a batch for which a graph is made, ``batch`` where they are left open."""
        axes = ((self.free.get(name, ()), each.shape) for name, each in batch.items())
        return tuple(
            tuple("batch" if size > 1 and axis in free else size for axis, size in enumerate(shape))
            for free, shape in axes
        )

    def feed(self) -> None:
        """Compute the numbers of the step, and put modules and taps into the state in which the graph begins."""
        for optimizer, ops in self.optimizers:
            optimizer.feed(len(ops))
        for each in (*self.fed, *self.windows, self.verdicts, self.scale):
            if each is not None:
                each.feed()
        for each in self.taps:
            each.clear()  # a graph is made for an empty one
        for module, train in self.modes:
            if module.training is not train:
                module.training = train

    def settle(self) -> None:
        """Count what the graph has done, and what it has not for want of finite gradients."""
        committed: Mapping[str, bool] = {}
        if self.verdicts is not None:
            self.verdicts.settle()
            committed = self.verdicts.committed
            if self.scale is not None and self.scale.is_due:
                self.scale.update(self.verdicts.finite)
        for optimizer, ops in self.optimizers:
            optimizer.settle(sum(committed.get(op, True) for op in ops))
        for window in self.windows:
            window.count_rows()

    def forget(self) -> None:
        """Free the graphs, once the step is gone."""
        self.compiled.forget()

    def begin(self, batch: Mapping[str, torch.Tensor], sizes: Sizes) -> dict[str, object]:
        """Take the first step with batches of some sizes, for which a graph is made."""
        shapes = (f"{name} [{', '.join(map(str, each))}]" for name, each in zip(batch, sizes, strict=True))
        self.report(f"compiling {self.title} for {', '.join(shapes)}")
        began = time.perf_counter()
        outputs = self.compiled(leave_open(batch, self.free) if self.free else batch)
        self.sizes.add(sizes)
        self.made.append(time.perf_counter() - began)
        self.report(f"compiled {self.title} in {self.made[-1]:.1f} s")
        return outputs


class Capture(Struct, frozen=True, kw_only=True):
    """What became of the functions of a step: graphs by title, and notes on what runs eagerly."""

    graphs: Mapping[str, Captured]
    notes: tuple[str, ...]


UNCAPTURED = Capture(graphs={}, notes=())
"""Nothing is captured."""


def capture(
    loaded: Loaded,
    spec: GraphSpec,
    batch: Mapping[str, torch.Tensor] | None,
    report: Report | None,
    device: torch.device,
    *,
    dynamic: bool,
) -> Capture:
    """Replace the functions of a built module that take gradients or apply them, and can be captured, by graphs.

    Each is tried with a ``batch`` first, up to where its graph would run; without one that is left to its first step.
    ``dynamic``: one graph for batches of every size. Others are recorded where the ``device`` can.
    """
    recorder = None if dynamic else find_recorder(device)
    graphs: dict[str, Captured] = {}
    notes: list[str] = []
    table, names = loaded.names["FUNCTIONS"], loaded.emitted.names
    training = find_training_modes(loaded.program)
    rows = {
        each.name: [axis for axis, size in enumerate(each.shape or ()) if size == "batch"]
        for each in loaded.program.inputs
    }
    for mode in (each for each in loaded.program.modes if each.mode in training):
        for function in (each for each in mode.functions if is_heavy(each)):
            title = f"{mode.mode} ({', '.join(function.active)})" if function.active else mode.mode
            op, reason = find_obstacle(function, loaded)
            if not reason:
                made = _make(function, title, loaded, report or (lambda _: None), recorder, device)
                made.free = {name: axes for name, axes in rows.items() if axes} if dynamic else {}
                op, reason = ("", "") if batch is None else attempt(made, batch, loaded)
                if reason and made.free:
                    notes.append(f"{title} is a graph for each size of batch: {reason}")
                    made.free = {}
                    op, reason = attempt(made, batch or {}, loaded)
                if not reason:
                    graphs[title] = made
                    plain = loaded.names[names.function(function.name)]
                    table.update({key: made for key, each in table.items() if each is plain})
                    continue
            subject = f"{name_subject(spec, op)}: " if op else ""
            notes.append(f"{title} runs eagerly: {subject}{reason}")
    for title, made in graphs.items():
        obstacles = made.recorded.obstacles if made.recorded else ()
        notes += [f"{title} is not recorded as a CUDA graph: {each}" for each in obstacles]
        is_recorded = made.recorded is not None and not obstacles
        notes.append(
            f"{title} is one graph, compiled in its first step{' and to be recorded in its third' * is_recorded}"
        )
    return Capture(graphs=graphs, notes=tuple(notes))


def is_heavy(function: Function) -> bool:
    """Return whether a function takes gradients or applies them."""
    return any(isinstance(each, (Apply, Gradient)) for each in function.instructions)


def _make(
    function: Function, title: str, loaded: Loaded, report: Report, recorder: Recorder | None, device: torch.device
) -> Captured:
    """Return a function that will be captured when it is first called, whose numbers are on a device."""
    names, plain = loaded.names, loaded.names[loaded.emitted.names.function(function.name)]
    applied: dict[str, list[str]] = {}
    for each in function.instructions:
        for part in each.parts if isinstance(each, Apply) else ():
            applied.setdefault(part.optimizer, []).append(each.op)
    is_resolved = any(isinstance(each, ResolveOverflow) for each in function.instructions)
    windows = (each.window for each in function.instructions if isinstance(each, _WINDOWED))
    fed = tuple(names[each] for each in FED if each in names)
    watched = tuple(names[each] for each in ("Taps",) if each in names)
    modules = dict.fromkeys(module for model in names["MODELS"].values() for module in model.modules())
    numbers, scale = [each for each in names.values() if isinstance(each, fed)], names.get(SCALE)
    for each in numbers if scale is None else (*numbers, scale):
        each.place(device)
    recorded = None
    if recorder is not None:
        compiler = find_compiler(COMPILER)
        recorded = Recorded(title=title, compiler=compiler, recorder=recorder, device=device, report=report)
    return Captured(
        title=title,
        function=plain,
        optimizers=[(names["OPTIMIZERS"][each], ops) for each, ops in applied.items()],
        fed=numbers,
        windows=[names["WINDOWS"][each] for each in dict.fromkeys(windows)],
        verdicts=names.get(VERDICTS) if is_resolved else None,
        scale=scale,
        taps=[each for each in names.values() if isinstance(each, watched)],
        modes=[(module, module.training) for module in modules],
        report=report,
        recorded=recorded,
        compiled=Whole(plain, recorded or COMPILER),
    )


FED = ("FedNumber", "FedDecay")
"""Classes of the module whose objects the host feeds before every graph: it computes their numbers."""
_WINDOWED = (Accumulate, TakeAccumulated, ResetAccumulator)


def find_obstacle(function: Function, loaded: Loaded) -> tuple[str, str]:
    """Return the op of a function that no graph can hold, and why; empty where there is none."""
    program, optimizers = loaded.program, loaded.names["OPTIMIZERS"]
    if not can_capture():
        return "", "this version of PyTorch does not capture gradients; 2.13 does"
    if not is_compiling_on():
        return "", "torch.compile is switched off"
    if program.parallel is not None:
        return "", "processes send each other messages in the middle of it"
    for each in function.instructions:
        for reason in _find_reasons(each, program, optimizers):
            return each.op, reason
    return "", ""


def _find_reasons(instruction: Instruction, program: Program, optimizers: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a graph cannot hold an instruction."""
    match instruction:
        case Forward(draws=True, model=model) if program.model(model).kind != "layers":
            yield "its class draws from torch's own generators, which a graph does not key"
        case Gradient(rows=True):
            yield "its gradient is rows of a table (`sparse: true`), whose number a graph would have to know"
        case Apply(parts=parts) if any(part.may_miss for part in parts):
            yield "some of its gradients may be absent"
        case Apply(parts=parts) if not all(hasattr(optimizers[part.optimizer], "feed") for part in parts):
            yield "its optimizer has torch.optim's interface, which looks for gradients in the middle of the step"
        case RestoreAccumulator():
            yield "the host must know in the middle of the step whether its window is taken or kept"
        case Accumulate(may_miss=True):
            yield "some gradients of its window may be absent"
        case _:
            pass
    if is_running(instruction):
        yield "the host counts its running value in the middle of the step"
    if any(number.optimizer is not None for number in find_scheduled(instruction)):
        yield "a number of it follows the updates of an optimizer"


def attempt(made: Captured, batch: Mapping[str, torch.Tensor], loaded: Loaded) -> tuple[str, str]:
    """Capture a function without compiling or running its graph; return the op where that fails, and why."""
    plain: Any = made.function
    trial = types.FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__)
    made.feed()
    whole = Whole(trial, replace(made.recorded, compiler=_halting) if made.recorded else _halting)
    try:
        with quiet():
            whole(leave_open(batch, made.free) if made.free else batch)
    except _Traced:
        return "", ""
    except Exception as error:
        frames = getattr(error, "real_stack", None) or ()
        return find_named([(each.filename, each.lineno or 0) for each in frames], loaded), explain(error)
    finally:
        whole.forget()
    return "", ""  # a graph without operations


def _halting(graph: object, inputs: object) -> Callable[..., NoReturn]:
    """Return what takes the place of a compiled graph in a trial."""

    def halt(*given: object) -> NoReturn:
        """End the trial before anything is computed."""
        raise _Traced

    return halt


def has_run(error: BaseException) -> bool:
    """Return whether an error came out of a graph, or of what follows it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not Captured.run.__code__:
        trace = trace.tb_next
    return trace is not None


def explain(error: BaseException) -> str:
    """Return why a function could not be captured, in the compiler's words where these say it."""
    if is_fixed_size(error):
        return "in some operation torch.compile takes the number of rows for a constant"
    inner = getattr(error, "inner_exception", error)  # of a compiler of graphs
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    named = ("Developer debug context: raised exception", "Explanation:")  # the first of them that is there says most
    said = (line.removeprefix(name).strip() for name in named for line in lines if line.startswith(name))
    found = next(said, "")
    raised = RAISED.fullmatch(found)
    return (raised[2] if raised else found).rstrip(".") or ERRORS.clean(inner)
