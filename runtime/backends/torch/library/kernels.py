"""Private PyTorch operators, all in this one place; written for torch >= 2.11, where every one of them exists."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import torch

TensorList: TypeAlias = tuple[torch.Tensor, ...] | list[torch.Tensor]
"""What operators on lists of tensors take."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def records_nothing(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a function record no graph, as ``torch.no_grad`` does, which makes three objects in every call."""

    @functools.wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call it where no graph is recorded."""
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            return function(*args, **kwargs)
        finally:
            torch._C._set_grad_enabled(before)

    return wrapper


FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})


def has_fused(parameters: list[torch.Tensor], kernel: str) -> bool:
    """Return whether one call of a fused kernel can step all parameters.

    They must be of one floating-point type on one device that has the kernel, and fill their memory without gaps.
    """
    kinds = {(p.device, p.dtype) for p in parameters}
    if not kernel or len(kinds) != 1:
        return False
    device, dtype = kinds.pop()
    if device.type not in FUSED_DEVICES or not dtype.is_floating_point:
        return False
    # Not every device has Adagrad's, and which do differs between versions: ask the dispatcher.
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{kernel}", device.type.upper()):
        return False
    return all(torch.empty_like(p).stride() == p.stride() for p in parameters)


def match_layout(parameters: list[torch.Tensor], gradients: TensorList) -> list[torch.Tensor]:
    """Return the gradients, each laid out in memory like its parameter.

    Fused kernels walk both side by side and do not look at strides; gradients may come in any order of axes, or
    expanded from a single number.
    """
    return [
        gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]


def fused_sgd(
    parameters: list[torch.Tensor],
    gradients: TensorList,
    momenta: list[torch.Tensor],
    first: bool,
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """Step SGD in place with one kernel; ``first`` fills the momenta instead of reading them."""
    torch._fused_sgd_(
        parameters,
        match_layout(parameters, gradients),
        momenta,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=False,
        is_first_step=first,
    )
    torch.autograd.graph.increment_version(parameters)  # fused kernels write without telling autograd


def fused_adam(
    parameters: list[torch.Tensor],
    gradients: TensorList,
    means: list[torch.Tensor],
    squares: list[torch.Tensor],
    steps: list[torch.Tensor],
    decoupled: bool,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Step Adam (AdamW where ``decoupled``) in place with one kernel; ``steps`` count the updates before this one."""
    gradients = match_layout(parameters, gradients)
    count_up(steps)
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    kernel(
        parameters,
        gradients,
        means,
        squares,
        [],
        steps,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )
    torch.autograd.graph.increment_version(parameters)


def count_up(steps: list[torch.Tensor]) -> None:
    """Add 1 to every count, in one call where they are the elements of one tensor."""
    whole = steps[0]._base
    if whole is not None and whole.numel() == len(steps):
        whole.add_(1)
    else:  # some were replaced, or some parameters have no gradient
        torch._foreach_add_(steps, 1)


def fused_adagrad(
    parameters: list[torch.Tensor],
    gradients: TensorList,
    sums: list[torch.Tensor],
    steps: list[torch.Tensor],
    *,
    lr: float,
    lr_decay: float,
    weight_decay: float,
    eps: float,
) -> None:
    """Step Adagrad in place with one kernel; ``steps`` count the updates before this one."""
    gradients = match_layout(parameters, gradients)
    count_up(steps)
    torch._fused_adagrad_(
        parameters,
        gradients,
        sums,
        steps,
        lr=lr,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        eps=eps,
        maximize=False,
    )
    torch.autograd.graph.increment_version(parameters)


