"""The engine: drives an executed module step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from compiler.ir.program import InputDecl, Program
from graphspec.declare.graph import GraphSpec
from runtime.backends.torch import tensors
from runtime.backends.torch.devices import Setting
from runtime.backends.torch.execution import Loaded, diagnose
from runtime.backends.torch.export import ProgramPacker, pack_model
from runtime.backends.torch.module import Module
from runtime.engine import restore
from runtime.engine.backend import PackedModel, PackedProgram, Signature
from runtime.engine.contents import name_slots
from runtime.engine.engine import Flags, ModuleEngine
from runtime.engine.load import has_begun
from runtime.overflow import Overflow
from runtime.state import State
from runtime.step import StepError


@torch.inference_mode(False)
@torch.no_grad()
def read_state(module: Module) -> State:
    """Return everything that training changes, copied to the host.

    Raises SpecError: GS267 where a user's module, metric or optimizer keeps what a checkpoint cannot.
    """
    return restore.read_state(module)


@torch.inference_mode(False)
@torch.no_grad()
def restore_state(module: Module, state: State) -> None:
    """Restore a state into a module: in place, and nothing at all where something does not fit.

    Raises SpecError: GS264 for every name that is missing, not expected, or of another shape or type.
    """
    restore.restore_state(module, state)


Check = Callable[[Mapping[str, torch.Tensor], str, str | None], None]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngine(ModuleEngine[Module]):
    """An executed module after its ``build``; ``late_check`` is the dry run for sizes that were not known at build."""

    loaded: Loaded
    spec: GraphSpec
    device: torch.device
    dtype: torch.dtype
    late_check: Check | None
    module: Module
    counts: bool
    flags: Flags

    @classmethod
    def over(cls, loaded: Loaded, spec: GraphSpec, setting: Setting, late_check: Check | None) -> TorchEngine:
        """Return the engine of a built module."""
        return cls(
            loaded=loaded,
            spec=spec,
            device=setting.device,
            dtype=setting.dtype,
            late_check=late_check,
            module=Module.of(loaded),
            counts="clock" not in loaded.names,
            flags=Flags.of(loaded.program, spec, _find_parameters(loaded), attrgetter("requires_grad")),
        )

    # Called for every input of every step, so it is not wrapped in a method.
    fingerprint = staticmethod(tensors.fingerprint)

    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor."""
        return tensors.describe(value)

    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have."""
        return tensors.accepted(declared, self.dtype)

    def admit(self, value: object, declared: InputDecl) -> torch.Tensor:
        """Return an input as a tensor on the device, in the type of the step."""
        return tensors.to_tensor(value, self.device, tensors.target_dtype(declared, self.dtype))

    def check(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> None:
        """Make the dry run with the sizes of this batch, where it could not be made at build."""
        if self.late_check is not None:
            given = {name: tensors.to_tensor(each, self.device, None) for name, each in batch.items()}
            self.late_check(given, mode, dataset)

    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step; raise StepError with the op, its place and the user's frames where it fails."""
        self.flags.check(mode)
        given = batch, mode, *self.dataset_arguments(dataset)
        try:
            if torch.is_grad_enabled():
                outputs = self.loaded.call("step", *given)
            else:
                with torch.inference_mode(False), torch.enable_grad():  # a caller's no_grad must not affect the step
                    outputs = self.loaded.call("step", *given)
        except Exception as error:
            found, begun = diagnose(error, self.loaded, self.spec), self.has_begun(error, mode)
        else:
            if self.counts:
                self.count(mode)
            return outputs
        raise StepError([found], self.spec.texts(), begun=begun)

    def has_begun(self, error: BaseException, mode: str) -> bool:
        """Return whether a step that raised had already changed state that outlives it."""
        return has_begun(error, self.loaded, mode, traced=False)

    def overflow(self) -> Overflow:
        """Return what the last step with verdicts found about its gradients."""
        return self.module.overflow()

    def norms(self) -> Mapping[str, float]:
        """Return the norms of the gradients of the last step by update, where the step was built to measure them."""
        return self.module.norms()

    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken."""
        return self.module.parameter_names(model)

    def state(self) -> State:
        """Return everything that training changes, copied to the host."""
        return read_state(self.module)

    def restore(self, state: State) -> None:
        """Restore a state; nothing changes where something does not fit."""
        restore_state(self.module, state)
        self.forget()
        self.align()

    def tensors(self) -> dict[str, object]:
        """Return weights, buffers, optimizer slots and declared states by name."""
        found: dict[str, object] = {f"state.{name}": each for name, each in self.module.states.items()}
        models = self.loaded.names["MODELS"]
        for model, module in models.items():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                found[f"models.{model}.{name}"] = tensor.detach()
        for cell, optimizer in self.loaded.names["OPTIMIZERS"].items():
            found.update(_slots(cell, optimizer, self.module.names()))
        return found

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        models = self.loaded.names["MODELS"].items()
        return {name: sum(each.numel() for each in model.parameters()) for name, model in models}

    def pack_model(self, model: str) -> PackedModel:
        """Return the parameters and persistent buffers of a model as a safetensors file."""
        return pack_model(self.loaded.names["MODELS"][model], model)

    def pack_program(self, program: Program) -> PackedProgram:
        """Return a program of one function without draws or writes as a file of ``torch.export.save``."""
        known = self.loaded.names["MODELS"]
        models = {model.name: known[model.name] for model in program.models}
        return ProgramPacker(
            program=program,
            spec=self.spec,
            models=models,
            states=self.module.states,
            device=self.device,
            dtype=self.dtype,
        ).pack()

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""
        return tensors.to_numpy(value)


def _slots(cell: str, optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the slots of an optimizer, named by parameter: ``optimizers.<cell>.<slot>.<parameter>``."""
    named = name_slots(optimizer.parameters, names)
    for slot, values in optimizer.slots.items():
        for name, value in zip(named, values, strict=True):
            if isinstance(value, torch.Tensor):
                yield f"optimizers.{cell}.{slot}.{name}", value


def _find_parameters(loaded: Loaded) -> dict[tuple[str, str], object]:
    """Return the parameters of the user's own models that are trained."""
    models = {
        each.name: loaded.names["MODELS"][each.name]
        for each in loaded.program.models
        if each.trained and each.kind == "class"
    }
    return {(name, key): each for name, model in models.items() for key, each in model.named_parameters()}
