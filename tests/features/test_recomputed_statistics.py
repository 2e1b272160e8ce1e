"""BatchNorm's statistics of an average are computed anew before it is evaluated (`use: {recompute_buffers: train}`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from compiler import compile_step
from graphspec import SpecError, load
from runtime import StepError, build
from runtime.cli import execute
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: stood
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 1]}}
models:
  net:
    layers:
      - {linear: 4}
      - {batch_norm: {momentum: 0.3}}
      - relu
      - {residual: [{linear: 4}, batch_norm]}
      - {dropout: 0.5}
      - {linear: 1}
    optimizer: {name: sgd, lr: 0.1}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y], mode: train}
  step: {update: net, loss: loss}
  average: {ema: net, decay: 0.6, FIELDS}
  error: {metric: mean, inputs: out, mode: eval}
NAMED
outputs: [loss, error, out]
data:
  train: {source: npz, path: train.npz, batch: 8}
  test: {source: npz, path: test.npz, batch: 5}
run: {steps: 6, eval: {every: 3 steps}, checkpoint: {every: 3 steps, keep: 9}}
"""
SWAP, SEPARATE = "use: {eval: swap, recompute_buffers: train}", "use: {recompute_buffers: train}"
NAMED = "  named: {forward: average, inputs: x, mode: eval}\n  named_mean: {metric: mean, inputs: named, mode: eval}"
RANDOM = np.random.default_rng(11)
BATCHES = [{"x": RANDOM.normal(2, 3, (8, 3)), "y": RANDOM.normal(size=(8, 1))} for _ in range(4)]
STATISTICS = ("1.running_mean", "1.running_var", "3.1.running_mean", "3.1.running_var")


def make_text(fields: str) -> str:
    """Return the spec; an average that does not stand in is called by name."""
    return SPEC.replace("FIELDS", fields).replace("NAMED", "" if "swap" in fields else NAMED)


def test_python_refuses_what_would_count_in_training(backend: str) -> None:
    called = make_text("buffers: copy").replace(
        "outputs:", "  seen: {forward: average, inputs: x, stop: true}\noutputs:"
    )
    called = called.replace("inputs: [out, y], mode: train}", "inputs: [out, seen], mode: train}").replace(
        "x, mode: eval}", "x, mode: eval}"
    )
    for text, said in (
        (called, "'seen' calls it in training"),
        (make_text("buffers: average"), "they would count later"),
    ):
        step = build_step(text, backend)
        step(BATCHES[0])
        before = weights(step)
        with pytest.raises(StepError, match=f"GS292.*{said}"):
            step.recompute_buffers("average", BATCHES)
        assert all(np.array_equal(before[name], each) for name, each in weights(step).items())


def test_the_steps_of_a_recomputation_leave_states_metrics_and_counts_as_they_were(backend: str) -> None:
    text = make_text(SWAP).replace("ops:", "state: {seen: {shape: []}}\nops:\n  more: {expr: seen + 1.0}", 1)
    text = text.replace("NAMED", "").replace("outputs:", "  keep: {assign: seen, value: more, mode: eval}\noutputs:")
    step = build_step(text, backend)
    for batch in BATCHES[:3]:
        step(batch)
    step(BATCHES[0], "eval")
    before = step.state()
    step.recompute_buffers("average", BATCHES)
    after = step.state()
    assert after.counters == before.counters
    kept = {**before.arrays, **{name: each for name, each in after.arrays.items() if "num_batches" in name}}
    changed = [name for name, each in after.arrays.items() if not np.array_equal(each, kept[name])]
    assert sorted(changed) == sorted(f"models.average.{name}" for name in STATISTICS)


def train(backend: str, fields: str):
    """Return a step after three updates."""
    step = build_step(make_text(fields), backend)
    for batch in BATCHES[:3]:
        step(batch)
    return step


