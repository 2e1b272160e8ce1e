"""Derived models: weights that are a value, called, differentiated and adapted again; against loops written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from compiler import compile_step
from graphspec import Graph, dump, load
from graphspec.diagnostics import SpecError
from graphspec.library import mse
from runtime import StepError
from tests.features.steps import build_step, weights

Weights = dict[str, torch.Tensor]
INPUTS = "{x: {shape: [batch, 2]}, y: {shape: [batch, 1]}, qx: {shape: [batch, 2]}, qy: {shape: [batch, 1]}}"
NET = "{layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}"
HEADER = f"graphspec: 1\nname: adapted\ninputs: {INPUTS}\n"
INNER = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
"""
OUTER = """
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: net, loss: outer_loss}
outputs: [inner_loss, outer_loss]
"""
STEPS = 10


def write(ops: str, models: str = f"net: {NET}") -> str:
    """Return a spec of the inputs of a task: some to adapt to, and others to judge by."""
    return f"{HEADER}models:\n  {models}\nops:{ops}"


def make_batches() -> list[dict[str, np.ndarray]]:
    """Return ten batches of tasks in double precision."""
    random = np.random.default_rng(3)
    sizes = {"x": (6, 2), "y": (6, 1), "qx": (6, 2), "qy": (6, 1)}
    return [{name: random.normal(size=size) for name, size in sizes.items()} for _ in range(STEPS)]


def run(w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return what the network gives with some weights, written out."""
    return torch.tanh(x @ w["0.weight"].T + w["0.bias"]) @ w["2.weight"].T + w["2.bias"]


def slopes(loss: torch.Tensor, w: Weights, **options: bool) -> Weights:
    """Return the gradients of a loss by weights."""
    return dict(zip(w, torch.autograd.grad(loss, list(w.values()), **options), strict=True))


def compare(text: str, backend: str, outer: Callable[[dict[str, Weights], Mapping[str, torch.Tensor]], None]) -> None:
    """Run ten steps of a spec, and of a function that changes the weights of its models, and compare both."""
    step = build_step(text, backend)
    found: dict[str, Weights] = {}
    for name, value in weights(step).items():
        model, _, parameter = name.replace("_orig_mod.", "").partition(".")
        found.setdefault(model, {})[parameter] = torch.tensor(value, requires_grad=value.dtype == np.float64)
    for batch in make_batches():
        step(batch)
        outer(found, {name: torch.tensor(value) for name, value in batch.items()})
        for name, value in weights(step).items():
            model, _, parameter = name.replace("_orig_mod.", "").partition(".")
            expected = found[model][parameter].detach().numpy()
            assert np.allclose(value, expected, rtol=1e-10, atol=1e-12), name


def descend(w: Weights, g: Weights, lr: float = 0.1) -> None:
    """Step weights in place, as SGD does."""
    with torch.no_grad():
        for name in w:
            w[name] -= lr * g[name]


def adapt(w: Weights, batch: Mapping[str, torch.Tensor], steps: int, order: int, lr: float = 0.3) -> Weights:
    """Return weights after some inner steps of MAML."""
    for _ in range(steps):
        g = slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w, create_graph=order == 2, retain_graph=True)
        w = {name: w[name] - lr * g[name] for name in w}
    return w


def write_maml(steps: int, order: int) -> str:
    """Return MAML with some inner steps."""
    ops, model = "", "net"
    for number in range(1, steps + 1):
        name = "fast" if number == steps else f"fast_{number}"
        loss = "inner_loss" if number == 1 else f"loss_{number}"
        ops += f"\n  inner_{number}: {{forward: {model}, inputs: x}}"
        ops += f"\n  {loss}: {{loss: mse, inputs: [inner_{number}, y]}}"
        ops += f"\n  {name}: {{adapt: {model}, loss: {loss}, lr: 0.3, order: {order}}}"
        model = name
    return write(ops + OUTER)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_maml(backend: str, steps: int, order: int) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        fast = adapt(w, batch, steps, order)
        descend(w, slopes(F.mse_loss(run(fast, batch["qx"]), batch["qy"]), w))

    compare(write_maml(steps, order), backend, outer)


def test_the_orders_differ() -> None:
    """The comparison above can tell them apart."""
    batch = {name: torch.tensor(value) for name, value in make_batches()[0].items()}
    torch.manual_seed(0)
    sizes = {"0.weight": (4, 2), "0.bias": (4,), "2.weight": (1, 4), "2.bias": (1,)}
    w = {name: torch.randn(size, dtype=torch.float64, requires_grad=True) for name, size in sizes.items()}
    first, second = (
        slopes(F.mse_loss(run(adapt(w, batch, 1, order), batch["qx"]), batch["qy"]), w) for order in (1, 2)
    )
    assert not np.allclose(first["0.weight"], second["0.weight"], rtol=1e-3)


META_SGD = write(
    """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  fast: {adapt: net, loss: inner_loss, lr: rate, groups: {match: bias$, lr: bias_rate}}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: [net, rate, bias_rate], loss: outer_loss}
