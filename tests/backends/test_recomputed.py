"""Classes that recompute their forwards when a gradient is taken: the numbers are those of the same class without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from compiler import Plan, compile_step
from graphspec import SpecError, load
from runtime import Step, build

BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
SPEC = """
graphspec: 1
name: recomputed
inputs: {x: {shape: [batch, 4]}, z: {shape: [batch, 4]}}
models:
  g: {layers: [{linear: 4}, tanh], optimizer: {name: sgd, lr: 0.5}}
  d: {class: "tests.backends.BACKEND.users:Recomputing", args: {ARGS}, TRAITS optimizer: {name: sgd, lr: 0.5}}
ops:
  fake: {forward: g, inputs: z}
  on_real: {forward: d, inputs: x}
  on_fake: {forward: d, inputs: fake, after: []}
  d_real: {loss: mse, inputs: [on_real, 1.0]}
  d_fake: {loss: mse, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: d, loss: d_loss}
"""
SIMULTANEOUS = """
  g_loss: {loss: mse, inputs: [on_fake, 1.0]}
  step_g: {update: g, loss: g_loss}
outputs: [d_loss, g_loss]
"""
ALTERNATING = """
  judged: {forward: d, inputs: fake, after: step_d, train: false}
  g_loss: {loss: mse, inputs: [judged, 1.0]}
  step_g: {update: g, loss: g_loss}
outputs: [d_loss, g_loss]
"""
WAITING = """
  steady: {forward: d, inputs: x, train: false, after: step_d}
  g_loss: {loss: mse, inputs: [on_fake, 1.0]}
  step_g: {update: g, loss: g_loss, after: steady}
outputs: [d_loss, g_loss, steady]
"""
"""A forward in evaluation between a forward in training and a gradient that recomputes it."""
MIXED = """
  judged: {forward: d, inputs: fake, train: false, after: []}
  both: {call: add, inputs: [on_fake, judged]}
  g_loss: {loss: mse, inputs: [both, 1.0]}
  step_g: {update: g, loss: g_loss}
"""


def plan_of(
    backend: str, args: str, ops: str = SIMULTANEOUS, traits: str = "", order: str = "fewest", spec: str = SPEC
) -> Plan:
    """Return the plan of a GAN whose discriminator may recompute its forwards."""
    text = spec.replace("BACKEND", backend).replace("ARGS", args).replace("TRAITS", traits and f"traits: {traits},")
    return compile_step(load(text + ops.lstrip("\n")), backend, order)


def build_of(
    backend: str, args: str, ops: str = SIMULTANEOUS, traits: str = "", order: str = "fewest", spec: str = SPEC
) -> Step:
    """Return the built step of such a plan."""
    return build(plan_of(backend, args, ops, traits, order, spec), device="cpu", dtype="float64", allow=["tests"])


def train(step: Step) -> Mapping[str, np.ndarray]:
    """Return all that there is after three steps."""
    random = np.random.default_rng(4)
    for _ in range(3):
        step({"x": random.normal(size=(6, 4)), "z": random.normal(size=(6, 4))})
    return {name: np.asarray(value) for name, value in step.tensors().items()}


def assert_alike(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """Compare all tensors of two steps."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-13, err_msg=name)


APART = """
  step_g: {update: g, loss: d_loss}
"""
"""Two gradients of one loss: what one of them recomputes does not lead to the targets of the other."""

CASES = {"simultaneous": SIMULTANEOUS, "alternating": ALTERNATING, "waiting": WAITING}
TRIED = [("torch", "simultaneous"), ("torch", "alternating"), ("torch", "waiting"), ("tensorflow", "simultaneous")]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("backend", "case"), TRIED)
def test_recomputed_forwards_read_what_they_read_the_first_time(backend, case):
    wanted = train(build_of(backend, "on: false, norm: true", CASES[case]))
    for order in ("listed", "latest"):
        assert_alike(train(build_of(backend, "on: true, norm: true", CASES[case], order=order)), wanted)


@BACKENDS
def test_statistics_are_those_of_the_first_run_where_tapes_are_shared(backend):
    spec = SPEC.replace("  on_fake: {forward: d, inputs: fake, after: []}\n", "").replace("[on_fake,", "[fake,")
    found, wanted = (train(build_of(backend, f"on: {on}, norm: true", APART, spec=spec)) for on in ("true", "false"))
    assert_alike(found, wanted)


def test_frozen_groups_are_recorded_both_times():
    spec = SPEC.replace("TRAITS", 'groups: [{match: "^first", frozen: true}], TRAITS')
    found, wanted = (train(build_of("torch", f"on: {on}", spec=spec)) for on in ("true", "false"))
    assert_alike(found, wanted)


@BACKENDS
def test_a_write_waits_for_the_gradient_that_recomputes_on_every_backend(backend):
    """Without the trait the tapes of TensorFlow keep what was read, and nothing waits."""
    traits = {on: f"{{recomputes: {on}}}" for on in ("true", "false")}
    plans = {on: plan_of(backend, "on: true", traits=told, order="listed") for on, told in traits.items()}
    deferred = {
        on: [one.subject for one in graph_of(plan).decisions if one.code == "DEFER"] for on, plan in plans.items()
    }
    assert deferred == {"true": ["step_d"], "false": ["step_d"] if backend == "torch" else []}
    told = next(one for one in graph_of(plans["true"]).decisions if one.code == "DEFER")
    assert "still recomputes with d.params@0 through on_fake" in told.text
    recomputing = [one.subject for one in graph_of(plans["true"]).decisions if one.code == "RECOMPUTE"]
    assert recomputing == ["step_d", "step_g"]


