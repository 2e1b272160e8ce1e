"""The engine: drives an executed module step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from compiler.program import InputDecl
from graphspec.graph import GraphSpec
from runtime.backend import Engine, Signature
from runtime.backends.torch import tensors
from runtime.backends.torch.execution import Loaded, call_checked
from runtime.backends.torch.setting import Setting

Check = Callable[[Mapping[str, torch.Tensor], str], None]


@dataclass(slots=True)
class Recorder:
    """The gates of a module, remembering what fired last."""

    gates: Any
    last: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def fire(self, mode: str) -> tuple[str, ...]:
        """Count a step of a mode and return the gated ops that fire in it."""
        self.last[mode] = fired = self.gates.fire(mode)
        return fired


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngine(Engine):
    """An executed module after its ``build``; ``late_check`` is the dry run where sizes were not known at build."""

    loaded: Loaded
    spec: GraphSpec
    device: torch.device
    dtype: torch.dtype
    late_check: Check | None
    gates: Recorder | None

    @classmethod
    def over(cls, loaded: Loaded, spec: GraphSpec, setting: Setting, late_check: Check | None) -> TorchEngine:
        """Return the engine of a built module."""
        gates = Recorder(loaded.names["gates"]) if "gates" in loaded.names else None
        if gates is not None:
            loaded.names["gates"] = gates
        return cls(
            loaded=loaded,
            spec=spec,
            device=setting.device,
            dtype=setting.dtype,
            late_check=late_check,
            gates=gates,
        )

    def fingerprint(self, value: object) -> object:
        """Return shape and dtype, hashable and cheap."""
        return tensors.fingerprint(value)

    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor."""
        return tensors.describe(value)

    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have."""
        return tensors.accepted(declared, self.dtype)

    def admit(self, value: object, declared: InputDecl) -> torch.Tensor:
        """Return an input as a tensor on the device, in the type of the step."""
        return tensors.to_tensor(value, self.device, tensors.target_dtype(declared, self.dtype))

    def check(self, batch: Mapping[str, object], mode: str) -> None:
        """Make the dry run with the sizes of this batch, where it could not be made at build."""
        if self.late_check is not None:
            self.late_check({name: tensors.to_tensor(each, self.device, None) for name, each in batch.items()}, mode)

    def run(self, batch: Mapping[str, object], mode: str) -> dict[str, object]:
        """Take one step; raise StepError with the op, its place and the user's frames where it fails."""
        if torch.is_grad_enabled():
            return call_checked(self.loaded, self.spec, "step", batch, mode)
        with torch.inference_mode(False), torch.enable_grad():  # a caller's no_grad is not meant for the step
            return call_checked(self.loaded, self.spec, "step", batch, mode)

    def fired(self, mode: str) -> tuple[str, ...]:
        """Return the gated ops that fired in the last step of a mode."""
        return () if self.gates is None else self.gates.last.get(mode, ())

    def tensors(self) -> dict[str, object]:
        """Return weights, buffers and optimizer slots by name."""
        found: dict[str, object] = {}
        names = {}
        for model, module in self.loaded.names["MODELS"].items():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                found[f"models.{model}.{name}"] = tensor.detach()
                names[id(tensor)] = f"{model}.{name}"
        for cell, optimizer in self.loaded.names["OPTIMIZERS"].items():
            found.update(_slots(cell, optimizer, names))
        return found

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        models = self.loaded.names["MODELS"].items()
        return {name: sum(each.numel() for each in model.parameters()) for name, model in models}

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""
        return tensors.to_numpy(value)


def _slots(cell: str, optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the slots of an optimizer, named by parameter: ``optimizers.<cell>.<slot>.<parameter>``."""
    single = len({names[id(each)].partition(".")[0] for each in optimizer.parameters}) == 1
    for slot, values in optimizer.slots.items():
        for parameter, value in zip(optimizer.parameters, values, strict=True):
            if isinstance(value, torch.Tensor):
                model, _, name = names[id(parameter)].partition(".")
                yield f"optimizers.{cell}.{slot}.{name if single else f'{model}.{name}'}", value