""",
    f"net: {NET}\n"
    "  rate: {parameter: {shape: [], init: 0.3}, optimizer: {name: sgd, lr: 0.1}}\n"
    "  bias_rate: {parameter: {shape: [1], init: 0.1}, optimizer: {name: sgd, lr: 0.1}}",
)


def test_meta_sgd_learns_a_rate_for_each_group(backend: str) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w, rate, bias_rate = models["net"], models["rate"]["value"], models["bias_rate"]["value"]
        g = slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w, create_graph=True)
        fast = {name: w[name] - (bias_rate if name.endswith("bias") else rate) * g[name] for name in w}
        every = {**w, "rate": rate, "bias_rate": bias_rate}
        descend(every, slopes(F.mse_loss(run(fast, batch["qx"]), batch["qy"]), every))

    compare(META_SGD, backend, outer)


ANIL = write(
    INNER + "  fast: {adapt: net, loss: inner_loss, lr: {schedule: linear, from: 0.4, to: 0.0, over: 8 steps}, "
    'groups: [{match: "^0", lr: 0.0}]}' + OUTER
)


def test_anil_leaves_the_body_as_it_is_and_the_rate_may_follow_a_schedule(backend: str) -> None:
    count = iter(range(STEPS))

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w, lr = models["net"], max(0.0, 0.4 * (1 - next(count) / 8))
        g = slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w, create_graph=True)
        fast = {name: w[name] - (lr * g[name] if name.startswith("2") else 0.0) for name in w}
        descend(w, slopes(F.mse_loss(run(fast, batch["qx"]), batch["qy"]), w))

    compare(ANIL, backend, outer)


SAM = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  g: {gradient: inner_loss, wrt: net}
  way: {transform: normalize, inputs: g}
  sharp: {adapt: net, gradients: way, lr: -0.05, order: %d}
  out: {forward: sharp, inputs: x}
  sharp_loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: sharp_loss}
"""


@pytest.mark.parametrize("order", [1, 2])
def test_sam_climbs_by_the_normalized_gradient(backend: str, order: int) -> None:
    """Foret et al. 2021 take the gradient at the perturbed weights (order 1); order 2 differentiates the way, too."""

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        g = slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w, create_graph=order == 2)
        length = torch.cat([each.flatten() for each in g.values()]).norm()
        sharp = {name: w[name] + 0.05 * g[name] / length for name in w}
        descend(w, slopes(F.mse_loss(run(sharp, batch["x"]), batch["y"]), w))

    compare(write(SAM % order), backend, outer)


AT = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  fast: {adapt: net, loss: inner_loss, lr: 0.3}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  at: {gradient: outer_loss, wrt: [fast, qx], outputs: [g, by_query]}
  step: {update: net, gradients: g}
