"""Which function a step takes, as a plan says it, and the summary of a step."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

from compiler import compile_step
from compiler.plan.reachable_functions import find_dispatches
from graphspec import load

EXAMPLES = Path(__file__).parents[2] / "examples"
BY_HAND = {
    "td3": lambda step: 2 if step % 2 == 0 else 1,
    "stylegan2-lazy": lambda step: 1 if step % 16 == 1 else 3 if step % 8 == 1 else 2,
    "wgan-gp": lambda step: 2 if step % 5 == 0 else 1,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_functions_of_the_first_steps_are_those_that_the_clocks_choose(name):
    plan = compile_step(load(EXAMPLES / name / f"{name}.yaml"))
    found = [[*turn.names] for turn in islice(find_dispatches(plan.program.mode("train"), plan.program), 100)]
    assert found == [[f"train_step_{BY_HAND[name](step)}"] for step in range(1, 101)]
    assert plan.to_json()["first_steps"] == found[:16]


SELDOM = """graphspec: 1
name: seldom
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 1}], optimizer: sgd}
  slow: {like: net}
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: cost}
  follow: {ema: net, into: slow, decay: 0.5, every: 900}
"""


def test_a_function_says_in_which_steps_it_runs():
    text = compile_step(load(SELDOM)).text()
    assert "train_step_1  (writes: step; steps 1-899, 901-1799, 1801-2699, ...)" in text
    assert "train_step_2  (writes: step, follow; steps 900, 1800, 2700, ...)" in text
    late = compile_step(load(SELDOM, ["ops.follow.every=9000"])).text()
    assert "train_step_2  (writes: step, follow; steps 9000, 18000 of the first 20,000)" in late
    ending = compile_step(load(SELDOM, ["ops.follow.every=1", "ops.follow.until=2"])).text()
    assert "train_step_1  (writes: step, follow; steps 1-2)" in ending
    assert "train_step_2  (writes: step; from step 3 on)" in ending
    both = compile_step(load(SELDOM, ["ops.follow.every=2", "ops.follow.start=5", "ops.follow.until=11"])).text()
    assert "train_step_1  (writes: step; steps 1-4, 6, 8, ...)" in both
    assert "train_step_2  (writes: step, follow; steps 5, 7, 9, ..., 11)" in both


def test_a_function_that_only_a_skipped_update_leads_to_says_so():
    other = """
  fourth: {update: last, loss: end, every: 4}
  seen: {forward: last, inputs: x}
  end: {loss: mse, inputs: [seen, 0.0]}
precision: {loss_scale: dynamic}
"""
    text = SELDOM.replace("  slow:", "  last: {layers: [{linear: 1}], optimizer: sgd}\n  slow:") + other.removeprefix(
        "\n"
    )
    found = compile_step(load(text, ["ops.step.every=2", "ops.follow.every=2"])).text()
    told = dict(re.findall(r"\(writes: (.*?); (.*?)\)", found))
    expected = {
        "nothing": "steps 1, 3, 5, ...",
        "step": "steps 2, 6, 10, ...",
        "step, follow, fourth": "steps 4, 8, 12, ...",
        "step, fourth": "only after a skipped update",
        "step, follow": "only after a skipped update",
    }
    # as steps first take them: step 4 where step 2 was skipped, step 6 where step 4 was
    assert list(told.items()) == list(expected.items())


SKIPPING = """graphspec: 1
name: skipping
precision: {loss_scale: dynamic}
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 2}, {linear: 1}], optimizer: sgd, groups: [{match: "^0[.]", frozen: {until: 4 steps}}]}
  slow: {like: net}
ops:
  noisy:
    sometimes: 0.25
    mode: train
    ops: {seen: {expr: "x + 0.1"}}
    else: {seen: x}
  out: {forward: net, inputs: noisy.seen, mode: train}
  cost: {loss: mse, inputs: [out, 0.0], mode: train}
  step: {update: net, loss: cost, accumulate: 2}
  follow: {ema: net, into: slow, decay: 0.5, start: 3 updates}
