"""Export: the weights of a model as a safetensors file, and a pure mode as a program of torch.export."""

from __future__ import annotations

import copy
import inspect
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import count
from typing import Any

import torch
from msgspec import Struct
from torch import nn

from compiler.ir.instructions import Forward
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.compat import is_draw
from runtime.backends.torch.execution import ERRORS, Loaded, explain_unfakeable, load_module
from runtime.backends.torch.tensors import sample_inputs
from runtime.backends.torch.untouched import untouched
from runtime.codegen.module import emit_module
from runtime.engine.backend import PackedModel, PackedProgram
from runtime.engine.load import find_op, find_span
from runtime.problems import describe, problem, quiet, raised_in
from runtime.support.closures import bound_again

CODE = "GS265"
REMEDY = "`--format weights` writes the weights alone"
_SIZES = re.compile(r"Constraints violated \(([^)]*)\)[^\n]*\n\s*- ([^\n]*)")
_COPY = re.compile(r"deepcopy|cannot pickle")


def explain_unexportable(error: Exception, loaded: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return the diagnostic of an error that exporting a mode of an emitted module raised."""
    op = find_op(error, loaded)
    subject = f"op '{op}'" if op else f"mode {loaded.program.modes[0].mode}"
    sizes = _SIZES.search(str(error))
    if sizes is not None:
        reason, note = f"it does not work for every size of {sizes[1]}", sizes[2]
    elif _COPY.search(str(error)):
        reason, note = "its models cannot be copied", ERRORS.clean(error)
    else:
        reason, note = explain_unfakeable(error), ""
        if reason == describe(error):
            reason, note = "torch.export cannot follow what it does", ERRORS.clean(error)
    notes = (*((f"torch: {note}",) if note else ()), *raised_in(error))
    message = f"{subject} cannot be exported: {reason}"
    return Diagnostic(code=CODE, message=message, span=find_span(spec, op), notes=notes, help=REMEDY)


def explain_different(mode: str, exported: torch.export.ExportedProgram, error: AssertionError) -> Diagnostic:
    """Return the diagnostic of a program whose numbers differ from the original's."""
    drawn: dict[str, None] = {}
    for node in (each for each in exported.graph.nodes if is_draw(each.target)):
        paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
        name = str(node.target).split(".")[1]  # of aten.rand_like.default
        drawn[f"{name} in {paths[-1]}" if paths else name] = None
    reason = "draws random numbers" if drawn else "gives other numbers as a program"
    notes = (f"drawn by {', '.join(drawn)}",) if drawn else (f"torch: {ERRORS.clean(error)}",)
    help = f"let `random` ops draw what the mode needs, and models keep nothing from call to call; {REMEDY}"
    return Diagnostic(code=CODE, message=f"mode {mode} cannot be exported: it {reason}", notes=notes, help=help)


def explain_remembering(mode: str, name: str) -> Diagnostic:
    """Return the diagnostic of a program that changes a buffer of a model."""
    message = f"mode {mode} cannot be exported: a forward writes into the buffer {name}"
    help = f"let the model do that only while `self.training`; {REMEDY}"
    return Diagnostic(code=CODE, message=message, help=help)


FREE = 8
"""The least free size of the inputs a mode is traced with; no two free sizes are the same there."""

Function = Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]