outputs: [by_query]
"""


def test_a_gradient_at_a_derived_model_steps_its_model(backend: str) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        fast = {name: each.detach().requires_grad_() for name, each in adapt(w, batch, 1, 1).items()}
        descend(w, slopes(F.mse_loss(run(fast, batch["qx"]), batch["qy"]), fast))

    compare(write(AT), backend, outer)


AGAIN = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  held: {gradient: inner_loss, wrt: net, stop: true}
  free: {gradient: inner_loss, wrt: net}
  both: {call: add, inputs: [held, free]}
  fast: {adapt: net, gradients: both, lr: 0.2}
  again: {forward: fast, inputs: x}
  again_loss: {loss: mse, inputs: [again, y]}
  second: {gradient: again_loss, wrt: fast, stop: true}
  faster: {adapt: fast, gradients: second, lr: 0.1}
  out: {forward: faster, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: net, loss: outer_loss}
"""


def test_a_stopped_part_of_the_gradients_is_a_constant(backend: str) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        g = slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w, create_graph=True)
        fast = {name: w[name] - 0.2 * (g[name] + g[name].detach()) for name in w}
        second = slopes(F.mse_loss(run(fast, batch["x"]), batch["y"]), fast, retain_graph=True)
        faster = {name: fast[name] - 0.1 * second[name] for name in w}
        descend(w, slopes(F.mse_loss(run(faster, batch["qx"]), batch["qy"]), w))

    compare(write(AGAIN), backend, outer)


NORMED = "{layers: [{linear: 4}, batch_norm, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}"
BATCH_NORM = write(INNER + "  fast: {adapt: net, loss: inner_loss, lr: 0.3}" + OUTER, f"net: {NORMED}")


