"""A model takes the weights of its average (`use: {write_back}`): Lookahead, Keras; others follow it as targets."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.averages import SPEC, make, read
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("E10")

NET = """
graphspec: 1
name: fit
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.05}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
  average: {ema: net, FIELDS}
outputs: [loss]
"""
RANDOM = np.random.default_rng(5)
BATCHES = [{"x": RANDOM.normal(size=(6, 3)), "y": RANDOM.normal(size=(6, 1))} for _ in range(10)]


def both(step) -> tuple[float, float]:
    step({})
    return float(weights(step)["w.value"][0]), read(step)


def test_lookahead_goes_half_the_way_back_after_every_third_update(backend: str) -> None:
    step = make(backend, "decay: 0.5, every: 3, use: {write_back: {every: 3}}")
    fast = slow = 0.0
    for t in range(1, 10):
        fast += 1
        if t % 3 == 0:
            slow += 0.5 * (fast - slow)
            fast = slow
        assert np.allclose(both(step), (fast, slow), rtol=1e-12, atol=0)


@pytest.mark.needs("torch")
def test_ten_steps_of_lookahead_over_adam_are_those_by_hand() -> None:
    import torch

    step = build_step(NET.replace("FIELDS", "decay: 0.5, every: 5, use: {write_back: {every: 5}}"), "torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    net.load_state_dict({name[4:]: torch.tensor(v) for name, v in weights(step).items() if name.startswith("net.")})
    slow = [p.detach().clone() for p in net.parameters()]
    adam = torch.optim.Adam(net.parameters(), lr=0.05)
    for t, batch in enumerate(BATCHES, 1):
        step(batch)
        adam.zero_grad()
        x, y = (torch.tensor(batch[name]) for name in ("x", "y"))
        ((net(x) - y) ** 2).mean().backward()
        adam.step()
        if t % 5 == 0:
            with torch.no_grad():
                for kept, p in zip(slow, net.parameters(), strict=True):
                    kept += 0.5 * (p - kept)
                    p.copy_(kept)
    found = weights(step)
    for (name, p), kept in zip(net.named_parameters(), slow, strict=True):
        assert np.allclose(found[f"net.{name}"], p.detach().numpy(), rtol=1e-9, atol=1e-12)
        assert np.allclose(found[f"average.{name}"], kept.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.needs("tensorflow")
def test_an_average_that_is_written_back_is_that_of_keras() -> None:
    import keras

    variable = keras.Variable([0.0], dtype="float32")
    optimizer = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)
    optimizer.build([variable])
    step = make("tensorflow", "decay: 0.9, init: first_update, use: {write_back: {every: 3}}", dtype="float32")
    for _ in range(7):
        optimizer.apply([keras.ops.convert_to_tensor([-1.0])])
        expected = float(variable.value[0]), float(optimizer._model_variables_moving_average[0].value[0])
        assert np.allclose(both(step), expected, rtol=1e-6, atol=0)


def test_what_reads_the_model_after_its_update_does_not_read_its_average(backend: str) -> None:
    """A copy follows every writer of the model, a forward only those that it is declared after."""
    text = SPEC.replace("ops:", "  hard: {like: w}\nops:").replace(
        "outputs: [height]",
        "  now: {forward: w, after: step}\n  later: {forward: w, after: average}\n  hold: {copy: w, into: hard}\n"
        "outputs: [height, now, later]",
    )
    step = make(backend, "decay: 0.5, every: 2, use: {write_back: {every: 2}}", text)
    fast = slow = 0.0
    for t in range(1, 5):
        outputs = step({})
        fast += 1
        assert step.numpy(outputs["now"])[0] == fast
        if t % 2 == 0:
            slow = fast = (slow + fast) / 2
        assert step.numpy(outputs["later"])[0] == fast
        assert (weights(step)["w.value"][0], weights(step)["hard.value"][0]) == (fast, fast)


def test_a_skipped_step_brings_no_write_back_nearer(backend: str) -> None:
    from tests.features.overflows import SPEC as GIVEN
    from tests.features.overflows import give, made

    average = "  average: {ema: v, decay: 0.5, every: 2, use: {write_back: {every: 2}}}\nprecision:"
    step = made(backend, text=GIVEN.replace("precision:", average))
    seen = []
    for slope in (-1.0, float("inf"), -1.0, -1.0):
        give(step, slope)
        seen.append(float(weights(step)["v.value"][0]))
    assert np.allclose(seen, [1.0, 1.0, 1.0, 2.0])  # 2 goes half the way back to 0 in the third step


def test_a_mean_of_two_models_is_a_copy_and_an_average(backend: str) -> None:
    text = """
graphspec: 1
name: soup
models:
  a: {parameter: {shape: [1], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}
  b: {parameter: {shape: [1], init: 6.0}, optimizer: {name: sgd, lr: 1.0}}
  soup: {like: a}
ops:
  one: {forward: a}
  other: {forward: b}
  all: {call: add, inputs: [one, other]}
  loss: {call: sum, inputs: all}
  step: {update: [a, b], loss: loss}
  first: {copy: a, into: soup}
  second: {ema: b, into: soup, decay: 0.5, after: first}
"""
    step = build_step(text, backend)
    step({})
    assert weights(step)["soup.value"] == (0.0 + 5.0) / 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("decay: 0.5, every: 2, use: {write_back: {every: 3}}", "the model would take an average that was not taken"),
        ("decay: 0.5, every: 1 epochs, use: {write_back: {every: 3}}", "the model would take an average"),
        ("decay: 0.5, use: {write_back: {}}", "missing key .every. in `ops.average.use.write_back`"),
    ],
)
def test_an_interval_at_which_there_is_nothing_to_take_is_refused(fields: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(SPEC.replace("FIELDS", fields))
    assert re.search(said, str(caught.value))


def test_several_sources_are_refused_with_what_to_write() -> None:
    with pytest.raises(SpecError, match=r"GS053.*averages one model over time, found several") as caught:
        load(SPEC.replace("ema: w, FIELDS", "ema: [w, v], decay: 0.5"))
    assert "`{copy: a, into: soup}`" in caught.value.diagnostics[0].help


def test_two_averages_that_are_both_written_back_have_no_order() -> None:
    back = "use: {write_back: {every: 1}}"
    text = SPEC.replace("FIELDS", f"decay: 0.9, {back}").replace(
        "outputs:", f"  second: {{ema: w, decay: 0.5, {back}}}\noutputs:"
    )
    with pytest.raises(SpecError, match="E-CYCLE"):
        compile_step(load(text))


STARTS = {
    "start: 3 steps": 0,
    "start: 3 updates": 0,
    "start: {at: 3, before: copy}": 1,
    "start: {at: 3, before: hold}": 0,
}


@pytest.mark.parametrize("start", STARTS)
def test_with_a_start_the_model_takes_its_average_then_and_after_every_so_many_writes(start: str, backend: str) -> None:
    """Counted by hand: the average is a copy in the third step, and goes half the way in each from the fourth on."""
    step = make(backend, f"decay: 0.5, {start}, use: {{write_back: {{every: 2}}}}")
    fast = slow = 0.0
    for t in range(1, 9):
        fast += 1
        if t < 3:
            slow = fast if STARTS[start] else slow
        elif t == 3:
            slow = fast
        else:
            slow = (slow + fast) / 2
        if t in (3, 5, 7):
            fast = slow
        assert np.allclose(both(step), (fast, slow), rtol=1e-12, atol=0), t
