"""The engine: drives an executed module step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from compiler.ir.program import InputDecl, Program
from graphspec.declare.graph import GraphSpec
from graphspec.declare.options import BATCH
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow import tensors
from runtime.backends.tensorflow.contents import (
    StoredVariable,
    kept_slots,
    read_metric,
    read_scale,
    set_applied,
    tree_items,
    window_items,
    write_metric,
    write_scale,
)
from runtime.backends.tensorflow.devices import Setting
from runtime.backends.tensorflow.eager_statistics import Traced, recomputing
from runtime.backends.tensorflow.execution import ERRORS, Loaded
from runtime.backends.tensorflow.export import ProgramPacker, pack_model
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.verdicts import NONE
from runtime.backends.tensorflow.optimizer import TensorFlowOptimizer
from runtime.backends.tensorflow.slots import buffers, copies_of, flagged, parameters, slot_tensors
from runtime.codegen.lower.accumulate import find_local_windows
from runtime.engine.backend import PackedModel, PackedProgram, Signature
from runtime.engine.contents import (
    BY_TREE,
    Contents,
    applied_item,
    average_items,
    clock_items,
    find_names,
    metric_items,
    name_tensors,
    scale_items,
)
from runtime.engine.engine import Flags, ModuleEngine
from runtime.engine.load import find_span
from runtime.engine.overflow import Overflow
from runtime.step import StepError
from runtime.support.clocks import Clock

Named = dict[str, list[tuple[str, tf.Variable]]]
"""The variables of models by model, with their names."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowEngine(ModuleEngine):
    """An executed module after its ``build``; the variables of its models are looked up once."""

    loaded: Loaded
    spec: GraphSpec
    device: str
    dtype: tf.DType
    clock: Clock
    parameters: Named
    buffers: Named
    flags: Flags
    step: Callable[..., dict[str, object]]
    counts: bool
    framework = ERRORS
    traced = True

    @classmethod
    def over(cls, loaded: Loaded, spec: GraphSpec, setting: Setting) -> TensorFlowEngine:
        """Return the engine of a built module; it counts steps itself where nothing in it depends on their number."""
        models, program = loaded.names["MODELS"], loaded.program
        own = [each.name for each in program.models if each.trained and each.kind == "class"]
        variables = {(name, key): each for name in own for key, each in flagged(models[name])}
        return cls(
            loaded=loaded,
            spec=spec,
            device=setting.device,
            dtype=setting.dtype,
            clock=loaded.names.get("clock") or Clock(),
            parameters={name: list(parameters(model).items()) for name, model in models.items()},
            buffers={name: list(buffers(model).items()) for name, model in models.items()},
            flags=Flags.of(program, spec, variables, attrgetter("trainable")),
            counts="clock" not in loaded.names,
            step=loaded.names["step"],
        )

    @property
    def optimizers(self) -> Mapping[str, Any]:
        """Return the optimizers by cell."""
        return self.loaded.names["OPTIMIZERS"]

    @property
    def states(self) -> Mapping[str, tf.Variable]:
        """Return the variables of the declared states."""
        return self.loaded.names.get("STATE", {})

    # Called for every input of every step, so it is not wrapped in a method.
    fingerprint = staticmethod(tensors.fingerprint)

    def describe(self, value: object) -> Signature | None:
        """Return shape and type of an array or tensor."""
        return tensors.describe(value)

    def accepts(self, declared: InputDecl) -> tuple[str, ...]:
        """Return the types an input may have."""
        return tensors.accepted(declared, self.dtype)

    def admission(self, declared: InputDecl) -> Callable[[object], tf.Tensor]:
        """Return what makes of an input a tensor on the device, in the type of the step."""
        return partial(tensors.to_tensor, device=self.device, dtype=tensors.target_dtype(declared, self.dtype))

    def check(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> None:
        """Do nothing: graphs were traced at build for every size of a batch."""

    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step, whose batch has a row for each replica of this process and its micro-batches.

        That is asked before: what fails on one replica ends the collectives of all for good.
        """
        replicas = self.loaded.names.get("replicas")
        if replicas is not None and replicas.local == replicas.count > 1 and mode != "infer":
            self.require_rows(batch, replicas.count)
        return ModuleEngine.run(self, batch, mode, dataset)

    def require_rows(self, batch: Mapping[str, object], count: int) -> None:
        """Raise StepError (GS227) where a batch has too few rows for so many replicas."""
        least = count * self.spec.micro_batches
        for entry in self.loaded.program.inputs:
            tensor, sizes = batch.get(entry.name), (BATCH,) if entry.shape is None else entry.shape
            if BATCH not in sizes or not isinstance(tensor, tf.Tensor):
                continue
            rows = tensor.shape.as_list()[sizes.index(BATCH)]
            if rows is None or rows >= least:
                continue
            found = Diagnostic(
                code="GS227",
                message=f"'{entry.name}' has {rows} rows, and {count} replicas need {least} or more",
                span=find_span(self.spec, entry.name),
                help="give larger batches, or choose one device, such as `gpu:0`",
            )
            raise StepError([found], self.spec.texts())

    def overflow(self) -> Overflow:
        """Return what the last step with verdicts found about its gradients."""
        verdicts, scale = self.loaded.names["verdicts"], self.loaded.names.get("loss_scale")
        missed = {
            update: max(int(each.numpy()) for each in copies_of(held)) for update, held in verdicts.missed.items()
        }
        held = verdicts.withheld()
        return Overflow(
            given={update: place == NONE for update, place in missed.items()},
            committed={op: op not in held for op in verdicts.ops},
            places={update: place for update, place in missed.items() if place >= 0},
            scale_before=None if scale is None else float(scale.before.numpy()),
            scale_after=None if scale is None else float(scale.scale.numpy()),
        )

    def parameter_names(self, model: str) -> tuple[str, ...]:
        """Return the names of the parameters of a model for which gradients are taken."""
        names = {id(variable): name for name, variable in self.parameters[model]}
        listed = self.loaded.names[self.loaded.emitted.names.parameters(model)]
        return tuple(names[id(each)] for each in listed)

    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return all that training changes; ``applied`` says how often the optimizers are to be applied."""
        modes, names = self.loaded.program.modes, find_names(self.parameters)
        found = dict(name_tensors({name: [*each, *self.buffers[name]] for name, each in self.parameters.items()}))
        found.update({f"state.{name}": each for name, each in self.states.items()})
        items = [
            *clock_items(modes, self.clock, self.gates),
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
        for decl in self.loaded.program.optimizers:
            optimizer = self.optimizers[decl.name]
            items.append(applied_item(decl.name, optimizer, self.count_applied, set_applied))
            if decl.builtin and decl.rule in BY_TREE:
                items.extend(tree_items(decl.name, optimizer, names))
            else:
                found.update(kept_slots(decl.name, optimizer, names, applied.get(decl.name, 0)))
        return Contents(tensors={name: StoredVariable(each) for name, each in found.items()}, items=tuple(items))

    def count_applied(self, optimizer: Any) -> int:
        """Return how often an optimizer was applied."""
        return int(optimizer.applied.numpy())

    def access(self) -> dict[str, TensorFlowOptimizer]:
        """Return the access to every optimizer, by cell."""
        names, steps = find_names(self.parameters), self.loaded.names.get("steps")
        return {
            decl.name: TensorFlowOptimizer(
                cell=decl.name,
                shell=self.optimizers[decl.name],
                names=names,
                clock=self.clock,
                steps=steps,
                unlike=len(decl.find_unlike()),
                retrace=self.retrace,
            )
            for decl in self.loaded.program.optimizers
        }

    def retrace(self) -> None:
        """Let every graph be traced again by the next step that runs it; a debug build has none."""
        for graph in self.loaded.names["FUNCTIONS"].values():
            if isinstance(graph, Traced):
                graph.begin()

    def tensors(self) -> dict[str, object]:
        """Return copies of weights, buffers, optimizer slots and declared states by name."""
        models = (*self.parameters.items(), *self.buffers.items())
        found = {f"models.{model}.{name}": each for model, named in models for name, each in named}
        for cell, optimizer in self.optimizers.items():
            found.update(slot_tensors(cell, optimizer, find_names(self.parameters)))
        found.update({f"state.{name}": each for name, each in self.states.items()})
        return {name: each.read_value() for name, each in found.items()}

    def lend(self, model: str, average: str, *, buffers: bool) -> Callable[[], None]:
        """Give the variables of a model the values of its average: graphs hold variables, which are no pointers."""
        own, others = (
            [each for _, each in (*self.parameters[name], *(self.buffers[name] if buffers else ()))]
            for name in (model, average)
        )
        kept = [variable.read_value() for variable in own]
        for variable, other in zip(own, others, strict=True):
            variable.assign(tf.cast(other, variable.dtype))

        def give_back() -> None:
            """Give them their own values again, bit for bit."""
            for variable, other in zip(own, others, strict=True):
                if not variable.trainable:  # what a forward wrote is the average's, as where memory is shared
                    other.assign(tf.cast(variable, other.dtype))
            for variable, value in zip(own, kept, strict=True):
                variable.assign(value)

        return give_back

    def recomputing(self, model: str) -> AbstractContextManager[Callable[[], int | None]]:
        """Let the statistics of BatchNorm in a model become the means over the batches of the steps inside."""
        made = self.loaded.names["MODELS"][model]
        parts = (*layers_of(made, set()), *(made.submodules if isinstance(made, tf.Module) else ()))
        layers = {id(each): each for each in parts}.values()
        return recomputing(layers, self.loaded.names["FUNCTIONS"].values())

    def buffer_names(self, model: str) -> frozenset[str]:
        """Return the names of the buffers of a model."""
        return frozenset(name for name, _ in self.buffers[model])

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters of every model, shared ones counted once."""
        parts = {name: {id(each): each for _, each in named} for name, named in self.parameters.items()}
        return {name: sum(each.shape.num_elements() for each in found.values()) for name, found in parts.items()}

    def pack_model(self, model: str) -> PackedModel:
        """Return the parameters and buffers of a model as a safetensors file."""
        return pack_model(self.loaded.names["MODELS"][model], model)

    def pack_program(self, program: Program) -> PackedProgram:
        """Return a program of one function without draws or writes as a saved model of TensorFlow."""
        known = self.loaded.names["MODELS"]
        models = {model.name: known[model.name] for model in program.models}
        return ProgramPacker(
            program=program, spec=self.spec, models=models, states=self.states, dtype=self.dtype
        ).pack()

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of a tensor on the host."""
        return tensors.to_numpy(value)
