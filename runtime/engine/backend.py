"""What a backend must do: write a program as source code, and build a plan into a step that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from compiler import Plan
from compiler.ir.program import InputDecl, Program
from runtime.engine.overflow import Overflow
from runtime.probe import Probe
from runtime.problems import problem
from runtime.processes import Processes, count_started
from runtime.state import State

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from runtime.bench.meter import Meter


Value: TypeAlias = float | tuple[float, ...]
"""The value of an option: a number, or several."""
Slots = Mapping[str, Mapping[str, object]]
"""Tensors by parameter, then by slot."""


class Place(Struct, frozen=True, kw_only=True):
    """The place of a number of an optimizer: an option of its rule, or one that a group of parameters overrides."""

    option: str
    group: int | None = None
    """The index of the optimizer's group; groups with equal options count as one."""


class OptimizerAccess(ABC):
    """An optimizer of one framework, as :class:`runtime.engine.optimizer.Optimizer` shows it."""

    @property
    @abstractmethod
    def native(self) -> object:
        """Return the object that steps the parameters."""

    @abstractmethod
    def rate(self) -> float | None:
        """Return the learning rate of the next update; None where the optimizer has none."""

    @abstractmethod
    def used(self) -> float | None:
        """Return the learning rate of the last update, if none was set since; None where the optimizer has none."""

    @abstractmethod
    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come; None restores what the spec says."""

    @abstractmethod
    def number(self, place: Place) -> Value:
        """Return a number of the next update, its schedule evaluated."""

    @abstractmethod
    def set_number(self, place: Place, value: Value | None) -> None:
        """Set a number of the updates to come; None restores what the spec says."""

    @abstractmethod
    def why_fixed(self, place: Place) -> str:
        """Return why a number cannot be set; empty where it can."""

    @abstractmethod
    def applied(self) -> int:
        """Return how many updates were applied."""

    @abstractmethod
    def set_applied(self, applied: int, first: Mapping[str, float]) -> None:
        """Set how many updates were applied; at 0 its slots begin anew, at ``first`` or at 0."""

    @abstractmethod
    def why_counted(self) -> str:
        """Return why the number of updates cannot be set; empty where it can."""

    @abstractmethod
    def slots(self) -> Slots:
        """Return copies of what is kept for the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """The weights of a model as a safetensors file, and its tensors: (shape, type) by name."""

    content: bytes = field(repr=False)
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    notes: tuple[str, ...] = ()
    """Notes on the parts of the model that the file does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedProgram:
    """A program that the framework alone can run: one file, or a folder of files.

    ``files`` are contents by path inside the folder, parts separated by ``/``; the one file of a program that is no
    folder has the path ``""``.
    """

    suffix: str
    """How the name of the file or folder ends: ``.pt2``."""
    files: Mapping[str, bytes] = field(repr=False)


Signature = tuple[tuple[int, ...], str]
"""Shape and type of an array, as the language names types."""


class BuildRequest(Struct, frozen=True, kw_only=True):
    """How to build a plan: on what device, from which seed, what may be imported, and models made elsewhere."""

    device: str
    seed: int
    allow: tuple[str, ...]
    models: Mapping[str, object]
    directory: Path | None
    """The folder of the spec: what it names may be imported from there."""
    dtype: Literal["float32", "float64"]
    """The type of parameters, of draws, and of inputs declared float32 or float64."""
    debug: bool = False
    """Check every value, gradient and write of a step as it is made."""
    jit_compile: bool = False
    """Let XLA compile the step: TensorFlow alone."""
    jit: str | None = None
    """Capture each function that trains as one graph (``step``): PyTorch, as TensorFlow's functions are graphs."""
    report: Callable[[str], None] | None = None
    """Called with what takes long, such as compiling a graph, when it begins and when it ends."""
    profile: bool = False
    """Wrap every op of the step in a profiler range of its name."""
    norms: bool = False
    """Measure the gradients of every update, for reports."""
    weights: bool = True
    """Read the files that `weights:` of models names; not needed where a state is restored right after the build."""


