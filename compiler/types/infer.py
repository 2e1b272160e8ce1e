"""The type of what a built-in function returns, from the types of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from compiler.types import arrangement, elementwise, loss, products, reduction
from compiler.types.call import FunctionUse, Options
from compiler.types.dimension import ShapeProblem, TensorType
from compiler.types.dtype import Argument
from graphspec.declare.library import CALLS, LOSSES, METRICS, Signature
from graphspec.declare.options import find_defaults

RULES: Mapping[str, Callable[[FunctionUse], tuple[TensorType, ...]]] = {
    "add": elementwise.arithmetic,
    "sub": elementwise.difference,
    "mul": elementwise.arithmetic,
    "div": elementwise.quotient,
    "neg": elementwise.difference,
    "pow": elementwise.power,
    "minimum": elementwise.extreme,
    "maximum": elementwise.extreme,
    "less": elementwise.comparison,
    "less_equal": elementwise.comparison,
    "greater": elementwise.comparison,
    "greater_equal": elementwise.comparison,
    "equal": elementwise.equality,
    "not_equal": elementwise.equality,
    "logical_and": elementwise.logic,
    "logical_or": elementwise.logic,
    "logical_not": elementwise.logic,
    "matmul": products.matmul,
    "outer": products.outer,
    "einsum": products.einsum,
    "mean": reduction.average,
    "sum": reduction.total,
    "max": reduction.extreme,
    "min": reduction.extreme,
    "sqrt": elementwise.real,
    "square": elementwise.kept,
    "exp": elementwise.real,
    "log": elementwise.real,
    "abs": elementwise.kept,
    "sign": elementwise.kept,
    "clip": elementwise.clip,
    "norm": reduction.average,
    "normalize": reduction.along_axis,
    "softmax": reduction.along_axis,
    "log_softmax": reduction.along_axis,
    "logsumexp": reduction.average,
    "cumsum": reduction.running,
    "sort": reduction.ordered,
    "topk": reduction.ordered,
    "sigmoid": elementwise.real,
    "softplus": elementwise.floating,
    "tanh": elementwise.real,
    "relu": elementwise.kept,
    "concat": arrangement.concat,
    "stack": arrangement.stack,
    "split": arrangement.split,
    "split_rows": arrangement.split_rows,
    "slice": arrangement.cut,
    "subscript": arrangement.subscript,
    "gather": arrangement.gather,
    "reshape": arrangement.reshape,
    "expand": arrangement.expand,
    "permute": arrangement.permute,
    "roll": arrangement.roll,
    "pad": arrangement.pad,
    "interpolate": arrangement.interpolate,
    "one_hot": arrangement.one_hot,
    "argmax": reduction.argmax,
    "where": elementwise.where,
    "lerp": elementwise.arithmetic,
    "stop": elementwise.kept,
    "all_gather": arrangement.gathered,
    "all_mean": reduction.rows,
    "either": arrangement.either,
    "cross_entropy": loss.cross_entropy,
    "nll": loss.nll,
    "bce": loss.floating_elementwise,
    "bce_with_logits": loss.floating_elementwise,
    "mse": loss.elementwise,
    "l1": loss.elementwise,
    "huber": loss.floating_elementwise,
    "kl_div": loss.divergence,
    "hinge": loss.floating_elementwise,
    "cosine": loss.rows,
    "nt_xent": loss.contrastive,
    "focal": loss.floating_elementwise,
    "dice": loss.overlap,
    "gaussian_nll": loss.floating_elementwise,
    "poisson_nll": loss.counts,
    "triplet_margin": loss.triplets,
    "ctc": loss.alignment,
    "wasserstein": loss.score,
    "super_loss": loss.score,
    "accuracy": reduction.accuracy,
}
"""The rule of every built-in call, loss and metric."""

_SIGNATURES: Mapping[str, Signature] = dict(chain(METRICS.items(), LOSSES.items(), CALLS.items()))


def infer_call(
    name: str, inputs: Sequence[Argument], options: Mapping[str, object], *, reduction: str | None = None
) -> tuple[TensorType, ...]:
    """Return the types of the results of a built-in call, loss or metric, in order.

    ``options`` are the op's ``args``, without defaults; ``reduction`` that of a loss. Unknown operands give unknown
    results. Raises :class:`ShapeProblem`, with a path below the op, only for what is certainly wrong.
    """
    signature, found = _SIGNATURES[name], len(inputs)
    if found < signature.fewest or (signature.most is not None and found > signature.most):
        names = ", ".join(signature.operands) + (", ..." if signature.repeats else "")
        raise ShapeProblem(("inputs",), f"{found} operands", f"{names}")
    return RULES[name](_use(name, inputs, options, reduction))


def is_open(name: str, inputs: Sequence[Argument], options: Mapping[str, object]) -> bool:
    """Return whether only the running step can check that the operands of a built-in loss match."""
    return loss.is_open(_use(name, inputs, options))


def _use(
    name: str, inputs: Sequence[Argument], options: Mapping[str, object], reduction: str | None = None
) -> FunctionUse:
    """Return an evaluation of a built-in function."""
    defaults = find_defaults(_SIGNATURES[name].options)
    reader = Options(values=options, place=("args",), defaults=defaults)
    return FunctionUse(name=name, inputs=tuple(inputs), options=reader, reduction=reduction)
