"""Taping: what a recorder notes for a port, besides the events of an audit."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from compiler.ir.value import Json
from runtime.audit.trace import Backward, Trace, Write
from runtime.backends.torch.audit.arguments import find_arguments
from runtime.backends.torch.audit.log import Log
from runtime.backends.torch.audit.schedules import find_schedule
from runtime.backends.torch.audit.tensors import find_tensors
from runtime.backends.torch.audit.user_lines import find_argument, frames, variables_of
from runtime.port.tape import Array, Called, Clipped, Derived, Entry, Model, Ran, Ref, Schedule, Stepped, Tape, Value

_FILLING = ("ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "tensor", "as_tensor", "scalar_tensor")
_DRAWING = ("randn", "randn_like", "rand", "rand_like", "normal", "bernoulli", "randint", "randint_like", "randperm")
_LIMITS = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}


class Taping:
    """Takes notes while a program runs; it holds every value, so that no id is reused."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._entries: list[Entry] = []
        self._values: list[Value] = []
        self._names: dict[int, str] = {}
        self._numbers: dict[int, tuple[torch.Tensor, int]] = {}
        self._modules: dict[str, tuple[nn.Module, str]] = {}
        self._replicated: set[str] = set()
        """By name, with the file and class."""
        self._kept: dict[int, torch.Tensor] = {}
        """Cell -> parameter or buffer, of which snapshots are taken."""
        self._snapshots: list[tuple[int, Mapping[int, Array]]] = []
        self._roots: list[nn.Module] = []
        """The modules that there were when a model first ran, held so that they outlive the program."""
        self._schedules: dict[int, Schedule | None] = {}
        """By the number of the optimizer."""
        self._moved = True
        """Something was stepped since the last snapshot."""

    # ------------------------------------------------------------ values

    def _ref(self, tensor: torch.Tensor) -> int:
        known = self._numbers.get(id(tensor))
        number = self._add(tensor, data=True) if known is None else known[1]
        if number not in self._names:
            name = _find_variable(tensor)
            if name:
                self._names[number] = name
        return number

    def _add(self, tensor: torch.Tensor, *, data: bool = False, constant: float | None = None) -> int:
        number, cell = len(self._values), None
        if _is_lost(tensor):
            self._values.append(Value(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch.")))
            self._numbers[id(tensor)] = tensor, number
            return number
        if tensor.is_leaf and tensor.requires_grad:
            cell = self._log.cells.add(tensor)
            if cell is not None:
                self._kept[cell.number] = tensor
        self._values.append(
            Value(
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                data=_copy(tensor) if data and cell is None else None,
                constant=constant,
                tensor=None if cell is None else cell.number,
                has_graph=tensor.requires_grad and not tensor.is_leaf,
            )
        )
        self._numbers[id(tensor)] = tensor, number
        return number

    def _encode(self, value: Any) -> object:
        match value:
            case torch.Tensor():
                return Ref(self._ref(value))
            case list() | tuple():
                return tuple(map(self._encode, value))
            case torch.dtype():
                return str(value).removeprefix("torch.")
            case np.generic():
                return value.item()
            case _:
                return value

    def alias(self, result: Any, source: Any) -> None:
        """Note that two values are the same but for a factor that is divided out later."""
        for one, other in zip(find_tensors((result,)), find_tensors((source,)), strict=False):
            self._numbers[id(one)] = one, self._ref(other)

    # ------------------------------------------------------------ what runs

    def called(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call of a function."""
        log = self._log
        if log.running or log.stepping or log.scaling or any(map(_has_tensors, log.layers)):
            return
        results = list(find_tensors((args[0] if function == "__setitem__" else result,)))
        if function.partition(".")[0] == "set_":  # other numbers, as those that a process of a data loader has sent
            with log.quiet():
                self._add(results[0], data=not results[0].requires_grad)
            return
        is_in_place = (
            function == "__setitem__"
            or (function.endswith("_") and not function.endswith("__") and function != "requires_grad_")
            or (function.startswith("__i") and function not in ("__invert__", "__index__"))
        )
        if not results or (len(results) == 1 and not is_in_place and any(results[0] is each for each in args)):
            return
        with log.quiet():
            given, options = self._encode(tuple(args)), {key: self._encode(each) for key, each in kwargs.items()}
            outputs = []
            for each in results:
                is_filled = function in _FILLING and each.numel() > 0 and not each.is_complex() and not _is_lost(each)
                first = each.detach().flatten()[0] if is_filled else None
                constant = float(first) if first is not None and bool((each.detach() == first).all()) else None
                outputs.append(self._add(each, data=_is_lost(each) or not each.requires_grad, constant=constant))
        assert isinstance(given, tuple)
        self._entries.append(
            Called(
                position=len(log.events),
                place=log.place(),
                function=function,
                args=given,
                options=options,
                outputs=tuple(outputs),
            )
        )

    def begin(self) -> None:
        """Note that a model is about to run: what steps and averages before it have left is complete."""
        events = islice(self._log.events, self._snapshots[-1][0] if self._snapshots else 0, None)
        moves = (each for each in events if isinstance(each, Write) and each.by == "code" and each.sources)
        if not self._moved and next(moves, None) is None:
            return
        self._moved = False
        with self._log.quiet():
            if not self._snapshots:
                self._roots = _find_roots()
                for module in self._roots:
                    self._keep(module)
                optimizers = (each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer))
                groups = (group for each in optimizers for group in each.__dict__.get("param_groups", ()))
                for each in [each for group in groups for each in group["params"]]:  # it may be a part of no module
                    self._keep_one(each, "params")
            numbers = {number: _copy(each) for number, each in self._kept.items()}
        self._snapshots.append((len(self._log.events), numbers))

    def step(self) -> None:
        """Note that an optimizer is about to step: a loop may call no model before."""
        if not self._snapshots:
            self.begin()

    def _keep(self, module: nn.Module) -> None:
        for each in module.parameters():
            self._keep_one(each, "params")
        for each in module.buffers():
            self._keep_one(each, "buffers")

    def _keep_one(self, tensor: torch.Tensor, kind: Any) -> None:
        if type(tensor.data) is not torch.Tensor:  # one without numbers, of a step that was tried without any
            return
        cell = self._log.cells.add(tensor, kind)
        if cell is not None:
            self._kept[cell.number] = tensor

    def ran(self, module: nn.Module, args: Sequence[Any], result: Any, *, recorded: bool) -> None:
        """Note a call of a model that has parameters or buffers."""
        log = self._log
        if log.running or log.stepping or not _has_tensors(module) or any(map(_has_tensors, log.layers)):
            return
        name, is_named = log.names.of(module), isinstance(result, dict)
        is_tuple = isinstance(result, (list, tuple))
        with log.quiet():
            self._modules.setdefault(name, _describe_module(module))
            self._replicated.update([name] if isinstance(module, DistributedDataParallel) else [])
            self._keep(module)
            inputs = self._encode(tuple(args))
            assert isinstance(inputs, tuple)
            keys = tuple(key for key, each in result.items() if isinstance(each, torch.Tensor)) if is_named else ()
            outputs = tuple(self._add(each) for each in find_tensors((result,)))
        device = next(iter((*module.parameters(), *module.buffers()))).device.type
        is_cast = torch.is_autocast_enabled(device)
        # A module may be called by the `forward` of a model that itself is not called.
        methods = (variables_of(each).get("self") for each in frames() if each.f_code.co_name == "forward")
        outer = [each for each in methods if isinstance(each, nn.Module) and each is not module]
        self._entries.append(
            Ran(
                position=len(log.events),
                place=log.place(),
                model=name,
                inputs=inputs,
                outputs=outputs,
                keys=keys,
                has_others=is_tuple and not all(isinstance(each, torch.Tensor) for each in result),
                recorded=recorded,
                training=module.training,
                autocast=str(torch.get_autocast_dtype(device)).removeprefix("torch.") if is_cast else "",
                inside=log.names.of(outer[-1]) if outer and module in outer[-1].modules() else "",
            )
        )

    def derived(self, event: Backward, roots: Sequence[Any], inputs: Sequence[Any], result: Any) -> None:
        """Note a backward, or gradients that it returns."""
        log = self._log
        with log.quiet():
            losses = [each for each in roots if isinstance(each, torch.Tensor)]
            entry = Derived(
                position=len(log.events),
                place=event.place,
                site=event.site,
                backward=event.number,
                roots=tuple(self._ref(each) for each in losses),
                losses=tuple(float(each.detach()) if each.numel() == 1 else math.nan for each in losses),
                inputs=tuple(self._ref(each) for each in inputs if isinstance(each, torch.Tensor)),
                outputs=tuple(self._add(each) for each in find_tensors((result,))),
            )
        self._entries.append(entry)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note a step of an optimizer."""
        log, self._moved = self._log, True
        groups = tuple(
            {
                key: float(each) if isinstance(each, torch.Tensor) and each.numel() == 1 else each
                for key, each in group.items()
                if key != "params"
            }
            for group in optimizer.param_groups
        )
        found = [[log.cells.add(each) for each in group["params"]] for group in optimizer.param_groups]
        if id(optimizer) not in self._schedules:  # looking for it takes as long as the program has objects
            self._schedules[id(optimizer)] = find_schedule(optimizer)
        members = tuple(frozenset(cell.number for cell in cells if cell is not None) for cells in found)
        self._entries.append(
            Stepped(
                position=len(log.events) - 1,
                place=log.place(),
                optimizer=log.names.of(optimizer),
                rule=type(optimizer).__name__,
                groups=groups,
                tensors=tuple(cell.number for cells in found for cell in cells if cell is not None),
                members=members,
                schedule=self._schedules[id(optimizer)],
            )
        )

    def clipped(self, function: str) -> None:
        """Note that a library's function clips gradients, with its limit."""
        limit = find_argument(function, _LIMITS.get(function, ""))
        if isinstance(limit, (int, float)):
            self._entries.append(
                Clipped(position=len(self._log.events), place=self._log.place(), function=function, limit=float(limit))
            )

    def finish(self, trace: Trace) -> Tape:
        """Return the tape."""
        self._moved = True
        self.begin()
        stored = {each.number: each for each in trace.tensors}
        models: dict[str, Model] = {}
        self._add_followers(trace)
        for name, (module, kind) in self._modules.items():
            names = {id(each): inner for inner, each in (*module.named_parameters(), *module.named_buffers())}
            tensors = {number: names[id(each)] for number, each in self._kept.items() if id(each) in names}
            layers = describe_layers(module)
            listed = module if layers is None and type(module) is nn.Sequential else ()
            models[name] = Model(
                name=name,
                kind=kind,
                tensors=tensors,
                module=module,
                layers=layers,
                arguments=find_arguments(module) if layers is None else None,
                prefix="0." if layers and not isinstance(module, nn.Sequential) else "",
                unknown=next((type(each).__name__ for each in listed if _describe(each) is None), ""),
                replicated=name in self._replicated,
                by_mode=any(
                    isinstance(each, (*_DROPPING, nn.modules.batchnorm._NormBase)) for each in module.modules()
                ),
            )
        owned = {number for model in models.values() for number in model.tensors}
        for each in self._entries:
            for number in each.tensors if isinstance(each, Stepped) else ():
                tensor = self._kept.get(number)
                if number not in owned and tensor is not None and not stored[number].name:
                    owned.add(number)
                    label = stored[number].label
                    models[label] = Model(
                        name=label, kind="", tensors={number: "value"}, module=None, shape=tuple(tensor.shape)
                    )
        return Tape(
            trace=trace,
            entries=tuple(self._entries),
            values=tuple(self._values),
            names=self._names,
            models=models,
            snapshots=tuple(self._snapshots),
        )

    def _add_followers(self, trace: Trace) -> None:
        """Add the modules that nothing calls, but that code of the user's moves after others, as averages."""
        moved = {each.tensor for each in trace.of(Write) if each.by == "code" and each.sources}
        numbers = {id(each): number for number, each in self._kept.items()}
        for root in dict.fromkeys([*self._roots, *_find_roots()]):
            own = (numbers.get(id(each)) for each in root.parameters())
            name = next((trace.tensors[number].model for number in own if number in moved), "")
            if name and name not in self._modules:
                # An average of a model often holds its copy: the part that is built as the model is.
                known = {(type(each), tuple(each.state_dict())) for each, _ in self._modules.values()}
                copies = (each for each in root.modules() if (type(each), tuple(each.state_dict())) in known)
                self._modules[name] = _describe_module(next(copies, root))


_DROPPING = (nn.modules.dropout._DropoutNd, nn.RReLU)


def _is_lost(tensor: torch.Tensor) -> bool:
    """Return whether a view was made without a graph, and its base written with one: autograd refuses to be asked."""
    try:
        _ = tensor.grad_fn
    except RuntimeError:
        return True
    return False


def _has_tensors(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None


def _find_roots() -> list[nn.Module]:
    """Return all modules that there are and that are no part of another."""
    found = [each for each in gc.get_objects() if issubclass(type(each), nn.Module) and "_modules" in each.__dict__]
    inner = {id(child) for module in found for child in module.__dict__["_modules"].values()}
    return [each for each in found if id(each) not in inner]


def _find_variable(tensor: torch.Tensor) -> str:
    """Return the variable of the user's innermost frame that holds a tensor."""
    for frame in frames():
        for scope in (variables_of(frame), frame.f_globals):
            for name, value in list(scope.items()):
                if value is tensor and not name.startswith("_"):
                    return name
        return ""
    return ""


def _describe_module(module: nn.Module) -> tuple[nn.Module, str]:
    """Return a module with its class; of one that PyTorch averages, compiles or replicates the module in it."""
    inner = module
    while True:
        match inner:
            case AveragedModel(module=nn.Module() as held) | DistributedDataParallel(module=nn.Module() as held):
                inner = held
            case nn.Module(_orig_mod=nn.Module() as held):
                inner = held
            case _:
                break
    name = type(inner).__module__
    frame = next(frames(), None) if name == "__main__" else None
    name = name if frame is None else Path(frame.f_code.co_filename).stem
    return inner, f"{name}:{type(inner).__qualname__}"


def _copy(tensor: torch.Tensor) -> Array:
    found = tensor.detach().cpu()
    return (found.float() if found.dtype is torch.bfloat16 else found.clone()).numpy()


# ------------------------------------------------------------ layers


def describe_layers(module: nn.Module) -> list[Json] | None:
    """Return a module as a list of built-in layers; None where it is no such list, or has other options."""
    if not isinstance(module, nn.Sequential):
        found = _describe(module)
        return None if found is None or type(module) is nn.Sequential else [found]
    layers = [_describe(each) for each in module]
    return None if None in layers or not layers else layers


def _describe(layer: nn.Module) -> Json:
    match layer:
        case nn.ReLU() | nn.Tanh() | nn.Sigmoid() | nn.SiLU() | nn.Identity():
            return {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu", "Identity": "identity"}[
                type(layer).__name__
            ]
        case nn.GELU(approximate="none"):
            return "gelu"
        case nn.LeakyReLU(negative_slope=slope):
            return {"leaky_relu": slope}
        case nn.ELU(alpha=alpha):
            return {"elu": alpha}
        case nn.Softmax(dim=int(axis)):
            return {"softmax": axis}
        case nn.Flatten(start_dim=1, end_dim=-1):
            return "flatten"
        case nn.Dropout(p=p):
            return {"dropout": p}
        case nn.Linear(out_features=out, bias=None):
            return {"linear": {"out": out, "bias": False}}
        case nn.Linear(out_features=out):
            return {"linear": out}
        case nn.Embedding(num_embeddings=count, embedding_dim=size, padding_idx=None, max_norm=None, sparse=False):
            return {"embedding": {"count": count, "size": size}}
        case nn.BatchNorm1d() | nn.BatchNorm2d() if layer.track_running_stats and layer.momentum is not None:
            defaults = {"eps": 1e-5, "momentum": 0.1, "affine": True}
            return _with_options("batch_norm", layer, defaults)
        case nn.InstanceNorm1d() | nn.InstanceNorm2d() if not layer.track_running_stats:
            return _with_options("instance_norm", layer, {"eps": 1e-5, "affine": False})
        case nn.LayerNorm(normalized_shape=(_,), elementwise_affine=True) if layer.bias is not None:
            return "layer_norm" if layer.eps == 1e-5 else {"layer_norm": layer.eps}
        case nn.Conv2d(padding_mode="zeros") if not isinstance(layer.padding, str):
            return _convolution("conv2d", layer, ("stride", 1), ("padding", 0), ("dilation", 1))
        case nn.ConvTranspose2d(padding_mode="zeros", groups=1) if layer.dilation == (1, 1):
            return _convolution("conv_transpose2d", layer, ("stride", 1), ("padding", 0), ("output_padding", 0))
        case _:
            return None


def _with_options(name: str, layer: Any, defaults: Mapping[str, object]) -> Json:
    options = {key: getattr(layer, key) for key, each in defaults.items() if getattr(layer, key) != each}
    return {name: options} if options else name


def _convolution(name: str, layer: Any, *options: tuple[str, int]) -> Json:
    found: dict[str, Json] = {"out": layer.out_channels}
    for key, default in (("kernel", -1), *options):
        size = layer.kernel_size if key == "kernel" else getattr(layer, key)
        if len(set(size)) != 1:
            return None
        if size[0] != default:
            found[key] = size[0]
    if layer.groups != 1:
        found["groups"] = layer.groups
    return {name: found if layer.bias is not None else {**found, "bias": False}}
