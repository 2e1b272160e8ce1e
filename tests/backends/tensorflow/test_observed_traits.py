"""Building looks at user classes and compiles again with the truth."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from graphspec import SpecError
from runtime import StepError
from tests.backends.tensorflow import users
from tests.backends.tensorflow.specs import OPS, batch_of, build_of, plan_of, user

WITHOUT = "no recomputed forwards"


def traits_of(kind: str) -> str:
    """Return what was noted about a class."""
    return next(note for note in build_of(user(kind)).notes if note.startswith("observed of 'net'"))


@pytest.mark.parametrize("kind", ["Plain", "Module", "Open"])
def test_a_plain_class_has_none_of_what_was_assumed(kind):
    assert traits_of(kind) == f"observed of 'net': no buffers, no random draws, no coupled samples, {WITHOUT}"


def test_batch_statistics_and_dropout_are_seen():
    assert traits_of("Stateful") == "observed of 'net': buffers, random draws, coupled samples, no recomputed forwards"


@pytest.mark.parametrize("kind", ["Noisy", "Nested"])
def test_draws_of_tensorflows_own_operations_are_seen_also_in_functions(kind):
    assert traits_of(kind) == "observed of 'net': no buffers, random draws, no coupled samples, no recomputed forwards"


def test_numbers_that_no_key_can_reach_are_told():
    told = "'net' draws from TensorFlow's `tf.random`: a resumed run draws other numbers"
    assert any(note.startswith(told) for note in build_of(user("Noisy")).notes)
    assert not any("tf.random" in note for note in (*build_of(user("Stateful")).notes, *build_of(user("Plain")).notes))


def test_a_variable_that_a_model_gives_is_a_value_of_before_the_update():
    ops = OPS.replace("{loss: mse, inputs: [y, t]}", "{call: mean, inputs: y}")
    step = build_of(user("Own"), ops, outputs="[y]")
    assert np.array_equal(step(batch_of())["y"], np.ones(3))
    assert not np.array_equal(step.models["net"].own.numpy(), np.ones(3))


def test_a_forward_that_draws_nothing_is_no_longer_keyed():
    assert "assumed of 'net'" in plan_of(user("Plain")).notes[0]
    assert "random.rekey" in build_of(user("Stateful")).source
    step = build_of(user("Plain"))
    assert "random.rekey" not in step.source
    assert "the plan was compiled again with what was observed, and changed" in step.notes


@pytest.mark.parametrize("trait", ["buffers", "rng", "batch_coupled"])
def test_a_declared_trait_that_is_false_is_an_error_at_its_place(trait):
    with pytest.raises(SpecError, match=rf"GS206.*declares `{trait}: false`") as raised:
        build_of(user("Stateful", f", traits: {{{trait}: false}}"))
    assert raised.value.diagnostics[0].span is not None


def test_a_called_method_is_watched_as_well():
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, method: encode, outputs: [y, h]}")
    step = build_of(user("Plain"), ops)
    assert "observed of 'net': no buffers, no random draws, no coupled samples, no recomputed forwards" in step.notes


def test_layers_behind_a_class_get_their_sizes():
    others = "\n  head: {layers: [{linear: 8}, relu, {linear: 3}], optimizer: adam}"
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: head, inputs: h}") + "  h: {forward: net, inputs: x}\n"
    step = build_of(user("Plain"), ops.replace("update: net", "update: [net, head]"), others)
    assert step.models["head"].named_parameters()["0.weight"].shape == (8, 3)
    assert step(batch_of())["loss"].shape == ()


@pytest.mark.parametrize("make", [users.Plain, users.Module, lambda: keras.layers.Dense(3)])
def test_a_model_given_by_hand_is_trained_itself(make):
    given = make()
    given(np.zeros((2, 4), "float32"))
    before = [each.numpy() for each in given.trainable_variables]
    step = build_of(user("Plain"), models={"net": given})
    step(batch_of())
    assert step.models["net"] is given
    assert not np.array_equal(before[0], given.trainable_variables[0].numpy())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nett": users.Module()}, "did you mean 'net'"),
        ({"net": 3}, "given as int, expected a model or layer of Keras"),
    ],
)
def test_given_models_must_fit_the_spec(given, message):
    with pytest.raises(SpecError, match=message):
        build_of(user("Plain"), models=given)


def test_a_model_that_is_not_built_yet_gets_its_variables_and_nothing_else():
    state = tf.random.get_global_generator().state.numpy().tolist()
    step = build_of(user("Stateful"))
    statistics = step.models["net"].norm
    assert statistics.moving_mean.numpy().tolist() == [0.0, 0.0, 0.0]
    assert statistics.moving_variance.numpy().tolist() == [1.0, 1.0, 1.0]
    assert tf.random.get_global_generator().state.numpy().tolist() == state


def test_variables_of_unbuilt_models_start_the_same_for_a_seed():
    one, other, third = (build_of(user("Plain"), seed=seed).models["net"].layer.kernel.numpy() for seed in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_a_likeness_has_the_same_weights_in_variables_of_its_own():
    ops = OPS + "  follow: {ema: net, into: other, decay: 0.5, buffers: copy}\n"
    step = build_of(user("Stateful"), ops, "\n  other: {like: net}")
    net, other = (step.models[name].layer.kernel for name in ("net", "other"))
    assert np.array_equal(net.numpy(), other.numpy())
    before = other.numpy()
    step(batch_of())
    assert np.allclose(other.numpy(), 0.5 * before + 0.5 * net.numpy())
    assert not np.array_equal(other.numpy(), net.numpy())


def test_a_tie_nobody_declared_is_an_error():
    others = f"\n  other: {user('Plain')}"
    ops = OPS + "  z: {forward: other, inputs: x}\n  more: {loss: mse, inputs: [z, t]}\n"
    one, other = users.Module(), users.Module()
    other.kernel = one.kernel
    with pytest.raises(SpecError, match="models 'net' and 'other' share the parameter 'kernel'"):
        build_of(
            user("Plain"), ops + "  second: {update: other, loss: more}\n", others, models={"net": one, "other": other}
        )


def test_results_by_name_and_inner_layers_reach_the_ops():
    named = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, outputs: [first, second]}")
    step = build_of(user("Named"), named.replace("[y, t]", "[first, t]"), outputs="[loss, second]")
    batch = batch_of()
    assert np.array_equal(step.numpy(step(batch)["second"]), batch["x"])
    tapped = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, outputs: [y, {h: {tap: inner}}]}")
    assert build_of(user("Tapped"), tapped, outputs="[loss, h]")(batch)["h"].shape == (6, 5)


@pytest.mark.parametrize("path", ["iner", "inner.body", "2"])
def test_a_layer_that_a_class_does_not_have_is_an_error_at_its_place(path):
    tapped = OPS.replace(
        "{forward: net, inputs: x}", f"{{forward: net, inputs: x, outputs: [y, {{h: {{tap: '{path}'}}}}]}}"
    )
    with pytest.raises(SpecError, match=f"GS115.*model 'net' has no layer '{path}'") as raised:
        build_of(user("Tapped"), tapped, outputs="[loss, h]")
    assert raised.value.diagnostics[0].span is not None


def test_a_loss_of_ones_own_may_be_a_sum_and_a_count():
    ops = OPS.replace("loss: mse", "loss: 'tests.backends.tensorflow.users:half_squared'")
    loss = build_of(user("Plain"), ops)(batch_of())["loss"]
    assert np.allclose(loss * 2, build_of(user("Plain"))(batch_of())["loss"])


@pytest.mark.parametrize("kind", ["Plain", "Stateful", "Open"])
def test_keras_models_are_made_in_the_type_of_the_step(kind):
    step = build_of(user(kind), dtype="float64")
    assert {each.dtype for each in step(batch_of()).values()} == {tf.float64}
    assert {str(each.dtype) for each in step.models["net"].trainable_variables} <= {"float64", "<dtype: 'float64'>"}


def test_a_module_of_another_type_is_refused_with_the_ways_out():
    with pytest.raises(SpecError, match=r"GS208.*model 'net': its parameter 'kernel' is float32.*float64"):
        build_of(user("Module"), dtype="float64")
    build_of(user("Module", ", args: {dtype: float64}"), dtype="float64")


def test_a_model_of_unknown_inputs_without_variables_says_what_it_needs():
    plan = plan_of(user("Plain"))
    text = next(iter(plan.spec.texts().values())).replace("x: {shape: [batch, 4]}", "x: {}")
    assert "x: {}" in text
    from compiler import compile_step
    from graphspec import load
    from runtime import build

    with pytest.raises(StepError, match=r"GS214.*makes its variables when it is called"):
        build(compile_step(load(text), "tensorflow"), device="cpu", allow=["tests"])


class CountingLayer(keras.layers.Layer):
    """Counts its calls and draws, whatever mode it is in, in variables that it has early or makes late."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.dense, self.drop = keras.layers.Dense(3), keras.layers.Dropout(0.5)
        if not late:
            self.make()

    def make(self):
        self.calls = self.add_weight(shape=(), initializer="ones", trainable=False, name="calls")

    def build(self, shape):
        if not hasattr(self, "calls"):
            self.make()
        self.dense.build(shape)
        self.built = True

    def call(self, x):
        self.calls.assign_add(1.0)
        self.drop(x, training=True)
        return self.dense(x)

    def state(self):
        return int(self.drop.seed_generator.state[1])


class CountingModule(tf.Module):
    """The same, of TensorFlow alone: one variable is there, the weight and another are made by the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.kernel = tf.Variable(1.0, trainable=False), None
        self.generator = tf.random.Generator.from_seed(1)

    def __call__(self, x):
        if self.kernel is None:
            self.kernel, self.calls = tf.Variable(tf.ones((4, 3))), tf.Variable(1.0, trainable=False)
        self.early.assign_add(1.0)
        self.calls.assign_add(1.0)
        self.generator.normal(())
        return x @ self.kernel + self.early - self.calls

    def state(self):
        return int(self.generator.state[0]) - 1


@pytest.mark.parametrize("make", [lambda: CountingLayer(late=False), lambda: CountingLayer(late=True), CountingModule])
def test_build_leaves_the_variables_of_a_given_model_as_they_were(make):
    model = make()
    step = build_of(user("Plain"), models={"net": model})
    assert float(model.calls) == 1.0
    assert model.state() == 0
    step(batch_of())
    assert float(model.calls) == 2.0
