"""Built-in layers beside PyTorch's own: results, gradients, second gradients, buffers and names."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

from runtime.backends.tensorflow.library.activations import (
    ELU,
    GELU,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from runtime.backends.tensorflow.library.convolutions import Conv1d, Conv2d, ConvTranspose2d
from runtime.backends.tensorflow.library.dense import Embedding, Linear
from runtime.backends.tensorflow.library.layers import (
    Dropout,
    Flatten,
    Identity,
    ParameterModel,
    Reshape,
    Residual,
    Sequential,
)
from runtime.backends.tensorflow.library.normalization import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    SpectralNorm,
)
from runtime.backends.tensorflow.library.pooling import AvgPool, GlobalAvgPool, MaxPool, Upsample
from runtime.backends.tensorflow.library.sequences import (
    GRU,
    LSTM,
    MultiHeadAttention,
    PositionalEmbedding,
    SinusoidalPositions,
)
from runtime.backends.torch.library import sequences as torchs

IMAGE, ROW, LINE, TEXT = (3, 4, 9, 8), (5, 6), (3, 4, 9), (2, 5, 6)


class Added(nn.Sequential):
    """The reference of a residual."""

    def forward(self, x):
        return x + super().forward(x)


class Attention(nn.MultiheadAttention):
    """The reference of an attention to oneself: PyTorch's own, by its parts."""

    def __init__(self, *sizes, causal=False, **options):
        super().__init__(*sizes, batch_first=True, **options)
        self.causal = causal

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.causal else None
        return super().forward(x, x, x, attn_mask=mask, need_weights=True)[0]


class States(nn.Module):
    """The reference of a recurrent layer: all states of PyTorch's own, or the final ones of each direction."""

    def __init__(self, layer, last=False):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x):
        every, final = self.layer(x)
        final = final[0] if isinstance(final, tuple) else final
        return torch.cat(tuple(final), dim=1) if self.last else every


