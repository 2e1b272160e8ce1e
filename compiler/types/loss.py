"""Shapes of losses: a scalar, or one element per sample with ``reduction: none``; and what fits what.

What is unknown here the running step checks by the same rule: ``matched`` and ``matched_classes`` of a backend's
library.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.value import Shape
from compiler.types.call import FunctionUse
from compiler.types.dimension import TensorType, format_shape, is_surely_unequal, scale
from compiler.types.dtype import INTEGER, is_floating, is_not_floating, promote

OF_CLASSES = frozenset({"cross_entropy", "nll"})
"""Losses that compare scores with class numbers."""


def elementwise(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type mse, l1: equal shapes, some of them perhaps a single number; one of them floating."""
    _require_equal(use, ", or a number,")
    if all(is_not_floating(tensor.dtype) for tensor in use.tensors()):
        use.require_floating(0)
    return _result(use, _either(use), promote(*use.inputs))


def floating_elementwise(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type huber, bce, bce_with_logits, focal, gaussian_nll, hinge: as mse, all floating."""
    for index in range(len(use.inputs)):
        use.require_floating(index)
    return elementwise(use)


def counts(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type poisson_nll: as mse, of which the target may be whole."""
    use.require_floating(0)
    return elementwise(use)


def cross_entropy(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type cross_entropy: class numbers without the class axis, or probabilities of the logits' shape."""
    use.require_floating(0)
    logits, target = use.tensors()
    if logits.shape is None:
        return _result(use, None, logits.dtype)
    axis = use.axis(logits.shape)
    classes = _without(logits.shape, axis)
    _require_classes(use, target, logits.shape, classes, ", or probabilities of the logits' shape")
    if use.options.has("ignore_index") and is_floating(target.dtype):
        found = "`ignore_index` for a target of probabilities"
        raise use.wrong_option("ignore_index", found, "class numbers as the target, of dtype int64")
    return _result(use, classes, logits.dtype)


def nll(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type nll: log-probabilities with the classes at axis 1, class numbers without that axis."""
    use.require_floating(0)
    scores, target = use.tensors()
    if is_floating(target.dtype):
        help = "declare the input it comes from with dtype int64, or use `cross_entropy` for target probabilities"
        raise use.wrong_input(1, f"a target of dtype {target.dtype}", "class numbers of dtype int64 for `nll`", help)
    if scores.shape is None:
        return _result(use, None, scores.dtype)
    if len(scores.shape) < 2:
        raise use.wrong_input(0, f"shape {format_shape(scores.shape)}", "[batch, classes, ...] for `nll`")
    classes = _without(scores.shape, 1)
    _require_classes(use, target, scores.shape, classes, "")
    return _result(use, classes, scores.dtype)


def divergence(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type kl_div: two equal shapes of logits [batch, classes, ...]."""
    shape = _floating_tensors(use)
    if shape is not None and len(shape) < 2:
        raise use.wrong_input(0, f"shape {format_shape(shape)}", "[batch, classes] for `kl_div`")
    return _result(use, shape and _without(shape, 1), promote(*use.inputs))


def rows(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type cosine: two equal shapes, one element per row (all axes but the last)."""
    shape = _floating_tensors(use)
    if shape == ():
        raise use.wrong_input(0, "a scalar", "rows, as in [batch, features], for `cosine`")
    return _result(use, shape and shape[:-1], promote(*use.inputs))


def triplets(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type triplet_margin: three equal shapes, one element per row (all axes but the last)."""
    shape = _floating_tensors(use)
    if shape == ():
        raise use.wrong_input(0, "a scalar", "rows, as in [batch, features], for `triplet_margin`")
    return _result(use, shape and shape[:-1], promote(*use.inputs))


def overlap(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type dice: two equal shapes [batch, ...]; one element for every index of the axes that are not summed."""
    shape, result = _floating_tensors(use), promote(*use.inputs)
    if shape is None:
        return _result(use, None, result)
    if len(shape) < 2:
        raise use.wrong_input(0, f"shape {format_shape(shape)}", "[batch, ...] with at least two axes for `dice`")
    given = use.options.integers("axis") if use.options.has("axis") else range(1, len(shape))
    axes = {use.check_axis(axis, shape) for axis in given}
    return _result(use, tuple(size for axis, size in enumerate(shape) if axis not in axes), result)


def alignment(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type ctc: logits [batch, time, classes], class numbers [batch, places], two lengths [batch]; one per sample."""
    use.require_floating(0)
    wanted = ("[batch, time, classes]", "[batch, places]", "[batch]", "[batch]")
    for index, (tensor, axes) in enumerate(zip(use.tensors(), wanted, strict=True)):
        if tensor.shape is not None and len(tensor.shape) != axes.count(",") + 1:
            raise use.wrong_input(index, f"shape {format_shape(tensor.shape)}", f"{axes} for `ctc`")
        if index and tensor.dtype is not None and tensor.dtype not in INTEGER:
            help = "declare the input it comes from with dtype int64"
            raise use.wrong_input(
                index, f"dtype {tensor.dtype}", f"whole numbers of dtype int64 for `{use.name}`", help
            )
        rows = use.tensor(0).shape
        if rows is not None and tensor.shape is not None and _is_unequal(rows[0], tensor.shape[0]):
            raise use.wrong_input(index, f"{tensor.shape[0]} rows", f"{rows[0]} rows, as the logits have")
    shape, blank = use.tensor(0).shape, use.options.integer("blank")
    if shape is not None and isinstance(shape[2], int) and blank >= shape[2]:
        raise use.wrong_option("blank", f"`blank: {blank}` of {shape[2]} classes", f"a class from 0 to {shape[2] - 1}")
    return _result(use, shape and shape[:1], use.tensor(0).dtype)


def contrastive(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type nt_xent: two equal shapes [batch, features], one element per row of both."""
    shape = _floating_tensors(use)
    if shape is not None and len(shape) != 2:
        raise use.wrong_input(0, f"shape {format_shape(shape)}", "[batch, features] for `nt_xent`", "add `flatten`")
    return _result(use, shape and (scale(shape[0], 2),), promote(*use.inputs))


def score(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type wasserstein and super_loss: floating scores of any shape."""
    use.require_floating(0)
    return _result(use, use.tensor(0).shape, use.tensor(0).dtype)


def _result(use: FunctionUse, elements: Shape | None, dtype: str | None) -> tuple[TensorType, ...]:
    """Return a scalar, or the shape ``elements`` where they are not reduced."""
    return (TensorType(elements if use.reduction == "none" else (), dtype),)


def is_open(use: FunctionUse) -> bool:
    """Return whether only the running step can check the operands of a loss: some size or type of theirs is unknown.

    `ctc` checks its own.
    """
    if use.name == "ctc":
        return False
    if use.name in OF_CLASSES:
        left, right = use.tensors()
        if left.shape is None or right.shape is None or right.dtype is None:
            return True
        classes = _without(left.shape, use.axis(left.shape) if use.options.has("axis") else 1)
        return right.shape != (classes if right.dtype in INTEGER else left.shape)
    shapes = [use.tensor(index).shape for index in range(len(use.inputs)) if not use.is_literal(index)]
    return len(shapes) > 1 and (None in shapes or any(shape != shapes[0] for shape in shapes))


def _is_number(use: FunctionUse, index: int) -> bool:
    """Return whether an operand is a single number: a literal, or a value that is known to have no axes."""
    return use.is_literal(index) or use.tensor(index).shape == ()


def _floating_tensors(use: FunctionUse) -> Shape | None:
    """Return the shape of equal floating tensors."""
    for index in range(len(use.inputs)):
        use.require_floating(index)
        if use.is_literal(index):
            raise use.wrong_input(index, "a number", f"{_COUNTS[len(use.inputs)]} equal shapes for `{use.name}`")
    _require_equal(use, "")
    return _either(use)


def _either(use: FunctionUse) -> Shape | None:
    """Return the shape of the first operand with a known one that is no single number."""
    shapes = [use.tensor(index).shape for index in range(len(use.inputs)) if not _is_number(use, index)]
    return next((shape for shape in shapes if shape is not None), None if shapes else ())


_COUNTS: Mapping[int, str] = {2: "two", 3: "three"}


def _require_equal(use: FunctionUse, other: str) -> None:
    """Refuse shapes that only broadcasting would make equal: the loss would compare everything with everything.

    ``other``: what else than equal shapes is taken; where something is, a single number fits every shape.
    """
    shapes = {
        index: shape
        for index, shape in enumerate(tensor.shape for tensor in use.tensors())
        if shape is not None and not (other and _is_number(use, index))
    }
    for index, shape in shapes.items():
        first = next(iter(shapes.values()))
        if len(first) != len(shape) or any(map(_is_unequal, first, shape)):
            found = f"shapes {format_shape(first)} and {format_shape(shape)}"
            help = "`reshape` one of them; broadcasting would pair elements that do not belong together"
            expected = f"{_COUNTS[len(use.inputs)]} equal shapes{other} for `{use.name}`"
            raise use.wrong_input(index, found, expected, help)


def _is_unequal(left: int | str, right: int | str) -> bool:
    """Return whether sizes surely differ, or one is 1 where the other is free: right for a single sample only."""
    return is_surely_unequal(left, right) or (left != right and 1 in (left, right))


def _require_classes(use: FunctionUse, target: TensorType, scores: Shape, classes: Shape, other: str) -> None:
    """Refuse targets that are neither class numbers nor (for cross_entropy) probabilities."""
    if target.dtype == "bool":
        raise use.wrong_input(1, "a target of dtype bool", f"class numbers of dtype int64 for `{use.name}`")
    if target.shape is None:
        return
    wanted = [classes] if target.dtype in INTEGER else [scores] if is_floating(target.dtype) else [classes, scores]
    if any(len(target.shape) == len(each) and not any(map(_is_unequal, target.shape, each)) for each in wanted):
        return
    expected = f"class numbers of shape {format_shape(classes)} and dtype int64{other}"
    help = "`reshape` the target, or declare its input with dtype int64"
    if (
        use.options.has("axis")
        and len(target.shape) == len(scores) - 1
        and not any(map(_is_unequal, target.shape, scores[:-1]))
    ):
        help = "its classes seem to be on the last axis: write `args: {axis: -1}`"
    raise use.wrong_input(1, f"a target {target} for scores {format_shape(scores)}", expected, help)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]
