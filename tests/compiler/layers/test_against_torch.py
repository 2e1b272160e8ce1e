"""Resolved layers against ``torch.nn``: names, shapes, results and the law of the initial values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from compiler.types.layers import resolve_layers
from graphspec.declare.layers import LAYERS, Layer

BATCH = 3
IMAGE = ("batch", 4, 9, 8)
LINE, TEXT = ("batch", 4, 9), ("batch", 5, 6)


class Residual(nn.Sequential):
    """A hand-written residual block."""

    def forward(self, x):
        return x + super().forward(x)


class Rows(nn.Module):
    """Two rows per sample."""

    def forward(self, x):
        return x.reshape(x.shape[0], 2, -1)


class GlobalMean(nn.Module):
    """The mean over height and width."""

    def forward(self, x):
        return x.mean(dim=(2, 3))


class Positions(nn.Module):
    """A table of vectors, drawn as those of ``nn.Embedding``."""

    def __init__(self, *sizes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes))

    def reset_parameters(self):
        nn.init.normal_(self.weight)

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


class Attention(nn.MultiheadAttention):
    """PyTorch's attention of a sequence to itself."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, batch_first=True, **options)

    def reset_parameters(self):
        self._reset_parameters()

    def forward(self, x):
        return super().forward(x, x, x)[0]


def states_of(layer):
    """Return PyTorch's recurrent layer, of whose results only the states are one."""
    return type(layer.__name__, (layer,), {"forward": lambda self, x: layer.forward(self, x)[0]})


class Within(nn.Module):
    """A layer inside another that holds one number for each of its outputs."""

    def __init__(self, layer, axis=0):
        super().__init__()
        self.add_module("0", layer)
        self.register_buffer("u", torch.zeros(layer.weight.shape[axis]))

    def forward(self, x):
        return self.get_submodule("0")(x)