class Engine(ABC):
    """A built step of one framework, as :class:`runtime.step.Step` drives it."""

    @staticmethod
    @abstractmethod
    def fingerprint(value: object) -> object:
        """Return a cheap, hashable key of an array; None for what is not an array.

        Arrays of equal keys are admitted alike: where one is used unchanged, all of them are.
        """

    @abstractmethod
    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have; the declared one comes first."""

    @abstractmethod
    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor; None where the value is neither."""

    @abstractmethod
    def admission(self, declared: InputDecl) -> Callable[[object], object]:
        """Return what makes of an input a tensor on the device of the step, in its type."""

    @abstractmethod
    def check(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> None:
        """Check the step with the sizes of the first batch, where they were not known at build."""

    @abstractmethod
    def expect(self, rows: int | None) -> None:
        """Set how many rows all processes have in the next step; None: they exchange the numbers."""

    @abstractmethod
    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step; raise StepError where it fails. ``dataset`` selects the functions for a data set."""

    @abstractmethod
    def has_begun(self, error: BaseException, mode: str) -> bool:
        """Return whether a step that raised had already changed state that outlives it."""

    @abstractmethod
    def fired(self, mode: str) -> tuple[str, ...]:
        """Return the gated ops that fired in the last step of a mode."""

    @abstractmethod
    def overflow(self) -> Overflow:
        """Return what the verdicts of the last step that has some say of its gradients."""

    @abstractmethod
    def norms(self) -> Mapping[str, float]:
        """Return the norms of the gradients of the last step by update, where the step was built to measure them."""

    @abstractmethod
    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken, in order."""

    @abstractmethod
    def steps(self, mode: str) -> int:
        """Return how many steps of a mode were finished; a step that raised is none."""

    @abstractmethod
    def state(self, *, whole: bool = True) -> State:
        """Return everything that training changes, copied to the host; raise SpecError (GS267) where that fails.

        Not ``whole``: what this process has of it, where several share it.
        """

    @abstractmethod
    def restore(self, state: State) -> None:
        """Restore a state, entirely or not at all; raise SpecError with every GS264."""

    @abstractmethod
    def reset(self, mode: str) -> None:
        """Start a mode anew: reset its step number, and its running metrics except those that are never reset."""

    @abstractmethod
    def end_epoch(self, mode: str) -> None:
        """Reset the running metrics of a mode that run for an epoch."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model."""

    @abstractmethod
    def tensors(self) -> dict[str, object]:
        """Return everything that training changes, by name."""

    @abstractmethod
    def lend(self, model: str, average: str, *, buffers: bool) -> Callable[[], None]:
        """Give a model the parameters of its average, and its buffers; return what gives it its own back."""

    def alone(self) -> AbstractContextManager[None]:
        """Let this process take steps alone inside, on whole batches, where it is one of several."""
        return nullcontext()

    @abstractmethod
    def recomputing(self, model: str) -> AbstractContextManager[Callable[[], int | None]]:
        """Let the statistics of BatchNorm in a model become the means over the batches of the steps inside.

        Yields a function that returns how many batches the layer that ran least had; None where there is no such layer.
        """

    @abstractmethod
    def buffer_names(self, model: str) -> frozenset[str]:
        """Return the names of the buffers of a model."""

    @abstractmethod
    def averaged(self) -> frozenset[str]:
        """Return the averages that were taken at least once."""

    @abstractmethod
    def pack_model(self, model: str) -> PackedModel:
        """Return the parameters and persistent buffers of a model under its own names for them, as they are now."""

    @abstractmethod
    def pack_program(self, program: Program) -> PackedProgram:
        """Return a program of one function, without draws or writes, as files that the framework alone can run.

        Raises SpecError: GS265 where the framework cannot follow what the models do.
        """

    @abstractmethod
    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""


class Built(Struct, frozen=True, kw_only=True):
    """The result of building: the final plan, the source that runs, and the objects that were made."""

    plan: Plan
    source: str
    models: Mapping[str, object]
    optimizers: Mapping[str, OptimizerAccess]
    device: str
    notes: tuple[str, ...]
    engine: Engine


@contextmanager
def needing(title: str, *packages: str) -> Generator[None]:
    """Raise SpecError (GS217) where an import inside fails because a framework is missing: one of its packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise problem("GS217", f"{title} is not installed", help=f"pip install 'stepgraph[{packages[0]}]'") from None


class Backend(ABC):
    """A framework that can run programs."""

    @abstractmethod
    def emit(self, program: Program) -> str:
        """Return the program as source code; imports no framework."""

    @abstractmethod
    def build(self, plan: Plan, request: BuildRequest) -> Built:
        """Build a plan: observe models whose classes the compiler may not import, and try the step out."""

    def count_started(self) -> int:
        """Return how many processes a launcher has started for the run, as it says in the environment."""
        return count_started()

    @abstractmethod
    def join(self, timeout: float, device: str) -> Processes:
        """Meet the other processes that a launcher has started for the same run; ``timeout`` in seconds.

        Raises SpecError (GS257) where that fails.
        """

    @abstractmethod
    def launch(self, count: int, arguments: Sequence[str]) -> int:
        """Run a command line of `stepgraph` in several processes on this machine, and return the exit code.

        Raises SpecError (GS259) where one of them ends without a word.
        """

    @abstractmethod
    def probe(self) -> Probe:
        """Import the framework and return what it supports here; raise SpecError (GS217) where it is not installed."""

    def meter(self, device: str, threads: int | None) -> Meter:
        """Return what times steps on a device, after setting the threads of one operation, if any are given.

        Raises SpecError: GS207 the device is not available, GS217 the framework is not installed, GS279 steps of this
        framework are not timed.
        """
        help = "choose `--backend torch` or `--backend tensorflow`"
        raise problem("GS279", "steps of this framework are not timed", help=help)
