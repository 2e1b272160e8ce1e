"""Penalties and constraints of Keras's layers act as in Keras's own training; what no spec can say is refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from runtime.backends.tensorflow.execution import ERRORS

SPEC = """
graphspec: 1
name: terms
inputs: {x: {shape: [batch, 2]}, t: {shape: [batch, 3]}}
models: {net: {class: "zoo:Net", optimizer: OPTIMIZER}}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t]}
  step: {update: net, loss: loss}
"""
TWO_LOSSES = """
graphspec: 1
name: two-losses
inputs: {x: {shape: [batch, 2]}}
models: {net: {class: "zoo:Net", optimizer: {name: sgd, lr: 0.1}}}
ops:
  y: {forward: net, inputs: x}
  mean: {call: mean, inputs: y}
  one: {call: mul, inputs: [mean, 0.5]}
  two: {call: mul, inputs: [mean, 0.5]}
  first: {update: net, loss: one}
  second: {update: net, loss: two, after: first}
"""
SGD = "{name: sgd, lr: 0.1}"
BATCH = {
    "x": np.array([[1.0, 2.0], [3.0, -1.0], [-2.0, 0.5]], "float32"),
    "t": np.array([[1.0, 0.0, 2.0], [-1.0, 3.0, 0.0], [0.0, 0.0, 1.0]], "float32"),
}
R, C = keras.regularizers, keras.constraints
TERMS = {
    "l1": {"kernel_regularizer": R.L1(0.3)},
    "l2": {"kernel_regularizer": R.L2(0.5)},
    "l1 and l2, bias": {"kernel_regularizer": R.L1L2(0.1, 0.2), "bias_regularizer": R.L2(0.3)},
    "non_neg": {"kernel_constraint": C.NonNeg()},
    "max_norm": {"kernel_constraint": C.MaxNorm(0.7)},
    "max_norm of rows": {"kernel_constraint": C.MaxNorm(0.4, axis=1)},
    "unit_norm": {"kernel_constraint": C.UnitNorm(), "bias_constraint": C.NonNeg()},
    "both": {"kernel_regularizer": "l2", "kernel_constraint": C.MaxNorm(0.5, axis=[0, 1])},
}


class Adding(keras.layers.Layer):
    """A layer that adds to the losses of its model while it trains."""

    def call(self, x, training=False):
        if training:
            self.add_loss(tf.reduce_mean(x))
        return x


class Plain(tf.Module):
    """A module whose variable has a constraint."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((2, 3)), constraint=tf.nn.relu)

    def __call__(self, x):
        return x @ self.weight


def dense(*more: keras.layers.Layer, units: int = 3, **options: object) -> keras.Model:
    """Return a network of two layers, the last with some penalties and constraints."""
    keras.utils.set_random_seed(3)
    last = keras.layers.Dense(units, **options)
    return keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2, activation="tanh"), last, *more])


def build_with(net: object, optimizer: str = SGD, spec: str = SPEC) -> Step:
    """Return the step that trains a model."""
    text = spec.replace("OPTIMIZER", optimizer)
    return build(compile_step(load(text), backend="tensorflow"), device="cpu", models={"net": net}, allow=["keras"])