# (layer as written, shape of the input, the module an expert would write)
CASES = [
    ({"linear": 5}, ("batch", 7), nn.Linear(7, 5)),
    ({"linear": {"out": 5, "bias": False}}, ("batch", 2, 7), nn.Linear(7, 5, bias=False)),
    ({"conv2d": {"out": 6, "kernel": 3}}, IMAGE, nn.Conv2d(4, 6, 3)),
    (
        {"conv2d": {"out": 6, "kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": 2, "groups": 2}},
        IMAGE,
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=2, groups=2),
    ),
    ({"conv2d": {"out": 1, "kernel": 8, "padding": 3, "bias": False}}, IMAGE, nn.Conv2d(4, 1, 8, 1, 3, bias=False)),
    ({"conv_transpose2d": {"out": 6, "kernel": 4}}, IMAGE, nn.ConvTranspose2d(4, 6, 4)),
    (
        {"conv_transpose2d": {"out": 6, "kernel": [4, 3], "stride": 2, "padding": 1, "output_padding": [0, 1]}},
        IMAGE,
        nn.ConvTranspose2d(4, 6, (4, 3), stride=2, padding=1, output_padding=(0, 1)),
    ),
    (
        {"conv_transpose2d": {"out": 6, "kernel": 2, "bias": False}},
        IMAGE,
        nn.ConvTranspose2d(4, 6, 2, bias=False),
    ),
    ("batch_norm", ("batch", 7), nn.BatchNorm1d(7)),
    ({"batch_norm": {"eps": 1e-3, "momentum": 0.2}}, ("batch", 7, 5), nn.BatchNorm1d(7, 1e-3, 0.2)),
    ({"batch_norm": {"affine": False}}, IMAGE, nn.BatchNorm2d(4, affine=False)),
    ("layer_norm", ("batch", 7), nn.LayerNorm(7)),
    ({"layer_norm": 1e-3}, IMAGE, nn.LayerNorm(8, eps=1e-3)),
    ({"conv1d": {"out": 6, "kernel": 3}}, LINE, nn.Conv1d(4, 6, 3)),
    (
        {"conv1d": {"out": 6, "kernel": 3, "stride": 2, "padding": 1, "dilation": 2, "groups": 2, "bias": False}},
        LINE,
        nn.Conv1d(4, 6, 3, 2, 1, 2, 2, bias=False),
    ),
    ("instance_norm", IMAGE, nn.InstanceNorm2d(4)),
    ({"instance_norm": {"eps": 1e-3, "affine": True}}, LINE, nn.InstanceNorm1d(4, 1e-3, affine=True)),
    ({"rms_norm": 1e-3}, IMAGE, nn.RMSNorm(8, eps=1e-3)),
    ({"positional": 7}, TEXT, Positions(7, 6)),
    ("positional", TEXT, Positions(5, 6)),
    ({"positional": {"method": "sinusoidal"}}, TEXT, nn.Identity()),
    ({"multi_head_attention": 2}, TEXT, Attention(6, 2)),
    ({"multi_head_attention": {"heads": 3, "bias": False}}, TEXT, Attention(6, 3, bias=False)),
    ({"lstm": 3}, TEXT, states_of(nn.LSTM)(6, 3, batch_first=True)),
    ({"gru": {"size": 3, "bidirectional": True}}, TEXT, states_of(nn.GRU)(6, 3, batch_first=True, bidirectional=True)),
    ({"spectral_norm": [{"linear": 5}]}, ("batch", 7), Within(nn.Linear(7, 5))),
    ({"spectral_norm": [{"conv_transpose2d": {"out": 6, "kernel": 4}}]}, IMAGE, Within(nn.ConvTranspose2d(4, 6, 4), 1)),
    ({"group_norm": 2}, IMAGE, nn.GroupNorm(2, 4)),
    ({"group_norm": {"groups": 4, "eps": 1e-3}}, ("batch", 4), nn.GroupNorm(4, 4, 1e-3)),
    ({"embedding": {"count": 50, "size": 40}}, ("batch", "length"), nn.Embedding(50, 40)),
    ("dropout", ("batch", 7), nn.Dropout()),
    ({"dropout": 0.2}, IMAGE, nn.Dropout(0.2)),
    ("flatten", IMAGE, nn.Flatten()),
    ({"reshape": [2, -1]}, IMAGE, Rows()),
    ({"reshape": [2, 2, 9, 8]}, IMAGE, nn.Unflatten(1, (2, 2))),
    ({"avg_pool": 2}, IMAGE, nn.AvgPool2d(2)),
    ({"avg_pool": {"kernel": [3, 2], "padding": 1}}, IMAGE, nn.AvgPool2d((3, 2), padding=1)),
    ({"max_pool": {"kernel": 3, "stride": 2, "padding": 1}}, IMAGE, nn.MaxPool2d(3, 2, 1)),
    ({"max_pool": [2, 3]}, IMAGE, nn.MaxPool2d((2, 3))),
    ("global_avg_pool", IMAGE, GlobalMean()),
    ({"upsample": 2}, IMAGE, nn.Upsample(scale_factor=2)),
    ({"upsample": {"factor": 3, "mode": "bilinear"}}, IMAGE, nn.Upsample(scale_factor=3, mode="bilinear")),
    ({"residual": [{"linear": 7}, "relu"]}, ("batch", 7), Residual(nn.Linear(7, 7), nn.ReLU())),
    (
        {"residual": ["batch_norm", {"residual": [{"linear": 7}]}]},
        ("batch", 7),
        Residual(nn.BatchNorm1d(7), Residual(nn.Linear(7, 7))),
    ),
    ("relu", IMAGE, nn.ReLU()),
    ({"leaky_relu": 0.2}, IMAGE, nn.LeakyReLU(0.2)),
    ("gelu", IMAGE, nn.GELU()),
    ("silu", IMAGE, nn.SiLU()),
    ({"elu": 0.5}, IMAGE, nn.ELU(0.5)),
    ("tanh", IMAGE, nn.Tanh()),
    ("sigmoid", IMAGE, nn.Sigmoid()),
    ("softmax", ("batch", 7), nn.Softmax(-1)),
    ({"softmax": 1}, IMAGE, nn.Softmax(1)),
    ("identity", IMAGE, nn.Identity()),
]
IDS = [str(written) for written, _, _ in CASES]


def resolve(written, shape):
    """Resolve one layer, as a document has it, alone in a model."""
    layer = Layer.model_validate(written)
    return resolve_layers((layer,), shape, "int64" if layer.kind == "embedding" else "float32")


