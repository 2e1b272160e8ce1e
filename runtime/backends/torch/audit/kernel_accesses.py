"""What kernels access: which tensors they read and write, also where autograd's version counters do not change."""

from __future__ import annotations

import time
import weakref
import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch._C import DispatchKey

from runtime.audit.trace import Draw, GradientChange, Place, StaleCast, Write
from runtime.backends.torch.audit.log import Log, Overwrite
from runtime.backends.torch.audit.spent import Kernel
from runtime.backends.torch.audit.tensors import Cell, find_tensors, key_of, span_of
from runtime.backends.torch.audit.user_lines import find_function, is_called_from
from runtime.backends.torch.compat import DispatchMode

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_ZEROING = ("zero_", "_foreach_zero_", "fill_", "zero")
# Their schemas do not say that they write the running statistics, their arguments 3 and 4, where argument 5 is true.
_NORMS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")


class _Facts(NamedTuple):
    name: str
    written: tuple[tuple[int, str], ...]
    """Index and name of every argument that it writes."""
    is_norm: bool
    draws: bool
    casts: bool
    is_view: bool
    """It returns memory that it was given, and writes none."""
    is_composite: bool
    """It is made of other operations, for every device."""


class Kernels(DispatchMode):
    """Sees every kernel, the fused ones and those under ``.data`` too; schemas say what each of them writes."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self._facts: dict[Any, _Facts] = {}
        self._casts: dict[int, tuple[weakref.ref[torch.Tensor], Cell, int, Place]] = {}
        """Copies in lower precision that autocast keeps, the cells they were made of, and their versions then."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a kernel, and note what it reads and writes."""
        kwargs = kwargs or {}
        if self._log.busy:
            return func(*args, **kwargs)
        facts = self._facts.get(func) or self._learn(func)
        if facts.is_composite:
            # Autograd takes these apart. In inference mode it is left out, and a norm would hide what it writes.
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if self._log.calls or self._casts:
            self._note_reads(args)
        if facts.draws and self._log.layers:
            self._note_draw(facts.name)
        begun = time.perf_counter()
        result = func(*args, **kwargs)
        if (self._log.calls or self._log.seconds) and not facts.is_view:
            self._note_time(time.perf_counter() - begun, (args, kwargs), result)
        if self._log.stepping and facts.name == "empty_like":
            self._log.unfilled.add(key_of(result))
        if facts.written or facts.is_norm:
            targets = [args[index] if index < len(args) else kwargs.get(name) for index, name in facts.written]
            targets += [args[3], args[4]] if facts.is_norm and args[5] else []
            self._note_writes(facts.name, list(find_tensors(targets)))
        if facts.casts and isinstance(args[0], nn.Parameter) and not self._log.running and not self._log.stepping:
            cell = self._log.cells.add(args[0])
            if cell is not None and result.dtype in (torch.bfloat16, torch.float16):
                self._casts[id(result)] = (weakref.ref(result), cell, cell.version, self._log.place())
        return result

    def _learn(self, func: Any) -> _Facts:
        schema = func._schema
        name = schema.name.partition("::")[2]
        written = tuple(
            (index, each.name)
            for index, each in enumerate(schema.arguments)
            if each.alias_info is not None and each.alias_info.is_write
        )
        draws = torch.Tag.nondeterministic_seeded in func.tags
        is_view = not written and any(each.alias_info is not None for each in schema.returns)
        is_composite = _has_kernel(func, DispatchKey.CompositeImplicitAutograd) and not any(
            _has_kernel(func, each) for each in (DispatchKey.CPU, DispatchKey.CUDA)
        )
        self._facts[func] = facts = _Facts(
            name, written, name in _NORMS, draws, name == "_to_copy", is_view, is_composite
        )
        return facts

    def _note_reads(self, args: Sequence[Any]) -> None:
        log = self._log
        for tensor in find_tensors(args):
            if log.calls and isinstance(tensor, nn.Parameter):
                cell = log.cells.add(tensor)
                if cell is not None:
                    log.calls[0].versions.setdefault(cell.number, cell.version)
            elif id(tensor) in self._casts and not log.running:
                copy, cell, version, place = self._casts[id(tensor)]
                if copy() is tensor and cell.version != version:
                    written = cell.writes[-1][0]
                    log.add(StaleCast(place=log.place(), tensor=cell.number, cast=place, written=written))

    def _note_time(self, seconds: float, given: Sequence[Any], result: Any) -> None:
        log, returned = self._log, list(find_tensors((result,)))
        if not all(each.is_cpu for each in returned):
            return  # it may run still
        log.seconds += seconds
        if log.running:
            arguments, options = given
            keys = (
                frozenset(key for each in values if (key := key_of(each)) is not None)
                for values in (find_tensors((*arguments, *options.values())), returned)
            )
            log.running[-1].kernels.append(Kernel(seconds, *keys))

    def _note_draw(self, operation: str) -> None:
        log = self._log
        with log.quiet():
            state = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        layer, model = log.layers[-1], (log.calls[0].model if log.calls else log.layers[0])
        log.add(
            Draw(
                place=log.calls[0].place if log.calls and not log.running else log.place(),
                layer=id(layer),
                state=state,
                model=log.names.of(model),
                operation=operation,
                frozen=layer.training and bool(find_frozen(model, model, log.recorded[0])),
                awake=not layer.training and is_called_from(*_DROPOUTS),
                backward=log.backward,
            )
        )

    def _note_writes(self, operation: str, targets: Sequence[torch.Tensor]) -> None:
        log, place = self._log, None
        for tensor in targets:
            key = key_of(tensor)
            if key is None:
                continue
            owner = log.cells.gradient_cell(tensor)
            if owner is not None:
                if log.running or log.stepping or log.scaling:
                    continue
                place = place or log.place()
                is_zero, function = operation in _ZEROING, find_function()
                if log.tape is not None and not is_zero:
                    log.tape.clipped(function)
                if is_zero:
                    log.cells.pending.pop(owner.number, None)
                log.add(
                    GradientChange(
                        place=place,
                        tensor=owner.number,
                        change="zero" if is_zero else "changed",
                        function=function or operation,
                        sources=log.sources.get(key, frozenset()),
                    )
                )
                continue
            cells = log.cells.find(tensor)
            if not cells and isinstance(tensor, nn.Parameter):
                cell = log.cells.add(tensor)
                cells = () if cell is None else (cell,)
            place = place or log.place()
            if not cells:
                write = Overwrite(span_of(tensor), log.function, place, operation)
                log.written.setdefault(key, []).append(write)
            for cell in cells:
                self.note_write(cell, operation, place, key)

    def note_write(self, cell: Cell, operation: str, place: Place, key: int) -> None:
        """Note the next version of a cell."""
        log = self._log
        if not cell.model and log.backwards and not (log.stepping or log.calls):
            log.names.complete(cell)  # while the frames that have names for it are there
        cell.version += 1
        frozen = ""
        if log.stepping:
            by, writer = "update", log.names.of(log.stepping[-1])
        elif log.calls:
            call = log.calls[0]
            by, writer = "recompute" if log.running else "forward", log.names.of(call.model)
            frozen = find_frozen(log.layers[-1] if log.layers else call.model, call.model, log.recorded[-1])
            place = place if log.running else call.place
        else:
            by, writer = "backward" if log.running else "code", operation
        shown = f"{writer}.step()" if by == "update" else f"a forward of {writer}" if log.calls else operation
        cell.writes.append((place, shown))
        log.add(
            Write(
                place=place,
                tensor=cell.number,
                version=cell.version,
                by=by,
                writer=writer,
                sources=log.sources.get(key, frozenset()) if by == "code" else frozenset(),
                operation=operation,
                frozen=frozen,
            )
        )


def _has_kernel(func: Any, key: DispatchKey) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key.name)


def find_frozen(layer: nn.Module, model: nn.Module, recorded: bool) -> Literal["", "no_grad", "parameters"]:
    """Return why a layer in training mode does not learn; empty where it does. Without parameters it is its model's."""
    if not layer.training:
        return ""
    if not recorded:
        return "no_grad"
    parameters = list(layer.parameters()) or list(model.parameters())
    return "" if not parameters or any(each.requires_grad for each in parameters) else "parameters"