def normed(w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return what a network with BatchNorm gives as in training, and move its statistics, written out."""
    h = x @ w["0.weight"].T + w["0.bias"]
    mean, var = h.mean(0), h.var(0, correction=0)
    with torch.no_grad():
        w["1.running_mean"].lerp_(mean, 0.1)
        w["1.running_var"].lerp_(h.var(0), 0.1)
        w["1.num_batches_tracked"] += 1
    h = torch.tanh((h - mean) / torch.sqrt(var + 1e-5) * w["1.weight"] + w["1.bias"])
    return h @ w["3.weight"].T + w["3.bias"]


def test_forwards_of_a_derived_model_write_the_statistics_of_its_model(backend: str) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        own = {name: each for name, each in models["net"].items() if "running" not in name and "tracked" not in name}
        g = slopes(F.mse_loss(normed(models["net"], batch["x"]), batch["y"]), own, create_graph=True)
        fast = {**models["net"], **{name: own[name] - 0.3 * g[name] for name in own}}
        descend(own, slopes(F.mse_loss(normed(fast, batch["qx"]), batch["qy"]), own))

    compare(BATCH_NORM, backend, outer)


MIRROR = f"""
graphspec: 1
name: mirrored
inputs: {INPUTS}
models:
  net:
    class: {{torch: "tests.features.adapting:make_torch", tensorflow: "tests.features.adapting:make_tensorflow"}}
    args: {{compiled: COMPILED}}
    optimizer: {{name: sgd, lr: 0.1}}
ops:
  inner: {{forward: net, inputs: x, method: encode}}
  inner_loss: {{loss: mse, inputs: [inner, x]}}
  fast: {{adapt: net, loss: inner_loss, lr: 0.3}}
  out: {{forward: fast, inputs: qx}}
  middle: {{forward: fast, inputs: qx, method: encode}}
  near: {{loss: mse, inputs: [out, qx]}}
  far: {{loss: mse, inputs: [middle, x]}}
  outer_loss: {{call: add, inputs: [near, far]}}
  step: {{update: net, loss: outer_loss}}
"""


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler of PyTorch looks at it
@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_class_with_a_weight_that_it_uses_twice(backend: str, compiled: str) -> None:
    """Compiled by PyTorch as well; TensorFlow traces every step."""

    def encode(w: Weights, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w[WEIGHT].T + w[BIAS])

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        g = slopes(F.mse_loss(encode(w, batch["x"]), batch["x"]), w, create_graph=True)
        fast = {name: w[name] - 0.3 * g[name] for name in w}
        middle = encode(fast, batch["qx"])
        total = F.mse_loss(middle @ fast[WEIGHT].T, batch["qx"]) + F.mse_loss(middle, batch["x"])
        descend(w, slopes(total, w))

    compare(MIRROR.replace("COMPILED", compiled), backend, outer)


WEIGHT, BIAS = "first.weight", "first.bias"


IDLE = f"""
graphspec: 1
name: idle
inputs: {INPUTS}
models:
  net:
    class:
      torch: "tests.features.adapting:make_idle_torch"
      tensorflow: "tests.features.adapting:make_idle_tensorflow"
    optimizer: {{name: sgd, lr: 0.1}}
ops:
  one: {{forward: net, inputs: x}}
  one_loss: {{loss: mse, inputs: [one, 0.3]}}
  one_way: {{gradient: one_loss, wrt: net, unconnected: skip}}
  fast: {{adapt: net, gradients: one_way, lr: 0.3, order: 1}}
  two: {{forward: fast, inputs: qx}}
  two_loss: {{loss: mse, inputs: [two, 0.1]}}
  two_way: {{gradient: two_loss, wrt: fast, unconnected: skip}}
  faster: {{adapt: fast, gradients: two_way, lr: 0.2, order: ORDER}}
  out: {{forward: faster, inputs: x}}
  outer_loss: {{loss: mse, inputs: [out, 0.2]}}
  step: {{update: net, loss: outer_loss, missing: skip}}
"""


@pytest.mark.parametrize("order", [1, 2])
def test_what_a_class_does_not_use_stays_as_it_is(backend: str, order: int) -> None:
    def call(w: torch.Tensor, x: torch.Tensor, aim: float) -> torch.Tensor:
        return ((torch.tanh(x @ w.T) - aim) ** 2).mean()

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]["weight"]
        fast = w - 0.3 * torch.autograd.grad(call(w, batch["x"], 0.3), w)[0]
        (slope,) = torch.autograd.grad(call(fast, batch["qx"], 0.1), fast, create_graph=True)
        faster = fast - 0.2 * (slope if order == 2 else slope.detach())
        descend({"weight": w}, slopes(call(faster, batch["x"], 0.2), {"weight": w}))

    compare(IDLE.replace("ORDER", str(order)), backend, outer)


KERAS = """
graphspec: 1
name: normed
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}, qx: {shape: [batch, 2]}, qy: {shape: [batch, 1]}}
models:
  net: {class: "tests.features.adapting:make_keras", args: {normed: NORMED}, optimizer: {name: sgd, lr: 0.1}}
ops:
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  fast: {adapt: net, loss: inner_loss, lr: 0.3, order: ORDER}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: net, loss: outer_loss}
"""


def keras_net(w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return what the Keras model of adapting.py gives in training, and move its statistics, written out."""
    h = x @ w["first.kernel"] + w["first.bias"]
    if "norm.gamma" in w:
        mean, var = h.mean(0), h.var(0, correction=0)
        with torch.no_grad():
            w["norm.moving_mean"].lerp_(mean, 0.1)
            w["norm.moving_variance"].lerp_(var, 0.1)
        h = (h - mean) / torch.sqrt(var + 1e-5) * w["norm.gamma"] + w["norm.beta"]
    return torch.tanh(h) @ w["last.kernel"] + w["last.bias"]


@pytest.mark.parametrize(("normed", "order"), [("false", 2), ("true", 1)])
def test_a_keras_model_runs_with_other_weights_and_keeps_its_statistics(normed: str, order: int) -> None:
    """TensorFlow's variance takes its mean as a constant: second derivatives of Keras's BatchNorm are not exact."""

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        own = {name: each for name, each in models["net"].items() if "moving" not in name}
        loss = F.mse_loss(keras_net(models["net"], batch["x"]), batch["y"])
        g = slopes(loss, own, create_graph=order == 2)
        fast = {**models["net"], **{name: own[name] - 0.3 * g[name] for name in own}}
        descend(own, slopes(F.mse_loss(keras_net(fast, batch["qx"]), batch["qy"]), own))

    compare(KERAS.replace("NORMED", normed).replace("ORDER", str(order)), "tensorflow", outer)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("layer", "order"), [("lstm: {size: 3, bidirectional: true}", 1), ("gru: 3", 2)])