def train_by_hand(net: keras.Model, optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Train as Keras documents its own loop: all that `losses` lists is added, the optimizer applies constraints."""
    for _ in range(steps):
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(net(BATCH["x"], training=True) - BATCH["t"]))
            total = tf.add_n([error, *net.losses])
        optimizer.apply(tape.gradient(total, net.trainable_variables), net.trainable_variables)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_layers_act_as_in_keras(name):
    ours, theirs, without = dense(**TERMS[name]), dense(**TERMS[name]), dense()
    step = build_with(ours)
    for _ in range(3):
        step(BATCH)
    train_by_hand(theirs, keras.optimizers.SGD(0.1), 3)
    train_by_hand(without, keras.optimizers.SGD(0.1), 3)
    for found, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(ours.get_weights()[2], without.get_weights()[2])
    assert any("'net' has its own penalties and constraints" in note for note in step.notes)


def test_a_penalty_counts_once_where_two_updates_train_the_model():
    net = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False, kernel_regularizer=R.L2(0.5))]
    )
    net.set_weights([np.ones((2, 1), "float32")])
    build_with(net, spec=TWO_LOSSES)({"x": np.array([[1.0, 2.0]], "float32")})
    np.testing.assert_allclose(net.get_weights()[0].ravel(), [0.8, 0.7], rtol=1e-6)  # FastEstimator's own numbers


def test_terms_of_the_spec_and_of_an_update_go_first():
    spec = SPEC.replace("loss: loss}", "loss: loss, constraint: {clip: [-0.2, 0.2], match: '^0[.]kernel'}}")
    net = dense(kernel_constraint=C.NonNeg())
    build_with(net, spec=spec.replace("OPTIMIZER}", "OPTIMIZER, regularizer: {l2: 0.5, match: '^1[.]kernel'}}"))(BATCH)
    by_hand = dense(kernel_regularizer=R.L2(0.5), kernel_constraint=C.NonNeg())
    train_by_hand(by_hand, keras.optimizers.SGD(0.1), 1)
    np.testing.assert_allclose(net.get_weights()[2], by_hand.get_weights()[2], rtol=1e-5)
    np.testing.assert_allclose(net.get_weights()[0], np.clip(by_hand.get_weights()[0], -0.2, 0.2), rtol=1e-5)


def test_what_is_frozen_has_no_penalty():
    net = dense(kernel_regularizer=R.L2(0.5))
    net.layers[1].trainable = False
    step, before = build_with(net), net.get_weights()[2]
    step(BATCH)
    assert (net.get_weights()[2] == before).all()
    assert not any("has its own penalties" in note for note in step.notes)


REFUSED = {
    "activity": (lambda: dense(activity_regularizer="l2"), "has an `activity_regularizer`", "outputs: [y, extra]"),
    "add_loss": (lambda: dense(Adding()), "calls `add_loss`", "{call: add, inputs: [loss, extra]}"),
    "regularizer": (
        lambda: dense(kernel_regularizer=R.OrthogonalRegularizer()),
        r"the regularizer of its variable '1\.kernel' \(OrthogonalRegularizer\)",
        """regularizer: {function: "pkg.mod:fn", match: '^1[.]kernel$'}""",
    ),
    "constraint": (
        lambda: dense(kernel_constraint=C.MinMaxNorm()),
        r"the constraint of its variable '1\.kernel' \(MinMaxNorm\)",
        """constraint: {function: "pkg.mod:fn", match: '^1[.]kernel$'}""",
    ),
    "of a tf.Variable": (Plain, r"the constraint of its variable 'weight' \(relu\)", "constraint: {function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_spec_can_say_is_refused_with_what_to_write(name):
    make, message, remedy = REFUSED[name]
    with pytest.raises(SpecError, match=f"GS274.*model 'net': .*{message}") as raised:
        build_with(make())
    assert remedy in raised.value.diagnostics[0].help


def test_what_is_added_in_training_alone_is_found_where_an_evaluation_runs_last():
    spec = (
        SPEC.replace("OPTIMIZER", "{name: sgd, lr: 0.1}")
        + "  judged: {forward: net, inputs: x, mode: eval}\noutputs: [judged]\n"
    )
    with pytest.raises(SpecError, match=r"GS274.*model 'net': .*calls `add_loss`"):
        build(compile_step(load(spec), "tensorflow"), device="cpu", models={"net": dense(Adding())}, allow=["tests"])


def test_a_model_that_nothing_trains_may_have_them():
    spec = SPEC.replace("step: {update: net, loss: loss}", "").replace(", optimizer: OPTIMIZER", "")
    build_with(dense(activity_regularizer="l2"), spec=spec)(BATCH)


def test_a_model_with_terms_in_place_of_layers_is_refused():
    spec = SPEC.replace('class: "zoo:Net"', "layers: [{linear: 3}]")
    with pytest.raises(SpecError, match=r"GS274.*the model passed in its place has its own penalties or constraints"):
        build_with(dense(kernel_regularizer="l2"), spec=spec)


@pytest.mark.parametrize("mode", ["full", "list_of_layers"])
def test_layers_of_a_remat_scope_are_told_with_what_to_write(mode):
    more = {"layer_names": ["last"]} if mode == "list_of_layers" else {}
    with keras.RematScope(mode=mode, **more):
        scoped = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="last")])
    with pytest.raises(SpecError, match="op 'y'") as raised:
        build_with(scoped)
    (told,) = raised.value.diagnostics
    advice = (
        "make the model outside of the scope, and write `checkpoint: true` on its forward: that recomputes all of it"
    )
    assert told.help.startswith(advice)
    assert "a `keras.RematScope` makes layers that are called so" in ERRORS.interpret(ValueError(str(raised.value)))[0]


def test_what_is_written_in_place_of_a_remat_scope_trains_as_keras_does():
    ours, theirs = dense(), dense()
    step = build_with(ours, spec=SPEC.replace("inputs: x}", "inputs: x, checkpoint: true}"))
    step(BATCH)
    train_by_hand(theirs, keras.optimizers.SGD(0.1), 1)
    for found, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


OPTIONS = ({"clipnorm": 0.1}, {"clipvalue": 0.05}, {"global_clipnorm": 0.2}, {"weight_decay": 0.1})


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: next(iter(each)))
def test_options_of_keras_optimizers_that_act_on_one_update_act_as_in_keras(options):
    ours, theirs = dense(), dense()
    ((name, value),) = options.items()
    step = build_with(ours, f'{{class: "keras.optimizers:Adam", lr: 0.1, {name}: {value}}}')
    for _ in range(3):
        step(BATCH)
    train_by_hand(theirs, keras.optimizers.Adam(0.1, **options), 3)
    for found, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("rate", [0.1, "{schedule: piecewise, at: {0: 0.1, 1: 0.02}}"])
@pytest.mark.parametrize("rule", ["Adafactor", "Muon"])
def test_rules_that_go_by_the_names_of_variables_are_those_of_keras(rule, rate):
    ours, theirs = (keras.Sequential([keras.Input((2,)), embedding(), keras.layers.Dense(3)]) for _ in range(2))
    theirs.set_weights(ours.get_weights())
    step = build_with(ours, f'{{class: "keras.optimizers:{rule}", lr: {rate}}}')
    optimizer = getattr(keras.optimizers, rule)(0.1)
    for count in range(3):
        step(BATCH)
        optimizer.learning_rate = 0.1 if isinstance(rate, float) or count < 1 else 0.02
        train_by_hand(theirs, optimizer, 1)
    for found, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    state = step.state()
    step.reset()
    step.restore(state)
    step(BATCH)
    train_by_hand(theirs, optimizer, 1)
    for found, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def embedding():
    """Return a layer whose matrix Muon leaves to Adam, by its name."""
    return keras.layers.Dense(4, name="embedding")


@pytest.mark.parametrize("inner", ["", ", inner_optimizer: adam"])
def test_an_optimizer_that_scales_losses_is_refused_with_what_to_write(inner):
    with pytest.raises(SpecError, match=r"model 'net' failed: inner_optimizer of LossScaleOptimizer") as raised:
        build_with(dense(), f'{{class: "keras.optimizers:LossScaleOptimizer"{inner}}}')
    assert "name the inner class, and write `precision: {loss_scale: dynamic}`" in str(raised.value)


TAKEN = {
    "loss_scale_factor: 8": "precision: {loss_scale",
    "gradient_accumulation_steps: 2": "`accumulate: n`",
    "use_ema: true": "`{ema: net",
}


@pytest.mark.parametrize("option", TAKEN)
def test_options_for_what_a_step_does_itself_are_refused(option):
    with pytest.raises(SpecError, match=f"model 'net' failed: {option.partition(':')[0]} of Adam") as raised:
        build_with(dense(), f'{{class: "keras.optimizers:Adam", lr: 0.1, {option}}}')
    assert TAKEN[option] in str(raised.value)
