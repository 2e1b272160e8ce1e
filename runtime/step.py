"""The step: what ``build`` returns, a function of a batch that trains."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, final

from msgspec.structs import replace

from compiler import Plan
from compiler.ir.instructions import Blend, ResolveOverflow
from graphspec.analysis.datasets import find_declared, join_batches
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from graphspec.words import closest
from runtime.data.arrays import MarkedBatch
from runtime.engine import average_statistics as statistics
from runtime.engine.admission import Intake, check_batch, find_needed, is_batch, refuse_batch, refuse_dataset
from runtime.engine.backend import Built
from runtime.engine.optimizer import (
    SECTION,
    SETTINGS,
    Optimizer,
    describe_optimizers,
    describe_settings,
    find_changes,
    find_differences,
)
from runtime.engine.overflow import NOTHING
from runtime.engine.report import Reporter, StepReport
from runtime.problems import StepError
from runtime.state import Plain, State

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from runtime.engine.backend import PackedModel
    from runtime.export.export import Exported, Format


BROKEN = "the step had begun to write: it runs again after restore() or load()"
"""The note of an error that leaves a step incomplete."""

Error = TypeVar("Error", bound=BaseException)


@final
class Step:
    """A built training step: call it with a batch to take one step and get the outputs. Made by :func:`build`.

    >>> import numpy as np
    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> images = {"image": np.zeros((4, 1, 8, 8), np.float32)}
    >>> step.sizes["discriminator"]
    24961
    >>> before = step.state()
    >>> first = step.numpy(step(images)["d_loss"])
    >>> step.report.fired
    ('step_d', 'step_g')
    >>> step.restore(before)  # the same weights, slots, counts and random numbers
    >>> bool(first == step.numpy(step(images)["d_loss"]))
    True
    >>> step.optimizers["generator"].iterations
    1
    """

    def __init__(self, built: Built) -> None:
        self._built = built
        self._needed = find_needed(built.plan.program)
        """The inputs by mode and data set."""
        self._intakes: dict[tuple[str, str | None], Intake] = {}
        """The intakes of steps, by mode and data set as called."""
        self._fingerprint, self._run = built.engine.fingerprint, built.engine.run
        self._datasets = frozenset(built.plan.program.datasets)
        self._modes = {mode.mode: mode for mode in built.plan.program.modes}
        self._admitted: dict[tuple[object, ...], bool] = {}
        """The fingerprints of batches that fitted, and whether their tensors are used unchanged."""
        self._last: tuple[str, str | None] | None = None
        """Mode and data set of the last step."""
        self._broken = ""
        """The mode of a step that failed after it had begun to write; no other follows before a restore."""
        self._lent: dict[str, str] = {}
        """Models that have the weights of their averages for now, with these."""
        declared = {each.name: each for each in built.plan.program.optimizers}
        self._optimizers = {name: Optimizer(declared[name], each) for name, each in built.optimizers.items()}

    def __repr__(self) -> str:
        """Return what it is a step of, on one line.

        >>> step
        <Step of simultaneous-gan on cpu: 2 models, 35,393 parameters; torch>
        """
        sizes, program = self.sizes, self.plan.program
        models = f"{len(sizes)} {'model' if len(sizes) == 1 else 'models'}, {sum(sizes.values()):,} parameters"
        return f"<Step of {program.name} on {self.device}: {models}; {program.backend}>"

    def _repr_html_(self) -> str:
        """Return the picture of its plan that notebooks show."""
        from compiler.plan.page import svg

        return svg.draw_cell(self.plan)

    @property
    def plan(self) -> Plan:
        """Return the plan, compiled with the observed traits of user classes."""
        return self._built.plan

    @property
    def spec(self) -> GraphSpec:
        """Return the compiled spec."""
        return self._built.plan.spec

    @property
    def source(self) -> str:
        """Return the Python source that the step runs."""
        return self._built.source

    @property
    def models(self) -> Mapping[str, object]:
        """Return the models by name."""
        return self._built.models

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """Return the optimizers by name: of their model, or of the update that declares them."""
        return MappingProxyType(self._optimizers)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes of the build: what it observed, and how it checked the step."""
        return self._built.notes

    @property
    def device(self) -> str:
        """Return the device of the step."""
        return self._built.device

    @property
    def report(self) -> StepReport:
        """Return the report of the last step, made when it is read; before the first step, a report of step 0."""
        if self._last is None:
            return StepReport(step=0, mode="train", fired=())
        engine, (mode, dataset) = self._built.engine, self._last
        functions = self._modes[mode].functions  # some settle the verdicts under which writes take place
        has_verdicts = any(
            isinstance(each, ResolveOverflow) for function in functions for each in function.instructions
        )
        reporter = Reporter(
            plan=self.plan,
            optimizers=self._optimizers,
            overflow=engine.overflow() if has_verdicts else NOTHING,
            norms=engine.norms(),
            names=engine.parameter_names,
        )
        return reporter.report(mode, engine.steps(mode), frozenset(engine.fired(mode)), dataset)

    def __call__(
        self,
        batch: Mapping[str, object] | list[Mapping[str, object]],
        mode: str = "train",
        dataset: str | None = None,
        *,
        rows: int | None = None,
    ) -> dict[str, object]:
        """Take one step of a mode; return the outputs of the step as tensors on its device, by name.

        ``batch`` holds an array or tensor for every input of the mode, of the declared shape; it is a list of batches,
        in their order, where a step takes several (`repeat` with `batch: next`). ``dataset`` is the data
        set of the batch, where the spec has several. An output of an op that did not fire in this step is left out.

        ``rows``: how many rows all processes have of a batch that they share. Then they need not tell each other; each
        must have its share, and the first ones have one more where the rows do not divide.

        Raises StepError: GS209 a batch that does not fit, GS210 a user's code raised, GS211 an operation failed, GS219
        an unknown mode, GS281 an unknown data set, GS290 an earlier step is incomplete. A step that raises before
        its first write has changed nothing; one that raises later says so, and then no step runs before :meth:`restore`
        or :meth:`load`.

        >>> outputs = step(images)
        >>> tuple(outputs["fake"].shape)
        (4, 1, 8, 8)
        """
        intake = self._intakes.get((mode, dataset)) or self._find_intake(mode, dataset)
        given = join_batches(batch, self.spec) if isinstance(batch, list) and all(map(is_batch, batch)) else batch
        ready = self._admit(given, intake)
        self._built.engine.expect(batch.rows if rows is None and isinstance(batch, MarkedBatch) else rows)
        try:
            outputs = self._run(ready, mode, intake.dataset)
        except StepError as error:
            failed = self._break(self._dated(error, mode), mode) if error.begun else self._dated(error, mode)
        except BaseException as error:
            if self._built.engine.has_begun(error, mode):
                self._break(error, mode)
            raise
        else:
            self._last = mode, dataset
            return outputs
        raise failed  # outside the `except`, so that the first error is not chained

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the number of parameters of every model."""
        return self._built.engine.sizes()

    def tensors(self) -> dict[str, object]:
        """Return the tensors that training changes: weights, buffers, slots of optimizers and declared states, by name.

        Names are ``models.<model>.<name>``, ``optimizers.<optimizer>.<slot>.<name>`` and ``state.<name>``. On PyTorch
        the tensors share the memory of the step; :meth:`state` returns copies.

        >>> tuple(step.tensors()["models.generator.0.weight"].shape)
        (128, 16)
        """
        return self._built.engine.tensors()

    @contextmanager
    def averaged(self, average: str, recompute: Iterable[Mapping[str, object]] | None = None) -> Generator[None]:
        """Let a model have the weights of its average in a `with` statement; ``average`` is the name of the `ema`.

        The model itself has them: in every mode, and for whoever else holds the module. It gets its own back at the
        end, bit for bit, whether an error ends the statement or not. Buffers are the average's unless it ignores them.
        ``recompute``: batches of mode ``eval``, over which BatchNorm's statistics of the average are first computed
        anew, as :meth:`recompute_buffers` does; the average keeps them. Before the average is taken for the first time
        the model keeps its own weights, as in an evaluation with `use: {eval: swap}`, and nothing is computed anew.

        Raises StepError: GS291 no such average, or one of a model that has another's weights already or is evaluated
        with another average (`use: {eval: swap}`); GS292 as :meth:`recompute_buffers`. Inside, steps of modes that
        write models, and what reads or replaces the state, raise GS291.

        >>> spec = load("examples/ema-classifier/ema-classifier.yaml")
        >>> classifier = build(compile_step(spec), device="cpu")
        >>> with classifier.averaged("average"):
        ...     classifier.save("folder")
        Traceback (most recent call last):
        ...
        runtime.problems.StepError: ...
        """
        op = statistics.find_lender(self.spec, average)
        self._require_whole()
        if op.ema in self._lent:
            raise self._refuse_lent(f"'{op.ema}' cannot take the weights of '{average}'", op.ema)
        is_taken, stands_in = average in self._built.engine.averaged(), op.use.eval == "swap"
        recompute = recompute if is_taken else None
        if recompute is not None and stands_in:  # forwards call the average, whoever has its weights
            statistics.recompute_statistics(self, self._built.engine, op.target(average), recompute, "eval", None)
        buffers = recompute is not None or any(
            each.op == average and each.moves_buffers
            for mode in self._modes.values()
            for function in mode.functions
            for each in function.instructions
            if isinstance(each, Blend)
        )
        source = op.target(average) if is_taken else op.ema  # a model that is lent its own weights keeps them
        give_back = self._built.engine.lend(op.ema, source, buffers=buffers)
        self._lent[op.ema] = average
        self._intakes.clear()  # new ones refuse modes that write
        try:
            if recompute is not None and not stands_in:
                statistics.take_statistics(self, self._built.engine, op.ema, recompute, "eval", None)
            yield
        finally:
            give_back()
            del self._lent[op.ema]
            self._intakes.clear()

    def recompute_buffers(
        self,
        average: str,
        batches: Iterable[Mapping[str, object]],
        *,
        mode: str = "eval",
        dataset: str | None = None,
    ) -> None:
        """Compute BatchNorm's running statistics of an average anew, from what it sees in steps of a mode.

        They become the means over the batches, as ``torch.optim.swa_utils.update_bn`` has them: in the forwards of the
        average, the layers of BatchNorm normalize by the batch, without gradients. All others stay in evaluation, so
        that nothing is dropped or drawn. The model's own statistics stay. An average that stands in for its model and
        was not taken yet stays as it is.

        Raises StepError: GS291 no such average, or its model has its weights; GS292 there is no BatchNorm in it, no
        batch, or steps of this mode do not call it; what a step raises. Then nothing has changed.

        >>> text = "{graphspec: 1, name: line, inputs: {x: {shape: [batch, 2]}}, outputs: [out], models: {net: "
        >>> text += "{layers: [batch_norm], optimizer: sgd}}, ops: {out: {forward: net, inputs: x}, loss: {call: mean, "
        >>> text += "inputs: out}, step: {update: net, loss: loss}, mean: {ema: net, decay: 0.9, buffers: copy, "
        >>> text += "use: {eval: swap}}}}"
        >>> line = build(compile_step(load(text)), device="cpu")
        >>> rows = {"x": np.array([[1, 2], [3, 6]], np.float32)}
        >>> _ = line(rows)
        >>> line.recompute_buffers("mean", [rows])
        >>> line.numpy(line.tensors()["models.mean.0.running_mean"])
        array([2., 4.], dtype=float32)
        """
        op = statistics.find_recomputable(self.spec, average)
        self._require_whole()
        self._require_own("no statistics can be computed")
        if op.use.eval == "separate" or average in self._built.engine.averaged():
            statistics.recompute_statistics(self, self._built.engine, op.target(average), batches, mode, dataset)

    def state(self, *, whole: bool = True) -> State:
        """Return everything that training changes, copied to the host: a step that restores it continues bit for bit.

        Of several processes all must call it, and all get the same: open windows are added up over them. Where they
        have shards of weights and ask for no ``whole`` state, each gets its rows of these, and the rest.
        Raises SpecError: GS267 where a user's module, metric or optimizer has state that a checkpoint cannot keep,
        GS290 where the last step is incomplete.

        >>> step.state().arrays["models.generator.0.weight"].dtype
        dtype('float32')
        """
        self._require_whole()
        self._require_own("its state cannot be read")
        return self._built.engine.state(whole=whole)

    def restore(self, state: State) -> None:
        """Restore a state in place: the tensors of the step stay the same objects.

        Raises SpecError: GS264 for every name that is missing, unexpected, or of another shape or dtype. Then nothing
        has changed.

        >>> state = step.state()
        >>> _ = step(images)
        >>> step.restore(state)
        >>> step.state().counters == state.counters
        True
        """
        self._require_own("no state can be restored")
        self._built.engine.restore(state)
        self._last, self._broken = None, ""

    def save(self, path: str | Path) -> None:
        """Write the state into a checkpoint folder, which appears whole or not at all.

        Raises SpecError: GS234 the folder cannot be written, GS267 and GS290 as :meth:`state`.

        >>> from tempfile import mkdtemp
        >>> folder = f"{mkdtemp()}/saved"
        >>> step.save(folder)
        """
        from runtime.checkpoints import Checkpoint, write_checkpoint

        state, program = self.state(), self.plan.program
        origin: dict[str, Plain] = {
            "name": program.name,
            "step": self._built.engine.steps("train"),
            "backend": program.backend,
            "device": self.device,
        }
        sections: dict[str, Plain] = {"origin": origin, "counters": dict(state.counters)}
        sections[SECTION] = describe_optimizers(program.optimizers, self._optimizers)
        sections[SETTINGS] = describe_settings(self.plan.spec)
        write_checkpoint(Path(path), Checkpoint(arrays=state.arrays, sections=sections))

    def load(self, path: str | Path) -> None:
        """Restore the state that :meth:`save` wrote, or that of a checkpoint of a run.

        Learning rates and other options stay as they are in this spec, or as they were set; a UserWarning names those
        that differ from the saved ones.

        Raises SpecError: GS240 no checkpoint, GS241 a damaged one, GS242 one of another format, GS264 as
        :meth:`restore`.

        >>> step.load(folder)
        """
        from runtime.checkpoints import read_checkpoint
        from runtime.train.checkpointing import find_state

        checkpoint = read_checkpoint(Path(path))
        self.restore(find_state(checkpoint))
        now = describe_optimizers(self.plan.program.optimizers, self._optimizers)
        changes = list(find_differences(checkpoint.sections.get(SECTION), now))
        changes += find_changes(checkpoint.sections.get(SETTINGS), describe_settings(self.plan.spec))
        if changes:
            warnings.warn(f"load restores no hyper-parameters: {'; '.join(changes)}", stacklevel=2)

    def export(
        self,
        folder: str | Path,
        *,
        format: Format = "both",
        mode: str | None = None,
        values: Sequence[str] = (),
        origin: Mapping[str, Plain] | None = None,
    ) -> Exported:
        """Write the weights of all models, a mode as a program, or both into a folder of their own.

        The weights are those used outside train mode: of a model's average, where one stands in for it. ``mode`` is by
        default ``infer``, else ``eval``, else ``test``; ``values`` are by default its outputs. ``origin`` is added to
        the listing of the export.

        Raises SpecError: GS234 the folder cannot be written, GS265 something cannot be exported, GS266 there is no such
        mode, or it changes models.

        >>> step.export(f"{mkdtemp()}/exported", format="weights").files().keys()
        dict_keys(['generator.safetensors', 'discriminator.safetensors'])
        """
        from runtime.export.export import Wanted, export_step

        self._require_whole()
        self._require_own("it cannot be exported")
        wanted = Wanted(format=format, mode=mode, values=tuple(values), origin=origin or {})
        return export_step(self.plan, self._built.engine, Path(folder), wanted)

    def write_weights(self, model: str, path: str | Path) -> PackedModel:
        """Write the weights of one model, as they are now, into a safetensors file, which appears whole or not at all.

        Raises SpecError: GS234 the file cannot be written, GS256 there is no such model, GS265 its types have no place
        in such a file.

        >>> len(step.write_weights("generator", f"{mkdtemp()}/generator.safetensors").tensors)
        4
        """
        from runtime.export.export import write_weights

        if model not in self.sizes:
            message, help = f"the step has no model '{model}'", f"it has {', '.join(self.sizes)}"
            raise StepError([Diagnostic(code="GS256", message=message, help=help)], self.spec.texts())
        self._require_whole()
        self._require_own("it cannot be exported")
        return write_weights(self._built.engine, model, Path(path))

    def buffers(self, model: str) -> frozenset[str]:
        """Return the names of the buffers of a model: what training does not step, as BatchNorm's statistics.

        >>> sorted(step.buffers("generator"))
        []
        """
        return self._built.engine.buffer_names(model)

    def reset(self, mode: str = "eval") -> None:
        """Start a mode anew: its steps draw the same random numbers again, and its running metrics start empty.

        Weights and optimizers stay as they are. Raises StepError: GS219 a mode that the spec has no ops for.

        >>> step.reset("eval")
        """
        self._require(mode)
        self._built.engine.reset(mode)
        self._last = None if self._last is not None and self._last[0] == mode else self._last

    def end_epoch(self, mode: str = "train") -> None:
        """Record the end of an epoch: metrics with `reset: epoch` start anew.

        Raises StepError: GS219 a mode that the spec has no ops for.

        >>> step.end_epoch()
        """
        self._require(mode)
        self._built.engine.end_epoch(mode)

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of an output on the host, as a NumPy array.

        >>> step.numpy(step(images)["g_loss"]).dtype
        dtype('float32')
        """
        return self._built.engine.numpy(value)

    def _find_intake(self, mode: str, dataset: str | None) -> Intake:
        """Return the intake of the steps of a mode on a data set, found once.

        Raises StepError: GS219 an unknown mode, GS281 an unknown data set.
        """
        self._require_whole()
        if (mode, dataset or "") not in self._needed:
            self._require(mode)
            is_known = not self._datasets and dataset in find_declared(self.spec)
            refused = None if is_known else refuse_dataset(dataset, mode, self.plan.program)
            if refused is not None:
                raise StepError([refused], self.spec.texts())
        instructions = (each for function in self._modes[mode].functions for each in function.instructions)
        writes = (write for each in instructions if each.is_write for write in each.writes)
        if any(write.cell.kind in ("params", "tied") for write in writes):
            self._require_own(f"no step of mode {mode} can be taken, which writes models")
        named = dataset if self._datasets else None
        found = Intake.of(mode, named, self._needed[mode, named or ""], self._built.engine)
        self._intakes[mode, dataset] = found
        return found

    def _admit(self, batch: object, intake: Intake) -> Mapping[str, object]:
        """Return the inputs on the device; only the first batch of a kind is checked."""
        if not is_batch(batch):
            raise StepError([refuse_batch(batch, intake.names, self.spec)], self.spec.texts())
        seen = tuple(map(self._fingerprint, map(batch.get, intake.names)))
        if seen == intake.usual:  # the common case: nothing else is done for a batch like the one before
            return batch if intake.is_ready else {name: admit(batch[name]) for name, admit in intake.admissions}
        is_ready, engine = self._admitted.get((intake.mode, intake.dataset, *seen)), self._built.engine
        if is_ready is None:
            given = {name: engine.describe(each) for name, each in batch.items()}
            problems = tuple(check_batch(given, {entry: engine.accepts(entry) for entry in intake.inputs}, self.spec))
            if problems:
                raise self._dated(StepError(problems, self.spec.texts()), intake.mode)
        ready = {name: admit(batch[name]) for name, admit in intake.admissions}
        if is_ready is None:
            engine.check(ready, intake.mode, intake.dataset)
            is_ready = all(ready[name] is batch[name] for name in ready)
            self._admitted[intake.mode, intake.dataset, *seen] = is_ready
        intake.usual, intake.is_ready = seen, is_ready
        return batch if is_ready else ready

    def _require(self, mode: str) -> None:
        """Raise StepError (GS219) for a mode that the spec has no ops for."""
        if mode not in self._modes:
            near = closest(mode, self._modes)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            message = f"the spec has no mode {mode!r}: it has {', '.join(self._modes)}{meant}"
            raise StepError([Diagnostic(code="GS219", message=message)], self.spec.texts())

    def _require_own(self, refused: str) -> None:
        """Raise StepError (GS291) where some model has the weights of its average."""
        if self._lent:
            raise self._refuse_lent(refused, next(iter(self._lent)))

    def _refuse_lent(self, refused: str, model: str) -> StepError:
        """Return the error of what cannot be done while a model has the weights of its average."""
        message = f"{refused}: '{model}' has the weights of its average '{self._lent[model]}' for now"
        help = f"do it after the statement `with step.averaged({self._lent[model]!r})`"
        return StepError([Diagnostic(code="GS291", message=message, help=help)], self.spec.texts())

    def _require_whole(self) -> None:
        """Raise StepError (GS290) where the last step is incomplete."""
        if self._broken:
            message = f"a step of mode {self._broken} failed after it had begun to write, and is incomplete"
            help = "call restore() with an earlier state or load() with an earlier checkpoint, or build the step again"
            raise StepError([Diagnostic(code="GS290", message=message, help=help)], self.spec.texts())

    def _break(self, error: Error, mode: str) -> Error:
        """Block steps until a restore; return the error, which says so."""
        self._broken = mode
        self._intakes.clear()  # a new intake is refused
        if not isinstance(error, StepError):
            error.add_note(BROKEN)
            return error
        error.diagnostics = tuple(replace(each, notes=(*each.notes, BROKEN)) for each in error.diagnostics)
        return error

    def _dated(self, error: StepError, mode: str) -> StepError:
        """Return an error with the number of its step."""
        when = f"in step {self._built.engine.steps(mode) + 1} of mode {mode}"
        return StepError([replace(each, notes=(when, *each.notes)) for each in error.diagnostics], error.texts)
