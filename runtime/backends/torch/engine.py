"""The engine: drives an executed module step by step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from compiler.ir.program import InputDecl, OptimizerDecl, Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch import tensors
from runtime.backends.torch.capture import Captured, has_run
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.contents import (
    StoredShard,
    StoredState,
    StoredTensor,
    extra_items,
    read_metric,
    read_scale,
    rest_items,
    set_applied,
    slot_tensors,
    window_items,
    wrapped_items,
    write_metric,
    write_scale,
)
from runtime.backends.torch.devices import Setting
from runtime.backends.torch.equal import Equality, digest
from runtime.backends.torch.execution import ERRORS, Loaded
from runtime.backends.torch.export import ProgramPacker, pack_model
from runtime.backends.torch.optimizer import TorchOptimizer
from runtime.backends.torch.statistics import recomputing
from runtime.backends.torch.wrapped import WrappedState
from runtime.codegen.lower.accumulate import find_local_windows
from runtime.codegen.shards import SHARDS
from runtime.engine.backend import PackedModel, PackedProgram, Signature
from runtime.engine.contents import (
    STEP,
    Contents,
    Stored,
    applied_item,
    average_items,
    clock_items,
    find_names,
    metric_items,
    name_slots,
    name_tensors,
    scale_items,
)
from runtime.engine.engine import Flags, ModuleEngine
from runtime.engine.overflow import Overflow
from runtime.problems import StepError
from runtime.state import State
from runtime.support.clocks import Clock

Check = Callable[[Mapping[str, torch.Tensor], str, str | None], None]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngine(ModuleEngine):
    """An executed module after its ``build``; ``late_check`` is the dry run for sizes that were not known at build."""

    loaded: Loaded
    spec: GraphSpec
    device: torch.device
    dtype: torch.dtype
    late_check: Check | None
    clock: Clock
    wrapped: Mapping[str, WrappedState]
    """The states of optimizers with torch.optim's interface, by cell."""
    flags: Flags
    step: Callable[..., dict[str, object]]
    counts: bool
    graphs: Mapping[str, Captured]
    """The functions that are captured as graphs, by their titles."""
    seed: int
    equality: Equality
    framework = ERRORS
    traced = False

    @classmethod
    def over(
        cls,
        loaded: Loaded,
        spec: GraphSpec,
        setting: Setting,
        late_check: Check | None,
        graphs: Mapping[str, Captured],
    ) -> TorchEngine:
        """Return the engine of a built module; it counts steps itself where nothing in it depends on their number."""
        optimizers, models, program = loaded.names["OPTIMIZERS"], loaded.names["MODELS"], loaded.program
        names = find_names(find_own(loaded))
        shells = {each.name: optimizers[each.name] for each in program.optimizers if not _is_direct(each)}
        own = [each.name for each in program.models if each.trained and each.kind == "class"]
        flagged = {(name, key): each for name in own for key, each in models[name].named_parameters()}
        return cls(
            loaded=loaded,
            spec=spec,
            device=setting.device,
            dtype=setting.dtype,
            late_check=late_check,
            clock=loaded.names.get("clock") or Clock(),
            wrapped={
                cell: WrappedState.of(shell, name_slots(shell.parameters, names), loaded.names.get(SHARDS))
                for cell, shell in shells.items()
            },
            flags=Flags.of(program, spec, flagged, attrgetter("requires_grad")),
            step=loaded.names["step"],
            counts="clock" not in loaded.names,
            graphs=graphs,
            seed=setting.seed,
            equality=Equality(),
        )

    @property
    def models(self) -> Mapping[str, torch.nn.Module]:
        """Return the models by name."""
        return self.loaded.names["MODELS"]

    @property
    def states(self) -> dict[str, Any]:
        """Return the declared states, which the step replaces."""
        return self.loaded.names.get("STATE", {})

    def names(self) -> dict[int, str]:
        """Return the name of every parameter, by its id."""
        own, shards = find_own(self.loaded), self.loaded.names.get(SHARDS)
        if shards is None:
            return find_names(own)
        wholes = {model: [(name, *shards.whole([each])) for name, each in found] for model, found in own.items()}
        return find_names(own) | find_names(wholes)

    # Called for every input of every step, so it is not wrapped in a method.
    fingerprint = staticmethod(tensors.fingerprint)

    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor."""
        return tensors.describe(value)

    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have."""
        return tensors.accepted(declared, self.dtype)

    def admission(self, declared: InputDecl) -> Callable[[object], torch.Tensor]:
        """Return what makes of an input a tensor on the device, in the type of the step."""
        return partial(tensors.to_tensor, device=self.device, dtype=tensors.target_dtype(declared, self.dtype))

    def check(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> None:
        """Make the dry run with the sizes of this batch, where it could not be made at build."""
        if self.late_check is not None:
            given = {name: tensors.to_tensor(each, self.device, None) for name, each in batch.items()}
            self.late_check(given, mode, dataset)

    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step, the first with other processes only where they begin with the same."""
        replicas = self.loaded.names.get("replicas")
        if replicas is not None and self.equality.is_due and mode != "infer":  # a digest of the plan takes its time
            self.equality.require(replicas, self.begun(), self.common())
        return ModuleEngine.run(self, batch, mode, dataset)

    def begun(self) -> dict[str, str]:
        """Return what other processes must have as well, besides weights, by name."""
        return {"plan": digest(self.loaded.emitted.text), "seed": str(self.seed)}

    def common(self) -> Generator[tuple[str, torch.Tensor]]:
        """Yield the tensors that are equal on all processes, by name: not shards, which came from the first."""
        parallel, is_divided = self.spec.parallel, self.loaded.names.get(SHARDS) is not None
        for name, model in self.models.items():
            if not is_divided:
                yield from ((f"{name}.{each}", tensor) for each, tensor in model.named_parameters())
            if parallel is None or parallel.buffers != "local":
                yield from ((f"{name}.{each}", tensor) for each, tensor in model.named_buffers())
        yield from self.states.items()

    def call(self, *given: object) -> dict[str, object]:
        """Call the module's own ``step``; a caller's ``no_grad`` must not affect it."""
        if torch.is_grad_enabled():
            return self.step(*given)
        with torch.inference_mode(False), torch.enable_grad():
            return self.step(*given)

    def has_begun(self, error: BaseException, mode: str) -> bool:
        """Return whether a step that raised had already changed state that outlives it; a graph counts as one write."""
        return has_run(error) or ModuleEngine.has_begun(self, error, mode)

    def overflow(self) -> Overflow:
        """Return what the last step with verdicts found about its gradients."""
        verdicts, scale = self.loaded.names["verdicts"], self.loaded.names.get("loss_scale")
        return Overflow(
            given=dict(verdicts.given),
            committed=dict(verdicts.committed),
            places={
                update: at
                for update, gradients in verdicts.nonfinite.items()
                for at in (find_nonfinite(gradients),)
                if at is not None  # of several processes, another may have it
            },
            scale_before=None if scale is None else scale.before,
            scale_after=None if scale is None else scale.scale,
        )

    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken."""
        names, listed = self.names(), self.loaded.names[self.loaded.emitted.names.parameters(model)]
        return tuple(names[id(each)].partition(".")[2] for each in listed)

    @torch.inference_mode(False)
    @torch.no_grad()
    def state(self, *, whole: bool = True) -> State:
        """Return everything that training changes, copied to the host; not ``whole``: what this process has of it."""
        return ModuleEngine.state(self, whole=whole)

    @torch.inference_mode(False)
    @torch.no_grad()
    def restore(self, state: State) -> None:
        """Restore a state; nothing changes where something does not fit."""
        ModuleEngine.restore(self, state)
        self.equality.is_due = True

    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return all that training changes; ``applied`` says how often the optimizers are to be applied."""
        modes, names = self.loaded.program.modes, self.names()
        own, shards = find_own(self.loaded), self.loaded.names.get(SHARDS)
        weights = dict(name_tensors(own))
        named = {model: [*own[model], *each.named_buffers()] for model, each in self.models.items()}
        tensors = dict(name_tensors(named))
        parameters = dict(weights)  # whose shards they are, or belong to
        items = [
            *clock_items(modes, self.clock, self.gates),
            *extra_items(self.models),
            *average_items(self.loaded.names.get("AVERAGES", {})),
            *metric_items({each.mode: self.metrics(each.mode) for each in modes}, read_metric, write_metric),
            *scale_items(self.loaded.names.get("loss_scale"), read_scale, write_scale),
            *window_items(
                self.loaded.names.get("WINDOWS", {}),
                names,
                self.loaded.names.get("replicas"),
                find_local_windows(self.loaded.program),
            ),
        ]
        items.extend(rest_items(self.loaded.names.get("COMPRESSORS", {}), names))
        for decl in self.loaded.program.optimizers:
            optimizer = self.loaded.names["OPTIMIZERS"][decl.name]
            items.append(applied_item(decl.name, optimizer, self.count_applied, set_applied))
            if _is_direct(decl):
                for name, parameter, slot in slot_tensors(decl.name, optimizer, names, applied.get(decl.name, 0)):
                    tensors[name], parameters[name] = slot, parameter
            else:
                items.extend(wrapped_items(decl.name, self.wrapped[decl.name]))
        stored: dict[str, Stored] = {
            name: StoredTensor(each)
            if shards is None or name not in parameters or each.shape != parameters[name].shape
            else StoredShard(each, parameters[name], shards)
            for name, each in tensors.items()
        }
        held = {f"state.{name}": StoredState(self.states, name) for name in self.states}
        return Contents(tensors={**stored, **held}, items=tuple(items))

    def access(self) -> dict[str, TorchOptimizer]:
        """Return the access to every optimizer, by cell."""
        made, names = self.loaded.names["OPTIMIZERS"], self.names()
        return {
            each.name: TorchOptimizer.of(made[each.name], is_shell=not _is_direct(each), names=names, decl=each)
            for each in self.loaded.program.optimizers
        }

    def tensors(self) -> dict[str, object]:
        """Return weights, buffers, optimizer slots and declared states by name."""
        found: dict[str, object] = {f"state.{name}": each for name, each in self.states.items()}
        shards = self.loaded.names.get(SHARDS)

        def whole(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
            """Return a tensor of a parameter, gathered where processes have shards of it."""
            return tensor if shards is None else shards.gather(tensor, parameter)

        for model, parameters in find_own(self.loaded).items():
            for name, tensor in parameters:
                found[f"models.{model}.{name}"] = whole(tensor.detach(), tensor)
            for name, tensor in self.models[model].named_buffers():
                found[f"models.{model}.{name}"] = tensor.detach()
        names = self.names()
        for cell, optimizer in self.loaded.names["OPTIMIZERS"].items():
            named = name_slots(optimizer.parameters, names)
            for slot, values in optimizer.slots.items():
                found |= {
                    f"optimizers.{cell}.{slot}.{name}": whole(value, parameter) if slot != STEP else value
                    for name, parameter, value in zip(named, optimizer.parameters, values, strict=True)
                    if isinstance(value, torch.Tensor)
                }
        return found

    def lend(self, model: str, average: str, *, buffers: bool) -> Callable[[], None]:
        """Let the tensors of a model be those of its average in memory; nothing is copied, but for shards."""
        parameters = find_own(self.loaded)
        own, others = (
            [*(tensor for _, tensor in parameters[each]), *(self.models[each].buffers() if buffers else ())]
            for each in (model, average)
        )
        if self.loaded.names.get(SHARDS) is not None:
            return _exchange(own, others)
        kept = [tensor.data for tensor in own]
        for tensor, other in zip(own, others, strict=True):
            tensor.data = other.data

        def give_back() -> None:
            """Let them be their own again."""
            for tensor, data in zip(own, kept, strict=True):
                tensor.data = data

        return give_back

    def expect(self, rows: int | None) -> None:
        """Set how many rows all processes have in the next step; None: they exchange the numbers.

        Raises StepError (GS209) where it is not a whole number from 1.
        """
        if rows is not None and not (isinstance(rows, int | np.integer) and rows > 0):
            message = f"`rows` is {rows!r}, which is not how many rows all processes have"
            help = "pass the rows of the batch that they share, a whole number, or leave it out"
            raise StepError([Diagnostic(code="GS209", message=message, help=help)], self.spec.texts())
        if (replicas := self.loaded.names.get("replicas")) is not None:
            replicas.expected = rows

    @contextmanager
    def alone(self) -> Generator[None]:
        """Let this process take steps alone inside."""
        replicas = self.loaded.names.get("replicas")
        if replicas is None:
            yield
            return
        before = replicas.rank, replicas.count
        replicas.leave()
        try:
            yield
        finally:
            replicas.rank, replicas.count = before

    def recomputing(self, model: str) -> AbstractContextManager[Callable[[], int | None]]:
        """Let the statistics of BatchNorm in a model become the means over the batches of the steps inside."""
        return recomputing(self.models[model])

    def buffer_names(self, model: str) -> frozenset[str]:
        """Return the names of the buffers of a model."""
        return frozenset(name for name, _ in self.models[model].named_buffers())

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        return {name: sum(each.numel() for each in model.parameters()) for name, model in self.models.items()}

    def pack_model(self, model: str) -> PackedModel:
        """Return the parameters and persistent buffers of a model as a safetensors file."""
        return pack_model(self.models[model], model)

    def pack_program(self, program: Program) -> PackedProgram:
        """Return a program of one function without draws or writes as a file of ``torch.export.save``."""
        return ProgramPacker(
            program=program,
            spec=self.spec,
            models={model.name: self.models[model.name] for model in program.models},
            states=self.states,
            device=self.device,
            dtype=self.dtype,
        ).pack()

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""
        return tensors.to_numpy(value)


def find_nonfinite(gradients: Sequence[torch.Tensor | None]) -> int | None:
    """Return the place of the first gradient that is not finite, None where all are."""
    found = (at for at, each in enumerate(gradients) if each is not None and not bool(each.isfinite().all()))
    return next(found, None)


def find_own(loaded: Loaded) -> dict[str, list[tuple[str, torch.Tensor]]]:
    """Return the parameters of every model by name: of those that processes divide, the shards of this one."""
    shards = loaded.names.get(SHARDS)
    return {
        name: [*model.named_parameters()] if shards is None else shards.named(model)
        for name, model in loaded.names["MODELS"].items()
    }


def _exchange(own: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Copy the values of tensors into others, whose memory FSDP2 holds; return what puts their own back."""
    kept = [tensor.detach().clone() for tensor in own]

    def copy(values: Sequence[torch.Tensor]) -> None:
        """Copy values into the tensors."""
        for tensor, value in zip(own, values, strict=True):
            tensor.detach().copy_(value.detach())

    copy(others)
    return lambda: copy(kept)


def _is_direct(decl: OptimizerDecl) -> bool:
    """Return whether an optimizer is one of the library's own."""
    return decl.builtin and decl.rule in TORCH.direct