LAYERS = {
    "linear": (Linear(6, 3), nn.Linear(6, 3), ROW),
    "linear-without-bias": (Linear(6, 3, bias=False), nn.Linear(6, 3, bias=False), ROW),
    "linear-of-positions": (Linear(6, 3), nn.Linear(6, 3), (2, 5, 6)),
    "conv2d": (Conv2d(4, 6, 3), nn.Conv2d(4, 6, 3), IMAGE),
    "conv2d-options": (
        Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), bias=False),
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), bias=False),
        IMAGE,
    ),
    "conv2d-dilation": (
        Conv2d(4, 6, 3, stride=2, padding=1, dilation=(1, 2)),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=(1, 2)),
        IMAGE,
    ),
    "conv2d-groups": (Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3, groups=2), IMAGE),
    "conv2d-depthwise": (Conv2d(4, 8, 3, stride=2, groups=4), nn.Conv2d(4, 8, 3, stride=2, groups=4), IMAGE),
    "conv2d-depthwise-dilation": (
        Conv2d(4, 8, 2, stride=(2, 1), groups=4, dilation=2),
        nn.Conv2d(4, 8, 2, stride=(2, 1), groups=4, dilation=2),
        IMAGE,
    ),
    "conv_transpose2d": (ConvTranspose2d(4, 3, 3), nn.ConvTranspose2d(4, 3, 3), IMAGE),
    "conv_transpose2d-options": (
        ConvTranspose2d(4, 3, (4, 3), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), bias=False),
        nn.ConvTranspose2d(4, 3, (4, 3), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), bias=False),
        IMAGE,
    ),
    "batch_norm-rows": (BatchNorm(6), nn.BatchNorm1d(6), ROW),
    "batch_norm-lines": (BatchNorm(4, eps=1e-3, momentum=0.3), nn.BatchNorm1d(4, eps=1e-3, momentum=0.3), (3, 4, 7)),
    "batch_norm-images": (BatchNorm(4), nn.BatchNorm2d(4), IMAGE),
    "batch_norm-plain": (BatchNorm(4, affine=False), nn.BatchNorm2d(4, affine=False), IMAGE),
    "layer_norm": (LayerNorm(6), nn.LayerNorm(6), ROW),
    "layer_norm-images": (LayerNorm(8, eps=1e-3), nn.LayerNorm(8, eps=1e-3), IMAGE),
    "group_norm": (GroupNorm(2, 4), nn.GroupNorm(2, 4), IMAGE),
    "group_norm-rows": (GroupNorm(3, 6), nn.GroupNorm(3, 6), ROW),
    "conv1d": (Conv1d(4, 6, 3), nn.Conv1d(4, 6, 3), LINE),
    "conv1d-options": (
        Conv1d(4, 6, 2, stride=2, padding=1, dilation=2, groups=2, bias=False),
        nn.Conv1d(4, 6, 2, stride=2, padding=1, dilation=2, groups=2, bias=False),
        LINE,
    ),
    "conv1d-depthwise": (Conv1d(4, 8, 3, stride=2, groups=4), nn.Conv1d(4, 8, 3, stride=2, groups=4), LINE),
    "instance_norm": (InstanceNorm(4), nn.InstanceNorm2d(4), IMAGE),
    "instance_norm-lines": (InstanceNorm(4, eps=1e-3, affine=True), nn.InstanceNorm1d(4, 1e-3, affine=True), LINE),
    "rms_norm": (RMSNorm(8), nn.RMSNorm(8, eps=1e-5), IMAGE),
    "positional": (PositionalEmbedding(9, 6), torchs.PositionalEmbedding(9, 6), TEXT),
    "positional-sinusoidal": (SinusoidalPositions(), torchs.SinusoidalPositions(), (2, 5, 7)),
    "attention": (MultiHeadAttention(6, 2), Attention(6, 2), TEXT),
    "attention-causal": (
        MultiHeadAttention(6, 3, causal=True, bias=False),
        Attention(6, 3, bias=False, causal=True),
        TEXT,
    ),
    "lstm": (LSTM(6, 3), States(nn.LSTM(6, 3, batch_first=True)), TEXT),
    "lstm-both": (LSTM(6, 3, bidirectional=True), States(nn.LSTM(6, 3, batch_first=True, bidirectional=True)), TEXT),
    "lstm-last": (
        LSTM(6, 3, bidirectional=True, last=True),
        States(nn.LSTM(6, 3, batch_first=True, bidirectional=True), last=True),
        TEXT,
    ),
    "gru": (GRU(6, 3), States(nn.GRU(6, 3, batch_first=True)), TEXT),
    "gru-last": (
        GRU(6, 3, bidirectional=True, last=True),
        States(nn.GRU(6, 3, batch_first=True, bidirectional=True), last=True),
        TEXT,
    ),
    "flatten": (Flatten(), nn.Flatten(), IMAGE),
    "reshape": (Reshape((8, -1)), nn.Unflatten(1, (8, -1)), (3, 32)),
    "avg_pool": (AvgPool(3, padding=1), nn.AvgPool2d(3, padding=1), IMAGE),
    "avg_pool-stride": (AvgPool((2, 3), stride=(1, 2)), nn.AvgPool2d((2, 3), stride=(1, 2)), IMAGE),
    "max_pool": (MaxPool(2), nn.MaxPool2d(2), IMAGE),
    "max_pool-padding": (MaxPool(3, stride=2, padding=1), nn.MaxPool2d(3, stride=2, padding=1), IMAGE),
    "global_avg_pool": (GlobalAvgPool(), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGE),
    "upsample": (Upsample(3), nn.Upsample(scale_factor=3), IMAGE),
    "upsample-bilinear": (Upsample(3, mode="bilinear"), nn.Upsample(scale_factor=3, mode="bilinear"), IMAGE),
    "relu": (ReLU(), nn.ReLU(), IMAGE),
    "leaky_relu": (LeakyReLU(0.2), nn.LeakyReLU(0.2), IMAGE),
    "gelu": (GELU(), nn.GELU(), ROW),
    "silu": (SiLU(), nn.SiLU(), ROW),
    "elu": (ELU(0.7), nn.ELU(0.7), ROW),
    "tanh": (Tanh(), nn.Tanh(), ROW),
    "sigmoid": (Sigmoid(), nn.Sigmoid(), ROW),
    "softmax": (Softmax(), nn.Softmax(-1), ROW),
    "softmax-channels": (Softmax(1), nn.Softmax(1), IMAGE),
    "identity": (Identity(), nn.Identity(), ROW),
    "residual": (
        Residual(Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()),
        Added(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        IMAGE,
    ),
}


