"""The layers, losses and calls of the oracle against PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphspec.declare.layers import Layer
from tests.oracle.functions import CALLS, loss
from tests.oracle.layers import Call
from tests.oracle.numbers import Reals
from tests.oracle.tensors import Tensors

GENERATOR = np.random.default_rng(0)
ROWS, IMAGES = GENERATOR.normal(size=(3, 4)), GENERATOR.normal(size=(3, 4, 5, 5))
LINES = GENERATOR.normal(size=(3, 4, 6))


class Attention(nn.MultiheadAttention):
    """PyTorch's attention of a sequence to itself: without biases, positions see only those up to themselves."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, batch_first=True, **options)

    def forward(self, x):
        later = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return super().forward(x, x, x, attn_mask=None if self.in_proj_bias is not None else later)[0]


class States(nn.Module):
    """All states of PyTorch's recurrent layer, or the final ones of each direction."""

    def __init__(self, layer, last=False):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x):
        every, final = self.layer(x)
        final = final[0] if isinstance(final, tuple) else final
        return torch.cat(tuple(final), dim=1) if self.last else every


LAYERS = [
    ({"linear": 2}, nn.Linear(4, 2), ROWS),
    ({"linear": {"out": 2, "bias": False}}, nn.Linear(4, 2, bias=False), ROWS),
    ({"conv2d": {"out": 6, "kernel": 3, "padding": 1}}, nn.Conv2d(4, 6, 3, padding=1), IMAGES),
    (
        {"conv2d": {"out": 6, "kernel": [2, 3], "stride": [2, 1], "dilation": [1, 2], "groups": 2}},
        nn.Conv2d(4, 6, (2, 3), (2, 1), dilation=(1, 2), groups=2),
        IMAGES,
    ),
    ({"conv_transpose2d": {"out": 2, "kernel": 3}}, nn.ConvTranspose2d(4, 2, 3), IMAGES),
    (
        {"conv_transpose2d": {"out": 2, "kernel": [2, 3], "stride": [2, 3], "padding": 1, "output_padding": [1, 0]}},
        nn.ConvTranspose2d(4, 2, (2, 3), (2, 3), 1, (1, 0)),
        IMAGES,
    ),
    ({"upsample": 3}, nn.Upsample(scale_factor=3), IMAGES),
    ({"upsample": {"factor": 2, "mode": "bilinear"}}, nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES),
    ("batch_norm", nn.BatchNorm1d(4), ROWS),
    ({"batch_norm": {"momentum": 0.3, "eps": 0.1}}, nn.BatchNorm2d(4, momentum=0.3, eps=0.1), IMAGES),
    ("layer_norm", nn.LayerNorm(4), ROWS),
    ({"group_norm": 2}, nn.GroupNorm(2, 4), IMAGES),
    ({"conv1d": {"out": 2, "kernel": 3, "padding": 1}}, nn.Conv1d(4, 2, 3, padding=1), LINES),
    (
        {"conv1d": {"out": 6, "kernel": 2, "stride": 2, "dilation": 3, "groups": 2, "bias": False}},
        nn.Conv1d(4, 6, 2, 2, dilation=3, groups=2, bias=False),
        LINES,
    ),
    ("instance_norm", nn.InstanceNorm2d(4), IMAGES),
    ({"instance_norm": {"affine": True}}, nn.InstanceNorm1d(4, affine=True), LINES),
    ({"rms_norm": 0.1}, nn.RMSNorm(4, eps=0.1), ROWS),
    ({"multi_head_attention": {"heads": 3}}, Attention(6, 3), LINES),
    ({"multi_head_attention": {"heads": 2, "causal": True, "bias": False}}, Attention(6, 2, bias=False), LINES),
    ({"lstm": 3}, States(nn.LSTM(6, 3, batch_first=True)), LINES),
    ({"lstm": {"size": 2, "bidirectional": True}}, States(nn.LSTM(6, 2, batch_first=True, bidirectional=True)), LINES),
    ({"gru": {"size": 3, "last": True}}, States(nn.GRU(6, 3, batch_first=True), last=True), LINES),
    (
        {"gru": {"size": 2, "bidirectional": True, "last": True}},
        States(nn.GRU(6, 2, batch_first=True, bidirectional=True), last=True),
        LINES,
    ),
    ({"avg_pool": {"kernel": 3, "stride": 2, "padding": 1}}, nn.AvgPool2d(3, 2, 1), IMAGES),
    ({"max_pool": {"kernel": 3, "stride": 2, "padding": 1}}, nn.MaxPool2d(3, 2, 1), IMAGES),
    ("global_avg_pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGES),
    ("relu", nn.ReLU(), ROWS),
    ({"leaky_relu": 0.2}, nn.LeakyReLU(0.2), ROWS),
    ("gelu", nn.GELU(), ROWS),
    ("silu", nn.SiLU(), ROWS),
    ({"elu": 0.5}, nn.ELU(0.5), ROWS),
    ("tanh", nn.Tanh(), ROWS),
    ("sigmoid", nn.Sigmoid(), ROWS),
    ("softmax", nn.Softmax(-1), ROWS),
    ("flatten", nn.Flatten(), IMAGES),
]


@pytest.mark.parametrize("numbers", [Reals(), Tensors()], ids=["numpy", "torch"])
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("layer", "module", "x"), LAYERS, ids=lambda one: str(one)[:30] if isinstance(one, str) else ""
)
def test_a_layer_and_its_statistics_are_those_of_pytorch(layer, module, x, train, numbers):
    module = module.double().train(train)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.from_numpy(GENERATOR.normal(size=tensor.shape)))
    state = {f"0.{name.removeprefix('layer.')}": value.numpy().copy() for name, value in module.state_dict().items()}
    lifted = {name: numbers.lift(value[None]) for name, value in state.items()}
    call = Call(numbers=numbers, parameters=lifted, buffers=lifted, train=train, mask=None)
    found = call.run([Layer.model_validate(layer)], numbers.lift(x[None]))
    expected = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(np.asarray(found[0]), expected, rtol=1e-12, atol=1e-13)
    for name, value in call.written.items():
        np.testing.assert_allclose(value[0], module.state_dict()[name[2:]].numpy(), rtol=1e-13)


