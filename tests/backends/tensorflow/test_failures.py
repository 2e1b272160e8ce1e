"""What goes wrong in a step is told at its place in the spec, with the user's frames and nothing of ours."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, StepError, build
from tests.backends.tensorflow.specs import OPS, USERS, batch_of, build_of, plan_of, user
from tests.backends.tensorflow.users import Module

CLASSES = """
graphspec: 1
name: classes
inputs: {x: {shape: [batch, 4]}, label: {shape: [batch], dtype: int64}}
models: {net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  scores: {forward: net, inputs: x}
  wrong: {loss: cross_entropy, inputs: [scores, label]}
  learn: {update: net, loss: wrong}
outputs: [wrong]
"""


def codes(error: SpecError) -> list[str]:
    """Return the codes of an error."""
    return [each.code for each in error.diagnostics]


def classifier() -> Step:
    """Return a step that classifies."""
    return build(compile_step(load(CLASSES), "tensorflow"), device="cpu")


def test_an_assertion_in_the_graph_is_told_with_its_op_and_the_users_frames_only():
    step = build_of(user("Asserting"))
    with pytest.raises(StepError, match=r"op 'y' raised InvalidArgumentError: .*too many samples") as raised:
        step(batch_of(6))
    text = str(raised.value)
    assert codes(raised.value) == ["GS210"]
    assert "y: {forward: net, inputs: x}" in text
    assert [line.split(": ")[0].split()[-1] for line in text.splitlines() if "users.py:" in line] == [
        "__call__",
        "check",
    ]
    assert "stepgraph" not in text
    assert "site-packages" not in text
    assert "in step 1 of mode train" in text


def test_a_class_number_out_of_range_is_told_at_its_loss():
    with pytest.raises(StepError, match=r"GS211.*op 'wrong' failed: .*label value of 7") as raised:
        classifier()({"x": np.ones((2, 4), "f"), "label": np.array([0, 7])})
    assert "wrong: {loss: cross_entropy" in str(raised.value)
    assert "defined at" not in str(raised.value)


def test_a_step_whose_graph_failed_goes_on_once_it_is_restored():
    step, fresh = classifier(), classifier()
    good, before = {"x": np.ones((2, 4), "f"), "label": np.array([0, 2])}, step.state()
    with pytest.raises(StepError, match="GS211"):
        step({**good, "label": np.array([0, 7])})
    with pytest.raises(StepError, match="GS290"):
        step(good)
    step.restore(before)
    assert step.report.step == 0
    assert np.array_equal(step.numpy(step(good)["wrong"]), fresh.numpy(fresh(good)["wrong"]))
    assert step.report.step == 1


def test_an_error_while_the_graph_is_made_says_what_the_op_was_called_with():
    with pytest.raises(StepError, match="op 'y' raised ValueError: nothing fits") as raised:
        build_of(user("Raising"))
    assert "called with x: float32 [2, 4]" in raised.value.diagnostics[0].notes
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_wrong_arguments_of_a_class_are_told_where_they_stand():
    with pytest.raises(StepError, match=r"compare `args` with what tests\.backends\..*:Plain takes") as raised:
        build_of(user("Plain", ", args: {size: 5}"))
    text = str(raised.value)
    assert text.splitlines()[4].index("^") == text.splitlines()[3].index("{size: 5}")


@pytest.mark.parametrize(
    ("net", "code", "message"),
    [
        (user("Plain", ", args: {out: 5}"), "GS211", "op 'loss' failed: "),
        (user("Unused"), "GS212", "'loss' does not depend on net.head"),
        (user("Broken"), "GS210", "model 'net' raised OSError: no such weights"),
        (user("NoModel"), "GS208", "the class of model 'net' makes NoModel, expected a model or layer of Keras"),
        (user("Plain", ", args: {size: 5}"), "GS211", "unexpected keyword argument 'size'"),
        (user("Named"), "GS211", "op 'loss' failed: a call gave several results where one was expected"),
        (user("Branching"), "GS210", "use `tf.where`, `tf.cond` or `tf.while_loop`"),
        (user("Numeric"), "GS210", "compute with TensorFlow's operations"),
        (user("Rolling"), "GS211", "op 'y' failed: it draws random numbers of Python or NumPy"),
        (user("Replacing"), "GS215", "replaces its attribute 'center' by a new tensor"),
        (user("Growing"), "GS210", "make all variables of a model in its constructor"),
        (
            f"{{layers: [{{linear: 3}}], optimizer: {{class: '{USERS}:NoModel', lr: 0.1}}}}",
            "GS211",
            "model 'net' failed",
        ),
    ],
)
def test_what_is_wrong_is_found_before_the_first_step(net, code, message):
    with pytest.raises(SpecError) as raised:
        build_of(net)
    assert codes(raised.value) == [code]
    assert message in str(raised.value)


def test_a_loss_of_unknown_sizes_that_is_no_single_number_is_refused():
    ops = OPS.replace("loss: mse", f"loss: '{USERS}:squares'")
    text = (
        next(iter(plan_of(user("Module"), OPS).spec.texts().values())).replace(OPS, ops).replace("[batch, 3]", "[n, 3]")
    )
    with pytest.raises(StepError, match="the loss is not a single number"):
        build(compile_step(load(text), "tensorflow"), device="cpu", allow=[USERS])


def test_nothing_is_imported_that_was_not_allowed():
    with pytest.raises(SpecError, match="--allow tests"):
        build(plan_of(user("Plain")), device="cpu")


def test_a_model_without_anything_to_train_says_so():
    given = Module()
    given.kernel, given.bias = (tf.Variable(each, trainable=False) for each in (given.kernel, given.bias))
    with pytest.raises(StepError, match="there is nothing to differentiate by"):
        build_of(user("Module"), models={"net": given})


@pytest.mark.parametrize("device", ["gpu:99", "cuda:99", "tpu", "cpu:3", "meta"])
def test_a_device_that_is_not_there_is_an_error(device):
    with pytest.raises(SpecError, match="GS207"):
        build(plan_of("{layers: [{linear: 3}], optimizer: adam}"), device=device)


def test_nothing_reaches_the_terminal_where_a_graph_cannot_be_made(capfd):
    with pytest.raises(StepError, match="op 'loss' failed"):
        build_of(user("Plain", ", args: {out: 5}"))
    assert capfd.readouterr() == ("", "")