def test_recurrent_layers_run_with_other_weights(backend: str, layer: str, order: int) -> None:
    from torch.func import functional_call, grad

    made, both = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[layer[: layer.index(":")]], "bidirectional" in layer
    module = made(1, 3, bidirectional=both, batch_first=True).double()

    def call(w: Weights, x: torch.Tensor) -> torch.Tensor:
        inner = {name.removeprefix("1."): each for name, each in w.items() if name.startswith("1.")}
        states, _ = functional_call(module, inner, x[..., None])
        return states.flatten(1) @ w["3.weight"].T + w["3.bias"]

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        def judge(w: Weights) -> torch.Tensor:
            """Return the outer loss."""
            slope = grad(lambda v: F.mse_loss(call(v, batch["x"]), batch["y"]))(w)
            fast = {name: w[name] - 0.3 * (slope[name].detach() if order == 1 else slope[name]) for name in w}
            return F.mse_loss(call(fast, batch["qx"]), batch["qy"])

        descend(models["net"], grad(judge)(models["net"]))

    net = f"{{layers: [{{reshape: [2, 1]}}, {{{layer}}}, flatten, {{linear: 1}}], optimizer: {{name: sgd, lr: 0.1}}}}"
    compare(write_maml(1, order).replace(NET, net), backend, outer)


REFUSED_CLASS = """
graphspec: 1
name: refused
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models: {net: {class: "tests.features.adapting:MAKER", optimizer: {name: sgd, lr: 0.1}}}
ops:
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  fast: {adapt: net, loss: inner_loss, lr: 0.3}
  out: {forward: fast, inputs: x}
  outer_loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: outer_loss}
"""


@pytest.mark.parametrize(
    ("maker", "on", "said"),
    [
        ("make_listed", "tensorflow", "every parameter of a module as an attribute of its own"),
        ("make_traced", "tensorflow", "which is a tf.function: leave out the decorator"),
        ("make_recomputing", "torch", "E-ADAPT"),
    ],
)
def test_a_class_whose_weights_cannot_be_replaced_is_refused(maker: str, on: str, said: str) -> None:
    batch = {name: value for name, value in make_batches()[0].items() if name in ("x", "y")}
    with pytest.raises((SpecError, StepError), match=said):
        build_step(REFUSED_CLASS.replace("MAKER", maker), on)(batch)


