"""What resolving layers says of free sizes, nesting and traits, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.types.dimension import ShapeProblem
from compiler.types.layers import RULES, LayerTraits, resolve_layers
from graphspec.declare.layers import LAYERS, Layer

IMAGE = ("batch", 4, 9, 8)


def layers(*written):
    """Return layers as a document has them."""
    return tuple(Layer.model_validate(each) for each in written)


def test_every_layer_of_the_language_has_a_rule():
    assert set(RULES) == set(LAYERS)


def test_nested_residuals_extend_the_names_of_their_parameters():
    resolved = resolve_layers(layers("relu", {"residual": ["relu", {"residual": [{"linear": 3}]}]}), ("batch", 3))
    assert [tensor.name for tensor in resolved.parameters] == ["1.1.0.weight", "1.1.0.bias"]
    assert resolved.layers[1].layers[1].layers[0].path == "1.1.0"


def test_sizes_flow_from_layer_to_layer():
    stack = layers({"conv2d": {"out": 6, "kernel": 3}}, {"max_pool": 2}, "flatten", {"linear": 10})
    resolved = resolve_layers(stack, IMAGE)
    assert resolved.layers[3].options["in_features"] == 6 * 3 * 3
    assert resolved.output == ("batch", 10)


@pytest.mark.parametrize(
    ("written", "traits"),
    [
        (["relu", {"linear": 3}, {"layer_norm": {}}], LayerTraits()),
        (["dropout"], LayerTraits(rng=True)),
        (["batch_norm"], LayerTraits(buffers=True, batch_coupled=True)),
        ([{"residual": ["dropout"]}], LayerTraits(rng=True)),
        ([{"softmax": 0}], LayerTraits(batch_coupled=True)),
        ([{"softmax": -2}], LayerTraits(batch_coupled=True)),
        ([{"softmax": 1}], LayerTraits()),
        (["dropout", "batch_norm"], LayerTraits(buffers=True, rng=True, batch_coupled=True)),
    ],
)
def test_traits_are_those_of_all_layers_together(written, traits):
    assert resolve_layers(layers(*written), ("batch", 3)).traits == traits


def test_free_height_and_width_pass_through_convolutions():
    down, up = {"out": 8, "kernel": 4, "stride": 2, "padding": 1}, {"out": 3, "kernel": 4, "stride": 2, "padding": 1}
    free = ("batch", 3, "height", "width")
    assert resolve_layers(layers({"conv2d": down}), free).output == ("batch", 8, "height//2", "width//2")
    resolved = resolve_layers(
        layers({"conv2d": down}, {"conv_transpose2d": up}, "global_avg_pool", {"linear": 2}), free
    )
    assert resolved.output == ("batch", 2)


@given(
    size=st.integers(4, 40),
    windows=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.booleans()), max_size=4),
)
def test_a_free_size_becomes_a_formula_with_the_right_value(size, windows):
    kinds = ("conv2d", "conv_transpose2d")
    stack = layers(
        *({kinds[t]: {"out": 2, "kernel": k, "stride": s, "padding": min(p, k - 1)}} for k, s, p, t in windows)
    )
    free = resolve_layers(stack, ("batch", 2, "height", 4000)).output[2]
    try:
        known = resolve_layers(stack, ("batch", 2, size, 4000)).output[2]
    except ShapeProblem:
        return
    assert eval(str(free), {"height": size}) == known


@pytest.mark.parametrize(
    ("written", "shape", "path", "message"),
    [
        ([{"conv2d": {"out": 2, "kernel": 3}}, {"linear": 3}], IMAGE, (1,), "add `flatten` before this layer"),
        ([{"linear": 3}], ("batch",), (0,), r"shape \[batch\], expected \[batch, features\]"),
        ([{"linear": 3}], ("batch", "n"), (0,), "`n`, a size that is not known"),
        (["flatten", {"linear": 3}], ("batch", 2, "n"), (1,), r"`2\*n`, a size that is not known"),
        ([{"conv2d": {"out": 2, "kernel": 3}}], ("batch", 4), (0,), r"\[batch, channels, height, width\]"),
        ([{"conv2d": {"out": 2, "kernel": 10}}], IMAGE, (0,), r"height and width \[0, -1\].*at least one pixel"),
        ([{"conv2d": {"out": 2, "kernel": 1, "groups": 3}}], IMAGE, (0,), "4 channels in, `groups: 3`"),
        ([{"conv2d": {"out": 3, "kernel": 1, "groups": 2}}], IMAGE, (0,), "3 channels out, `groups: 2`"),
        ([{"conv_transpose2d": {"out": 2, "kernel": 3, "output_padding": 1}}], IMAGE, (0,), "less than `stride`"),
        ([{"conv_transpose2d": {"out": 2, "kernel": 1, "padding": 4}}], IMAGE, (0,), "at least one pixel"),
        (["batch_norm"], ("batch",), (0,), "two to four axes"),
        (["batch_norm"], ("batch", 2, 3, 4, 5), (0,), "two to four axes"),
        (["layer_norm"], ("batch", "n"), (0,), "known number of features"),
        ([{"group_norm": 3}], IMAGE, (0,), "4 channels, `groups: 3`"),
        ([{"reshape": [3, 5]}], ("batch", 12), (0,), "12 elements .* expected 15 elements"),
        ([{"reshape": [5, -1]}], ("batch", 12), (0,), "expected a multiple of 5"),
        ([{"reshape": [-1, -1]}], ("batch", 12), (0,), "-1 at most once"),
        (["relu", {"residual": ["relu", {"linear": 4}]}], ("batch", 3), (1,), "keep the shape"),
        ([{"residual": [{"linear": 1}]}], ("batch", 3), (0,), "keep the shape"),
        ([{"residual": ["flatten"]}], ("batch", 3, 1), (0,), "keep the shape"),
        (
            [{"residual": ["relu", {"residual": ["global_avg_pool"]}]}],
            ("batch", 3),
            (0, "residual", 1, "residual", 0),
            "channels, height",
        ),
        ([{"max_pool": {"kernel": 2, "padding": 2}}], IMAGE, (0,), "at most half the kernel"),
        ([{"max_pool": 10}], IMAGE, (0,), "at least one pixel"),
        (["global_avg_pool"], ("batch", 3), (0,), r"shape \[batch, 3\]"),
        ([{"upsample": 2}], ("batch", 3), (0,), r"shape \[batch, 3\]"),
        ([{"softmax": 2}], ("batch", 3), (0,), "an axis from -2 to 1"),
        (["flatten"], ("batch",), (0,), "at least two axes"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_at_its_layer(written, shape, path, message):
    with pytest.raises(ShapeProblem, match=message) as caught:
        resolve_layers(layers(*written), shape)
    assert caught.value.path == path


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool"])
def test_an_embedding_needs_indices(dtype):
    with pytest.raises(ShapeProblem, match=f"dtype {dtype}, expected indices"):
        resolve_layers(layers({"embedding": {"count": 3, "size": 2}}), ("batch",), dtype)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_layers_that_compute_need_floating_inputs(dtype):
    with pytest.raises(ShapeProblem, match=f"dtype {dtype}, expected a floating-point dtype for `linear`"):
        resolve_layers(layers("flatten", {"linear": 2}), ("batch", 2), dtype)


def test_layers_that_only_arrange_keep_the_dtype():
    assert resolve_layers(layers("identity", "flatten", {"reshape": [2, 2]}), ("batch", 4), "uint8").dtype == "uint8"


@pytest.mark.parametrize("options", [{"out": "many"}, {"out": True}, {}])
def test_an_option_of_the_wrong_type_is_a_problem_and_no_crash(options):
    with pytest.raises(ShapeProblem, match="`out` to be a whole number"):
        resolve_layers(layers({"linear": options}), ("batch", 4))
