"""Build and emit: a step that runs, or a source file that runs without this project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from compiler import Plan
from graphspec.diagnostics import Diagnostic, SpecError, require_kind, require_name
from graphspec.startup import paused_collection
from runtime.engine.backend import BuildRequest
from runtime.problems import problem
from runtime.registry import find_backend

if TYPE_CHECKING:
    from runtime.step import Step

PLAN = "compile the spec first: `compile_step(load(path))`"
DTYPES = ("float32", "float64")
DTYPE = 'write `dtype="float64"`; lower precision is `precision:` in the spec'


@paused_collection
def build(
    plan: Plan,
    *,
    device: str = "auto",
    seed: int | None = None,
    allow: Sequence[str] = (),
    models: Mapping[str, object] | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    debug: bool = False,
    jit_compile: bool = False,
    jit: Literal["step", "dynamic"] | None = None,
    weights: bool = True,
    profile: bool = False,
    norms: bool = False,
    report: Callable[[str], None] | None = None,
) -> Step:
    """Build a plan on a device (``auto``: cuda, mps, else cpu) and check it before the first step.

    - ``seed``: by default the spec's.
    - ``allow``: the packages from which classes and functions that the spec names may be imported.
    - ``models``: models in place of the declared ones, by name. They are put into training mode, else left as they are.
    - ``dtype``: of parameters and random numbers. Inputs declared as float32 or float64 are converted to it.
    - ``debug``: check every number, and raise StepError at the first that is not finite (GS261) and at a gradient of
      weights that were overwritten (GS262). The numbers are the same; the step is slower.
    - ``jit_compile``: let XLA compile the step, on TensorFlow only (GS268). Numbers differ in the last bits.
    - ``jit``: ``"step"`` captures each function that trains as one graph, autograd and optimizers included, which
      torch.compile compiles in its first step. Numbers differ in the last bits. `notes` of the step say what runs
      eagerly all the same, and why. ``"step"`` makes a graph for each size of batch, which on CUDA is recorded as a
      CUDA graph in its third step; ``"dynamic"`` one for all sizes but 1. On TensorFlow every step is a graph already.
    - ``weights``: whether to read the files under `weights:`; not needed for a step that is restored right away.
    - ``profile``: show the parts of the step in the profilers of PyTorch and TensorFlow by the names of their ops.
    - ``norms``: measure the gradients of updates for :attr:`StepReport.updates`.
      Only reading a norm waits for the device.
    - ``report``: called with a line of text when a graph begins to be compiled, when it is, and when it is recorded.

    Raises SpecError with every problem found, and GS217 where the framework is not installed.

    >>> import numpy as np
    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> outputs = step({"image": np.zeros((4, 1, 8, 8), np.float32)})
    >>> list(outputs)
    ['d_loss', 'g_loss', 'fake']
    """
    require_kind(plan, Plan, "`build` takes a plan", PLAN)
    kind = tuple if isinstance(allow, str) else Iterable  # a string is a sequence, but of letters
    require_kind(allow, kind, "`allow` takes a list of packages", 'write `allow=["package"]`')
    require_kind(
        models or {}, Mapping, "`models` takes a mapping from names to modules", 'write `models={"net": module}`'
    )
    if jit is not None:
        require_name(jit, ("step", "dynamic"), "`jit` takes 'step' or 'dynamic'", 'write `jit="step"`')
        if debug or profile:
            what = "debug" if debug else "profile"
            message = f"a step that is captured as one graph has no place for the lines of `{what}`"
            raise problem("GS277", message, help=f"leave out `jit` (`--jit`) or `{what}`")
    require_name(dtype, DTYPES, "`dtype` takes 'float32' or 'float64'", DTYPE)
    if plan.pending:
        raise SpecError((replace(each, severity="error") for each in plan.pending), plan.spec.texts())
    files = [Path(name) for name in plan.spec.texts()]
    request = BuildRequest(
        device=device,
        seed=plan.spec.seed if seed is None else seed,
        allow=tuple(allow),
        models=dict(models or {}),
        directory=files[0].parent if files and files[0].exists() else None,  # None for specs that are not files
        dtype=dtype,
        debug=debug,
        jit_compile=jit_compile,
        jit=jit,
        report=report,
        weights=weights,
        profile=profile,
        norms=norms,
    )
    from runtime.step import Step  # imports numpy, which `emit` does not need

    return Step(find_backend(plan.program.backend).build(plan, request))


def emit(plan: Plan) -> str:
    """Return the plan as the source of a Python file that needs only the framework.

    Nothing that the spec names is imported. Without a length that only a run knows (``plan.pending``) the file is for
    reading, and its ``build`` raises. Raises SpecError: E-SHAPE and E-BUFFERS for facts that only the class of a model
    shows, E-BACKEND for more gradients inside each other than TensorFlow code can nest.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import emit
    >>> source = emit(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")))
    >>> "stepgraph" in source.split("import torch")[1]
    False
    """
    require_kind(plan, Plan, "`emit` takes a plan", PLAN)
    unresolved = [
        Diagnostic(
            code="E-SHAPE",
            message=f"the sizes of model '{model.name}' are not known: its input comes from a class",
            span=plan.spec.span("models", model.name, key=True),
            help="`build` and `run` find them by running the class; `emit` imports nothing that a spec names",
        )
        for model in plan.program.models
        if model.kind == "layers" and not model.layers
    ]
    undecided = [each for each in plan.warnings if each.code == "E-BUFFERS"]
    label = "`build` and `run` inspect the class; `emit` does not"
    unresolved += [replace(each, severity="error", label=label) for each in undecided]
    if unresolved:
        raise SpecError(unresolved, plan.spec.texts())
    return find_backend(plan.program.backend).emit(plan.program)