MISTAKES = {
    "an average": ("  slow: {ema: net, decay: 0.9}\n  fast: {adapt: slow, loss: inner_loss, lr: 0.1}", "GS106"),
    "no source": ("  fast: {adapt: net, lr: 0.1}", "GS053"),
    "two sources": (
        "  g: {gradient: inner_loss, wrt: net}\n  fast: {adapt: net, loss: inner_loss, gradients: g, lr: 0.1}",
        "GS053",
    ),
    "gradients of another model": (
        "  g: {gradient: inner_loss, wrt: [net, other]}\n  fast: {adapt: net, gradients: g, lr: 0.1}",
        "GS122",
    ),
    "a rate of many numbers": ("  fast: {adapt: net, loss: inner_loss, lr: other}", "GS127"),
    "no such order": ("  fast: {adapt: net, loss: inner_loss, lr: 0.1, order: 3}", "GS043"),
    "a derived model as a value": (
        "  fast: {adapt: net, loss: inner_loss, lr: 0.1}\n  z: {call: neg, inputs: fast}",
        "GS106",
    ),
    "an update of a derived model": (
        "  fast: {adapt: net, loss: inner_loss, lr: 0.1}\n  step_fast: {update: fast, loss: inner_loss}",
        "GS106",
    ),
    "a checkpoint": (
        "  fast: {adapt: net, loss: inner_loss, lr: 0.1}\n  z: {forward: fast, inputs: x, checkpoint: true}",
        "GS127",
    ),
    "gradients of a model and a derived one": (
        "  fast: {adapt: net, loss: inner_loss, lr: 0.1}\n  z: {forward: fast, inputs: x}\n"
        "  far: {loss: mse, inputs: [z, y]}\n  g: {gradient: far, wrt: [net, fast]}",
        "GS127",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_no_derived_model_is_refused(case: str) -> None:
    ops, code = MISTAKES[case]
    with pytest.raises(SpecError) as found:
        load(write(f"{INNER}{ops}\n  step: {{update: net, loss: inner_loss}}", f"net: {NET}\n  other: {NET}"))
    assert [each.code for each in found.value.diagnostics] == [code]


@pytest.mark.parametrize(
    ("written", "setting"),
    [
        ("micro_batches", "micro_batches=2"),
        ("frozen", "models.net.groups=[{match: bias, frozen: true}]"),
        ("stands in", "ops.slow={ema: net, decay: 0.9, use: {eval: swap}}"),
    ],
)
def test_what_derived_models_do_not_go_with_is_refused(written: str, setting: str) -> None:
    with pytest.raises(SpecError, match=written) as found:
        load(write_maml(1, 2), [setting])
    assert {each.code for each in found.value.diagnostics} == {"GS127"}


TWO_UPDATES = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  soon: {update: net, loss: inner_loss}
  fast: {adapt: net, loss: inner_loss, lr: 0.3, order: ORDER}
  out: {forward: fast, inputs: qx}
  judged: {forward: other, inputs: out}
  outer_loss: {loss: mse, inputs: [judged, qy]}
  step: {update: other, loss: outer_loss}
"""
OTHER = "{layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}"


def test_a_derived_model_holds_no_update_back_but_for_what_runs_through_its_gradient() -> None:
    """`net` is written behind the adapt that reads it; the outer gradient reads the weights of `other` alone."""
    spec = load(write(TWO_UPDATES.replace("ORDER", "2"), f"net: {NET}\n  other: {OTHER}"))
    text = compile_step(spec, "torch", "listed").text()
    lines = [line.split(None, 1)[1] for line in text.splitlines() if line[:5].strip().isdigit()]
    order = [line.split()[0] for line in lines]
    assert order.index("adapt") < next(at for at, line in enumerate(lines) if line.startswith("apply     net"))
    assert "no update is deferred" in text


THROUGH = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  soon: {update: net, loss: inner_loss}
  fast: {adapt: net, loss: inner_loss, lr: rate, order: ORDER}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: rate, loss: outer_loss}
"""
RATE = "rate: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}"
DEEP = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  soon: {update: net, loss: inner_loss}
  deeper: {adapt: net, loss: inner_loss, lr: rate, order: ORDER}
  again: {forward: deeper, inputs: x}
  again_loss: {loss: mse, inputs: [again, y]}
  g: {gradient: again_loss, wrt: net}
  fast: {adapt: net, gradients: g, lr: rate, order: ORDER}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: rate, loss: outer_loss}
"""


@pytest.mark.parametrize(("ops", "order", "waits"), [(THROUGH, "2", False), (DEEP, "1", False), (DEEP, "2", True)])
def test_an_update_waits_exactly_where_the_outer_gradient_runs_through_the_inner_one(
    ops: str, order: str, waits: bool
) -> None:
    """A learned rate needs the gradient as a number; of order 2 in two steps also how that follows from the rate."""
    plan = compile_step(load(write(ops.replace("ORDER", order), f"net: {NET}\n  {RATE}")), "torch", "listed")
    found = {each.subject for graph in plan.graphs.values() for each in graph.decisions if each.code == "DEFER"}
    assert found == ({"soon"} if waits else set())


@pytest.mark.parametrize("ops", [THROUGH, DEEP])
@pytest.mark.parametrize("order", [1, 2])
def test_a_rate_learns_while_the_model_moves(backend: str, ops: str, order: int) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w, rate = models["net"], models["rate"]["value"]
        loss = F.mse_loss(run(w, batch["x"]), batch["y"])
        g = slopes(loss, w, create_graph=True, retain_graph=True)
        way = g if order == 2 else {name: each.detach() for name, each in g.items()}
        fast = {name: w[name] - rate * way[name] for name in w}
        if ops is DEEP:
            again = F.mse_loss(run(fast, batch["x"]), batch["y"])
            way = slopes(again, w, create_graph=order == 2, retain_graph=True)
            fast = {name: w[name] - rate * way[name] for name in w}
        (slope,) = torch.autograd.grad(F.mse_loss(run(fast, batch["qx"]), batch["qy"]), [rate])
        descend(w, {name: each.detach() for name, each in g.items()})
        descend(models["rate"], {"value": slope})

    compare(write(ops.replace("ORDER", str(order)), f"net: {NET}\n  {RATE}"), backend, outer)


AFTER = """
  inner: {forward: net, inputs: x}
  inner_loss: {loss: mse, inputs: [inner, y]}
  soon: {update: net, loss: inner_loss}
  fast: {adapt: net, loss: late_loss, lr: 0.3, after: soon}
  late: {forward: net, inputs: x, after: soon}
  late_loss: {loss: mse, inputs: [late, y]}
  out: {forward: fast, inputs: qx}
  outer_loss: {loss: mse, inputs: [out, qy]}
  step: {update: net, loss: outer_loss, after: soon}
"""


def test_an_adapt_sees_the_writes_before_it(backend: str) -> None:
    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        descend(w, slopes(F.mse_loss(run(w, batch["x"]), batch["y"]), w))
        descend(w, slopes(F.mse_loss(run(adapt(w, batch, 1, 2), batch["qx"]), batch["qy"]), w))

    compare(write(AFTER), backend, outer)


def test_a_window_adds_up_outer_gradients(backend: str) -> None:
    gathered: list[Weights] = []

    def outer(models: dict[str, Weights], batch: Mapping[str, torch.Tensor]) -> None:
        w = models["net"]
        gathered.append(slopes(F.mse_loss(run(adapt(w, batch, 1, 2), batch["qx"]), batch["qy"]), w))
        if len(gathered) == 2:
            descend(w, {name: (gathered[0][name] + gathered[1][name]) / 2 for name in w})
            gathered.clear()

    compare(write_maml(1, 2).replace("loss: outer_loss}", "loss: outer_loss, accumulate: 2}"), backend, outer)


def test_evaluation_adapts_as_well_and_nothing_is_kept(backend: str) -> None:
    step = build_step(write_maml(2, 2), backend)
    batch, before = make_batches()[0], weights(step)
    found = step(batch, mode="eval")
    w = {name.removeprefix("net."): torch.tensor(each, requires_grad=True) for name, each in before.items()}
    given = {name: torch.tensor(value) for name, value in batch.items()}
    expected = F.mse_loss(run(adapt(w, given, 2, 1), given["qx"]), given["qy"])
    assert np.isclose(float(step.numpy(found["outer_loss"])), expected.item(), rtol=1e-10)
    assert all(np.array_equal(each, before[name]) for name, each in weights(step).items())
    assert not any("fast" in name for name in step.state().arrays)


def test_the_plan_names_the_weights_and_what_they_are_made_of() -> None:
    plan = compile_step(load(ANIL))
    listed = {
        each["kind"]: each for each in plan.to_json()["functions"][0]["instructions"] if each["op"] in ("fast", "out")
    }
    assert listed["forward"]["weights"] == "fast"
    assert listed["adapt"]["gradients"] == "fast.gradient"
    assert listed["adapt"]["groups"] == {"^0": 0.0}
    assert "fast = net - fast.lr * fast.gradient, 0.0 for '^0'" in plan.text()
    assert "adapt fast = net" in plan.explain("fast")


def test_a_graph_in_python_adapts() -> None:
    g = Graph("adapted")
    x, y = g.input("x", ["batch", 2]), g.input("y", ["batch", 1])
    net = g.model("net", layers=[{"linear": 1}], optimizer="sgd")
    rate = g.model("rate", parameter={"shape": [], "init": 0.1}, optimizer="sgd")
    fast = g.adapt(net, loss=mse(net(x), y), lr=rate, groups=[{"match": "bias", "lr": 0.0}], order=1)
    slow = g.adapt(fast, gradients=g.gradient(mse(fast(x), y), fast), lr=0.5)
    g.update([net, rate], loss=mse(slow(x), y), name="step")
    spec = g.build()
    assert (spec.ops["fast"].adapt, spec.ops["fast"].lr, spec.ops["fast"].order) == ("net", "rate", 1)
    assert (spec.ops["slow"].adapt, spec.ops["slow"].lr, spec.ops["slow"].order) == ("fast", 0.5, 2)
    again = load(dump(spec))
    assert dump(again) == dump(spec)
    assert [op.train for op in again.ops.values() if op.kind == "forward"] == [True, True, True]  # as their model is


CHAIN = """
graphspec: 1
name: chain
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 3}, tanh, {linear: 1}]}
  rate: {parameter: {shape: [], init: 0.2}, optimizer: {name: sgd, lr: 0.5}}