def expect(values, batches) -> dict[str, np.ndarray]:
    """Return the means over batches of the statistics of each, by hand: layers before it normalize by the batch."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in STATISTICS}

    def normalize(x, place):
        mean, variance = x.mean(axis=0), x.var(axis=0)
        found[f"{place}.running_mean"].append(mean)
        found[f"{place}.running_var"].append(variance * len(x) / (len(x) - 1))
        return (x - mean) / np.sqrt(variance + 1e-5) * values[f"{place}.weight"] + values[f"{place}.bias"]

    for batch in batches:
        hidden = np.maximum(normalize(batch["x"] @ values["0.weight"].T + values["0.bias"], "1"), 0)
        normalize(hidden @ values["3.0.weight"].T + values["3.0.bias"], "3.1")
    return {name: np.mean(each, axis=0) for name, each in found.items()}


def of(step, model: str) -> dict[str, np.ndarray]:
    """Return the tensors of a model."""
    return {
        name.removeprefix(f"{model}."): each for name, each in weights(step).items() if name.startswith(f"{model}.")
    }


@pytest.mark.parametrize("fields", [SWAP, SEPARATE])
def test_the_statistics_are_the_means_over_the_batches(backend: str, fields: str) -> None:
    step = train(backend, fields)
    before, average = of(step, "net"), of(step, "average")
    step.recompute_buffers("average", BATCHES)
    after = of(step, "average")
    for name, value in expect(average, BATCHES).items():
        assert np.allclose(after[name], value, rtol=1e-9, atol=1e-12), name
        assert not np.allclose(after[name], average[name], rtol=0.01)
    assert int(after["1.num_batches_tracked"]) == len(BATCHES)
    rest = average.keys() - set(STATISTICS) - {"1.num_batches_tracked", "3.1.num_batches_tracked"}
    assert all(np.array_equal(after[name], average[name]) for name in rest)
    assert all(np.array_equal(value, before[name]) for name, value in of(step, "net").items())


@pytest.mark.needs("torch")
def test_the_numbers_are_those_of_update_bn() -> None:
    import copy

    import torch
    from torch.optim.swa_utils import update_bn

    step = train("torch", SWAP)
    reference = copy.deepcopy(step.models["average"])
    reference[4] = torch.nn.Identity()  # update_bn also drops
    update_bn([torch.tensor(batch["x"]) for batch in BATCHES], reference)
    step.recompute_buffers("average", BATCHES)
    found = of(step, "average")
    for name, value in reference.state_dict().items():
        assert np.allclose(found[name], value.numpy(), rtol=1e-12, atol=0), name
    assert not step.models["average"][1].training
    assert step.models["average"][1].momentum == 0.3


@pytest.mark.needs("torch", "tensorflow")
def test_both_backends_have_the_same_numbers() -> None:
    both = [train(backend, SWAP) for backend in ("torch", "tensorflow")]
    both[1].restore(both[0].state())
    for step in both:
        step.recompute_buffers("average", BATCHES)
    one, other = (of(step, "average") for step in both)
    assert all(np.allclose(one[name], other[name], rtol=1e-9, atol=1e-12) for name in STATISTICS)


def test_evaluations_use_them_and_training_goes_on_as_before(backend: str) -> None:
    step, other = train(backend, SWAP), train(backend, SWAP)
    step.recompute_buffers("average", BATCHES)
    values, x = of(step, "average"), BATCHES[0]["x"]

    def normalize(x, place):
        scale = values[f"{place}.weight"] / np.sqrt(values[f"{place}.running_var"] + 1e-5)
        return (x - values[f"{place}.running_mean"]) * scale + values[f"{place}.bias"]

    hidden = np.maximum(normalize(x @ values["0.weight"].T + values["0.bias"], "1"), 0)
    hidden = hidden + normalize(hidden @ values["3.0.weight"].T + values["3.0.bias"], "3.1")
    expected = hidden @ values["5.weight"].T + values["5.bias"]
    assert np.allclose(step.numpy(step(BATCHES[0], mode="eval")["out"]), expected, rtol=1e-9, atol=1e-12)
    for each in (step, other):
        each(BATCHES[3])
    assert all(np.array_equal(value, weights(other)[name]) for name, value in weights(step).items())


@pytest.mark.parametrize("fields", [SWAP, SEPARATE])
def test_a_statement_of_python_computes_them_first(backend: str, fields: str) -> None:
    step, other = train(backend, fields), train(backend, fields)
    before = of(step, "net")
    other.recompute_buffers("average", BATCHES)
    with step.averaged("average", recompute=BATCHES):
        inside = {name: step.numpy(value) for name, value in step.tensors().items()}
    for name, value in of(other, "average").items():
        assert np.allclose(inside[f"models.net.{name}"], value, rtol=1e-12, atol=0), name
        assert np.allclose(of(step, "average")[name], value, rtol=1e-12, atol=0), name
    assert all(np.array_equal(value, before[name]) for name, value in of(step, "net").items())


def test_an_error_leaves_everything_as_it_was(backend: str) -> None:
    step = train(backend, SWAP)
    before = weights(step)

    def give():
        yield BATCHES[0]
        raise ValueError

    for batches, raised in ((give(), ValueError), ([], StepError), ([{"x": 0}], StepError)):
        with pytest.raises(raised):
            step.recompute_buffers("average", batches)
        assert all(np.array_equal(value, before[name]) for name, value in weights(step).items())
    step(BATCHES[0], mode="eval")
    assert all(np.array_equal(value, before[name]) for name, value in weights(step).items())


def test_an_average_that_was_not_taken_yet_stays_as_it_is(backend: str) -> None:
    step = build_step(make_text(SWAP), backend)
    before = weights(step)
    step.recompute_buffers("average", BATCHES)
    assert all(np.array_equal(value, before[name]) for name, value in weights(step).items())


def test_a_mode_that_does_not_call_the_average_is_refused(backend: str) -> None:
    step = train(backend, "use: {eval: separate}, buffers: copy")
    plain = build_step(make_text("buffers: copy").replace(NAMED, ""), backend)
    plain(BATCHES[0])
    with pytest.raises(StepError, match=r"GS292.*steps of mode eval do not call 'average'"):
        plain.recompute_buffers("average", BATCHES)
    with pytest.raises(StepError, match=r"GS291.*no average 'mean'"):
        step.recompute_buffers("mean", BATCHES)


def test_a_run_evaluates_exports_and_resumes_with_them(workdir, backend: str) -> None:
    for path, size in (("train.npz", 32), ("test.npz", 10)):
        rows = np.random.default_rng(size).normal(1, 2, (size, 4)).astype("float32")
        np.savez(path, x=rows[:, :3], y=rows[:, 3:])
    Path("stood.yaml").write_text(make_text(SWAP))
    run = ["run", "stood.yaml", "--plain", "--backend", backend]
    assert execute([*run, "--out", "whole"]) == 0
    with np.load("train.npz") as rows:
        batches = [{"x": rows["x"][k : k + 8].astype("float64")} for k in range(0, 32, 8)]
    for step in (3, 6):
        state = load_file(f"whole/checkpoints/step-{step}/state.safetensors")
        values = {
            name.removeprefix("models.average."): v.astype("float64") for name, v in state.items() if "average" in name
        }
        for name, value in expect(values, batches).items():
            assert np.allclose(values[name], value, rtol=1e-4, atol=1e-5), name
    assert execute(["export", "whole", "--format", "weights"]) == 0
    exported = load_file("whole/export/net.safetensors")
    assert all(np.array_equal(exported[name], state[f"models.average.{name}"]) for name in STATISTICS)
    assert execute([*run, "--out", "parts", "--steps", "4"]) == 0
    assert execute([*run, "--out", "parts", "--resume", "--steps", "6"]) == 0
    again = load_file("parts/checkpoints/step-6/state.safetensors")
    assert all(np.array_equal(value, again[name]) for name, value in state.items())
    rows = [json.loads(line) for line in Path("whole/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["eval/error"] == pytest.approx(evaluate("whole"), rel=1e-9)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fields", [SWAP, SEPARATE])
def test_an_export_of_a_checkpoint_that_was_not_evaluated_computes_them(workdir, capsys, backend: str, fields) -> None:
    for path, size in (("train.npz", 32), ("test.npz", 10)):
        rows = np.random.default_rng(size).normal(1, 2, (size, 4)).astype("float32")
        np.savez(path, x=rows[:, :3], y=rows[:, 3:])
    Path("stood.yaml").write_text(make_text(fields).replace("every: 3 steps, keep", "every: 2 steps, keep"))
    assert execute(["run", "stood.yaml", "--plain", "--backend", backend, "--out", "whole"]) == 0
    export = ["export", "whole", "--format", "weights", "--checkpoint"]  # evaluated at 3 and 6, saved at 2, 4 and 6
    with np.load("train.npz") as rows:
        batches = [{"x": rows["x"][k : k + 8].astype("float64")} for k in range(0, 32, 8)]
    name = "net" if fields == SWAP else "average"
    for step in ("4", "6"):
        assert execute([*export, step]) == 0
        anew = f"  {name}.safetensors .*, its statistics computed anew"
        assert bool(re.search(anew, capsys.readouterr().out)) == (step == "4")
        values = {key: value.astype("float64") for key, value in load_file(f"whole/export/{name}.safetensors").items()}
        for key, value in expect(values, batches).items():
            assert np.allclose(values[key], value, rtol=1e-4, atol=1e-5), key
    kept = load_file("whole/checkpoints/step-4/state.safetensors")["models.average.1.running_mean"]
    assert not np.allclose(kept, expect_of_kept(4, batches), rtol=0.01)  # those in the checkpoint are of step 3
    Path("train.npz").unlink()
    assert execute([*export, "6"]) == 0
    assert execute([*export, "4"]) == 1
    said = capsys.readouterr().err
    assert "average needs this data: the run did not evaluate at step-4" in said


def expect_of_kept(step: int, batches) -> np.ndarray:
    """Return the statistics of the first layer that belong to the weights of a checkpoint."""
    state = load_file(f"whole/checkpoints/step-{step}/state.safetensors")
    values = {key.removeprefix("models.average."): v.astype("float64") for key, v in state.items() if "average" in key}
    return expect(values, batches)["1.running_mean"]


def evaluate(run: str) -> float:
    """Return the figure of `stepgraph eval`."""
    from runtime.train.reopen import Question, evaluate_run

    question = Question(folder=Path(run), data=None, choice="newest", device="cpu", allow=())
    return evaluate_run(question).figures["error"]


@pytest.mark.needs("tensorflow")
def test_layers_of_keras_keep_the_convention_of_keras() -> None:
    text = SPEC.replace("FIELDS", SWAP).replace("NAMED", "")
    made = "    class: tests.features.test_recomputed_statistics:make_keras\n"
    text = re.sub(r"    layers:\n(?s:.*)linear: 1}\n", made, text)
    step = build(compile_step(load(text), "tensorflow"), device="cpu", allow=("tests",))
    for batch in BATCHES[:3]:
        step({name: value.astype("float32") for name, value in batch.items()})
    average = step.models["average"]
    step.recompute_buffers("average", [{n: v.astype("float32") for n, v in batch.items()} for batch in BATCHES])
    inner = [np.asarray(average.layers[0](batch["x"].astype("float32"))) for batch in BATCHES]
    mean = np.mean([each.mean(axis=0) for each in inner], axis=0)
    variance = np.mean([each.var(axis=0) for each in inner], axis=0)
    assert np.allclose(average.layers[1].moving_mean, mean, rtol=1e-5, atol=1e-6)
    assert np.allclose(average.layers[1].moving_variance, variance, rtol=1e-5, atol=1e-6)


def make_keras():
    """Return a model of Keras."""
    import keras

    return keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("fields", "change", "said"),
    [
        (SWAP.replace("train", "trian"), None, r"GS124.*takes its statistics from 'trian', a set that `data` does not"),
        (f"into: slow, {SWAP}", None, r"GS053.*`into` is a model for others too"),
        (f"buffers: average, {SWAP}", None, r"E-BUFFERS.*its policy for buffers is 'average'"),
        (
            SWAP,
            ("batch_norm", "layer_norm"),
            r"E-BUFFERS.*computes the statistics of 'net' anew, which has no batch_norm",
        ),
        (SEPARATE, (NAMED, ""), r"GS126.*none calls it in eval mode"),
        (
            SWAP,
            ("  error: {metric: mean, inputs: out, mode: eval}\n\noutputs: [loss, error, out]", "outputs: [loss]"),
            r"GS126.*statistics of 'average' are computed for evaluations, and eval mode returns nothing",
        ),
        (
            SEPARATE,
            (", mode: eval}\n  named_mean", "}\n  named_mean"),
            r"E-BUFFERS.*'named' calls 'average' in training",
        ),
    ],
)
def test_what_does_not_fit_is_refused(fields: str, change, said: str) -> None:
    text = make_text(fields)
    if change is not None:
        assert change[0] in text
        text = text.replace(*change).replace("{layer_norm: {momentum: 0.3}}", "layer_norm")
        text = text.replace("outputs: [loss,", "outputs: [named, loss,") if "calls 'average'" in said else text
    with pytest.raises(SpecError, match=said):
        compile_step(load(text))
