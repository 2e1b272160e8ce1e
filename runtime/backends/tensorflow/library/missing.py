"""Gaps: gradient sets with None where there is no gradient. None is not zero: such a parameter stays as it is.

Whether there is a gradient is known when a graph is traced, but for what a window gathers: there it is a tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.gradients import GradientSet
from runtime.backends.tensorflow.library.optimizers import Optimizer, require_gradients
from runtime.backends.tensorflow.library.penalties import Penalty, regularize
from runtime.backends.tensorflow.library.transforms import pcgrad


class Maybe:
    """A gradient that earlier steps of a window may have given: zero where none did, as ``seen`` says."""

    def __init__(self, value: tf.Tensor, seen: tf.Tensor) -> None:
        self.value, self.seen = value, seen


MaybeGradients: TypeAlias = Sequence[tf.Tensor | Maybe | None]
"""Gradients of the parameters of one or several models, in order; None where there is none."""


def fill_missing(gradients: MaybeGradients, parameters: Sequence[Any], frozen: Sequence[int] = ()) -> Any:
    """Return gradients with zeros where there are none, but at places whose parameters are currently frozen."""
    pairs = enumerate(zip(gradients, parameters, strict=True))
    return tuple(g if at in frozen else tf.zeros_like(p) if g is None else number_of(g) for at, (g, p) in pairs)


def number_of(gradient: Any) -> tf.Tensor:
    """Return a gradient as a tensor; zeros where it may be absent and is."""
    return gradient.value if isinstance(gradient, Maybe) else gradient


def zeros_for_absent(gradients: MaybeGradients) -> tuple[tf.Tensor | None, ...]:
    """Return gradients as tensors; zeros for those that may be absent and are."""
    return tuple(None if each is None else number_of(each) for each in gradients)


def required(gradients: MaybeGradients, frozen: Sequence[int] = (), *others: MaybeGradients) -> MaybeGradients:
    """Return gradients of which none is absent but at some places; raise RuntimeError where one is.

    ``others``: what they are added to, one of which may have it.
    """
    found = [next((each for each in every if each is not None), None) for every in zip(gradients, *others, strict=True)]
    kept = [each for at, each in enumerate(found) if at not in frozen]
    require_gradients([None if each is None else number_of(each) for each in kept])
    return gradients


def over_present(
    function: Callable[..., GradientSet], sets: Sequence[MaybeGradients], *rest: Any, **options: Any
) -> MaybeGradients:
    """Return what a function makes of the gradients that are there; where no set has one there is none.

    A gradient that one set has and another lacks counts as zero in the other.
    """
    places = [at for at, found in enumerate(zip(*sets, strict=True)) if any(each is not None for each in found)]
    return over_places(function, sets, places, tf.logical_or, *rest, **options)


def over_common(
    function: Callable[..., GradientSet], sets: Sequence[MaybeGradients], *rest: Any, **options: Any
) -> MaybeGradients:
    """Return what a function makes of the gradients that all sets have; where one has none there is none."""
    places = [at for at, found in enumerate(zip(*sets, strict=True)) if all(each is not None for each in found)]
    return over_places(function, sets, places, tf.logical_and, *rest, **options)


def over_places(
    function: Callable[..., GradientSet],
    sets: Sequence[MaybeGradients],
    places: Sequence[int],
    join: Callable[[Any, Any], Any],
    *rest: Any,
    **options: Any,
) -> MaybeGradients:
    """Return what a function makes of the gradients at some places, and None elsewhere.

    ``join`` says of two gradients that may be absent whether their combination may be absent.
    """
    likes = [next(number_of(each[at]) for each in sets if each[at] is not None) for at in places]
    chosen = [fill_missing([each[at] for at in places], likes) for each in sets]
    made = function(*chosen, *rest, **options) if places else ()
    pairs = zip(places, made, strict=True)
    by_place = {at: same_as([each[at] for each in sets], value, join) for at, value in pairs}
    return tuple(by_place.get(at) for at in range(len(sets[0])))


def same_as(sources: Sequence[Any], value: tf.Tensor, join: Callable[[Any, Any], Any]) -> tf.Tensor | Maybe:
    """Return a gradient that is there if those are from which it was made: one of them, or all."""
    flags = [each.seen for each in sources if isinstance(each, Maybe)]
    is_certain = join is tf.logical_or and any(each is not None and not isinstance(each, Maybe) for each in sources)
    if is_certain or not flags:
        return value
    seen = functools.reduce(join, flags)
    return Maybe(tf.where(seen, value, tf.zeros_like(value)), seen)


def pcgrad_of(*sets: GradientSet, order: tf.Tensor | None = None) -> GradientSet:
    """Return the sum of sets, each without what is against the others."""
    return pcgrad(sets, order)


def noise_present(gradients: MaybeGradients, parameters: Sequence[Any], noise: tf.Tensor) -> MaybeGradients:
    """Return the gradients that are there with noise added, which has a number for every element of all parameters."""
    parts = tf.split(noise, [tf.size(each) for each in parameters])
    shaped = [tf.reshape(part, tf.shape(each)) for part, each in zip(parts, parameters, strict=True)]
    places = [at for at, each in enumerate(gradients) if each is not None]

    def add(chosen: GradientSet) -> GradientSet:
        """Return gradients with their noise."""
        return tuple(each + tf.cast(shaped[at], each.dtype) for at, each in zip(places, chosen, strict=True))

    return over_places(add, [gradients], places, tf.logical_or)


def regularize_present(
    gradients: MaybeGradients, penalties: Iterable[Penalty], frozen: Sequence[int] = (), unless: tf.Tensor | None = None
) -> MaybeGradients:
    """Return gradients with the slopes of penalties added; a slope alone is the gradient where there is none.

    At places whose parameters are currently frozen there is none. Nothing is added where ``unless`` holds.
    """
    found = list(gradients)
    for penalty in penalties:
        pairs = zip(penalty.places, penalty.parameters, strict=True)
        for place, parameter in (pair for pair in pairs if pair[0] not in frozen):
            old = found[place]
            before = tf.zeros_like(parameter) if old is None else number_of(old)
            (added,) = regularize([before], [penalty_of(penalty, parameter)], unless)
            if unless is None or isinstance(old, tf.Tensor):
                found[place] = added
            else:
                is_added = tf.logical_not(unless)
                found[place] = Maybe(added, is_added if old is None else old.seen | is_added)
    return tuple(found)


def penalty_of(penalty: Penalty, parameter: Any) -> Penalty:
    """Return a penalty of one parameter alone."""
    return Penalty([parameter], [0], l1=penalty.l1, l2=penalty.l2, term=penalty.term)


def over_stepped(
    function: Callable[..., None],
    chosen: Sequence[Any],
    parameters: Sequence[Any],
    gradients: MaybeGradients,
    *rest: Any,
    **options: Any,
) -> None:
    """Call a function for those chosen parameters that have a gradient, and so were stepped."""
    found = {id(p): g for p, g in zip(parameters, gradients, strict=True) if g is not None}
    stepped = [p for p in chosen if id(p) in found]
    with unless_absent([(p, found[id(p)]) for p in stepped]):
        function(stepped, *rest, **options)


@contextmanager
def unless_absent(pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Give variables back what they hold now, once all is done, where the gradient they belong to is absent."""
    kept = [(variable, variable.read_value(), each.seen) for variable, each in pairs if isinstance(each, Maybe)]
    yield
    for variable, before, seen in kept:
        variable.assign(tf.where(seen, variable, before))


def apply_present(optimizer: Optimizer, gradients: MaybeGradients) -> None:
    """Step the parameters that have a gradient; of the others nothing changes but the one count that all share."""
    with only_present(optimizer, gradients), unless_absent(held_for(optimizer, gradients)):
        optimizer.apply([number_of(each) for each in gradients if each is not None])


def held_for(optimizer: Optimizer, gradients: MaybeGradients) -> Iterator[tuple[Any, Any]]:
    """Yield the parameters and slots of an optimizer, each with the gradient it belongs to; for those that have one."""
    found = [each for each in gradients if each is not None]
    for held in (optimizer.parameters, *optimizer.slots.values()):
        yield from zip(held, found, strict=True)


@contextmanager
def only_present(optimizer: Optimizer, gradients: MaybeGradients) -> Iterator[None]:
    """Let an optimizer know of those parameters alone that have a gradient."""
    places = [at for at, each in enumerate(gradients) if each is not None]
    parameters, slots = optimizer.parameters, optimizer.slots
    optimizer.parameters = [parameters[at] for at in places]
    optimizer.slots = {name: [held[at] for at in places] for name, held in slots.items()}
    try:
        yield
    finally:
        optimizer.parameters, optimizer.slots = parameters, slots