def test_a_weight_is_divided_by_the_value_of_one_power_iteration():
    weight, u = GENERATOR.normal(size=(3, 4)), GENERATOR.normal(size=3)
    given = {"0.0.weight": weight[None], "0.u": u[None]}
    call = Call(numbers=Reals(), parameters=given, buffers=given, train=True, mask=None)
    found = call.run([Layer.model_validate({"spectral_norm": [{"linear": {"out": 3, "bias": False}}]})], ROWS[None])[0]
    v = weight.T @ u / np.linalg.norm(weight.T @ u)
    after = weight @ v / np.linalg.norm(weight @ v)
    np.testing.assert_allclose(found, ROWS @ weight.T / (after @ weight @ v))
    np.testing.assert_allclose(call.written["0.u"][0], after)


@pytest.mark.parametrize("method", ["learned", "sinusoidal"])
def test_a_vector_is_added_to_every_position(method):
    weight = GENERATOR.normal(size=(9, 6))
    call = Call(numbers=Reals(), parameters={"0.weight": weight[None]}, buffers={}, train=True, mask=None)
    found = call.run([Layer.model_validate({"positional": {"method": method}})], LINES[None])[0]
    angles = np.arange(4)[:, None] / 10000 ** (np.array([0, 0, 2, 2, 4, 4]) / 6)
    waves = np.where(np.arange(6) % 2 == 0, np.sin(angles), np.cos(angles))
    np.testing.assert_allclose(found, LINES + (weight[:4] if method == "learned" else waves))


def test_embedding_and_residual_are_those_of_pytorch():
    table, weight = GENERATOR.normal(size=(5, 4)), GENERATOR.normal(size=(4, 4))
    layers = [Layer.model_validate({"embedding": {"count": 5, "size": 4}})]
    layers.append(Layer.model_validate({"residual": [{"linear": {"out": 4, "bias": False}}]}))
    parameters = {"0.weight": table[None], "1.0.weight": weight[None]}
    call = Call(numbers=Reals(), parameters=parameters, buffers={}, train=True, mask=None)
    found = call.run(layers, np.array([[3, 0, 3]]))[0]
    np.testing.assert_allclose(found, table[[3, 0, 3]] + table[[3, 0, 3]] @ weight.T)


def test_dropout_keeps_and_scales_what_the_mask_says():
    kept = np.array([[1.0, 0.0, 1.0, 1.0]] * 3)
    call = Call(numbers=Reals(), parameters={}, buffers={}, train=True, mask=lambda shape, p: kept)
    found = call.run([Layer.model_validate({"dropout": 0.2})], ROWS[None])[0]
    np.testing.assert_allclose(found, ROWS * kept / 0.8)


