"""The engine: drives an executed module step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from compiler.ir.program import InputDecl, Program
from graphspec.declare.graph import GraphSpec
from runtime.backends.tensorflow import tensors
from runtime.backends.tensorflow.devices import Setting
from runtime.backends.tensorflow.execution import Loaded, diagnose
from runtime.backends.tensorflow.export import ProgramPacker, pack_model
from runtime.backends.tensorflow.module import Module
from runtime.backends.tensorflow.slots import flagged
from runtime.engine.backend import PackedModel, PackedProgram, Signature
from runtime.engine.engine import Flags, ModuleEngine
from runtime.engine.load import has_begun
from runtime.engine.restore import read_state, restore_state
from runtime.overflow import Overflow
from runtime.state import State
from runtime.step import StepError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowEngine(ModuleEngine[Module]):
    """An executed module after its ``build``."""

    loaded: Loaded
    spec: GraphSpec
    device: str
    dtype: tf.DType
    module: Module
    counts: bool
    flags: Flags
    step: Callable[..., dict[str, object]]
    """The module's own function."""

    @classmethod
    def over(cls, loaded: Loaded, spec: GraphSpec, setting: Setting) -> TensorFlowEngine:
        """Return the engine of a built module."""
        return cls(
            loaded=loaded,
            spec=spec,
            device=setting.device,
            dtype=setting.dtype,
            module=Module.of(loaded),
            counts="clock" not in loaded.names,
            flags=Flags.of(loaded.program, spec, _find_variables(loaded), attrgetter("trainable")),
            step=loaded.names["step"],
        )

    # Called for every input of every step, so it is not wrapped in a method.
    fingerprint = staticmethod(tensors.fingerprint)

    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor."""
        return tensors.describe(value)

    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have."""
        return tensors.accepted(declared, self.dtype)

    def admit(self, value: object, declared: InputDecl) -> tf.Tensor:
        """Return an input as a tensor on the device, in the type of the step."""
        return tensors.to_tensor(value, self.device, tensors.target_dtype(declared, self.dtype))

    def check(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> None:
        """Do nothing: graphs were traced at build for every size of a batch."""

    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step; raise StepError with the op, its place and the user's frames where it fails."""
        if self.flags.modes:
            self.flags.check(mode)
        try:
            outputs = self.step(batch, mode) if dataset is None else self.step(batch, mode, dataset)
        except Exception as error:
            found, begun = diagnose(error, self.loaded, self.spec), self.has_begun(error, mode)
        else:
            if self.counts:
                self.count(mode)
            return outputs
        raise StepError([found], self.spec.texts(), begun=begun)

    def has_begun(self, error: BaseException, mode: str) -> bool:
        """Return whether a step that raised had already changed state that outlives it: its graph ran."""
        return has_begun(error, self.loaded, mode, traced=True)

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
        """Return weights, buffers and optimizer slots by name."""
        return self.module.tensors()

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        return self.module.sizes()

    def pack_model(self, model: str) -> PackedModel:
        """Return the parameters and buffers of a model as a safetensors file."""
        return pack_model(self.loaded.names["MODELS"][model], model)

    def pack_program(self, program: Program) -> PackedProgram:
        """Return a program of one function without draws or writes as a saved model of TensorFlow."""
        known = self.loaded.names["MODELS"]
        models = {model.name: known[model.name] for model in program.models}
        states = self.module.states
        return ProgramPacker(program=program, spec=self.spec, models=models, states=states, dtype=self.dtype).pack()

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""
        return tensors.to_numpy(value)


def _find_variables(loaded: Loaded) -> dict[tuple[str, str], object]:
    """Return the trained variables of the user's own models that have a flag which can be set."""
    models = {
        each.name: loaded.names["MODELS"][each.name]
        for each in loaded.program.models
        if each.trained and each.kind == "class"
    }
    return {(name, key): each for name, model in models.items() for key, each in flagged(model)}