def pair_of(name: str) -> tuple[Sequential, nn.Sequential]:
    """Return the layer of both frameworks with the same random weights, in a model of its own."""
    ours, theirs, _ = LAYERS[name]
    mine, other = Sequential(copy.deepcopy(ours), dtype=tf.float64), nn.Sequential(copy.deepcopy(theirs)).double()
    share(mine, other)
    return mine, other


def share(mine: Sequential, other: nn.Module) -> None:
    """Give both models the same random tensors, by name."""
    numbers = np.random.default_rng(0)
    named = {**mine.named_parameters(), **mine.named_buffers()}
    for key, tensor in other.state_dict().items():
        values = numbers.normal(size=tensor.shape) ** 2 if "running" in key else numbers.normal(size=tensor.shape)
        tensor.copy_(torch.as_tensor(values))
        key = key.replace(".layer.", ".")  # of a recurrent layer inside its reference
        named[key].assign(tensor.numpy())


def data_of(name: str) -> np.ndarray:
    """Return an input with ties and zeros among its numbers."""
    x = np.random.default_rng(1).normal(size=LAYERS[name][2])
    return np.where(np.abs(x) < 0.3, 0.0, x)


def derive(mine: Sequential, x: np.ndarray, training: bool) -> list[np.ndarray]:
    """Return result, gradients of sum(y^3) and gradients of the sum of the input's squared gradient."""
    variables = mine.parameters()

    @tf.function(input_signature=[tf.TensorSpec((None, *x.shape[1:]), tf.float64)], autograph=False)
    def compute(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = mine(x, training=training)
                loss = tf.reduce_sum(y**3)
            first = inner.gradient(loss, [x, *variables])
            again = tf.reduce_sum(first[0] ** 2)
        return [y, *first, *outer.gradient(again, [x, *variables], unconnected_gradients="zero")]

    return [value.numpy() for value in compute(x)]


def derive_torch(other: nn.Module, x: np.ndarray, training: bool) -> list[np.ndarray]:
    """Return the same by PyTorch."""
    other.train(training)
    inputs = torch.tensor(x, requires_grad=True)
    targets = [inputs, *other.parameters()]
    y = other(inputs)
    first = torch.autograd.grad((y**3).sum(), targets, create_graph=True)
    second = torch.autograd.grad((first[0] ** 2).sum(), targets, materialize_grads=True)
    return [value.detach().numpy() for value in (y, *first, *second)]


SLOW = [pytest.mark.long]
"""Of the recurrent layers every run takes a GRU."""
BOTH = [pytest.param(name, True, marks=SLOW if name.startswith("lstm") else []) for name in LAYERS]
BOTH += [(name, False) for name in LAYERS if "batch_norm" in name]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "training"), BOTH)
def test_results_and_both_gradients_are_pytorchs(name, training):
    mine, other = pair_of(name)
    x = data_of(name)
    for ours, theirs in zip(derive(mine, x, training), derive_torch(other, x, training), strict=True):
        scale = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * scale)