A, B = GENERATOR.normal(size=(3, 4)), GENERATOR.normal(size=(3, 4))
P, LABELS = 1 / (1 + np.exp(-A)), np.array([0, 3, 1])
LOSSES = [
    ("mse", [A, B], {}, F.mse_loss),
    ("l1", [A, B], {}, F.l1_loss),
    ("huber", [A, B], {"delta": 0.5}, F.huber_loss),
    ("bce", [P, P.T[:4, :].T], {}, F.binary_cross_entropy),
    ("bce_with_logits", [A, P], {}, F.binary_cross_entropy_with_logits),
    ("cross_entropy", [A, LABELS], {"label_smoothing": 0.1}, F.cross_entropy),
    ("cross_entropy", [A, P / P.sum(1, keepdims=True)], {}, F.cross_entropy),
    ("nll", [A, LABELS], {}, F.nll_loss),
    ("gaussian_nll", [A, B, P], {"full": True}, F.gaussian_nll_loss),
    ("poisson_nll", [A, 3 * P], {"full": True}, F.poisson_nll_loss),
    ("poisson_nll", [P, B], {"log_input": False}, F.poisson_nll_loss),
    ("triplet_margin", [A, B, P], {"margin": 0.5, "swap": True}, F.triplet_margin_loss),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "operands", "options", "function"), LOSSES)
def test_a_loss_is_that_of_pytorch(name, operands, options, function, reduction):
    found = loss(Reals(), name, [one[None] for one in operands], reduction, options)[0]
    expected = function(*(torch.from_numpy(one) for one in operands), reduction=reduction, **options)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_is_that_of_pytorch(blank, reduction):
    x, text = GENERATOR.normal(size=(3, 6, 5)), np.array([[1, 1, 2], [2, 3, 1], [1, 2, 3]])
    times, lengths = np.array([6, 4, 2]), np.array([3, 2, 0])
    operands = [one[None] for one in (x, text, times, lengths)]
    found = loss(Reals(), "ctc", operands, reduction, {"blank": blank})[0]
    scores = torch.from_numpy(x).log_softmax(-1).transpose(0, 1)
    given = map(torch.from_numpy, (text, times, lengths))
    np.testing.assert_allclose(found, F.ctc_loss(scores, *given, blank, reduction).numpy(), rtol=1e-12)


def test_losses_that_pytorch_lacks_are_their_formulas():
    def value(name, *operands, **options):
        return loss(Reals(), name, [one[None] for one in operands], "mean", options)[0]

    s, t = (np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True) for x in (A, B))
    assert np.isclose(value("kl_div", A, B, temperature=2.0), (t * np.log(t / s)).sum(1).mean())
    assert np.isclose(value("hinge", A, np.sign(B)), np.maximum(0, 1 - np.sign(B) * A).mean())
    cosine = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    assert np.isclose(value("cosine", A, B), (1 - cosine).mean())
    z = np.concatenate([A, B]) / np.linalg.norm(np.concatenate([A, B]), axis=1, keepdims=True)
    like = np.exp(z @ z.T / 0.5)
    rows = [-np.log(like[i, (i + 3) % 6] / (like[i].sum() - like[i, i])) for i in range(6)]
    assert np.isclose(value("nt_xent", A, B), np.mean(rows))
    q = np.where(B > 0, P, 1 - P)
    weights = np.where(B > 0, 0.3, 0.7)
    assert np.isclose(value("focal", A, B > 0, alpha=0.3, gamma=1.5), np.mean(-weights * (1 - q) ** 1.5 * np.log(q)))
    overlap = [1 - (2 * (p * t).sum() + 0.5) / (p.sum() + t.sum() + 0.5) for p, t in zip(P, P[::-1], strict=True)]
    assert np.isclose(value("dice", P, P[::-1], smooth=0.5), np.mean(overlap))


