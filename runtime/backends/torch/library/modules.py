"""What surrounds the call of a model: its mode, frozen weights, clones of its tensors, results of inner layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.library.kernels import TensorList, write_statistics
from runtime.support.model_types import require_types


def in_type(model: nn.Module, name: str, dtype: torch.dtype) -> None:
    """Convert the floating parameters and buffers of a model.

    Raises ModelError where that would change what the model is: complex parameters, or several types.
    """
    if isinstance(model, nn.Module):  # what a class made is not known before
        require_types(name, parameter_types(model))
    model.to(dtype)


def parameter_types(model: nn.Module) -> dict[str, str]:
    """Return the types of parameters by name, but for whole numbers, which are never trained."""
    named = model.named_parameters()
    return {key: str(p.dtype).removeprefix("torch.") for key, p in named if p.is_floating_point() or p.is_complex()}


def in_mode(model: nn.Module, train: bool) -> None:
    """Put a model into training or evaluation; one that is already there is not walked through."""
    if model.training is not train:
        model.train(train)


def frozen(parameters: Sequence[nn.Parameter]) -> Frozen:
    """Return a context inside which no gradient of these parameters is recorded."""
    return Frozen(parameters)


class Frozen:
    """Parameters that need no gradient while the context lasts; those that never did are left as they are."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]

    def __enter__(self) -> None:
        for p in self.parameters:
            p.requires_grad = False

    def __exit__(self, *error: object) -> None:
        for p in self.parameters:
            p.requires_grad = True


def call_with(model: nn.Module, weights: TensorList, /, *args: Any, method: str = "forward", **kwargs: Any) -> Any:
    """Call a model with weights in place of its own parameters, and with its own buffers."""
    called = callee(model, method)
    return torch.func.functional_call(called, name_weights(called, weights), args, kwargs)


def callee(model: nn.Module, method: str) -> nn.Module:
    """Return a module whose call is a method of a model: for ``forward``, hooks included, the model itself."""
    return model if method == "forward" else MethodCall(model, method)


def name_weights(called: nn.Module, weights: TensorList) -> dict[str, torch.Tensor]:
    """Return weights by the names of the parameters in whose place they are: those that are trained, in order."""
    trained = (name for name, parameter in called.named_parameters() if parameter.requires_grad)
    return dict(zip(trained, weights, strict=True))


def as_leaves(weights: TensorList) -> tuple[torch.Tensor, ...]:
    """Return weights with which a graph begins."""
    return tuple(weight.detach().requires_grad_() for weight in weights)


def reachable(weights: TensorList) -> tuple[torch.Tensor, ...]:
    """Return weights of which those without a graph begin one."""
    return tuple(weight if weight.requires_grad else weight.detach().requires_grad_() for weight in weights)


def snapshot_call(model: nn.Module, what: str, /, *args: Any, method: str = "forward", **kwargs: Any) -> Any:
    """Call a model on clones of its ``buffers``, or of ``all`` its tensors, so that later writes need not wait.

    Gradients reach the weights themselves; what the call writes into buffers in training reaches those as well.
    """
    called = callee(model, method)
    weights = {name: parameter.clone() for name, parameter in called.named_parameters()} if what == "all" else {}
    return call_on_clones(called, weights, args, kwargs, writes=model.training)


def snapshot_call_with(
    model: nn.Module, weights: TensorList, /, *args: Any, method: str = "forward", **kwargs: Any
) -> Any:
    """Call a model with weights in place of its own parameters, and on clones of its buffers."""
    called = callee(model, method)
    return call_on_clones(called, name_weights(called, weights), args, kwargs, writes=model.training)


def call_on_clones(
    called: nn.Module,
    weights: Mapping[str, torch.Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    writes: bool,
) -> Any:
    """Call a module with weights, and on clones of its buffers, which get what the call writes where it ``writes``."""
    names = [name for name, _ in called.named_buffers()]
    values = {name: buffer.clone() for name, buffer in called.named_buffers()} | dict(weights)
    result = torch.func.functional_call(
        called, values, tuple(args), dict(kwargs)
    )  # a buffer that is replaced is in values
    if writes:
        write_statistics(tuple(called.buffers()), [values[name] for name in names])
    return result


@contextmanager
def kept_buffers(*models: nn.Module) -> Iterator[None]:
    """Undo what is written to the buffers of models inside: a gradient that recomputes forwards writes them again."""
    buffers = tuple(buffer for model in models for buffer in model.buffers())
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        write_statistics(buffers, before)


class MethodCall(nn.Module):
    """A module whose call is a method of another."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the method gives."""
        return getattr(self.model, self.method)(*args, **kwargs)


class Taps(dict[str, Any]):
    """What inner layers of a model gave in its last call, by their paths."""

    begun: tuple[str, ...] = ()

    def begin(self, *layers: str) -> None:
        """Let the next call have a graph from what these layers give on, if none leads there."""
        self.begun = layers

    def hook(self, layer: str) -> Callable[..., Any]:
        """Return a hook that keeps the result of one layer; the model continues with what the hook returns."""

        def keep(module: nn.Module, args: Any, output: Any) -> Any:
            """Keep the result of a layer."""
            if layer in self.begun:
                self.begun = tuple(each for each in self.begun if each != layer)
                output = output if output.requires_grad else output.detach().requires_grad_()
            self[layer] = output
            return output

        return keep


def watch(model: nn.Module, *layers: str) -> Taps:
    """Return a dictionary in which every call of a model leaves what its inner layers gave."""
    seen = Taps()
    for layer in layers:
        model.get_submodule(layer).register_forward_hook(seen.hook(layer))
    return seen


def widened(value: Any) -> Any:
    """Return results of a call with those of lower precision as float32, all others as they are."""
    if isinstance(value, Mapping):
        return {name: widened(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map(widened, value))
    is_low = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if is_low else value


def result(value: Any, name: str) -> Any:
    """Return what a call gave, or the one result of that name where it gave several."""
    has_parts = isinstance(value, (Mapping, tuple, list)) or hasattr(value, name)
    return results(value, name)[0] if has_parts and not isinstance(value, torch.Tensor) else value


def results(value: Any, *names: str) -> tuple[Any, ...]:
    """Return several results of a call in order; a dictionary, a named tuple or an object gives them by name."""
    if isinstance(value, Mapping):
        found = [value.get(name) for name in names]
    elif hasattr(value, "__len__") and not set(names) <= set(getattr(value, "_fields", ())):
        if len(value) != len(names):
            raise ValueError(f"the call gave {len(value)} results instead of {len(names)} ({', '.join(names)})")
        return tuple(value)
    else:
        found = [getattr(value, name, None) for name in names]
    missing = [name for name, each in zip(names, found, strict=True) if each is None]
    if missing:
        raise ValueError(f"the call gave a {type(value).__name__} without {missing[0]!r}")
    return tuple(found)


def detached(values: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    """Return values as constants for every gradient; a gradient that is absent stays so."""
    return tuple(None if value is None else value.detach() for value in values)