ops:
  seen0: {forward: net, inputs: x}
  loss0: {loss: mse, inputs: [seen0, y]}
  slopes0: {gradient: loss0, wrt: net, stop: true}
  fast0: {adapt: net, gradients: slopes0, lr: 0.3}
  seen1: {forward: fast0, inputs: x}
  loss1: {loss: mse, inputs: [seen1, y]}
  slopes1: {gradient: loss1, wrt: fast0, stop: true}
  fast1: {adapt: fast0, gradients: slopes1, lr: rate, groups: [{match: bias, lr: 0.1}], order: 1}
  seen2: {forward: fast1, inputs: x}
  loss2: {loss: mse, inputs: [seen2, y]}
  slopes2: {gradient: loss2, wrt: fast1, stop: true}
  fast2: {adapt: fast1, gradients: slopes2, lr: 0.05, order: 1}
  seen3: {forward: fast2, inputs: x}
  outer: {loss: mse, inputs: [seen3, y]}
  step: {update: rate, loss: outer}
outputs: [outer]
"""


def test_a_gradient_by_weights_of_which_only_some_depend_on_a_learned_rate(backend: str) -> None:
    step = build_step(CHAIN, backend)
    start = {name.removeprefix("net."): torch.tensor(each) for name, each in weights(step).items() if "net." in name}
    x, y = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(4, 2), torch.ones(4, 1, dtype=torch.float64)

    def loss(w):
        hidden = torch.tanh(x @ w["0.weight"].T + w["0.bias"])
        return ((hidden @ w["2.weight"].T + w["2.bias"] - y) ** 2).mean()

    def slopes(w):
        leaves = {name: each.detach().requires_grad_() for name, each in w.items()}
        return dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))

    rate = torch.tensor(0.2, dtype=torch.float64)
    for _ in range(3):
        rate.requires_grad_()
        fast = {name: each - 0.3 * g for (name, each), g in zip(start.items(), slopes(start).values(), strict=True)}
        fast = {name: fast[name] - (0.1 if "bias" in name else rate) * g for name, g in slopes(fast).items()}
        fast = {name: fast[name] - 0.05 * g for name, g in slopes(fast).items()}
        outer = loss(fast)
        (slope,) = torch.autograd.grad(outer, rate)
        found = step({"x": x.numpy(), "y": y.numpy()})
        assert abs(float(step.numpy(found["outer"])) - outer.item()) <= 1e-12
        rate = (rate - 0.5 * slope).detach()
        assert abs(float(weights(step)["rate.value"]) - rate.item()) <= 1e-12