def test_calls_along_axes_are_those_of_numpy():
    numbers, x = Reals(), IMAGES[None]
    np.testing.assert_allclose(CALLS["max"](numbers, x, axis=[1, 3])[0], IMAGES.max((1, 3)))
    np.testing.assert_allclose(CALLS["min"](numbers, x, axis=-1, keepdims=True)[0], IMAGES.min(-1, keepdims=True))
    np.testing.assert_allclose(CALLS["norm"](numbers, x, axis=1)[0], np.sqrt((IMAGES**2).sum(1)))
    np.testing.assert_allclose(CALLS["add"](numbers, x, np.array([2.0]))[0], IMAGES + 2)
    np.testing.assert_allclose(CALLS["permute"](numbers, x, dims=(0, 3, 1, 2))[0], IMAGES.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(CALLS["stack"](numbers, x, x, axis=1)[0], np.stack([IMAGES, IMAGES], 1))
    np.testing.assert_allclose(CALLS["split"](numbers, x, sections=[1, 3])[1][0], IMAGES[:, 1:])


def test_calls_that_order_move_and_multiply_are_those_of_pytorch():
    numbers, x, y = Reals(), torch.from_numpy(IMAGES), torch.from_numpy(A)
    for name, options, expected in [
        ("cumsum", {"axis": 1}, x.cumsum(1)),
        ("roll", {"shifts": 2, "axis": 1}, x.roll(2, 1)),
        ("roll", {"shifts": -1}, x.roll(-1, -1)),
        ("pad", {"pad": [1, 2, 0, 1], "value": 0.5}, F.pad(x, (1, 2, 0, 1), value=0.5)),
        ("pad", {"pad": [1, 2, 0, 1], "method": "reflect"}, F.pad(x, (1, 2, 0, 1), "reflect")),
        ("pad", {"pad": [1, 2, 0, 1], "method": "replicate"}, F.pad(x, (1, 2, 0, 1), "replicate")),
        ("interpolate", {"size": [3, 7]}, F.interpolate(x, (3, 7))),
        ("interpolate", {"size": [3, 7], "method": "bilinear"}, F.interpolate(x, (3, 7), mode="bilinear")),
        ("interpolate", {"factor": 2, "method": "bilinear"}, F.interpolate(x, scale_factor=2, mode="bilinear")),
        ("einsum", {"equation": "bchw -> whb"}, torch.einsum("bchw->whb", x)),
    ]:
        np.testing.assert_allclose(CALLS[name](numbers, IMAGES[None], **options)[0], expected.numpy(), atol=1e-14)
    for name, options, expected in [
        ("sort", {"descending": True}, torch.sort(y, descending=True)),
        ("topk", {"k": 2, "axis": 0, "largest": False}, torch.topk(y, 2, 0, largest=False)),
    ]:
        for found, each in zip(CALLS[name](numbers, A[None], **options), expected, strict=True):
            np.testing.assert_array_equal(found[0], each.numpy())
    factors = [A, B, A[0]]
    found = CALLS["einsum"](numbers, *(one[None] for one in factors), equation="bi,bj,j->ji")
    np.testing.assert_allclose(found[0], np.einsum("bi,bj,j->ji", *factors), rtol=1e-12)
    np.testing.assert_allclose(CALLS["outer"](numbers, A[None, 0], B[None, 1])[0], np.outer(A[0], B[1]))


def test_comparisons_powers_and_subscripts_are_those_of_numpy():
    numbers, a, b = Reals(), np.round(A), np.round(B)
    for name, function in {
        "less": np.less,
        "less_equal": np.less_equal,
        "greater": np.greater,
        "greater_equal": np.greater_equal,
        "equal": np.equal,
        "not_equal": np.not_equal,
        "minimum": np.minimum,
        "maximum": np.maximum,
    }.items():
        np.testing.assert_array_equal(CALLS[name](numbers, a[None], b[None])[0], function(a, b))
    np.testing.assert_allclose(CALLS["pow"](numbers, P[None], B[None])[0], P**B)
    for name, function in {"logical_and": np.logical_and, "logical_or": np.logical_or}.items():
        np.testing.assert_array_equal(CALLS[name](numbers, a[None] > 0, b[None] > 0)[0], function(a > 0, b > 0))
    np.testing.assert_array_equal(CALLS["logical_not"](numbers, a[None] > 0)[0], a <= 0)
    np.testing.assert_array_equal(CALLS["subscript"](numbers, a[None], at="::2, None, -1")[0], a[::2, None, -1])
    np.testing.assert_array_equal(CALLS["subscript"](numbers, a[None], at=0)[0], a[0])


def test_equal_operands_share_the_slope_of_the_lesser_and_the_greater():
    numbers, step = Reals(), 1e-20j
    for name, slopes in {"minimum": [1, 0.5, 0], "maximum": [0, 0.5, 1]}.items():
        found = CALLS[name](numbers, np.array([[1.0, 2.0, 3.0]]) + step, np.array([2.0]))
        np.testing.assert_allclose(found[0].imag / 1e-20, slopes)
