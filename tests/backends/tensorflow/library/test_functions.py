"""Calls beside PyTorch's: values, both gradients, and the types that mixed operands become."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import torch
import torch.nn.functional as F

from runtime.backends.tensorflow.library import arrangements as arranged
from runtime.backends.tensorflow.library import comparisons as compared
from runtime.backends.tensorflow.library import functions as mine
from runtime.backends.tensorflow.library.dtypes import result_type, typed
from runtime.backends.torch.library import functions as torchs
from tests.backends.tensorflow.library.beside import assert_same

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))
CUBE = np.round(RANDOM.normal(size=(2, 4, 3)), 1)
FLAT = np.where(np.abs(CUBE) < 0.5, 0.0, CUBE)
TIED = np.round(CUBE)
INDICES = RANDOM.integers(0, 4, size=(2, 5, 2))
ZERO_ROWS = np.where(np.arange(4)[:, None] == 1, 0.0, X)

CASES = {
    "add": (mine.add, lambda *xs: sum(xs), (X, Y, 2.0)),
    "sub": (mine.sub, torch.sub, (X, Y[0])),
    "mul": (mine.mul, torch.mul, (X, Y)),
    "div": (mine.div, torch.div, (X, Y)),
    "matmul": (mine.matmul, torch.matmul, (X, Y.T)),
    "matmul-batch": (mine.matmul, torch.matmul, (CUBE, Y.T)),
    "matmul-row": (mine.matmul, torch.matmul, (X[:, 0], Y)),
    "matmul-column": (mine.matmul, torch.matmul, (X, Y[0])),
    "matmul-vectors": (mine.matmul, torch.matmul, (X[0], Y[0])),
    "mean": (partial(tf.reduce_mean, axis=(0, 2)), partial(torch.mean, dim=(0, 2)), (CUBE,)),
    "sum": (partial(mine.reduce_sum, axis=1, keepdims=True), partial(torch.sum, dim=1, keepdim=True), (CUBE,)),
    "max-ties": (partial(tf.reduce_max, axis=(0, 2)), partial(torch.amax, dim=(0, 2)), (np.round(CUBE),)),
    "min-ties": (partial(tf.reduce_min, axis=1), partial(torch.amin, dim=1), (np.round(CUBE),)),
    "abs": (tf.abs, torch.abs, (FLAT,)),
    "sign": (tf.sign, torch.sign, (FLAT,)),
    "square": (tf.square, torch.square, (X,)),
    "sqrt": (mine.sqrt, torch.sqrt, (np.abs(X) + 0.1,)),
    "exp": (mine.exp, torch.exp, (X,)),
    "log": (mine.log, torch.log, (np.abs(X) + 0.1,)),
    "sigmoid": (mine.sigmoid, torch.sigmoid, (X,)),
    "tanh": (mine.tanh, torch.tanh, (X,)),
    "relu": (tf.nn.relu, torch.relu, (FLAT,)),
    "clip": (partial(mine.clip, min=-0.5, max=0.5), partial(torch.clamp, min=-0.5, max=0.5), (CUBE,)),
    "clip-below": (partial(mine.clip, min=0.0), partial(torch.clamp, min=0.0), (FLAT,)),
    "minimum": (compared.minimum, torch.minimum, (X, Y)),
    "minimum-ties": (compared.minimum, torch.minimum, (np.round(CUBE), np.round(CUBE[:, :1]))),
    "maximum-ties": (compared.maximum, torch.maximum, (np.round(CUBE), np.round(CUBE[:, :1]))),
    "maximum-number": (lambda x: compared.maximum(x, 0), partial(torchs.maximum, 0), (FLAT,)),
    "pow": (compared.power, torch.pow, (np.abs(X) + 0.1, Y)),
    "pow-square": (lambda x: compared.power(x, 2), lambda x: x**2, (FLAT,)),
    "pow-nothing": (lambda x: compared.power(x, 0), lambda x: x**0, (FLAT,)),
    "pow-of-two": (lambda x: compared.power(2, x), lambda x: 2**x, (X,)),
    "norm": (mine.norm, torch.linalg.vector_norm, (CUBE,)),
    "norm-axes": (partial(mine.norm, axis=(0, 2)), partial(torch.linalg.vector_norm, dim=(0, 2)), (CUBE,)),
    "normalize": (mine.normalize, partial(torch.nn.functional.normalize, dim=-1), (X,)),
    "softmax": (partial(tf.nn.softmax, axis=1), partial(torch.softmax, dim=1), (CUBE,)),
    "log_softmax": (partial(tf.nn.log_softmax, axis=1), partial(torch.log_softmax, dim=1), (CUBE,)),
    "softplus": (tf.math.softplus, partial(torch.nn.functional.softplus, threshold=40.0), (X,)),
    "logsumexp": (tf.reduce_logsumexp, torchs.logsumexp, (CUBE,)),
    "logsumexp-axes": (
        partial(tf.reduce_logsumexp, axis=(0, 2), keepdims=True),
        partial(torch.logsumexp, dim=(0, 2), keepdim=True),
        (CUBE,),
    ),
    "cumsum": (partial(arranged.cumsum, axis=1), partial(torch.cumsum, dim=1), (CUBE,)),
    "sort": (lambda x: arranged.sort(x, 1)[0], lambda x: torch.sort(x, stable=True, dim=1).values, (TIED,)),
    "sort-down": (
        lambda x: arranged.sort(x, 0, descending=True)[0],
        lambda x: torch.sort(x, stable=True, dim=0, descending=True).values,
        (TIED,),
    ),
    "topk": (lambda x: arranged.topk(x, 2)[0], lambda x: torchs.topk(x, 2)[0], (TIED,)),
    "topk-least": (lambda x: arranged.topk(x, 3, 1, False)[0], lambda x: torchs.topk(x, 3, 1, False)[0], (TIED,)),
    "expand": (
        lambda x: arranged.expand(x[:, :, None], (-1, -1, 5)),
        lambda x: x[:, :, None].expand(-1, -1, 5),
        (X,),
    ),
    "roll": (lambda x: tf.roll(x, 2, axis=1), lambda x: torch.roll(x, 2, dims=1), (CUBE,)),
    "outer": (mine.outer, torch.outer, (X[0], Y[:, 0])),
    "einsum": (partial(tf.einsum, "bij,bj,i->ji"), partial(torch.einsum, "bij,bj,i->ji"), (CUBE, CUBE[:, 0], X[:, 0])),
    **{
        f"pad-{mode}": (
            partial(arranged.pad, pad=(1, 2, 2, 1), method=mode),
            partial(F.pad, pad=(1, 2, 2, 1), mode=mode),
            (CUBE,),
        )
        for mode in ("constant", "reflect", "replicate")
    },
    "pad-value": (
        lambda x: arranged.pad(x, (0, 0, 3, 0), value=0.3),
        lambda x: F.pad(x, (0, 0, 3, 0), value=0.3),
        (X,),
    ),
    **{
        f"interpolate-{mode}-{'-'.join(map(str, how.values()))}": (
            partial(arranged.resize, method=mode, **how),
            partial(F.interpolate, mode=mode, **{"scale_factor" if key == "factor" else key: how[key] for key in how}),
            (CUBE[:, None],),
        )
        for mode in ("nearest", "bilinear")
        for how in ({"size": (7, 2)}, {"size": (3, 5)}, {"size": 1}, {"factor": 3})
    },
    "split": (lambda x: mine.split(x, (1, 3))[1], lambda x: torchs.split(x, (1, 3))[1], (CUBE,)),
    "split-rows": (lambda x: mine.split_rows(x, 2)[1], lambda x: torch.tensor_split(x, 2)[1], (CUBE,)),
    "slice": (partial(mine.cut, start=1, stop=-1), partial(torchs.cut, start=1, stop=-1), (CUBE,)),
    "slice-axis": (partial(mine.cut, start=-1, axis=-1), partial(torchs.cut, start=-1, axis=-1), (CUBE,)),
    "gather": (mine.take_along, lambda x, i: torch.gather(x, 1, i), (CUBE, INDICES)),
    "gather-axis": (partial(mine.take_along, axis=-1), lambda x, i: torch.gather(x, -1, i), (CUBE, INDICES[:, :3] % 3)),
    "concat": (lambda *xs: mine.concat(xs), lambda *xs: torch.cat(xs, dim=1), (X, Y)),
    "stack": (lambda *xs: mine.stack(xs, axis=1), lambda *xs: torch.stack(xs, dim=1), (X, Y)),
    "where": (mine.where, torch.where, (X > 0, X, Y)),
    "lerp": (mine.interpolate, torchs.interpolate, (X, Y, np.abs(X))),
    "lerp-number": (mine.interpolate, torchs.interpolate, (X, Y, 0.3)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_values_and_both_gradients_are_pytorchs(name):
    ours, theirs, operands = CASES[name]
    assert_same(ours, theirs, *operands)


def test_the_gradient_of_a_length_of_zero_is_zero():
    assert_same(
        partial(mine.norm, axis=1),
        partial(torch.linalg.vector_norm, dim=1),
        ZERO_ROWS,
        second=None,  # PyTorch's is not a number there
    )


def test_the_normal_length_of_nothing_is_divided_by_1e_minus_12():
    x = np.array([[3e-13, 4e-13], [0.0, 0.0]])
    ours = mine.normalize(tf.constant(x)).numpy()
    np.testing.assert_array_equal(ours, torch.nn.functional.normalize(torch.tensor(x), dim=-1).numpy())


NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
OPERANDS = [*itertools.product(NAMES, ((), (2,))), True, 3, 0.5]


def made(operand, zeros, types):
    """Return an operand in a framework: a tensor of a type and shape, or a number."""
    return zeros(operand[1], dtype=vars(types)[operand[0]]) if isinstance(operand, tuple) else operand


def test_two_operands_of_any_types_become_what_they_become_in_pytorch():
    for pair in itertools.product(OPERANDS, OPERANDS):
        expected = torch.result_type(*(made(each, torch.zeros, torch) for each in pair)) if any_tensor(pair) else None
        if expected is not None:
            ours = result_type([made(each, tf.zeros, tf) for each in pair])
            assert ours.name == str(expected).removeprefix("torch."), pair


def any_tensor(pair) -> bool:
    """Return whether one of two operands is a tensor."""
    return any(isinstance(each, tuple) for each in pair)


def test_whole_numbers_become_float32_where_the_result_is_no_whole_number():
    x = tf.constant([1, 4], tf.int64)
    results = [mine.sqrt(x), mine.exp(x), mine.log(x), mine.sigmoid(x), mine.tanh(x), mine.div(x, 2), mine.mul(x, 0.5)]
    assert {result.dtype for result in results} == {tf.float32}
    assert mine.div(x, 2).numpy().tolist() == [0.5, 2.0]


def test_whole_numbers_and_truth_values_add_up_in_int64():
    assert mine.reduce_sum(tf.constant([100, 100], tf.int8)).numpy() == 200
    assert mine.reduce_sum(tf.constant([True, True])).dtype == tf.int64


def test_numbers_of_python_are_taken_exactly_and_not_through_float32():
    assert typed(0.1, tf.float64).numpy() == 0.1
    assert tf.cast(0.1, tf.float64).numpy() != 0.1  # what TensorFlow does
    assert mine.add(tf.constant(0.0, tf.float64), 0.1).numpy() == 0.1
    assert mine.interpolate(0.1, 0.2, tf.constant(0.0, tf.float64)).numpy() == 0.1


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int32, tf.int64])
def test_one_hot_adds_a_last_axis_of_float32(dtype):
    hot = mine.one_hot(tf.constant([[2, 0]], dtype), 3)
    assert hot.numpy().tolist() == [[[0, 0, 1], [1, 0, 0]]]
    assert hot.dtype == tf.float32


def test_argmax_is_the_first_of_equal_ones_as_in_pytorch():
    x = np.array([[0.0, 2.0, 2.0], [1.0, 1.0, 0.0]])
    assert mine.argmax(tf.constant(x)).numpy().tolist() == torch.argmax(torch.tensor(x), 1).tolist()
    assert mine.argmax(tf.constant(x)).dtype == tf.int64


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order_when_they_are_sorted(descending):
    _, places = arranged.sort(tf.constant(TIED), 1, descending)
    expected = torch.sort(torch.tensor(TIED), stable=True, dim=1, descending=descending).indices
    assert places.numpy().tolist() == expected.tolist()
    assert places.dtype == tf.int64
    for k in (1, 4):
        first = arranged.topk(tf.constant(TIED), k, 1, largest=descending)[1].numpy()
        assert first.tolist() == expected[:, :k].tolist()
        assert torchs.topk(torch.tensor(TIED), k, 1, largest=descending)[1].tolist() == expected[:, :k].tolist()


def test_the_nearest_pixel_is_pytorchs_for_all_small_sizes():
    """Also where rounding in float32 decides: k * (old / new) may be a whole number or just less."""
    for old in range(1, 33):
        x = np.arange(old, dtype=np.float64)[None, None, None]
        for new in range(1, 100):
            ours = arranged.nearest(tf.constant(x), tf.constant(old), tf.constant(new), 3).numpy()
            assert ours.tolist() == F.interpolate(torch.tensor(x), size=(1, new)).tolist(), (old, new)


def test_split_refuses_unequal_parts():
    with pytest.raises(ValueError, match="cut into 4 equal parts"):
        mine.split(tf.zeros((2, 6)), 4)


def test_sizes_that_are_free_stay_free():
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None, 2], tf.int64)], autograph=False)
    def compute(x, indices):
        return mine.take_along(x, indices), mine.norm(x, axis=-1), *mine.split(x, 2)

    for batch in (1, 3):
        taken, length, first, _ = compute(tf.ones((batch, 4)), tf.zeros((batch, 2), tf.int64))
        assert (taken.shape, first.shape) == ((batch, 2), (batch, 2))
        assert length.numpy().tolist() == [math.sqrt(4)] * batch
    assert compute.experimental_get_tracing_count() == 1
