"""The table: it knows every built-in, what it names exists, and what it builds is what the compiler resolved."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.types.layers import resolve_layers
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.library import CALLS, LOSSES, METRICS
from runtime.backends.torch.library import functions, layers, losses, metrics, sequences, table

ARITHMETIC = {"add", "sub", "mul", "div", "matmul", "neg", "pow"}
COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
OPERATORS = {*ARITHMETIC, *COMPARISONS, "logical_and", "logical_or", "logical_not", "subscript", "stop", "either"} | {
    "all_gather"
}
KNOWN = {"loss": set(LOSSES), "call": set(CALLS) - OPERATORS, "metric": set(METRICS)}
NAMES = {"F": functional, "nn": nn, "torch": torch}
for module in (functions, layers, losses, metrics, sequences):
    NAMES.update(vars(module))
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


def defined_names(tree: ast.Module) -> list[str]:
    """Return the names a module defines at its top."""
    targets = [target.id for each in tree.body if isinstance(each, ast.Assign) for target in each.targets]
    return targets + [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]


def find(path: str):
    """Return what a path of the table names."""
    first, *rest = path.split(".")
    return reduce(getattr, rest, NAMES[first])


def call(family: str, name: str, *operands, **options):
    """Call a built-in function as emitted code does."""
    literal = not all(isinstance(operand, torch.Tensor) for operand in operands)
    made = table.resolve_function(family, name, options, literal=literal)
    placed = (operands,) if made.gathered else (*made.before, operands[0], *made.first, *operands[1:])
    return find(made.path)(*placed, *made.positional, **made.keywords)


def construct(kind: str, options):
    """Construct a built-in layer as emitted code does."""
    made = table.resolve_layer(kind, options)
    return find(made.path)(*made.positional, **made.keywords)


@pytest.mark.parametrize("family", KNOWN)
def test_every_built_in_function_is_in_the_table(family):
    assert set(table.FUNCTIONS[family]) == KNOWN[family]


def test_every_layer_is_in_the_table():
    assert set(table.LAYERS) == set(LAYERS)


def test_the_table_is_read_without_a_framework():
    code = "import sys, runtime.backends.torch.library.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_definitions_have_unique_names_because_they_share_one_emitted_file():
    modules = [path for path in Path(table.__file__).parent.glob("*.py") if path.stem not in ("__init__", "table")]
    found = Counter(name for path in modules for name in defined_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert {"cosine", "cosine_distance"} <= set(found)
    assert [name for name, count in found.items() if count > 1] == []


@pytest.mark.parametrize("case", CASES)
def test_a_layer_has_the_parameters_and_the_shape_the_compiler_resolved(case):
    shape, options = CASES[case]
    kind = case.split()[0]
    resolved = resolve_layers((Layer.model_validate({kind: options}),), shape)
    layer = construct(kind, resolved.layers[0].options)
    held = {f"0.{name}": tuple(x.shape) for name, x in (*layer.named_parameters(), *layer.named_buffers())}
    assert held == {each.name: each.shape for each in (*resolved.parameters, *resolved.buffers)}
    given = torch.randn(2, *shape[1:], generator=torch.Generator().manual_seed(0))
    assert layer(given).shape == (2, *resolved.output[1:])


def test_options_of_layers_reach_them():
    norm = construct("batch_norm", {"num_features": 4, "eps": 1e-3, "momentum": 0.5, "affine": True, "rank": 4})
    assert (norm.eps, norm.momentum, norm.affine) == (1e-3, 0.5, True)
    assert construct("group_norm", {"num_groups": 2, "num_channels": 4, "eps": 0.5}).eps == 0.5
    assert construct("leaky_relu", {"negative_slope": 0.2}).negative_slope == 0.2
    assert construct("elu", {"alpha": 0.5}).alpha == 0.5
    assert construct("dropout", {"p": 0.25}).p == 0.25
    assert construct("embedding", {"num_embeddings": 5, "embedding_dim": 3}).weight.shape == (5, 3)


def test_what_a_callee_does_anyway_is_not_written():
    conv = {"in_channels": 1, "out_channels": 8, "kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}
    made = table.resolve_layer("conv2d", {**conv, "dilation": (1, 1), "groups": 1, "bias": True})
    assert (made.path, made.positional, made.keywords) == ("nn.Conv2d", (1, 8, 3), {"padding": 1})
    pool = table.resolve_layer("max_pool", {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)})
    assert (pool.positional, pool.keywords) == ((2,), {})
    loss = table.resolve_function("loss", "huber", {"delta": 1.0, "reduction": "mean"})
    assert (loss.path, loss.keywords) == ("F.huber_loss", {})


def test_losses_of_two_tensors_call_torch_itself_and_those_with_a_number_do_not():
    assert table.resolve_function("loss", "mse", {}).path == "F.mse_loss"
    assert table.resolve_function("loss", "mse", {}, literal=True).path == "mse"


X = torch.arange(12.0).reshape(3, 4) / 7 - 0.6
SLOT = torch.tensor([[3, 0], [1, 1], [2, 3]])
CALLED = [
    ("mean", (X,), {}, X.sum() / 12),
    ("mean", (X,), {"axis": [0], "keepdims": True}, X.sum(0, keepdim=True) / 3),
    ("mean", (X,), {"axis": None, "keepdims": True}, X.sum().reshape(1, 1) / 12),
    ("all_mean", (X,), {}, X.sum(0) / 3),
    ("max", (X,), {"keepdims": True}, X[2:, 3:]),
    ("sum", (X,), {"keepdims": True}, X.sum().reshape(1, 1)),
    ("sum", (X,), {"axis": (0, 1)}, X.sum()),
    ("max", (X,), {}, X[2, 3]),
    ("max", (X,), {"axis": 1, "keepdims": True}, X[:, 3:]),
    ("min", (X,), {"axis": (0,)}, X[0]),
    ("sqrt", (X**2,), {}, X.abs()),
    ("square", (X,), {}, X * X),
    ("exp", (torch.log(X + 1),), {}, X + 1),
    ("abs", (X,), {}, X * X.sign()),
    ("sign", (X,), {}, (X > 0).float() - (X < 0).float()),
    ("minimum", (X, -X), {}, -X.abs()),
    ("maximum", (X, -X), {}, X.abs()),
    ("minimum", (X, 0.0), {}, X * (X < 0)),
    ("maximum", (0, X), {}, X * (X > 0)),
    ("maximum", (SLOT, 1.5), {}, torch.tensor([[3.0, 1.5], [1.5, 1.5], [2.0, 3.0]])),
    ("clip", (X,), {"min": -0.5, "max": 0.5}, X.minimum(torch.tensor(0.5)).maximum(torch.tensor(-0.5))),
    ("clip", (X,), {"min": 0.0}, X * (X > 0)),
    ("norm", (X,), {}, (X * X).sum().sqrt()),
    ("norm", (X,), {"axis": 1}, (X * X).sum(1).sqrt()),
    ("normalize", (X,), {}, X / (X * X).sum(1, keepdim=True).sqrt()),
    ("normalize", (X,), {"axis": 0}, X / (X * X).sum(0, keepdim=True).sqrt()),
    ("softmax", (X,), {}, X.exp() / X.exp().sum(1, keepdim=True)),
    ("softmax", (X,), {"axis": 0}, X.exp() / X.exp().sum(0, keepdim=True)),
    ("log_softmax", (X,), {"axis": 0}, (X.exp() / X.exp().sum(0, keepdim=True)).log()),
    ("logsumexp", (X,), {}, X.exp().sum().log()),
    ("logsumexp", (X[0, 0],), {}, X[0, 0]),
    ("logsumexp", (X + 1000,), {"axis": 1}, X.exp().sum(1).log() + 1000),
    ("logsumexp", (X,), {"axis": (0, 1), "keepdims": True}, X.exp().sum().log().reshape(1, 1)),
    ("sigmoid", (X,), {}, 1 / (1 + (-X).exp())),
    ("softplus", (X,), {}, (1 + X.exp()).log()),
    ("softplus", (X.double() + 25,), {}, X.double() + 25 + torch.log1p(torch.exp(-X.double() - 25))),
    ("tanh", (X,), {}, (X.exp() - (-X).exp()) / (X.exp() + (-X).exp())),
    ("relu", (X,), {}, X * (X > 0)),
    ("concat", (X[:, :1], X[:, 1:]), {}, X),
    ("concat", (X[:1], X[1:]), {"axis": 0}, X),
    ("stack", (X[0], X[1], X[2]), {}, X),
    ("stack", (X[:, 0], X[:, 1], X[:, 2], X[:, 3]), {"axis": 1}, X),
    ("slice", (X,), {"start": 1, "stop": 3}, X[:, 1:3]),
    ("slice", (X,), {"start": -1, "axis": 0}, X[2:]),
    ("gather", (X, SLOT), {}, torch.stack([X[i, SLOT[i]] for i in range(3)])),
    ("gather", (X, SLOT.int()), {"axis": 1}, torch.stack([X[i, SLOT[i]] for i in range(3)])),
    ("reshape", (X,), {"shape": (2, -1)}, X.view(2, 6)),
    ("reshape", (X,), {"shape": -1}, X.view(12)),
    ("expand", (X[:, None],), {"shape": (-1, 2, 4)}, torch.stack([X, X], dim=1)),
    ("expand", (X[:1, 0],), {"shape": 5}, torch.stack([X[0, 0]] * 5)),
    ("permute", (X,), {"dims": (1, 0)}, X.T),
    ("one_hot", (SLOT[0],), {"classes": 4}, torch.eye(4)[SLOT[0]]),
    ("argmax", (X,), {}, torch.tensor([3, 3, 3])),
    ("norm", (X,), {"axis": 1, "keepdims": True}, (X * X).sum(1, keepdim=True).sqrt()),
    ("outer", (X[0], X[:, 0]), {}, X[0][:, None] * X[:, 0]),
    ("einsum", (X, X), {"equation": "bi,bj->ij"}, X.T @ X),
    ("cumsum", (X,), {}, torch.stack([X[:, : k + 1].sum(1) for k in range(4)], 1)),
    ("roll", (X,), {"shifts": 1}, torch.cat((X[:, 3:], X[:, :3]), 1)),
    ("roll", (X,), {"shifts": 1, "axis": 0}, torch.cat((X[2:], X[:2]))),
    ("pad", (X[:, :1],), {"pad": (1, 0), "value": 7.0}, torch.stack((torch.full((3,), 7.0), X[:, 0]), 1)),
    ("pad", (X[:, :3],), {"pad": (0, 1), "method": "reflect"}, X[:, (0, 1, 2, 1)]),
    ("interpolate", (X[None, None],), {"factor": 2}, X.repeat_interleave(2, 0).repeat_interleave(2, 1)[None, None]),
    ("argmax", (X,), {"axis": 0}, torch.tensor([2, 2, 2, 2])),
    ("where", (X > 0, X, 0.0), {}, X * (X > 0)),
    ("lerp", (X, X * 3, 0.5), {}, X * 2),
]


@pytest.mark.parametrize(("name", "operands", "options", "expected"), CALLED)
def test_calls_give_what_the_language_says(name, operands, options, expected):
    torch.testing.assert_close(call("call", name, *operands, **options), expected)


def test_split_gives_its_parts():
    first, second = call("call", "split", X, sections=2)
    assert torch.equal(torch.cat((first, second), dim=1), X)


def test_sort_and_topk_give_elements_and_their_indices():
    rising, places = call("call", "sort", -X, axis=0)
    assert torch.equal(rising, (-X).flip(0))
    assert places[:, 0].tolist() == [2, 1, 0]
    falling, _ = call("call", "sort", X, descending=True)
    assert torch.equal(falling, X.flip(1))
    greatest, places = call("call", "topk", X, k=2)
    assert torch.equal(greatest, X[:, (3, 2)])
    assert places.tolist() == [[3, 2]] * 3


def test_rows_are_cut_into_parts_of_which_the_first_are_larger():
    rows = torch.arange(7.0)[:, None]
    parts = call("call", "split_rows", rows, count=3)
    assert [each.flatten().tolist() for each in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    with pytest.raises(ValueError, match="7 rows cannot be cut into 8 parts"):
        call("call", "split_rows", rows, count=8)


def test_losses_pass_reduction_and_options_on():
    target = torch.zeros_like(X)
    torch.testing.assert_close(call("loss", "l1", X, target, reduction="sum"), X.abs().sum())
    torch.testing.assert_close(call("loss", "mse", X, 0.0, reduction="none"), X * X)
    torch.testing.assert_close(call("loss", "huber", X, target, delta=0.1), call("loss", "huber", X, 0.0, delta=0.1))
    torch.testing.assert_close(call("loss", "wasserstein", X, sign=-1), -X.mean())


def test_metrics_are_called_alike():
    assert call("metric", "accuracy", X, torch.tensor([3, 3, 0])).item() == pytest.approx(2 / 3)
    torch.testing.assert_close(call("metric", "mean", X), X.mean())
