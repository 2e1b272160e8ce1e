"""A metric's value is the mean over all rows since its reset, against NumPy over the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, StepError, build, emit
from tests.backends.torch import keepers

USERS = keepers.__name__
SIZES = (5, 3, 1, 4, 2, 6, 5)


def make(metric: str, seed: int = 0) -> Step:
    """Return a step with one metric, in all modes."""
    return build(plan_of(metric), device="cpu", seed=seed, allow=[USERS])


def plan_of(metric: str):
    """Return the plan of a step with one metric."""
    return compile_step(
        load(f"""
graphspec: 1
name: test
inputs: {{x: {{shape: [batch, 4]}}, label: {{shape: [batch], dtype: int64}}}}
models:
  net: {{layers: [{{linear: 3}}], optimizer: {{name: sgd, lr: 0.5}}}}
ops:
  scores: {{forward: net, inputs: x}}
  loss: {{loss: cross_entropy, inputs: [scores, label], mode: train}}
  learn: {{update: net, loss: loss}}
  found: {{{metric}}}
outputs: [scores, found]
""")
    )


def batch(number: int) -> dict[str, object]:
    """Return one of the batches, which differ in size."""
    random, size = np.random.default_rng(number), SIZES[number]
    return {"x": random.normal(size=(size, 4)).astype("f"), "label": random.integers(0, 3, size)}


def run(step: Step, numbers: range, mode: str = "train") -> tuple[list[float], list[np.ndarray]]:
    """Return the values of the metric, and the scores it was given."""
    results = [step(batch(number), mode=mode) for number in numbers]
    return [float(each["found"]) for each in results], [step.numpy(each["scores"]) for each in results]


ACCURACY = "metric: accuracy, inputs: [scores, label]"
MEAN = "metric: mean, inputs: scores"


def hits(scores: list[np.ndarray], start: int = 0) -> float:
    """Return the accuracy over all rows of some batches."""
    labels = np.concatenate([batch(start + index)["label"] for index in range(len(scores))])
    return float((np.concatenate(scores).argmax(1) == labels).mean())


def test_an_accuracy_is_that_of_all_rows_since_the_epoch_began():
    found, scores = run(make(ACCURACY), range(7))
    assert found == pytest.approx([hits(scores[: end + 1]) for end in range(7)], rel=1e-6)


def test_a_mean_weights_every_batch_by_its_rows():
    found, scores = run(make(MEAN), range(7))
    assert found == pytest.approx([np.concatenate(scores[: end + 1]).mean() for end in range(7)], rel=1e-5)


def test_a_number_of_steps_starts_the_value_anew_after_as_many():
    found, scores = run(make(MEAN + ", reset: 3 steps"), range(7))
    expected = [np.concatenate(scores[end // 3 * 3 : end + 1]).mean() for end in range(7)]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_number_of_steps_counts_steps_in_which_the_metric_rests():
    step = make(MEAN + ", reset: 3 steps, every: 2")
    results = [step(batch(number)) for number in range(6)]
    scores = [step.numpy(each["scores"]) for each in results]
    assert [number for number in range(6) if "found" in results[number]] == [1, 3, 5]
    found = [float(results[number]["found"]) for number in (1, 3, 5)]
    expected = [scores[1].mean(), scores[3].mean(), np.concatenate([scores[3], scores[5]]).mean()]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_value_of_each_step_has_no_register():
    step = make(MEAN + ", reset: step")
    found, scores = run(step, range(4))
    assert found == pytest.approx([each.mean() for each in scores], rel=1e-5)
    assert "METRICS" not in step.source
    assert "metrics" not in step.state().counters


@pytest.mark.parametrize(("reset", "first"), [("epoch", 4), ("never", 0), ("100", 0)])
def test_the_end_of_an_epoch_resets_what_runs_for_an_epoch(reset, first):
    step = make(f"{MEAN}, reset: {reset}")
    before = run(step, range(4))[1]
    step.end_epoch()
    found, after = run(step, range(4, 7))
    assert found[-1] == pytest.approx(np.concatenate([*before, *after][first:]).mean(), rel=1e-5)


@pytest.mark.parametrize("reset", ["epoch", "never", "3"])
def test_a_mode_that_starts_anew_measures_anew(reset):
    step = make(f"{MEAN}, reset: {reset}")
    first = run(step, range(2), "eval")[0]
    step.reset("eval")
    assert run(step, range(2), "eval")[0] == first
    assert step.report.step == 2


def test_every_mode_has_its_own_value():
    step = make(ACCURACY)
    run(step, range(3))
    found, scores = run(step, range(3, 6), "eval")
    assert found[-1] == pytest.approx(hits(scores, 3), rel=1e-6)
    step.end_epoch()
    assert run(step, range(6, 7), "eval")[0][0] == pytest.approx(
        hits([*scores, *run(make_like(step), range(6, 7), "eval")[1]], 3), rel=1e-6
    )


def make_like(step: Step) -> Step:
    """Return another step with the weights of this one."""
    other = make(ACCURACY)
    other.restore(step.state())
    return other


def test_a_function_of_the_user_gets_its_arguments_and_runs_like_others():
    found, scores = run(make(f"metric: '{USERS}:spread', inputs: scores, args: {{factor: 2.0}}"), range(4))
    values, sizes = [each.std(ddof=1) * 2 for each in scores], SIZES[:4]
    assert found == pytest.approx([np.average(values[:n], weights=sizes[:n]) for n in range(1, 5)], rel=1e-5)


def test_a_class_counts_by_itself():
    step = make(f"metric: '{USERS}:Hits', inputs: [scores, scores], args: {{threshold: 0.25}}")
    assert run(step, range(3))[0] == [1, 1, 1]
    metric = step.state().counters["metrics"]["train"]["found"]
    assert step.state().arrays["metrics.train.found.own.total"] == 3 * sum(SIZES[:3])
    assert len(metric["own"]["kept"]) == 3
    step.end_epoch()
    run(step, range(1))
    assert step.state().arrays["metrics.train.found.own.total"] == 3 * SIZES[0]


@pytest.mark.parametrize(("reset", "expected"), [("epoch", [1, 2, 3, 4]), ("step", [1] * 4), ("2", [1, 2, 1, 2])])
def test_an_object_counts_for_every_mode_and_build_apart(reset, expected):
    metric = f"metric: '{USERS}:shared', inputs: scores, reset: {reset}"
    step, other = make(metric), make(metric)
    assert run(step, range(4))[0] == run(step, range(4), "eval")[0] == run(other, range(4))[0] == expected
    assert keepers.shared.calls == 0


def test_a_metric_that_does_not_tell_what_it_counted_is_named_at_build():
    step = make(f"metric: '{USERS}:Forgetful', inputs: scores")
    assert step.notes[-1] == (
        "metric 'found' has no state_dict and load_state_dict: it starts from zero when a run is resumed"
    )
    run(step, range(3))
    other = make(f"metric: '{USERS}:Forgetful', inputs: scores")
    other.restore(step.state())
    assert run(other, range(1))[0] == [1]


@pytest.mark.parametrize("way_of_trying", ["fake"], indirect=True)
def test_the_dry_run_with_fake_tensors_leaves_out_what_counts_by_itself(way_of_trying):
    metric = f"metric: '{USERS}:Hits', inputs: [scores, scores]"
    assert make(metric).notes == ("checked with fake tensors",)


def test_a_class_that_is_no_metric_is_told_at_its_op():
    with pytest.raises(StepError, match=r"Shapeless has no update, compute and reset[\s\S]*<text>:11:3"):
        make(f"metric: '{USERS}:Shapeless', inputs: scores")


def test_a_value_per_row_has_no_running_mean():
    step = make(f"metric: '{USERS}:rows', inputs: scores")
    step(batch(0))
    with pytest.raises(StepError, match=r"the metric gave shape \[3\] after \[5\]: write `reset: step`"):
        step(batch(1))
    assert make(f"metric: '{USERS}:rows', inputs: scores, reset: step")(batch(1))["found"].shape == (3,)


def test_arguments_of_a_metric_of_the_library_are_checked():
    with pytest.raises(Exception, match="metric `accuracy` has no option 'topk'"):
        plan_of(f"{ACCURACY}, args: {{topk: 5}}")


def test_an_emitted_file_ends_epochs_by_itself(tmp_path):
    path = tmp_path / "step.py"
    path.write_text(emit(plan_of(ACCURACY)))
    names: dict[str, object] = {"__name__": "emitted"}
    exec(compile(path.read_text(), path, "exec"), names)
    names["build"]()
    inputs = {name: __import__("torch").from_numpy(value) for name, value in batch(0).items()}
    names["step"](inputs)
    assert names["train_found"].rows == 5
    names["end_epoch"]()
    assert names["train_found"].rows == 0
