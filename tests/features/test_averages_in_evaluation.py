"""An average is evaluated in the model's place, in the spec (`use`) or in Python; errors end that, updates may not."""

from __future__ import annotations

import numpy as np
import pytest

from runtime import StepError
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("E5")

SPEC = """
graphspec: 1
name: evaluated
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 3}, {batch_norm: {momentum: 0.5}}, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: net, inputs: x}
  loss: {call: mean, inputs: out}
  step: {update: net, loss: loss}
  average: {ema: net, decay: 0.75, buffers: BUFFERS, USE}
  named: {forward: average, inputs: x, mode: eval}
outputs: [out, named]
"""
BATCH = {"x": np.random.default_rng(7).normal(size=(4, 2))}


def make(backend: str, use: str = "init: initial", buffers: str = "copy"):
    """Return a step after two updates."""
    step = build_step(SPEC.replace("USE", use).replace("BUFFERS", buffers), backend)
    for _ in range(2):
        step(BATCH)
    return step


def evaluate(step) -> tuple[np.ndarray, np.ndarray]:
    """Return what the model and what the average give."""
    outputs = step(BATCH, mode="eval")
    return step.numpy(outputs["out"]), step.numpy(outputs["named"])


def bits(step) -> dict[str, bytes]:
    """Return all that training changes."""
    return {name: step.numpy(value).tobytes() for name, value in step.tensors().items()}


def test_a_swap_evaluates_the_average_and_moves_nothing(backend: str) -> None:
    step = make(backend, "use: {eval: swap}")
    before = bits(step)
    out, named = evaluate(step)
    assert np.array_equal(out, named)
    assert bits(step) == before


def test_before_its_first_time_the_model_itself_is_evaluated(backend: str) -> None:
    step = build_step(SPEC.replace("USE", "start: 2, use: {eval: swap}").replace("BUFFERS", "copy"), backend)
    step(BATCH)
    out, named = evaluate(step)
    assert not np.allclose(out, named)
    step(BATCH)
    assert np.array_equal(*evaluate(step))


@pytest.mark.parametrize("buffers", ["copy", "average"])
def test_a_statement_of_python_evaluates_the_average(buffers: str, backend: str) -> None:
    step = make(backend, buffers=buffers)
    before, (own, named) = bits(step), evaluate(step)
    assert not np.allclose(own, named)
    with step.averaged("average"):
        out, again = evaluate(step)
        assert np.allclose(out, named, rtol=1e-12, atol=0)
        assert np.array_equal(again, named)
    assert bits(step) == before
    assert np.array_equal(evaluate(step)[0], own)


def test_buffers_that_the_average_ignores_stay_the_models(backend: str) -> None:
    step = make(backend, buffers="ignore")
    own = weights(step)["net.1.running_mean"]
    with step.averaged("average"):
        inside = {name: step.numpy(value) for name, value in step.tensors().items()}
        assert np.array_equal(inside["models.net.1.running_mean"], own)
        assert np.array_equal(inside["models.net.0.weight"], inside["models.average.0.weight"])


@pytest.mark.needs("torch")
def test_whoever_holds_the_module_has_the_average() -> None:
    import torch

    step = make("torch")
    net, average = step.models["net"].eval(), step.models["average"].eval()
    x = torch.tensor(BATCH["x"])
    with step.averaged("average"):
        assert torch.equal(net(x), average(x))
        assert net[0].weight.data_ptr() == average[0].weight.data_ptr()  # nothing is copied
    assert not torch.equal(net(x), average(x))


def test_an_error_gives_the_model_its_own_weights_back(backend: str) -> None:
    step = make(backend)
    before, state = bits(step), step.state()
    step(BATCH)
    after = bits(step)
    step.restore(state)
    for raised in (ValueError, KeyboardInterrupt):
        with pytest.raises(raised), step.averaged("average"):
            raise raised
        assert bits(step) == before
    step(BATCH)
    assert bits(step) == after


def test_an_update_inside_is_refused_and_changes_nothing(backend: str) -> None:
    step = make(backend)
    before = bits(step)
    with step.averaged("average"):
        inside = bits(step)
        with pytest.raises(StepError, match=r"GS291.*no step of mode train can be taken, which writes models"):
            step(BATCH)
        assert bits(step) == inside
    assert bits(step) == before
    step(BATCH)  # and afterwards it goes on


def test_nothing_is_saved_or_restored_inside(backend: str, tmp_path) -> None:
    step = make(backend)
    state = step.state()
    calls = (
        step.state,
        lambda: step.save(tmp_path / "saved"),
        lambda: step.restore(state),
        lambda: step.export(tmp_path / "exported"),
    )
    with step.averaged("average"):
        for call in calls:
            with pytest.raises(StepError, match=r"GS291.*has the weights of its average 'average'"):
                call()
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_no_average_and_a_second_one_are_refused(backend: str) -> None:
    step = make(backend)
    with pytest.raises(StepError, match=r"GS291.*no average 'averag': it has average; did you mean 'average'"):
        step.averaged("averag").__enter__()
    with step.averaged("average"), pytest.raises(StepError, match=r"GS291.*'net' cannot take the weights of"):
        step.averaged("average").__enter__()


def test_an_average_is_not_lent_where_another_one_stands_in(backend: str) -> None:
    """Its evaluations would be those of the other one, and nothing would say so."""
    second = "  second: {ema: net, decay: 0.5, buffers: copy}\n  of_second: {forward: second, inputs: x, mode: eval}\n"
    text = SPEC.replace("outputs: [out", second + "outputs: [of_second, out").replace("BUFFERS", "copy")
    step = build_step(text.replace("USE", "use: {eval: swap}"), backend)
    with pytest.raises(StepError, match=r"GS291.*evaluations of 'net' are those of its average 'average'") as caught:
        step.averaged("second").__enter__()
    assert "ops.average.use.eval=separate" in str(caught.value)
    with step.averaged("average"):
        step(BATCH, mode="eval")
    apart = build_step(text.replace("USE", "use: {eval: separate}"), backend)
    apart(BATCH)
    of_second = apart.numpy(apart(BATCH, mode="eval")["of_second"])
    with apart.averaged("second"):
        assert np.allclose(evaluate(apart)[0], of_second, rtol=1e-12, atol=0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fields", ["start: 3", "every: 3", "into: other", "into: other, every: 3"])
def test_before_its_first_time_a_statement_leaves_the_model_its_own_weights(fields: str, backend: str) -> None:
    other = "  other: {layers: [{linear: 3}, batch_norm, {linear: 1}]}\nops:"
    text = SPEC.replace("USE", fields).replace("BUFFERS", "copy").replace("ops:", other)
    text = text.replace("forward: average", "forward: other") if "into" in fields else text
    step = build_step(text, backend)
    first = 1 if fields == "into: other" else 3  # the step in which it is taken for the first time
    for taken in range(first + 1):
        restored = build_step(text, backend)
        restored.restore(step.state())
        for each in (step, restored):
            before, (own, named) = bits(each), evaluate(each)
            with each.averaged("average"):
                found = evaluate(each)[0]
                with pytest.raises(StepError, match="GS291"):
                    each(BATCH)
            assert np.allclose(found, named if taken == first else own, rtol=1e-12, atol=0)
            assert bits(each) == before
        assert taken in (0, first) or not np.allclose(own, named)
        step(BATCH)


def test_before_its_first_time_no_statistics_are_computed_anew(backend: str) -> None:
    step = make(backend, "start: 3")
    before = bits(step)
    with step.averaged("average", recompute=[BATCH]):
        assert bits(step) == before
    assert bits(step) == before