SPECTRAL = {
    "linear": (Linear(6, 3), nn.Linear(6, 3), ROW),
    "conv1d": (Conv1d(4, 6, 3), nn.Conv1d(4, 6, 3), LINE),
    "conv2d": (Conv2d(4, 6, 3), nn.Conv2d(4, 6, 3), IMAGE),
    "conv_transpose2d": (ConvTranspose2d(4, 3, 3), nn.ConvTranspose2d(4, 3, 3), IMAGE),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`|.*torch.nn.utils.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize("name", SPECTRAL)
def test_a_weight_is_divided_in_training_as_by_pytorchs_first_spectral_norm(name):
    """``torch.nn.utils.spectral_norm`` begins each step with v, as Miyato et al. do: results and gradients are its."""
    layer, reference, shape = SPECTRAL[name]
    mine = Sequential(SpectralNorm(copy.deepcopy(layer)), dtype=tf.float64)
    ours = nn.Sequential(torchs.SpectralNorm(copy.deepcopy(reference))).double()
    other = nn.utils.spectral_norm(copy.deepcopy(reference).double())
    share(mine, ours)
    with torch.no_grad():
        other.weight_orig.copy_(ours[0].get_submodule("0").weight)
        other.bias.copy_(ours[0].get_submodule("0").bias)
        other.weight_u.copy_(ours[0].u)
    x = np.random.default_rng(1).normal(size=shape)
    for _ in range(3):
        given = torch.tensor(x, requires_grad=True)
        expected = other(given)
        slopes = torch.autograd.grad(expected.square().sum(), [given, other.bias, other.weight_orig])
        again = torch.tensor(x, requires_grad=True)
        made = ours(again)
        inner = ours[0].get_submodule("0")
        own = torch.autograd.grad(made.square().sum(), [again, inner.bias, inner.weight])
        with tf.GradientTape() as tape:
            tensor = tf.constant(x)
            tape.watch(tensor)
            y = mine(tensor, training=True)
            total = tf.reduce_sum(y * y)
        parameters = mine.named_parameters()
        found = tape.gradient(total, [tensor, parameters["0.0.bias"], parameters["0.0.weight"]])
        for one, two, three in zip((y, *found), (made, *own), (expected, *slopes), strict=True):
            np.testing.assert_allclose(one.numpy(), three.detach().numpy(), rtol=1e-10, atol=1e-11)
            np.testing.assert_allclose(two.detach().numpy(), three.detach().numpy(), rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(mine.named_buffers()["0.u"].numpy(), other.weight_u.numpy(), rtol=1e-12)
        np.testing.assert_allclose(ours[0].u.numpy(), other.weight_u.numpy(), rtol=1e-12)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SPECTRAL)
def test_after_many_steps_the_weight_has_a_largest_singular_value_of_one(name):
    layer, reference, shape = SPECTRAL[name]
    mine, ours = (
        Sequential(SpectralNorm(copy.deepcopy(layer)), dtype=tf.float64),
        torchs.SpectralNorm(reference).double(),
    )
    share(mine, nn.Sequential(ours))
    x = np.zeros(shape)
    for _ in range(300):
        ours(torch.tensor(x))
        mine(tf.constant(x), training=True)
    weight = ours.get_submodule("0").weight.detach()
    greatest = torch.linalg.matrix_norm(weight.movedim(ours.axis, 0).flatten(1), 2)
    scaled = copy.deepcopy(reference).double()
    scaled.weight.data = weight / greatest
    x = np.random.default_rng(1).normal(size=shape)
    before = ours.u.clone()
    np.testing.assert_allclose(ours.eval()(torch.tensor(x)).detach(), scaled(torch.tensor(x)).detach(), rtol=1e-6)
    np.testing.assert_allclose(mine(tf.constant(x)).numpy(), scaled(torch.tensor(x)).detach(), rtol=1e-6)
    assert torch.equal(before, ours.u)


def test_an_attention_draws_where_it_drops_and_only_in_training():
    x = np.random.default_rng(1).normal(size=TEXT)
    mine, other = Sequential(MultiHeadAttention(6, 2, dropout=0.5), dtype=tf.float64), Attention(6, 2).double()
    share(mine, nn.Sequential(other))
    whole = mine(tf.constant(x)).numpy()
    np.testing.assert_allclose(whole, other(torch.tensor(x)).detach().numpy(), rtol=1e-12)
    ours = torchs.MultiHeadAttention(6, 2, dropout=0.5).double()
    ours.load_state_dict(other.state_dict())
    np.testing.assert_allclose(ours.eval()(torch.tensor(x)).detach().numpy(), whole, rtol=1e-12)
    mask = np.array([[1.0, 0, 1, 1, 0]]) * np.ones((2, 2, 5, 1))

    class Source:
        """A source that keeps the same positions every time."""

        def keep_mask(self, like, p, dtype=None):
            return torch.tensor(mask) if dtype is None else tf.constant(mask)

    mine.layers[0].dropout.random = ours.dropout.random = Source()
    dropped = ours.train()(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(mine(tf.constant(x), training=True).numpy(), dropped, rtol=1e-12)
    assert np.abs(dropped - whole).max() > 0.1


@pytest.mark.parametrize("name", ["batch_norm-rows", "batch_norm-lines", "batch_norm-images", "residual"])
def test_running_statistics_are_pytorchs(name):
    mine, other = pair_of(name)
    x = data_of(name)
    for training in (True, True, False):
        mine(x, training=training)
        other.train(training)(torch.tensor(x))
    for key, buffer in other.named_buffers():
        np.testing.assert_allclose(mine.named_buffers()[key].numpy(), buffer.numpy(), rtol=1e-13)


def test_batch_norm_of_a_single_value_is_refused_as_by_pytorch():
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than one value per channel"):
        Sequential(BatchNorm(3))(tf.ones((1, 3)), training=True)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_embedding_looks_rows_up(dtype):
    model = Sequential(Embedding(5, 3), dtype=tf.float64)
    other = nn.Sequential(nn.Embedding(5, 3)).double()
    share(model, other)
    indices = [[0, 4, 4], [1, 0, 2]]
    np.testing.assert_array_equal(model(tf.constant(indices, dtype)).numpy(), other(torch.tensor(indices)).detach())


def test_dropout_outside_of_training_or_with_p_0_is_nothing_and_with_p_1_all():
    x = tf.ones((2, 3))
    results = [Sequential(Dropout(p))(x, training=training) for p, training in ((0.5, False), (0.0, True), (1.0, True))]
    assert [float(tf.reduce_sum(y)) for y in results] == [6, 6, 0]


def make_net(dtype: tf.DType = tf.float64) -> Sequential:
    """Return a network of many kinds of layers."""
    return Sequential(
        Conv2d(1, 4, 3, padding=1),
        BatchNorm(4),
        ReLU(),
        Residual(Conv2d(4, 4, 3, padding=1), LeakyReLU(0.2), GroupNorm(2, 4)),
        MaxPool(2),
        Softmax(3),
        ConvTranspose2d(4, 2, 2, stride=2),
        Upsample(2),
        AvgPool(2),
        Flatten(),
        Linear(128, 3),
        dtype=dtype,
    )


def make_torch() -> nn.Sequential:
    """Return the same network of PyTorch."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        Added(nn.Conv2d(4, 4, 3, padding=1), nn.LeakyReLU(0.2), nn.GroupNorm(2, 4)),
        nn.MaxPool2d(2),
        nn.Softmax(3),
        nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.Upsample(scale_factor=2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 3),
    ).double()


def test_a_network_is_pytorchs_by_names_shapes_results_and_gradients():
    mine, other = make_net(), make_torch()
    shapes = {key: tuple(each.shape) for key, each in other.named_parameters()}
    assert {key: tuple(each.shape) for key, each in mine.named_parameters().items()} == shapes
    assert list(mine.named_parameters()) == list(shapes)
    assert list(mine.named_buffers()) == [key for key, _ in other.named_buffers()]
    share(mine, other)
    x = np.random.default_rng(2).normal(size=(5, 1, 8, 8))
    wanted = derive_torch(other, x, True)
    scale = max(float(np.abs(each).max()) for each in wanted)  # a bias before batch_norm has nothing but rounding
    for ours, theirs in zip(derive(mine, x, True), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13 * scale)


def test_one_trace_serves_every_batch_size_and_image_size_where_sizes_are_free():
    layers = Conv2d(1, 2, 3), ConvTranspose2d(2, 1, 2, stride=2), Upsample(2, mode="bilinear"), GlobalAvgPool()
    model = Sequential(*layers)
    call = tf.function(model, input_signature=[tf.TensorSpec((None, 1, None, None))], autograph=False)
    shapes = [tuple(call(tf.ones((batch, 1, size, size))).shape) for batch, size in ((1, 5), (3, 8), (7, 6))]
    assert shapes == [(1, 1), (3, 1), (7, 1)]
    assert call.experimental_get_tracing_count() == 1


def test_a_copy_has_variables_of_its_own():
    model = make_net(tf.float32)
    other = copy.deepcopy(model)
    model.parameters()[0].assign_add(tf.ones_like(model.parameters()[0]))
    assert not np.array_equal(other.parameters()[0].numpy(), model.parameters()[0].numpy())
    assert list(other.named_parameters()) == list(model.named_parameters())
    ours, theirs = ({id(variable) for variable in each.parameters()} for each in (model, other))
    assert not ours & theirs


def test_a_parameter_model_is_read_as_a_value_of_its_own():
    model = ParameterModel((2,), dtype=tf.float64)
    before = model()
    model.value.assign([1.0, 2.0])
    assert (before.numpy().tolist(), model().numpy().tolist()) == ([0, 0], [1, 2])
