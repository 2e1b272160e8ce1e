"""Activation checkpoints: a forward whose inner results are not kept gives the numbers of one whose results are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import batch_norm, mse_loss

from compiler import Plan, compile_step
from compiler.ir.program import Program
from graphspec import SpecError, load
from runtime import build, emit
from tests.features.steps import build_step, set_weights, weights

GAN = """
graphspec: 1
name: gan
inputs: {x: {shape: [batch, 3]}, z: {shape: [batch, 2]}}
models:
  g: {layers: [{linear: 4}, tanh, {linear: 3}], optimizer: {name: sgd, lr: 0.3}}
  d: {layers: [{linear: 5}, batch_norm, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.2}}
ops:
  fake: {forward: g, inputs: z, checkpoint: true}
  on_real: {forward: d, inputs: x, checkpoint: true}
  on_fake: {forward: d, inputs: fake, checkpoint: true}
  d_real: {loss: mse, inputs: [on_real, 1.0]}
  d_fake: {loss: mse, inputs: [on_fake, 0.0]}
  score: {call: sum, inputs: on_real}
  slopes: {gradient: score, wrt: x}
  flat: {loss: mse, inputs: [slopes, 0.3]}
  both: {call: add, inputs: [d_real, d_fake]}
  d_loss: {call: add, inputs: [both, flat]}
  step_d: {update: d, loss: d_loss}
  g_loss: {loss: mse, inputs: [on_fake, 1.0]}
  step_g: {update: g, loss: g_loss}
outputs: [d_loss, g_loss]
"""
"""All at once: statistics, one forward for two gradients, a gradient of a gradient, both updates from old weights."""
DROPOUT = """
graphspec: 1
name: dropout
inputs: {x: {shape: [batch, 3]}, z: {shape: [batch, 3]}}
FIELDS
models:
  net:
    layers: [{linear: 8}, batch_norm, tanh, {dropout: 0.4}, {linear: 8}, {dropout: 0.2}, {linear: 1}]
    optimizer: {name: adam, lr: 0.05}
    EXTRA
  head: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  seen: {forward: net, inputs: x, checkpoint: true}
  other: {forward: net, inputs: z, checkpoint: true}
  steady: {forward: net, inputs: x, train: false}
  fit: {loss: mse, inputs: [seen, 1.0]}
  near: {loss: mse, inputs: [steady, 0.5]}
  apart: {loss: l1, inputs: [other, 0.0]}
  some: {call: add, inputs: [fit, near]}
  total: {call: add, inputs: [some, apart]}
  step_net: {update: net, loss: total}
  late: {forward: net, inputs: z, after: step_net, checkpoint: true}
  judged: {forward: head, inputs: late, checkpoint: true}
  end: {loss: mse, inputs: [judged, 0.5]}
  step_head: {update: head, loss: end}
