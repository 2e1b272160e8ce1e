"""Models are read in each of their four ways; layers keep what is written, shorthands expanded."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.models import ModelSpec


@pytest.mark.parametrize(
    ("written", "kind", "options"),
    [
        ("relu", "relu", {}),
        ({"linear": 64}, "linear", {"out": 64}),
        ({"linear": {"out": 64, "bias": False}}, "linear", {"out": 64, "bias": False}),
        ({"max_pool": [2, 1]}, "max_pool", {"kernel": [2, 1]}),
        ({"reshape": [1, 8, 8]}, "reshape", {"shape": [1, 8, 8]}),
        ({"leaky_relu": 0.2}, "leaky_relu", {"slope": 0.2}),
        ({"flatten": {}}, "flatten", {}),
        ({"batch_norm": None}, "batch_norm", {}),
    ],
)
def test_a_layer_keeps_its_options_under_their_names(written, kind, options):
    layer = Layer.model_validate(written)
    assert (layer.kind, layer.options, layer.layers) == (kind, options, ())


def test_a_residual_holds_layers():
    layer = Layer.model_validate({"residual": ["relu", {"residual": [{"linear": 3}]}]})
    assert [inner.kind for inner in layer.layers] == ["relu", "residual"]
    assert layer.layers[1].layers[0].options == {"out": 3}


@pytest.mark.parametrize("written", [3, None, [], ["relu"], {}, {"linear": 3, "relu": {}}])
def test_what_is_no_layer_is_refused(written):
    with pytest.raises(ValidationError, match="expected a layer"):
        Layer.model_validate(written)


def test_the_language_has_its_32_layers():
    names = """linear conv1d conv2d conv_transpose2d batch_norm instance_norm layer_norm rms_norm group_norm
    spectral_norm positional multi_head_attention lstm gru embedding dropout flatten reshape avg_pool max_pool
    global_avg_pool upsample residual relu leaky_relu gelu silu elu tanh sigmoid softmax identity"""
    assert list(LAYERS) == names.split()


@pytest.mark.parametrize(
    ("written", "torch", "tensorflow"),
    [
        ("zoo.gan:G", "zoo.gan:G", "zoo.gan:G"),
        ({"torch": "a:B", "tensorflow": "c.d:E"}, "a:B", "c.d:E"),
        ({"torch": "a:B.C"}, "a:B.C", None),
    ],
)
def test_a_class_has_a_path_for_each_backend(written, torch, tensorflow):
    model = ModelSpec.model_validate({"class": written, "args": {"n": 3}})
    assert model.kind == "class"
    assert (model.class_path("torch"), model.class_path("tensorflow")) == (torch, tensorflow)
    assert model.class_path("jax") is None


@pytest.mark.parametrize("written", ["zoo.gan.G", "zoo:", ":G", "a b:C", "zoo/gan.py:G", "zoo.gan:G()"])
def test_a_path_without_its_colon_is_no_class(written):
    with pytest.raises(ValidationError, match="expected the path of a class"):
        ModelSpec.model_validate({"class": written})


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({}, "found none of them"),
        ({"class": "a:B", "like": "c"}, "found `class` and `like`"),
        ({"layers": []}, "at least one layer"),
        ({"layers": ["relu"], "args": {}}, "`args` goes with `class`"),
        ({"like": "a", "traits": {"rng": True}}, "`traits` goes with `class`"),
        ({"class": "a:B", "init": "copy"}, "`init` goes with `like`"),
        ({"parameter": {"shape": [0], "init": "zeros"}}, "greater than or equal to 1"),
        (
            {"parameter": {"shape": [], "init": {"schedule": "constant"}}},
            "a schedule is not allowed here: the value is read once",
        ),
        ({"class": "a:B", "groups": []}, "at least one group"),
        ({"class": "a:B", "precision": "float64"}, "Input should be 'float32', 'bfloat16' or 'float16'"),
    ],
)
def test_what_is_no_model_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        ModelSpec.model_validate(written)


@pytest.mark.parametrize("init", ["zeros", "ones", "normal", "uniform", 0.5, -1])
def test_a_parameter_starts_in_one_of_five_ways(init):
    model = ModelSpec.model_validate({"parameter": {"shape": [2, 3], "init": init}})
    assert model.kind == "parameter"
    assert model.parameter is not None
    assert (model.parameter.shape, model.parameter.init) == ((2, 3), init)