class PureModule(nn.Module):
    """A module that calls an emitted function, with the models that the function calls as its parts."""

    def __init__(self, function: Function, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.function = function
        for name, model in models.items():
            # A model may be called like a method of modules, such as `train`.
            self.add_module(f"{name}_" if name in dir(self) else name, model)

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the outputs of a batch."""
        return self.function(batch)


def pack_model(model: nn.Module, name: str) -> PackedModel:
    """Return parameters and persistent buffers of a model under the names of its ``state_dict``.

    Raises SpecError: GS265 for types that safetensors does not have.
    """
    from safetensors.torch import save

    state = model.state_dict()
    found = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    # Each with memory of its own: what is shared is written twice, and a view without the rest of its tensor.
    tensors = {key: value.detach().cpu().clone(memory_format=torch.contiguous_format) for key, value in found.items()}
    try:
        content = save(tensors, metadata={"format": "pt"})
    except KeyError as error:
        message = f"the weights of model '{name}' cannot be exported: safetensors does not have the type {error}"
        raise problem(CODE, message, help="keep such tensors out of what is saved: `persistent=False`") from error
    others = tuple(f"{key} of '{name}' is no tensor: it is not in the file" for key in state.keys() - found.keys())
    described = {key: (tuple(each.shape), str(each.dtype).removeprefix("torch.")) for key, each in tensors.items()}
    return PackedModel(content=content, tensors=described, notes=others)


class ProgramPacker(Struct, frozen=True, kw_only=True):
    """Packs a program of one function, which draws and writes nothing, over copies of models; states are constants."""

    program: Program
    spec: GraphSpec
    models: Mapping[str, nn.Module]
    states: Mapping[str, torch.Tensor]
    device: torch.device
    dtype: torch.dtype

    @property
    def mode(self) -> str:
        """Return the mode that is exported."""
        return self.program.modes[0].mode

    def pack(self) -> PackedProgram:
        """Return the file of ``torch.export.save``; it gives the same numbers as the function.

        Raises SpecError: GS265 with torch's reason where it cannot follow the models, or follows them wrongly.
        """
        loaded, module = self._load()
        with quiet(), untouched(), torch.inference_mode(False), torch.no_grad():
            with self._refusing(loaded):
                # One object for each name, as torch wants it; and it cannot count the axes of no inputs.
                dims = {name: torch.export.Dim(name) for name in self._sizes(0)}
                free = {
                    entry.name: {
                        axis: dims[size] for axis, size in enumerate(entry.shape or ()) if isinstance(size, str)
                    }
                    for entry in self.program.inputs
                }
                exported = torch.export.export(
                    module, (self._sample(0),), dynamic_shapes=(free,) if free else None, strict=False
                )
                written = io.BytesIO()
                torch.export.save(exported, written)
            self._compare(exported, module, loaded)
        return PackedProgram(suffix=".pt2", files={"": written.getvalue()})

    def _load(self) -> tuple[Loaded, PureModule]:
        """Return the emitted module over copies of the models, and what is to be exported."""
        function = self.program.modes[0].functions[0]
        loaded = load_module(emit_module(self.program, TORCH, provided=self.models), self.program)
        with self._refusing(loaded):
            parts = [part for model in self.models.values() for part in model.modules()]
            kept = (value for part in parts for value in vars(part).values())
            # Tensors that modules have kept from a call are copied without their graph, which cannot be copied.
            memo: dict[int, Any] = {
                id(each): each.detach().clone() for each in kept if isinstance(each, torch.Tensor) and not each.is_leaf
            }
            with bound_again(parts, memo):
                models = copy.deepcopy(dict(self.models), memo)
            loaded.call("build", 0, self.device, self.dtype, models)
        held = loaded.names.get("STATE", {})
        held.update({name: self.states[name].clone() for name in held})
        emitted: Any = inspect.unwrap(loaded.names[loaded.emitted.names.function(function.name)])  # without no_grad
        called = {each.model: models[each.model] for each in function.instructions if isinstance(each, Forward)}
        return loaded, PureModule(emitted, called).eval().requires_grad_(False)

    def _sizes(self, more: int) -> dict[str, int]:
        """Return sizes for the free dimensions of the inputs, each another one."""
        found = (size for entry in self.program.inputs for size in entry.shape or () if isinstance(size, str))
        return dict(zip(dict.fromkeys(found), count(FREE + more), strict=False))

    def _sample(self, more: int) -> dict[str, torch.Tensor]:
        """Return made-up inputs; ``more`` makes the free sizes greater."""
        return sample_inputs(self.program, self._sizes(more), self.device, self.dtype) or {}

    @contextmanager
    def _refusing(self, loaded: Loaded) -> Iterator[None]:
        """Raise what fails inside as SpecError (GS265), with torch's reason in one line; nothing else is printed."""
        silence = io.StringIO()
        try:
            with redirect_stdout(silence), redirect_stderr(silence):
                yield
        except Exception as error:
            found = explain_unexportable(error, loaded, self.spec)
        else:
            return
        raise SpecError([found], self.spec.texts())

    def _compare(self, exported: torch.export.ExportedProgram, module: PureModule, loaded: Loaded) -> None:
        """Raise SpecError (GS265) for a program that gives other numbers than what it is made of, or that remembers."""
        program = exported.module()
        before = {name: buffer.clone() for name, buffer in program.named_buffers()}
        for more in (0, 3):
            batch = self._sample(more)
            with self._refusing(loaded):
                found, expected = program(batch), module(batch)
            changed = [name for name, buffer in program.named_buffers() if not torch.equal(buffer, before[name])]
            if changed:
                raise SpecError([explain_remembering(self.mode, changed[0])], self.spec.texts())
            try:
                torch.testing.assert_close(found, expected, equal_nan=True)
            except AssertionError as error:
                raise SpecError([explain_different(self.mode, exported, error)], self.spec.texts()) from error