def graph_of(plan: Plan):
    """Return the graph of a step of training."""
    return plan.graphs["train_step"]


@BACKENDS
def test_what_is_recomputed_is_observed_and_told(backend):
    plan = plan_of(backend, "on: true")
    assert any("no recomputed forwards" in note for note in plan.notes)
    step = build_of(backend, "on: true")
    assert any("observed of 'd'" in note and note.endswith(", recomputed forwards") for note in step.notes)
    assert not any("recomputed" in note for note in step.plan.notes)
    plain = build_of(backend, "on: false")
    assert any("observed of 'd'" in note and note.endswith(", no recomputed forwards") for note in plain.notes)


@BACKENDS
def test_a_class_that_denies_what_it_recomputes_is_refused(backend):
    with pytest.raises(SpecError, match=r"GS206.*declares `recomputes: false`"):
        build_of(backend, "on: true", traits="{recomputes: false}")


def test_dropout_is_recomputed_with_the_same_numbers_where_the_checkpoint_keeps_them():
    wanted = train(build_of("torch", "on: false, drop: true"))
    assert_alike(train(build_of("torch", "on: true, drop: true")), wanted)


@pytest.mark.parametrize(("backend", "args"), [("torch", "drop: true, keep: false"), ("tensorflow", "drop: true")])
def test_a_class_that_draws_other_numbers_the_second_time_is_refused(backend, args):
    with pytest.raises(SpecError, match=r"GS134.*model 'd' draws other random numbers"):
        build_of(backend, f"on: true, {args}")


def test_one_gradient_cannot_recompute_a_model_in_two_modes_on_pytorch():
    with pytest.raises(SpecError, match=r"GS133.*recomputes 'on_fake' as in training and 'judged' as in evaluation"):
        plan_of("torch", "on: true", MIXED, "{recomputes: true}")
    plan_of("torch", "on: false", MIXED)


def test_one_gradient_recomputes_a_model_in_two_modes_on_tensorflow():
    found, wanted = (train(build_of("tensorflow", f"on: {on}", MIXED)) for on in ("true", "false"))
    assert_alike(found, wanted)


@BACKENDS
def test_a_class_that_could_not_be_watched_must_say_that_it_recomputes(backend):
    """Sizes that are not known at build: on PyTorch the first batch shows what the class does."""
    free = SPEC.replace("x: {shape: [batch, 4]}", "x: {shape: [batch, width]}")
    with pytest.raises(SpecError, match=r"GS135.*parts of model 'd' are recomputed"):
        train(build_of(backend, "on: true", spec=free))
    assert train(build_of(backend, "on: true", traits="{recomputes: true}", spec=free))


def test_a_gradient_written_by_hand_that_reads_the_weight_again_must_be_declared():
    spec = SPEC.replace("users:Recomputing", "users:OwnGradient").replace("args: {ARGS}, ", "")
    with pytest.raises(SpecError, match=r"GS135.*parts of model 'd' are recomputed"):
        build_of("tensorflow", "", spec=spec, order="listed")
    step, batch = build_of("tensorflow", "", traits="{recomputes: true}", spec=spec), np.ones((2, 4))
    before = {name: np.asarray(value) for name, value in step.tensors().items()}
    step({"x": batch, "z": batch})
    fake = np.tanh(batch @ before["models.g.0.weight"].T + before["models.g.0.bias"])
    slope = 2 * (fake @ before["models.d.layer.kernel"] - 1) / fake.size @ before["models.d.layer.kernel"].T
    wanted = before["models.g.0.bias"] - 0.5 * ((1 - fake**2) * slope).sum(axis=0)
    np.testing.assert_allclose(np.asarray(step.tensors()["models.g.0.bias"]), wanted, rtol=1e-12)


def test_a_class_that_shares_a_weight_with_one_that_is_checkpointed_recomputes_nothing():
    from tests.conformance.users import make_models  # imports TensorFlow

    spec = load("""
graphspec: 1
name: shared
inputs: {x: {shape: [batch, 2]}}
models:
  coder: {class: "tests.conformance.users:Coder", args: {size: 2}}
  reader: {class: "tests.conformance.users:Reader", args: {size: 2}, traits: {ties: [coder.weight]}}
ops:
  code: {forward: coder, inputs: x, checkpoint: true}
  read: {forward: reader, inputs: code}
  loss: {loss: mse, inputs: [read, x]}
  step: {update: [coder, reader], loss: loss, optimizer: sgd}
""")
    step = build(compile_step(spec, "tensorflow"), device="cpu", dtype="float64", models=make_models(spec))
    assert np.isfinite(float(step({"x": np.ones((3, 2))})["loss"]))


def test_clones_of_weights_do_not_help_a_forward_that_reads_its_model_again():
    ops = """
  behind: {forward: d, inputs: x, after: step_d}
  old: {call: sub, inputs: [on_fake, behind]}
  g_loss: {loss: mse, inputs: [old, 1.0]}
  step_g: {update: g, loss: g_loss}
"""
    snapshot = ("on_fake: {", "on_fake: {snapshot: true, ")
    text = SPEC.replace("BACKEND", "torch").replace("ARGS", "on: true").replace(*snapshot) + ops.lstrip("\n")
    compile_step(load(text.replace("TRAITS", "")))
    with pytest.raises(SpecError, match="E-TWO-VERSIONS") as raised:
        compile_step(load(text.replace("TRAITS", "traits: {recomputes: true},")))
    assert "snapshot" not in (raised.value.diagnostics[0].help or "")