"""


def test_steps_are_those_of_a_run_that_skips_nothing_and_name_every_alternative():
    """The update applies in steps 2, 4, 6, ..., so the average starts in step 6, with nothing frozen."""
    plan = compile_step(load(SKIPPING))
    program = plan.program.mode("train")
    by_name = {function.name: function for function in program.functions}
    sets = {frozenset(function.gated) - {"noisy.1", "noisy.2"} for function in program.functions}
    frozen, apply = "net.groups.0", "step"
    assert {each & {frozen, apply, "follow"} for each in sets} == {
        frozenset(each) for each in ([frozen], [frozen, apply], [], [apply], [apply, "follow"])
    }
    for step, names in enumerate(plan.to_json()["first_steps"], start=1):
        assert [{"noisy.1", "noisy.2"} & {*by_name[name].gated} for name in names] == [{"noisy.1"}, {"noisy.2"}], step
        assert all((apply in by_name[name].gated) == (step % 2 == 0) for name in names), step
        assert all(("follow" in by_name[name].gated) == (step % 2 == 0 and step >= 6) for name in names), step
        assert all((frozen in by_name[name].gated) == (step <= 4) for name in names), step
    text, summary = str(plan), plan.explain()
    assert "(writes: step, follow; steps 6, 8, 10, ... with noisy.1)" in text
    assert "the steps are those of a run that skips no update" in text
    assert "(writes: step; only after a skipped update with noisy.2)" in text
    assert "  follow  slow from net, in steps 6, 8, 10, ..." in summary
    assert "1/2 3/4 1/2 3/4" in summary
    assert "no update" not in str(compile_step(load(SKIPPING, ["precision.loss_scale=none"]))).split("train_step_1")[0]


def test_where_what_is_drawn_is_counted_the_number_of_a_step_does_not_tell():
    text = SKIPPING.replace(
        "[out, 0.0], mode: train}", "[out, 0.0], mode: train}\n  lucky:\n    sometimes: 0.5\n    ops:"
    )
    text = text.replace("  step: {update: net, loss: cost, accumulate: 2}", "      step: {update: net, loss: cost}")
    plan = compile_step(load(text.replace("{ema: net,", "{ema: net, every: 3,")))
    assert plan.to_json()["first_steps"] == []
    assert "steps 1" not in str(plan)


def test_a_summary_tells_what_trains_when_and_what_waits():
    plan = compile_step(load(EXAMPLES / "cyclegan-separate" / "cyclegan-separate.yaml"))
    lines = plan.explain().splitlines()
    assert "  to_negative      trained by step_to_negative (adam, lr 0.0005)" in lines
    assert "  step_to_digit         to_digit from to_digit_loss, in every step (cyclegan-separate.yaml:41:3)" in lines
    (deferred,) = (line for line in lines if line.startswith("  DEFER"))
    assert "step_to_negative is deferred after gradient step_to_digit" in deferred
    seldom = compile_step(load(SELDOM, ["ops.follow.every=2"])).explain()
    assert "steps 1 to 16: 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2" in seldom
    assert "  follow  slow from net after every 2 writes of net, in steps 2, 4, 6, ..." in seldom
    assert "no update is deferred, no graph is kept, and nothing is cloned" in seldom
    assert lines[-1] == "  nothing is cloned"
    cloned = "  SNAPSHOT     forward out runs on clones of net: it says `snapshot: true`"
    both = compile_step(load(SELDOM, ["ops.out.snapshot=true"])).explain().splitlines()
    assert both[-2:] == [cloned, "  no update is deferred and no graph is kept"]


def test_why_not_names_what_would_go_wrong():
    plan = compile_step(load(EXAMPLES / "cyclegan-separate" / "cyclegan-separate.yaml"))
    lines = plan.why_not("step_to_negative", "earlier").splitlines()
    assert lines[:3] == ["step_to_negative: why not earlier", "", "in train_step"]
    # what defers it comes first: the other translator's gradient still runs through this one
    assert lines[3].startswith(
        "  before gradient step_to_digit: gradient step_to_digit would run back through negative_again "
        "with to_negative.params@1, where @0 was read"
    )
    assert any("forward fake_negative would read to_negative.params@1 in place of @0" in line for line in lines)
    gan = compile_step(load(EXAMPLES / "gan-digits" / "gan-digits.yaml"))
    later = gan.why_not("step_d", "later")
    assert "after forward judged: forward judged would not see discriminator.params@1" in later
    assert "it writes in no step" in gan.why_not("judged", "earlier")
    with pytest.raises(KeyError, match="did you mean step_d"):
        gan.why_not("stepd", "later")


STOPPED = """
graphspec: 1
name: stopped
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: 2}], optimizer: sgd}
  b: {layers: [{linear: 2}, batch_norm], optimizer: sgd}
ops:
  noise: {random: normal, like: x}
  held: {forward: b, inputs: x, stop: true}
  goal: {expr: "y + stop(noise)"}
  seen: {forward: a, inputs: x}
  own: {expr: "stop(seen)"}
  step_a: {update: a, loss: "mse(seen, held + goal) + mean(own * seen)"}
  other: {forward: b, inputs: x, train: true}
  step_b: {update: b, loss: "mse(other, y)"}
  late: {ema: b, decay: 0.9, buffers: ignore}
"""


def test_a_stop_that_no_gradient_would_pass_is_explained_as_needless():
    """Of the gradients by ``a`` none reaches ``b`` or the noise, but one would run through ``seen`` twice."""
    plan = compile_step(load(STOPPED))
    needless = [name for name in ("held", "goal", "own", "seen") if "` cuts nothing: " in plan.explain(name)]
    assert needless == ["held", "goal"]


def test_a_draw_is_explained_with_the_options_that_the_spec_leaves_out():
    assert "normal with mean 0, std 1" in compile_step(load(STOPPED)).explain("noise")
    scaled = load(STOPPED, ["ops.noise.args={std: 0.5}"])
    assert "normal with mean 0, std 0.5" in compile_step(scaled).explain("noise")


def test_an_average_says_that_it_leaves_the_buffers_of_its_source():
    plan = str(compile_step(load(STOPPED)))
    assert next(line for line in plan.splitlines() if "late <-" in line).endswith("[buffers ignore]")
