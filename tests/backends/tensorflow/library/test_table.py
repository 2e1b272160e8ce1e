"""The table knows every built-in, and what it builds is what the compiler resolved; the library stands alone."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from compiler.types.layers import resolve_layers
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.library import CALLS, LOSSES, METRICS
from runtime.backends.tensorflow.library import table

LIBRARY = Path(table.__file__).parent
PACKAGE = "runtime.backends.tensorflow.library"
PATHS = [path for path in sorted(LIBRARY.glob("*.py")) if path.stem not in ("__init__", "table")]
MODULES = {path.stem: path.read_text() for path in PATHS}
IMAGE, ROW, TEXT = ("batch", 4, 8, 8), ("batch", 6), ("batch", 3, 6)
CASES = {
    "linear": (ROW, {"out": 5}),
    "linear without bias": (TEXT, {"out": 5, "bias": False}),
    "conv2d": (IMAGE, {"out": 6, "kernel": 3}),
    "conv2d with all": (
        IMAGE,
        {"out": 6, "kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": 2, "groups": 2, "bias": False},
    ),
    "conv_transpose2d": (IMAGE, {"out": 6, "kernel": 4, "stride": 2, "padding": 1, "output_padding": 1}),
    "batch_norm": (IMAGE, {}),
    "batch_norm of rows": (ROW, {"eps": 1e-3, "momentum": 0.5}),
    "batch_norm of sequences": (TEXT, {"affine": False}),
    "layer_norm": (TEXT, {"eps": 1e-3}),
    "rms_norm": (TEXT, {"eps": 1e-3}),
    "instance_norm": (IMAGE, {}),
    "instance_norm of sequences": (TEXT, {"affine": True, "eps": 1e-3}),
    "conv1d": (TEXT, {"out": 5, "kernel": 2}),
    "conv1d with all": (
        TEXT,
        {"out": 6, "kernel": 3, "stride": 2, "padding": 1, "dilation": 2, "groups": 3, "bias": False},
    ),
    "positional": (TEXT, {}),
    "positional with a count": (TEXT, {"count": 9}),
    "positional sinusoidal": (TEXT, {"method": "sinusoidal"}),
    "multi_head_attention": (TEXT, {"heads": 2}),
    "multi_head_attention with all": (TEXT, {"heads": 3, "causal": True, "dropout": 0.0, "bias": False}),
    **{name: (TEXT, {"size": 4}) for name in ("lstm", "gru")},
    **{f"{name} with all": (TEXT, {"size": 4, "bidirectional": True, "last": True}) for name in ("lstm", "gru")},
    "group_norm": (IMAGE, {"groups": 2}),
    "dropout": (ROW, {"p": 0.0}),
    "flatten": (IMAGE, {}),
    "reshape": (ROW, {"shape": [2, -1]}),
    "reshape to a row": (IMAGE, {"shape": 256}),
    "avg_pool": (IMAGE, {"kernel": 2}),
    "avg_pool with padding": (IMAGE, {"kernel": [2, 4], "stride": 1, "padding": [1, 2]}),
    "max_pool": (IMAGE, {"kernel": 3, "stride": 2, "padding": 1}),
    "global_avg_pool": (IMAGE, {}),
    "upsample": (IMAGE, {"factor": 2, "mode": "bilinear"}),
    "upsample nearest": (IMAGE, {"factor": 3}),
    **{name: (ROW, {}) for name in ("relu", "gelu", "silu", "tanh", "sigmoid", "identity")},
    "leaky_relu": (ROW, {"slope": 0.2}),
    "elu": (ROW, {"alpha": 0.5}),
    "softmax": (TEXT, {"axis": 1}),
}


def pasted() -> dict[str, object]:
    """Return what the whole library defines when it is pasted into one file, without this project."""
    done, text = [], ["from __future__ import annotations"]

    def paste(stem):
        """Append a module behind what it imports."""
        if stem in done:
            return
        done.append(stem)
        for line in MODULES[stem].split("\n"):
            if line.startswith(f"from {PACKAGE}."):
                paste(line.removeprefix(f"from {PACKAGE}.").partition(" ")[0])
        tree = ast.parse(MODULES[stem])
        kept = [each for each in tree.body if not (isinstance(each, ast.ImportFrom) and is_own(each.module))]
        text.append(ast.unparse(ast.Module(kept, [])))

    for stem in MODULES:
        paste(stem)
    names: dict[str, object] = {"__name__": "pasted"}
    exec(compile("\n".join(text), "pasted", "exec"), names)
    return names


def is_own(module: str | None) -> bool:
    """Return whether an import is of this project, or of the future, which is at the top already."""
    return module == "__future__" or (module or "").startswith(PACKAGE)


def is_shared(module: str | None) -> bool:
    """Return whether an import is of what the libraries of all frameworks share: it is copied with them."""
    return (module or "").startswith("runtime.support.")


NAMES = pasted()


OPERATORS = {"logical_and", "logical_or", "logical_not", "subscript", "either", "all_gather"}
"""Calls that are Python's operators, or their one operand, whatever the operands are."""