def example(written, shape):
    """Return a tensor of that shape, free sizes filled in."""
    sizes = [size if isinstance(size, int) else BATCH for size in shape]
    return torch.zeros(sizes, dtype=torch.int64) if "embedding" in written else torch.rand(sizes)


def named(tensors):
    """Return name, shape and dtype of tensors, in order."""
    return [(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors]


def test_every_layer_is_compared():
    kinds = {written if isinstance(written, str) else next(iter(written)) for written, _, _ in CASES}
    assert kinds == set(LAYERS)


@pytest.mark.parametrize(("written", "shape", "module"), CASES, ids=IDS)
def test_parameters_and_buffers_have_the_names_shapes_and_order_of_torch(written, shape, module):
    resolved = resolve(written, shape)
    model = nn.Sequential(module)
    assert [(each.name, each.shape, each.dtype) for each in resolved.parameters] == named(model.named_parameters())
    assert [(each.name, each.shape, each.dtype) for each in resolved.buffers] == named(model.named_buffers())


@pytest.mark.parametrize(("written", "shape", "module"), CASES, ids=IDS)
def test_the_result_has_the_shape_and_dtype_that_torch_computes(written, shape, module):
    resolved = resolve(written, shape)
    result = module(example(written, shape))
    free = {"batch": BATCH, "length": BATCH}
    assert tuple(free.get(size, size) for size in resolved.output) == tuple(result.shape)
    assert f"torch.{resolved.dtype}" == str(result.dtype)


@pytest.mark.parametrize(("written", "shape", "module"), CASES, ids=IDS)
def test_initial_values_follow_the_law_of_reset_parameters(written, shape, module):
    torch.manual_seed(0)
    for declared in resolve(written, shape).parameters:
        name = declared.name.removeprefix("0.")
        draws = torch.stack([reset(module).get_parameter(name).detach().clone() for _ in range(200)])
        match declared.initializer.kind:
            case "uniform":
                check_uniform(draws, declared.initializer.bound)
            case "normal":
                assert draws.std().item() == pytest.approx(declared.initializer.bound, rel=0.02)
            case kind:
                assert torch.equal(draws, {"ones": torch.ones, "zeros": torch.zeros}[kind](draws.shape))


@pytest.mark.parametrize(("written", "shape", "module"), CASES, ids=IDS)
def test_buffers_start_as_in_torch(written, shape, module):
    fill = {"zeros": torch.zeros, "ones": torch.ones}
    buffers = dict(nn.Sequential(reset(module)).named_buffers())
    for declared in resolve(written, shape).buffers:
        if declared.initializer.kind == "normal":  # of what a power iteration starts from the direction counts alone
            assert written in [each for each, *_ in CASES if "spectral_norm" in each]
            continue
        expected = fill[declared.initializer.kind](declared.shape, dtype=getattr(torch, declared.dtype))
        assert torch.equal(buffers[declared.name], expected)


@pytest.mark.parametrize(("written", "shape", "module"), CASES, ids=IDS)
def test_a_torch_module_made_from_the_resolved_options_computes_the_same(written, shape, module):
    (declared,) = resolve(written, shape).layers
    options = {name: value for name, value in declared.options.items() if name != "rank"}
    if isinstance(module, OWN):  # the classes of the library are compared in tests/backends
        assert set(options) <= {"shape", "count", "features", "method"} or "embed_dim" in options or "last" in options
        return
    built = type(module)(**options).eval()
    built.load_state_dict(module.eval().state_dict())
    x = example(written, shape)
    assert torch.equal(built(x), module(x))


OWN = (Residual, Rows, GlobalMean, nn.Unflatten, Positions, Attention, nn.RNNBase, Within)


def reset(module):
    """Draw the parameters of a module and all inside anew, by torch's own rule: inner ones first."""
    for child in reversed(list(module.modules())):
        if hasattr(child, "reset_parameters"):
            child.reset_parameters()
    return module


def check_uniform(draws, bound):
    """Check the support and the variance of uniform(-bound, bound)."""
    assert 0.97 * bound < draws.abs().max().item() <= bound * (1 + 1e-6)
    assert draws.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