def foreach_lion(
    parameters: list[torch.Tensor],
    gradients: TensorList,
    means: list[torch.Tensor],
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> None:
    """Step Lion in place (Chen et al. 2023, algorithm 2): the sign of a blend of momentum and gradient, times lr."""
    torch._foreach_mul_(parameters, 1 - lr * weight_decay)
    directions = torch._foreach_lerp(means, gradients, 1 - betas[0])
    torch._foreach_sign_(directions)
    torch._foreach_add_(parameters, directions, alpha=-lr)
    torch._foreach_lerp_(means, gradients, 1 - betas[1])


def foreach_inner_momentum(
    parameters: list[torch.Tensor],
    gradients: TensorList,
    momenta: list[torch.Tensor],
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """Step SGD in place with the learning rate inside the momentum: v = m v - lr g, w += v (MXNet, Keras)."""
    if weight_decay:
        gradients = torch._foreach_add(gradients, parameters, alpha=weight_decay)
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients, alpha=-lr)
    if nesterov:
        torch._foreach_add_(parameters, momenta, alpha=momentum)
        torch._foreach_add_(parameters, gradients, alpha=-lr)
    else:
        torch._foreach_add_(parameters, momenta)


def foreach_lerp(target: list[torch.Tensor], source: list[torch.Tensor], weight: Any) -> None:
    """Move every tensor of ``target`` towards its partner in ``source``, in place."""
    if isinstance(weight, torch.Tensor):  # torch's own takes a number
        for old, new in zip(target, source, strict=True):
            old.lerp_(new, weight.to(old.dtype))
    else:
        torch._foreach_lerp_(target, source, weight)


def foreach_copy(target: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy every tensor of ``source`` into its partner in ``target``."""
    torch._foreach_copy_(target, source)


def foreach_norm(tensors: TensorList) -> torch.Tensor:
    """Return the Euclidean norm over all elements of all tensors."""
    if torch.compiler.is_compiling():  # torch's own is a call that no compiler looks into
        return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in tensors]))
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


def foreach_norms(tensors: TensorList) -> tuple[torch.Tensor, ...]:
    """Return the Euclidean norm of every tensor."""
    return tuple(torch._foreach_norm(tensors))


def foreach_clamp_(tensors: list[torch.Tensor], low: float, high: float) -> None:
    """Keep every element of all tensors between two numbers, in place."""
    if tensors:
        torch._foreach_clamp_min_(tensors, low)
        torch._foreach_clamp_max_(tensors, high)


def foreach_shift(tensors: TensorList, others: TensorList, factor: float | torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return every tensor with its partner, times a factor, added."""
    if isinstance(factor, torch.Tensor):  # torch's own takes a number, and would wait for the device to have it
        return tuple(each + factor * other for each, other in zip(tensors, others, strict=True))
    return tuple(torch._foreach_add(tensors, others, alpha=factor))


def foreach_signs(tensors: TensorList) -> tuple[torch.Tensor, ...]:
    """Return the signs of all elements."""
    return tuple(torch._foreach_sign(tensors))


def foreach_scale(tensors: TensorList, factor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return every tensor times a factor."""
    if factor.requires_grad:  # by its factor torch's own cannot be differentiated
        return tuple(each * factor for each in tensors)
    return tuple(torch._foreach_mul(tensors, factor))


def foreach_clamp(tensors: TensorList, bound: float) -> tuple[torch.Tensor, ...]:
    """Return every tensor with its elements kept between ``-bound`` and ``bound``."""
    return tuple(torch._foreach_clamp_max(torch._foreach_clamp_min(tensors, -bound), bound))


def foreach_add(first: TensorList, second: TensorList) -> tuple[torch.Tensor, ...]:
    """Return the sums of partners."""
    return tuple(torch._foreach_add(first, second))


def foreach_sub(first: TensorList, second: TensorList) -> tuple[torch.Tensor, ...]:
    """Return the differences of partners."""
    return tuple(torch._foreach_sub(first, second))


def foreach_mul(first: TensorList, second: TensorList | torch.Tensor | float) -> tuple[torch.Tensor, ...]:
    """Return the products of partners, or of every tensor and a number."""
    if isinstance(second, torch.Tensor):
        return foreach_scale(first, second)
    return tuple(torch._foreach_mul(first, second))


def foreach_mix(first: TensorList, second: TensorList, weight: Any) -> tuple[torch.Tensor, ...]:
    """Return first + weight * (second - first) of partners."""
    if isinstance(weight, torch.Tensor) and weight.requires_grad:  # torch's own takes a number
        return tuple(torch.lerp(a, b, weight) for a, b in zip(first, second, strict=True))
    share: Any = weight
    return tuple(torch._foreach_lerp(first, second, share))


def foreach_gather(totals: TensorList, gradients: TensorList, times: int, in_place: bool) -> TensorList:
    """Return totals with gradients added, each so many times; without totals they are begun."""
    if not totals:
        return foreach_scale_by(gradients, times)
    if not in_place:
        return torch._foreach_add(totals, gradients, alpha=times)
    torch._foreach_add_(totals, gradients, alpha=times)
    return totals


def foreach_scale_by(tensors: TensorList, times: int) -> TensorList:
    """Return every tensor times a count."""
    return torch._foreach_mul(tensors, scalar_like(times, tensors))


def foreach_share(totals: TensorList, times: int, in_place: bool) -> TensorList:
    """Return totals divided by a count."""
    if not in_place:
        return torch._foreach_div(totals, scalar_like(times, totals))
    torch._foreach_div_(totals, scalar_like(times, totals))
    return totals


def scalar_like(number: Any, tensors: TensorList) -> Any:
    """Return a count in the form that is fastest as a factor of tensors: on the CPU as one of their type.

    With a Python number products and quotients take twice the time there. Counts up to 2 ** 24 are exact in float32.
    """
    is_exact = isinstance(number, int) and number <= 1 << 24
    is_plain = is_exact and tensors and tensors[0].device.type == "cpu"
    return torch.scalar_tensor(number, dtype=tensors[0].dtype) if is_plain else number


def begin_slots(optimizer: torch.optim.Optimizer) -> None:
    """Make what one of PyTorch's own optimizers keeps for its parameters, where it is not there yet."""
    for group in optimizer.param_groups:
        kept = [parameter.grad for parameter in group["params"]]
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
        begin: Any = vars(type(optimizer))["_init_group"].__get__(optimizer)
        begin(group, *([] for _ in range(len(inspect.signature(begin).parameters) - 1)))
        for parameter, gradient in zip(group["params"], kept, strict=True):
            parameter.grad = gradient


def write_statistics(buffers: tuple[torch.Tensor, ...], values: Sequence[torch.Tensor]) -> None:
    """Copy running statistics into buffers as BatchNorm's own kernel writes them: without telling autograd.

    A pending backward of a call in training holds the buffers but normalizes with its batch; it must not be refused.
    """
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(buffers):
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)


def foreach_divide(tensors: TensorList, number: float) -> tuple[torch.Tensor, ...]:
    """Return every tensor divided by a number."""
    return tuple(torch._foreach_div(tensors, number))


def are_finite(tensors: TensorList, are_new: bool) -> torch.Tensor:
    """Return whether all elements of all tensors are finite, without waiting for the device.

    ``are_new``: nothing else holds the tensors, so that they may be written to, though their values do not change.
    """
    if not tensors:
        return torch.tensor(True)
    if not are_new or any(each.requires_grad or each.is_complex() for each in tensors):
        return torch.stack([torch.isfinite(each).all() for each in tensors]).all()
    # torch.tensor would copy the numbers to the device, for which the host waits.
    found, one = (torch.full((), each, dtype=torch.float32, device=tensors[0].device) for each in (0.0, 1.0))
    for dtype in dict.fromkeys(each.dtype for each in tensors):
        alike = [each.data for each in tensors if each.dtype == dtype]  # nothing changes: no version of them is new
        torch._amp_foreach_non_finite_check_and_unscale_(alike, found, one)
    return found == 0