def test_every_built_in_is_in_the_table():
    assert set(table.LAYERS) == set(LAYERS)
    assert (set(table.LOSSES), set(table.METRICS)) == (set(LOSSES), set(METRICS))
    assert set(table.CALLS) == set(CALLS) - OPERATORS


def test_every_path_leads_to_something_of_tensorflow_or_the_library():
    callees = [*table.LAYERS.values(), *table.FLOATING.values(), *table.CONSTANT.values()]
    callees += [callee for family in table.FUNCTIONS.values() for callee in family.values()]
    for callee in callees:
        assert callable(eval(callee.path, {**NAMES, "tf": tf, "replicas": NAMES["Replicas"]})), callee.path


@pytest.mark.parametrize("name", CASES)
def test_layers_take_what_the_compiler_resolved_and_give_the_shape_it_foresaw(name):
    shape, options = CASES[name]
    resolved = resolve_layers((Layer.model_validate({name.partition(" ")[0]: options}),), shape)
    (declared,) = resolved.layers
    made = table.resolve_layer(declared.kind, declared.options)
    model = NAMES["Sequential"](NAMES[made.path](*made.positional, **made.keywords))
    y = model(tf.zeros((2, *shape[1:])), training=True)
    assert tuple(y.shape) == (2, *resolved.output[1:])
    tensors = {**model.named_parameters(), **model.named_buffers()}
    assert {key: tuple(each.shape) for key, each in tensors.items()} == {
        each.name: each.shape for each in (*resolved.parameters, *resolved.buffers)
    }


def test_options_at_their_defaults_are_not_passed():
    resolved = table.resolve_function("call", "sum", {"axis": None, "keepdims": False})
    assert (resolved.path, resolved.keywords) == ("reduce_sum", {})
    assert table.resolve_function("call", "concat", {"axis": 1}).keywords == {}
    assert table.resolve_function("call", "concat", {}, floating=True).keywords == {"axis": 1}
    assert table.resolve_function("call", "permute", {"dims": (1, 0)}).positional == ((1, 0),)
    assert table.resolve_function("loss", "huber", {"delta": 2.0, "reduction": "mean"}).keywords == {"delta": 2.0}


def test_names_are_unique_over_the_library():
    trees = [ast.parse(text) for text in MODULES.values()]
    kinds = (ast.FunctionDef, ast.ClassDef)
    defined = Counter(node.name for tree in trees for node in tree.body if isinstance(node, kinds))
    assert [name for name, count in defined.items() if count > 1] == []


def test_the_library_needs_nothing_but_tensorflow_numpy_and_the_standard_library():
    imports = [node for text in MODULES.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)]
    members = [n for text in MODULES.values() for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    roots = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    roots |= {
        (node.module or "").partition(".")[0]
        for node in members
        if not is_own(node.module) and not is_shared(node.module)
    }
    assert roots <= {"tensorflow", "numpy", *sys.stdlib_module_names}


def test_the_pasted_library_trains_a_model():
    model = NAMES["Sequential"](NAMES["Linear"](2, 1))
    NAMES["set_initial"](model, 0, "net", {"0.weight": ("normal", 1.0)})
    adam = NAMES["Adam"](model.parameters(), lr=0.1)
    x, wanted = tf.constant(np.eye(2), tf.float32), tf.constant([[1.0], [-1.0]])

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = NAMES["mse"](model(x, training=True), wanted)
        adam.apply(NAMES["gradients"](tape, loss, model.parameters()))
        return loss

    losses = [float(step()) for _ in range(60)]
    assert losses[-1] < 0.01 < losses[0]