outputs: [total, end]
"""
"""Masks that both runs of a forward must draw alike, of forwards in one order and gradients in another."""
DEEP = """
graphspec: 1
name: deep
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 8}, tanh, {linear: 8}, tanh, {linear: 8}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: net, inputs: x, checkpoint: true}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
"""


def draw_batch(text: str, number: int) -> Mapping[str, np.ndarray]:
    """Return a batch of six rows for a spec."""
    random = np.random.default_rng(number)
    return {
        name: random.normal(size=(6, *(size for size in entry.shape or () if isinstance(size, int))))
        for name, entry in load(text).inputs.items()
    }


def without(text: str) -> str:
    """Return a spec without checkpoints."""
    assert ", checkpoint: true" in text
    return text.replace(", checkpoint: true", "")


def run(text: str, plan: Plan, dtype: str = "float64") -> Iterator[tuple[str, np.ndarray]]:
    """Yield all that three steps give and leave."""
    step = build(plan, device="cpu", dtype=dtype, allow=("tests",))
    for number in range(3):
        out = step({name: array.astype(dtype) for name, array in draw_batch(text, number).items()})
        yield from ((f"{number} {name}", np.asarray(value)) for name, value in out.items())
    yield from weights(step).items()


def assert_alike(text: str, backend: str, dtype: str = "float64") -> None:
    """Compare a spec with itself without checkpoints, where writes come as early and as late as they may."""
    near = {"rtol": 1e-12, "atol": 1e-13} if dtype == "float64" else {"rtol": 1e-6, "atol": 1e-7}
    wanted = dict(run(without(text), compile_step(load(without(text)), backend), dtype))
    for plan in distinct(compile_step(load(text), backend, order) for order in ("fewest", "latest")):
        for name, value in run(text, plan, dtype):
            np.testing.assert_allclose(value, wanted[name], **near, err_msg=name)


def distinct(plans: Iterable[Plan]) -> Iterator[Plan]:
    """Yield the plans whose programs differ by more than the name of their order."""
    seen: list[Program] = []
    for plan in plans:
        program = replace(plan.program, order="")
        if program not in seen:
            seen.append(program)
            yield plan


def loop(start: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what three steps of the GAN give and leave, written out by hand with nothing recomputed."""
    w = {name: torch.tensor(value) for name, value in start.items()}
    owned = {owner: [name for name in w if name.startswith(owner) and "running" not in name] for owner in ("g.", "d.")}

    def judge(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ w["d.0.weight"].T + w["d.0.bias"]
        statistics = w["d.1.running_mean"], w["d.1.running_var"]
        hidden = batch_norm(hidden, *statistics, w["d.1.weight"], w["d.1.bias"], training=True, momentum=0.1)
        return torch.tanh(hidden) @ w["d.3.weight"].T + w["d.3.bias"]

    for number in range(3):
        batch = {name: torch.tensor(value) for name, value in draw_batch(GAN, number).items()}
        for name in (*owned["g."], *owned["d."]):
            w[name].requires_grad_()
        fake = torch.tanh(batch["z"] @ w["g.0.weight"].T + w["g.0.bias"]) @ w["g.2.weight"].T + w["g.2.bias"]
        x = batch["x"].requires_grad_()
        on_real, on_fake = judge(x), judge(fake)
        (slopes,) = torch.autograd.grad(on_real.sum(), x, create_graph=True)
        d_loss = mse_loss(on_real, torch.ones_like(on_real)) + mse_loss(on_fake, torch.zeros_like(on_fake))
        d_loss = d_loss + mse_loss(slopes, torch.full_like(slopes, 0.3))
        g_loss = mse_loss(on_fake, torch.ones_like(on_fake))
        found = {
            owner: torch.autograd.grad(loss, [w[name] for name in owned[owner]], retain_graph=True)
            for owner, loss in (("d.", d_loss), ("g.", g_loss))
        }
        with torch.no_grad():
            for owner, rate in (("d.", 0.2), ("g.", 0.3)):
                for name, gradient in zip(owned[owner], found[owner], strict=True):
                    w[name] = w[name] - rate * gradient
        yield from ((f"{number} d_loss", d_loss.detach().numpy()), (f"{number} g_loss", g_loss.detach().numpy()))
    yield from ((name, value.detach().numpy()) for name, value in w.items())


@pytest.mark.parametrize("order", ["fewest", "listed", "latest"])
def test_the_numbers_are_those_of_a_loop_that_keeps_everything(backend: str, order: str) -> None:
    step = build(compile_step(load(GAN), backend, order), device="cpu", dtype="float64")
    random = np.random.default_rng(7)
    start = {name: random.normal(size=value.shape) for name, value in weights(step).items() if value.dtype.kind == "f"}
    start = {name: np.abs(value) if "running_var" in name else value for name, value in start.items()}
    set_weights(step, start)
    found = {f"{n} {name}": value for n in range(3) for name, value in step(draw_batch(GAN, n)).items()}
    for name, value in loop(start):
        np.testing.assert_allclose(np.asarray({**found, **weights(step)}[name]), value, rtol=1e-12, err_msg=name)


FIELDS = ["rng: native", "rng: portable", "micro_batches: 2", "precision: {loss_scale: dynamic}"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("fields", FIELDS)
def test_both_runs_draw_the_same_numbers(backend: str, fields: str) -> None:
    assert_alike(DROPOUT.replace("FIELDS", fields).replace("EXTRA", ""), backend)


@pytest.mark.sample(6)
@pytest.mark.parametrize("group", ["frozen: true", "frozen: {until: 2 steps}"])
def test_some_parameters_may_be_frozen(backend: str, group: str) -> None:
    text = DROPOUT.replace("FIELDS", "rng: native")
    assert_alike(text.replace("EXTRA", f'groups: [{{match: "^[04][.]", {group}}}]'), backend)


def test_lower_precision_is_lower_both_times(backend: str) -> None:
    fields = "precision: {compute: bfloat16}"
    assert_alike(DROPOUT.replace("FIELDS", fields).replace("EXTRA", ""), backend, "float32")


OWN = """
graphspec: 1
name: own
inputs: {x: {shape: [batch, 4]}, z: {shape: [batch, 4]}}
models:
  first: {layers: [{linear: 4}], optimizer: {name: sgd, lr: 0.5}}
  net: {class: "tests.backends.BACKEND.users:KIND", args: {ARGS}, optimizer: {name: sgd, lr: 0.5}}
ops:
  hidden: {forward: first, inputs: x}
  out: {forward: net, inputs: {x: hidden}, checkpoint: true}
  other: {forward: net, inputs: z, method: CALL, checkpoint: true}
  fit: {loss: mse, inputs: [out, 1.0]}
  rest: {loss: mse, inputs: [other, 0.0]}
  total: {call: add, inputs: [fit, rest]}
  step: {update: [first, net], loss: total}
"""


def own(backend: str, kind: str, args: str) -> str:
    """Return a spec with a class of the tests, called by the name of its argument and by the name of its method."""
    text = OWN.replace("BACKEND", backend).replace("KIND", kind).replace("ARGS", args)
    return text.replace("CALL", "forward" if backend == "torch" else "call")


@pytest.mark.sample(6)
@pytest.mark.parametrize("args", ["on: false, norm: true", "on: false, drop: true"])
def test_users_classes_are_called_by_name_and_by_method(backend: str, args: str) -> None:
    """Keras's dropout draws from a state of its own, which both runs begin with."""
    text = own(backend, "Recomputing", args)
    assert_alike(text, backend)
    told = next(note for note in build_step(text, backend).notes if "observed of 'net'" in note)
    assert told.endswith(", no recomputed forwards")


def test_a_checkpoint_may_hold_another_of_the_class() -> None:
    assert_alike(own("torch", "Recomputing", "on: true, norm: true"), "torch")


@pytest.mark.parametrize(("backend", "kind"), [("torch", "Generating"), ("tensorflow", "Noisy")])
def test_a_class_that_draws_other_numbers_the_second_time_is_refused(backend: str, kind: str) -> None:
    text = own(backend, kind, "").replace("method: call, ", "")
    build_step(without(text), backend, dtype="float32")
    with pytest.raises(SpecError, match=r"GS134.*model 'net' draws other random numbers"):
        build_step(text, backend, dtype="float32")


def test_one_gradient_cannot_run_a_model_again_in_two_modes_on_pytorch() -> None:
    """Only one of the two draws: the other would draw when it runs again."""
    text = DROPOUT.replace("FIELDS", "").replace("EXTRA", "").replace("batch_norm, ", "")
    text = text.replace("train: false}", "train: false, checkpoint: true}")
    with pytest.raises(SpecError, match="GS133") as raised:
        compile_step(load(text), "torch")
    assert "remove `checkpoint` from one" in (raised.value.diagnostics[0].help or "")
    compile_step(load(text), "tensorflow")


def test_a_class_without_buffers_and_draws_may_still_go_by_its_mode() -> None:
    text = """
graphspec: 1
name: modes
inputs: {x: {shape: [batch, 3]}}
models:
  net: {class: "zoo:Net", traits: {buffers: false, rng: false, recomputes: false}, optimizer: {name: sgd, lr: 0.1}}
ops:
  seen: {forward: net, inputs: x, checkpoint: true}
  steady: {forward: net, inputs: x, train: false, checkpoint: true}
  cost: {loss: mse, inputs: [seen, steady]}
  step: {update: net, loss: cost}
"""
    with pytest.raises(SpecError, match=r"GS133.*recomputes 'seen' as in training and 'steady' as in evaluation"):
        compile_step(load(text))
    compile_step(load(text.replace(", train: false", "")))
    averages = "own: {forward: net, inputs: x}\n  twice: {ema: once, decay: 0.9}\n  once: {ema: net, decay: 0.9}"
    averaged = text.replace("net, inputs: x, checkpoint", "twice, inputs: own, train: true, checkpoint")
    averaged = averaged.replace("net, inputs: x, train: false", "twice, inputs: own, train: false")
    averaged = averaged.replace("ops:", f"ops:\n  {averages}")
    with pytest.raises(SpecError, match=r"GS133.*'twice' can be in one mode only"):
        compile_step(load(averaged))


def test_a_circle_through_a_checkpoint_names_the_clones_that_would_break_it() -> None:
    text = """
graphspec: 1
name: circle
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}, first: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  start: {forward: first, inputs: x}
  old: {forward: net, inputs: start, checkpoint: true}
  loss: {loss: mse, inputs: [old, 1.0]}
  step: {update: net, loss: loss}
  new: {forward: net, inputs: x, after: step}
  both: {loss: mse, inputs: [old, new]}
  move: {update: first, loss: both}
"""
    for backend in ("torch", "tensorflow"):
        with pytest.raises(SpecError, match=r"E-TWO-VERSIONS.*(\n.*)*in place of `checkpoint: true` on 'old'"):
            compile_step(load(text), backend)
        compile_step(load(text.replace("checkpoint", "snapshot")), backend)


def test_a_plan_tells_what_runs_again_and_which_write_waits(backend: str) -> None:
    plan = compile_step(load(GAN), backend, "listed")
    text = plan.text("train")
    assert "on_fake = d(fake)" in text
    assert "[train, checkpoint]" in text
    assert "gradient step_g still recomputes with d.params@0 through on_fake" in plan.explain("step_d")
    listed = plan.to_json()["functions"][0]["instructions"]
    assert {each["op"] for each in listed if each.get("checkpoint")} == {"fake", "on_real", "on_fake"}


def count_saved(text: str) -> int:
    """Return how many tensors a step of PyTorch keeps for gradients, those of a checkpoint's second run left out."""
    step = build_step(text, "torch")
    kept: list[torch.Tensor] = []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        step(draw_batch(text, 0))
    weighty = [tensor for tensor in kept if not isinstance(tensor, torch.nn.Parameter) and tensor.shape[-1:] == (8,)]
    return len(weighty)


def test_pytorch_keeps_no_inner_results() -> None:
    assert count_saved(without(DEEP)) >= 3
    assert count_saved(DEEP) == 0


@pytest.mark.sample(2)
@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("kept", [True, False])
def test_tensorflow_keeps_no_inner_results(kept: bool) -> None:
    """In the graph that runs, optimized, derivatives of tanh read what is made for the loss, or what is made anew."""
    from tests.backends.tensorflow.optimized import optimized

    nodes = optimized(emit(compile_step(load(without(DEEP) if kept else DEEP), "tensorflow")), draw_batch(DEEP, 0))
    made = ancestors(nodes, {name for name, node in nodes.items() if node.op == "_Retval"})
    read = {node.input[0].partition(":")[0] for node in nodes.values() if node.op == "TanhGrad"}
    assert len(read) == 3
    assert len(read & made) == (3 if kept else 0)


def ancestors(nodes: Mapping[str, object], names: set[str]) -> set[str]:
    """Return the nodes that some are made of."""
    pending, found = [*names], set[str]()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(each.partition(":")[0] for each in nodes[name].input if not each.startswith("^"))
    return found
