"""Inferred shapes and dtypes of built-in calls against what torch computes."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.value import Constant
from compiler.types.dimension import ShapeProblem, TensorType
from compiler.types.dtype import promote
from compiler.types.infer import infer_call
from graphspec.declare.subscripts import read_subscript

SIZES = {"batch": 3, "max": max, "min": min}
DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")

dimensions = st.sampled_from([1, 2, 3, "batch"])
shapes = st.lists(dimensions, max_size=4).map(tuple)
numbers = st.lists(st.sampled_from([1, 2, 3]), max_size=4).map(tuple)


def tensor(shape, dtype="float32"):
    """Return a tensor of that shape, free sizes filled in."""
    return torch.ones([SIZES[size] if isinstance(size, str) else size for size in shape], dtype=getattr(torch, dtype))


def value_of(shape):
    """Return a shape with the formulas of its sizes worked out."""
    return tuple(size if isinstance(size, int) else eval(size, dict(SIZES)) for size in shape)


def check(name, function, given_shapes, options=None, *, exact):
    """Compare what is inferred with what torch does; ``exact``: torch refuses whatever we refuse and conversely."""
    try:
        results = function(*map(tensor, given_shapes))
    except (RuntimeError, IndexError):
        results = None
    try:
        inferred = infer_call(name, [TensorType(shape, "float32") for shape in given_shapes], options or {})
    except ShapeProblem:
        assert results is None
        return
    if results is None:
        assert not exact
        return
    expected = results if isinstance(results, tuple) else (results,)
    assert [value_of(each.shape) for each in inferred] == [tuple(each.shape) for each in expected]
    assert [f"torch.{each.dtype}" for each in inferred] == [str(each.dtype) for each in expected]


def is_exact(*given_shapes):
    """Return whether no size is free."""
    return not any(isinstance(size, str) for size in itertools.chain(*given_shapes))


@given(a=shapes, b=shapes)
def test_arithmetic_broadcasts_as_torch_does(a, b):
    check("add", torch.add, (a, b), exact=is_exact(a, b))
    check("div", torch.div, (a, b), exact=is_exact(a, b))


@given(a=shapes, b=shapes, c=shapes)
def test_three_operands_broadcast_as_torch_does(a, b, c):
    check("lerp", torch.lerp, (a, b, c), exact=is_exact(a, b, c))
    check("mul", lambda x, y, z: x * y * z, (a, b, c), exact=is_exact(a, b, c))


@given(a=shapes, b=shapes)
def test_choices_powers_and_comparisons_broadcast_as_torch_does(a, b):
    for name, function in {"minimum": torch.minimum, "maximum": torch.maximum, "pow": torch.pow, **COMPARED}.items():
        check(name, function, (a, b), exact=is_exact(a, b))


COMPARED = {
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "equal": torch.eq,
    "not_equal": torch.ne,
}


@given(a=shapes, b=shapes)
def test_matmul_multiplies_as_torch_does(a, b):
    check("matmul", torch.matmul, (a, b), exact=is_exact(a, b))


REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin, "logsumexp": torch.logsumexp}


@given(name=st.sampled_from(sorted(REDUCTIONS)), shape=shapes, axis=st.integers(-5, 4), keepdims=st.booleans())
def test_reductions_take_axes_away_as_in_torch(name, shape, axis, keepdims):
    options = {"axis": axis, "keepdims": keepdims}
    check(name, lambda x: REDUCTIONS[name](x, dim=axis, keepdim=keepdims), (shape,), options, exact=True)


@given(shape=shapes.filter(lambda shape: len(shape) > 1), keepdims=st.booleans())
def test_reductions_over_several_axes(shape, keepdims):
    options = {"axis": [0, -1], "keepdims": keepdims}
    check("sum", lambda x: torch.sum(x, dim=(0, -1), keepdim=keepdims), (shape,), options, exact=True)
    check("norm", lambda x: torch.linalg.vector_norm(x, dim=(0, -1)), (shape,), {"axis": [0, -1]}, exact=True)


@given(shape=shapes, axis=st.integers(-5, 4))
def test_functions_along_one_axis(shape, axis):
    check("softmax", lambda x: torch.softmax(x, axis), (shape,), {"axis": axis}, exact=True)
    check("log_softmax", lambda x: torch.log_softmax(x, axis), (shape,), {"axis": axis}, exact=True)
    check("normalize", lambda x: F.normalize(x, dim=axis), (shape,), {"axis": axis}, exact=True)
    check("argmax", lambda x: torch.argmax(x, axis), (shape,), {"axis": axis}, exact=True)


@given(shape=shapes.filter(bool), axis=st.integers(-5, 4), k=st.integers(1, 4))
def test_what_is_added_up_moved_and_sorted_along_an_axis(shape, axis, k):
    check("cumsum", lambda x: torch.cumsum(x, axis), (shape,), {"axis": axis}, exact=True)
    check("roll", lambda x: torch.roll(x, k, axis), (shape,), {"axis": axis, "shifts": k}, exact=True)
    check("sort", lambda x: tuple(torch.sort(x, axis)), (shape,), {"axis": axis}, exact=True)
    exact = is_exact(shape)
    check("topk", lambda x: tuple(torch.topk(x, k, axis)), (shape,), {"axis": axis, "k": k}, exact=exact)


@given(shape=numbers, added=st.lists(st.integers(0, 3), min_size=1, max_size=7))
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pad_adds_as_torch_does(mode, shape, added):
    check("pad", lambda x: F.pad(x, added, mode), (shape,), {"pad": added, "method": mode}, exact=mode == "constant")


@given(shape=st.lists(dimensions, min_size=3, max_size=5).map(tuple), size=st.integers(1, 5))
def test_interpolate_gives_the_sizes_of_torch(shape, size):
    def resize(x):
        return F.interpolate(x, mode="bilinear", size=size)

    check("interpolate", resize, (shape,), {"size": size}, exact=True)
    if len(shape) == 4:
        check("interpolate", lambda x: F.interpolate(x, scale_factor=size), (shape,), {"factor": size}, exact=True)


axes = st.permutations("ijkl").flatmap(lambda every: st.integers(1, 4).map(lambda count: "".join(every[:count])))


@given(a=numbers, b=numbers)
def test_outer_takes_vectors_as_in_torch(a, b):
    check("outer", torch.outer, (a, b), exact=True)


@given(left=axes, right=axes, data=st.data())
def test_einsum_multiplies_as_torch_does(left, right, data):
    sizes = {"i": 2, "j": "batch", "k": 1, "l": 4}
    result = "".join(data.draw(st.lists(st.sampled_from(sorted({*left, *right})), unique=True)))
    equation = f"{left}, {right} -> {result}"
    factors = [tuple(sizes[axis] for axis in each) for each in (left, right)]
    check("einsum", lambda x, y: torch.einsum(equation, x, y), factors, {"equation": equation}, exact=True)


@pytest.mark.parametrize(
    ("name", "operands", "options", "wrong"),
    [
        ("einsum", [(2, 3), (3, 2)], {"equation": "ij->i"}, "2 factors for `ij->i`"),
        ("einsum", [(2, 3), (4, 2)], {"equation": "ij,jk->ik"}, "size 4 of the axis `j`"),
        ("einsum", [(2, 3)], {"equation": "ijk->i"}, "as many axes as in `ijk`"),
        ("outer", [(2, 3), (3,)], {}, "a vector for `outer`"),
        ("topk", [(2, 3)], {"k": 4}, "`k: 4` of 3 elements"),
        ("sort", [()], {}, "a scalar"),
        ("pad", [(2, 3)], {"pad": 1}, "two numbers for each axis"),
        ("pad", [(2, 3)], {"pad": [1, 1, 1, 1, 0, 0]}, "at most 2 axes"),
        ("pad", [(2, 3)], {"pad": [3, 0], "method": "reflect"}, "less than 3"),
        ("pad", [(2, 3)], {"pad": [1, 0], "method": "reflect", "value": 1.0}, "`value: 1.0` with `method: reflect`"),
        ("pad", [(2, 1, 4, 4)], {"pad": [1, 0], "method": "replicate"}, "one to three axes"),
        ("interpolate", [(2, 1, 4, 4)], {}, "neither `size` nor `factor`"),
        ("interpolate", [(2, 1, 4, 4)], {"size": 2, "factor": 2}, "both `size` and `factor`"),
        ("interpolate", [(2, 4, 4)], {"size": 2}, "[batch, channels, height, width]"),
    ],
)
def test_what_these_calls_refuse(name, operands, options, wrong):
    with pytest.raises(ShapeProblem, match=re.escape(wrong)):
        infer_call(name, [TensorType(shape, "float32") for shape in operands], options)


@pytest.mark.parametrize("name", ["cumsum", "sort", "topk", "pad", "interpolate", "einsum"])
def test_dtypes_of_these_calls(name):
    options = {"topk": {"k": 1}, "pad": {"pad": [1, 1]}, "interpolate": {"size": 2}, "einsum": {"equation": "abcd->a"}}
    shape, given_options = (1, 2, 3, 4), options.get(name, {})
    for dtype in ("int32", "float64"):
        whole = {"cumsum": ["int64"], "sort": [dtype, "int64"], "topk": [dtype, "int64"], "interpolate": None}
        expected = whole.get(name, [dtype]) if dtype == "int32" else [dtype, "int64"][: 1 + (name in ("sort", "topk"))]
        if expected is None:
            with pytest.raises(ShapeProblem, match="floating-point"):
                infer_call(name, [TensorType(shape, dtype)], given_options)
        else:
            assert [each.dtype for each in infer_call(name, [TensorType(shape, dtype)], given_options)] == expected
    with pytest.raises(ShapeProblem, match="numbers for `sort`"):
        infer_call("sort", [TensorType(shape, "bool")], {})


@given(parts=st.lists(shapes, min_size=1, max_size=3), axis=st.integers(-4, 3))
def test_concat_and_stack_join_as_torch_does(parts, axis):
    check("concat", lambda *x: torch.cat(x, axis), parts, {"axis": axis}, exact=is_exact(*parts))
    check("stack", lambda *x: torch.stack(x, axis), parts, {"axis": axis}, exact=is_exact(*parts))


@given(lengths=st.lists(dimensions, min_size=1, max_size=3), axis=st.integers(0, 2))
def test_parts_that_differ_along_the_axis_alone_are_concatenated(lengths, axis):
    parts = [(*("batch", 2, 5)[:axis], length, *("batch", 2, 5)[axis + 1 :]) for length in lengths]
    check("concat", lambda *x: torch.cat(x, axis), parts, {"axis": axis}, exact=True)
    (joined,) = infer_call("concat", [TensorType(part) for part in parts], {"axis": axis - 3})
    assert value_of(joined.shape)[axis] == sum(value_of(lengths))


@given(length=st.integers(1, 12), sections=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_split_by_sizes_as_in_torch(length, sections):
    options = {"sections": sections, "axis": 1}
    check("split", lambda x: x.split(sections, 1), ((2, length),), options, exact=True)


@pytest.mark.parametrize(("length", "count"), [(6, 1), (6, 3), (8, 2)])
def test_split_into_equal_parts(length, count):
    check("split", lambda x: x.chunk(count, 0), ((length, "batch"),), {"sections": count, "axis": 0}, exact=True)


@given(length=st.integers(1, 6), start=st.integers(-7, 7), stop=st.none() | st.integers(-7, 7))
def test_slice_has_as_many_elements_as_in_python(length, start, stop):
    size = len(range(length)[start:stop])
    options = {"start": start, "stop": stop, "axis": 0}
    if size:
        assert infer_call("slice", [TensorType((length, 2), "float32")], options) == (TensorType((size, 2), "float32"),)
    else:
        with pytest.raises(ShapeProblem, match="at least one element"):
            infer_call("slice", [TensorType((length, 2))], options)


places = (
    st.integers(-4, 3).map(str)
    | st.just("None")
    | st.builds(
        "{}:{}:{}".format, *[st.sampled_from(["", *map(str, range(-4, 5))])] * 2, st.sampled_from(["", "1", "2", "3"])
    )
)


@given(shape=shapes, at=st.lists(places, min_size=1, max_size=4).map(", ".join))
def test_subscripts_take_what_python_takes(shape, at):
    try:
        (inferred,) = infer_call("subscript", [TensorType(shape, "float32")], {"at": read_subscript(at)})
    except ShapeProblem:
        inferred = None
    try:
        expected = eval(f"x[{at}]", {"x": tensor(shape)}).shape
    except IndexError:
        assert inferred is None or not is_exact(shape)  # of a free size it is not known where it ends
        return
    if inferred is None:
        assert 0 in expected
    elif is_exact(shape) or 0 not in expected:
        names = {"batch": Batch(SIZES["batch"])}
        assert [size if isinstance(size, int) else eval(size, names) for size in inferred.shape] == list(expected)


class Batch(int):
    """A size of which slices are taken: ``batch[1:]`` is how many elements that leaves."""

    def __getitem__(self, taken):
        """Return the length of a range of this size, cut."""
        return len(range(self)[taken])


@given(shape=numbers, target=st.lists(st.sampled_from([-1, 1, 2, 3, 4, 6]), max_size=4))
def test_reshape_keeps_the_number_of_elements_as_torch_does(shape, target):
    check("reshape", lambda x: x.reshape(target), (shape,), {"shape": target}, exact=True)


@given(sizes=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([-1, 1, 2, 3])), max_size=4))
def test_expand_repeats_axes_as_torch_does(sizes):
    shape, target = tuple(old for old, _ in sizes), [new for _, new in sizes]
    check("expand", lambda x: x.expand(target), (shape,), {"shape": target}, exact=True)


@given(shape=shapes, dims=st.permutations([0, 1, -1]) | st.permutations([0, 1, 2, 3]))
def test_permute_orders_the_axes_as_torch_does(shape, dims):
    check("permute", lambda x: x.permute(dims), (shape,), {"dims": dims}, exact=True)


@given(source=numbers, indices=numbers, axis=st.integers(-3, 2))
def test_gather_takes_the_shape_of_its_indices(source, indices, axis):
    operands = [TensorType(source, "float32"), TensorType(indices, "int64")]
    try:
        expected = torch.gather(tensor(source), axis, torch.zeros(indices, dtype=torch.int64))
    except (RuntimeError, IndexError):
        with pytest.raises(ShapeProblem, match="expected"):
            infer_call("gather", operands, {"axis": axis})
    else:
        if len(source) == len(indices):  # torch reads a number as a vector of one
            assert infer_call("gather", operands, {"axis": axis}) == (TensorType(tuple(expected.shape), "float32"),)


KEPT = {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "relu": torch.relu, "square": torch.square}
REAL = {"sqrt": torch.sqrt, "exp": torch.exp, "log": torch.log, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


@pytest.mark.parametrize("name", [*KEPT, *REAL, "sum", "max", "argmax", "clip"])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_unary_functions_return_the_dtype_of_torch(name, dtype):
    functions = {**KEPT, **REAL, "sum": torch.sum, "max": torch.amax, "argmax": torch.argmax}
    function = functions.get(name, lambda x: torch.clamp(x, 0.5))
    options = {"clip": {"min": 0.5}, "argmax": {"axis": 0}}.get(name, {})
    (inferred,) = infer_call(name, [TensorType((2,), dtype)], options)
    assert f"torch.{inferred.dtype}" == str(function(torch.ones(2).to(getattr(torch, dtype))).dtype)


OPERANDS = [
    *((TensorType((2,), dtype), torch.ones(2).to(getattr(torch, dtype))) for dtype in DTYPES),
    *((TensorType((), dtype), torch.ones(()).to(getattr(torch, dtype))) for dtype in DTYPES),
    *((Constant(value=value), value) for value in (True, 1, 1.5)),
]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(OPERANDS, 2)))
def test_mixed_dtypes_are_promoted_as_torch_does(first, second):
    if isinstance(first[1], torch.Tensor):
        assert f"torch.{promote(first[0], second[0])}" == str(torch.result_type(first[1], second[1]))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(OPERANDS, OPERANDS)))
def test_powers_have_the_dtype_of_torch_and_whole_ones_are_counted(first, second):
    if not any(isinstance(each[1], torch.Tensor) for each in (first, second)):
        return
    try:
        (inferred,) = infer_call("pow", [first[0], second[0]], {})
    except ShapeProblem:
        whole = [promote(each[0]) in ("bool", "uint8", "int32", "int64") for each in (first, second)]
        assert all(whole)
        assert isinstance(second[1], torch.Tensor | bool)
    else:
        assert f"torch.{inferred.dtype}" == str((first[1] ** second[1]).dtype)


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("pow", [TensorType((2,), "int64"), Constant(value=-1)], "the exponent -1, expected a number from 0 up"),
        ("pow", [TensorType((2,), "bool"), TensorType((2,), "int32")], "multiply it by 1.0"),
        ("less", [TensorType((2,), "bool"), TensorType((2,), "bool")], "expected numbers for `less`"),
        ("sub", [Constant(value=1), TensorType((2,), "bool")], "`{call: logical_not, inputs: x}`"),
        ("neg", [TensorType((2,), "bool")], "expected numbers for `neg`"),
        ("minimum", [TensorType((2,), "bool"), Constant(value=True)], "`logical_and`"),
        ("logical_and", [TensorType((2,), "bool"), TensorType((2,), "float32")], "`{call: greater, inputs: "),
        ("logical_or", [Constant(value=1), TensorType((2,), "bool")], "dtype int64, expected a mask"),
        ("logical_not", [TensorType((2,), "uint8")], "a mask of dtype bool for `logical_not`"),
    ],
)
def test_what_masks_and_whole_numbers_cannot_do_is_refused(name, operands, message):
    with pytest.raises(ShapeProblem, match=re.escape(message)):
        infer_call(name, operands, {})


@given(condition=shapes, a=shapes, b=shapes)
def test_where_broadcasts_as_torch_does(condition, a, b):
    operands = [TensorType(condition, "bool"), TensorType(a, "float32"), TensorType(b, "int64")]
    try:
        expected = torch.where(tensor(condition, "bool"), tensor(a), tensor(b, "int64"))
    except RuntimeError:
        return
    (inferred,) = infer_call("where", operands, {})
    assert value_of(inferred.shape) == tuple(expected.shape)
    assert f"torch.{inferred.dtype}" == str(expected.dtype)


def test_a_condition_that_is_no_bool_is_refused():
    with pytest.raises(ShapeProblem, match="use `lerp` with the mask as weight"):
        infer_call("where", [TensorType(("batch",), "float32"), Constant(value=1), Constant(value=0)], {})


def test_factors_of_different_dtypes_are_refused():
    with pytest.raises(ShapeProblem, match="dtype float16, expected dtype float32"):
        infer_call("matmul", [TensorType((2, 2), "float32"), TensorType((2, 2), "float16")], {})


@pytest.mark.parametrize("options", [{}, {"min": None}])
def test_clip_without_limits_is_refused(options):
    with pytest.raises(ShapeProblem, match="at least one limit"):
        infer_call("clip", [TensorType((2,), "float32")], options)


def test_a_wrong_number_of_operands_is_refused():
    with pytest.raises(ShapeProblem, match="3 operands, expected a, b"):
        infer_call("sub", [TensorType()] * 3, {})


def test_one_hot_adds_a_floating_axis():
    assert infer_call("one_hot", [TensorType(("batch",), "int64")], {"classes": 10}) == (
        TensorType(("batch", 10), "float32"),
    )
