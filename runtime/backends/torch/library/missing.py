"""Gaps: gradient sets with None where there is no gradient. None is not zero: such a parameter stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from runtime.backends.torch.library.kernels import TensorList, begin_slots
from runtime.backends.torch.library.optimizers import Optimizer, Wrapped, make_slot, require_gradients
from runtime.backends.torch.library.penalties import Penalty, regularize
from runtime.backends.torch.library.transforms import pcgrad
from runtime.support.patterns import among

MaybeGradients: TypeAlias = Sequence[torch.Tensor | None]
"""Gradients of the parameters of one or several models, in order; None where there is none."""


def reached_gradients(
    loss: torch.Tensor, targets: torch.Tensor | Sequence[torch.Tensor], zero: bool = False, **options: Any
) -> tuple[Any, ...]:
    """Return the gradients of a loss; where it does not reach a target None, or zeros."""
    listed = [targets] if isinstance(targets, torch.Tensor) else list(targets)
    found: MaybeGradients = [None] * len(listed)
    if loss.requires_grad and listed:
        found = torch.autograd.grad(loss, listed, allow_unused=True, **options)
    return tuple(fill_missing(found, listed) if zero else found)


def fill_missing(gradients: MaybeGradients, parameters: Sequence[torch.Tensor], frozen: Sequence[int] = ()) -> Any:
    """Return gradients with zeros where there are none, but at places whose parameters are currently frozen."""
    pairs = enumerate(zip(gradients, parameters, strict=True))
    return tuple(torch.zeros_like(p) if g is None and at not in frozen else g for at, (g, p) in pairs)


def required(gradients: MaybeGradients, frozen: Sequence[int] = (), *others: MaybeGradients) -> MaybeGradients:
    """Return gradients of which none is absent but at some places; raise RuntimeError where one is.

    ``others``: what they are added to, one of which may have it.
    """
    found = [next((each for each in every if each is not None), None) for every in zip(gradients, *others, strict=True)]
    require_gradients([each for at, each in enumerate(found) if at not in frozen])
    return gradients


def over_present(
    function: Callable[..., TensorList], sets: Sequence[MaybeGradients], *rest: Any, **options: Any
) -> MaybeGradients:
    """Return what a function makes of the gradients that are there; where no set has one there is none.

    A gradient that one set has and another lacks counts as zero in the other.
    """
    places = [at for at, found in enumerate(zip(*sets, strict=True)) if any(each is not None for each in found)]
    return over_places(function, sets, places, *rest, **options)


def over_common(
    function: Callable[..., TensorList], sets: Sequence[MaybeGradients], *rest: Any, **options: Any
) -> MaybeGradients:
    """Return what a function makes of the gradients that all sets have; where one has none there is none."""
    places = [at for at, found in enumerate(zip(*sets, strict=True)) if all(each is not None for each in found)]
    return over_places(function, sets, places, *rest, **options)


def over_places(
    function: Callable[..., TensorList],
    sets: Sequence[MaybeGradients],
    places: Sequence[int],
    *rest: Any,
    **options: Any,
) -> MaybeGradients:
    """Return what a function makes of the gradients at some places, and None elsewhere."""
    likes: list[Any] = [next(each[at] for each in sets if each[at] is not None) for at in places]
    chosen = [fill_missing([each[at] for at in places], likes) for each in sets]
    made = function(*chosen, *rest, **options) if places else ()
    by_place = dict(zip(places, made, strict=True))
    return tuple(by_place.get(at) for at in range(len(sets[0])))


def pcgrad_of(*sets: TensorList, order: torch.Tensor | None = None) -> TensorList:
    """Return the sum of sets, each without what is against the others."""
    return pcgrad(sets, order)


def noise_present(gradients: MaybeGradients, parameters: Sequence[torch.Tensor], noise: torch.Tensor) -> MaybeGradients:
    """Return the gradients that are there with noise added, which has a number for every element of all parameters."""
    parts = noise.split([each.numel() for each in parameters])
    pairs = zip(gradients, parts, strict=True)
    return tuple(None if g is None else g + part.reshape(g.shape).to(g.dtype) for g, part in pairs)


@torch.no_grad()
def regularize_present(
    gradients: MaybeGradients,
    penalties: Iterable[Penalty],
    frozen: Sequence[int] = (),
    unless: torch.Tensor | None = None,
) -> MaybeGradients:
    """Return gradients with the slopes of penalties added; a slope alone is the gradient where there is none.

    At places whose parameters are currently frozen there is none. Nothing is added where the device says ``unless``; it
    is asked at once where that decides whether there is a gradient.
    """
    penalties = [each for penalty in penalties for each in penalty_beside(penalty, frozen)]
    if unless is not None and any(gradients[place] is None for each in penalties for place in each.places):
        if bool(unless):
            return tuple(gradients)
        unless = None
    found = list(gradients)
    for penalty in penalties:
        for place, parameter in zip(penalty.places, penalty.parameters, strict=True):
            found[place] = torch.zeros_like(parameter) if found[place] is None else found[place]
    places = [at for at, each in enumerate(found) if each is not None]
    order = {at: number for number, at in enumerate(places)}
    moved = [
        Penalty(each.parameters, [order[at] for at in each.places], l1=each.l1, l2=each.l2, term=each.term)
        for each in penalties
    ]
    return over_places(regularize, [found], places, moved, unless)


def penalty_beside(penalty: Penalty, frozen: Sequence[int]) -> Iterator[Penalty]:
    """Yield a penalty of those parameters that do not stand at some places, if there are any."""
    pairs = [each for each in zip(penalty.parameters, penalty.places, strict=True) if each[1] not in frozen]
    if pairs:
        parameters, places = map(list, zip(*pairs, strict=True))
        yield Penalty(parameters, places, l1=penalty.l1, l2=penalty.l2, term=penalty.term)


def over_stepped(
    function: Callable[..., None],
    chosen: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    gradients: MaybeGradients,
    *rest: Any,
    **options: Any,
) -> None:
    """Call a function for those chosen parameters that have a gradient, and so were stepped."""
    stepped = [p for p, g in zip(parameters, gradients, strict=True) if g is not None]
    function(among(chosen, stepped), *rest, **options)


@torch.no_grad()
def apply_present(optimizer: Optimizer, gradients: MaybeGradients) -> None:
    """Step the parameters that have a gradient; of the others nothing changes but the one count that all share."""
    for name, schedule in optimizer.schedules.items():
        optimizer.options[name] = schedule(optimizer.applied)
    step_present(optimizer, gradients)
    optimizer.applied += 1


def step_present(optimizer: Optimizer, gradients: MaybeGradients) -> None:
    """Step with lists of those parameters alone that have a gradient."""
    places = [at for at, each in enumerate(gradients) if each is not None]
    lists = aligned_lists(optimizer)
    whole = [list(each) for each in lists]
    for each, kept in zip(lists, whole, strict=True):
        each[:] = [kept[at] for at in places]
    try:
        if places:
            optimizer.step([each for each in gradients if each is not None])
    finally:
        for each, kept in zip(lists, whole, strict=True):
            for at, value in zip(places, list(each), strict=True):
                kept[at] = value
            each[:] = kept
    pass_by(optimizer, [at for at, each in enumerate(gradients) if each is None])


def aligned_lists(optimizer: Optimizer) -> list[list[Any]]:
    """Return every list of an optimizer that has an entry for each parameter, each once."""
    size = len(optimizer.parameters)
    found = [*vars(optimizer).values(), *optimizer.slots.values()]
    return list({id(each): each for each in found if isinstance(each, list) and len(each) == size}.values())


def pass_by(optimizer: Optimizer, places: Sequence[int]) -> None:
    """Count an update for parameters that it leaves alone; a momentum that has not begun begins with zero."""
    for at in places:
        for steps in optimizer.slots.get("step", ())[at : at + 1]:
            steps.add_(1)
        for held in optimizer.slots.values():
            held[at] = make_slot(optimizer.parameters[at], 0.0) if held[at] is None else held[at]


@torch.no_grad()
def apply_present_wrapped(optimizer: Wrapped, gradients: MaybeGradients, counted: bool = True) -> None:
    """Lend the gradients that are there to a wrapped optimizer for one step, which leaves other parameters alone.

    ``counted``: it is one of PyTorch's own, whose counts of the updates of each parameter are made to agree.
    """
    for name, schedule in optimizer.schedules.items():
        optimizer.options[name] = schedule(optimizer.applied)
    optimizer.follow()
    if counted:
        begin_slots(optimizer.optimizer)
    optimizer.lend(gradients)
    if counted:
        pass_by(optimizer, [at for at, each in enumerate(gradients) if each is None])
    optimizer.applied += 1
