"""Gradients of losses with common terms are taken in one backward pass, where that gives each but for a factor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import pytest
import torch
from msgspec import Struct
from torch.nn.functional import cross_entropy, mse_loss, softplus

from compiler import Plan, compile_step
from graphspec import load
from runtime import emit
from tests.features.steps import build_step, weights

Batch: TypeAlias = Mapping[str, torch.Tensor]
Call: TypeAlias = Callable[[str, torch.Tensor], torch.Tensor]
SMALL = "layers: [{linear: 5}, tanh, {linear: 3}]"
SCORE = "layers: [{linear: 6}, tanh, {linear: 1}]"
DANN = f"""
graphspec: 1
name: dann
inputs: {{source: {{shape: [batch, 4]}}, target: {{shape: [batch, 4]}}, label: {{shape: [batch], dtype: int64}}}}
models:
  extractor: {{{SMALL}}}
  labeler: {{layers: [{{linear: 3}}]}}
  critic: {{{SCORE}, optimizer: {{name: adam, lr: 0.02}}}}
ops:
  of_source: {{forward: extractor, inputs: source}}
  of_target: {{forward: extractor, inputs: target}}
  scores: {{forward: labeler, inputs: of_source}}
  source_side: {{forward: critic, inputs: of_source, after: []}}
  target_side: {{forward: critic, inputs: of_target, after: []}}
  label_loss: {{loss: cross_entropy, inputs: [scores, label]}}
  domain_loss: {{expr: "bce_with_logits(source_side, 0.0) + bce_with_logits(target_side, 1.0)"}}
  features:
    {{update: [extractor, labeler], loss: "label_loss - 0.1 * domain_loss", optimizer: {{name: adam, lr: 0.01}}}}
  critics: {{update: critic, loss: domain_loss}}
outputs: [label_loss, domain_loss]
"""
GAN = f"""
graphspec: 1
name: saturating
inputs: {{real: {{shape: [batch, 3]}}, z: {{shape: [batch, 2]}}}}
models:
  generator: {{{SMALL}, optimizer: {{name: adam, lr: 0.01}}}}
  critic: {{{SCORE}, optimizer: {{name: adam, lr: 0.02}}}}
ops:
  fake: {{forward: generator, inputs: z}}
  on_real: {{forward: critic, inputs: real}}
  on_fake: {{forward: critic, inputs: fake, after: []}}
  d_fake: {{loss: bce_with_logits, inputs: [on_fake, 0.0]}}
  d_loss: {{expr: "bce_with_logits(on_real, 1.0) + d_fake"}}
  step_d: {{update: critic, loss: d_loss}}
  step_g: {{update: generator, loss: "-d_fake"}}
outputs: [d_loss]
"""
HEADS = f"""
graphspec: 1
name: heads
inputs: {{x: {{shape: [batch, 4]}}, move: {{shape: [batch], dtype: int64}}, worth: {{shape: [batch, 1]}}}}
models:
  trunk: {{{SMALL}, optimizer: {{name: adam, lr: 0.01}}}}
  actor: {{layers: [{{linear: 6}}, tanh, {{linear: 3}}], optimizer: {{name: adam, lr: 0.02}}}}
  judge: {{{SCORE}, optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  seen: {{forward: trunk, inputs: x}}
  moves: {{forward: actor, inputs: seen}}
  guess: {{forward: judge, inputs: seen}}
  policy: {{loss: cross_entropy, inputs: [moves, move]}}
  value: {{loss: mse, inputs: [guess, worth]}}
  step_trunk: {{update: trunk, loss: "policy + 0.5 * value"}}
  step_actor: {{update: actor, loss: policy}}
  step_judge: {{update: judge, loss: value}}
outputs: [policy, value]
"""


def lose_dann(call: Call, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Return the losses of the updates."""
    of_source, of_target = call("extractor", batch["source"]), call("extractor", batch["target"])
    domain = softplus(call("critic", of_source)).mean() + softplus(-call("critic", of_target)).mean()
    label = cross_entropy(call("labeler", of_source), batch["label"])
    return {"features": label - 0.1 * domain, "critics": domain}


def lose_gan(call: Call, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Return the losses of the updates."""
    on_fake = softplus(call("critic", call("generator", batch["z"]))).mean()
    return {"step_d": softplus(-call("critic", batch["real"])).mean() + on_fake, "step_g": -on_fake}


def lose_heads(call: Call, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Return the losses of the updates."""
    seen = call("trunk", batch["x"])
    policy = cross_entropy(call("actor", seen), batch["move"])
    value = mse_loss(call("judge", seen), batch["worth"])
    return {"step_trunk": policy + 0.5 * value, "step_actor": policy, "step_judge": value}


class Problem(Struct, frozen=True, kw_only=True):
    """A spec, and what a loop by hand makes of it: its losses, and by update the models and their optimizer."""

    text: str
    losses: Callable[[Call, Batch], Mapping[str, torch.Tensor]]
    updates: Mapping[str, tuple[tuple[str, ...], type[torch.optim.Optimizer], float]]


PROBLEMS = {
    "dann": Problem(
        text=DANN,
        losses=lose_dann,
        updates={
            "features": (("extractor", "labeler"), torch.optim.Adam, 0.01),
            "critics": (("critic",), torch.optim.Adam, 0.02),
        },
    ),
    "gan": Problem(
        text=GAN,
        losses=lose_gan,
        updates={
            "step_d": (("critic",), torch.optim.Adam, 0.02),
            "step_g": (("generator",), torch.optim.Adam, 0.01),
        },
    ),
    "heads": Problem(
        text=HEADS,
        losses=lose_heads,
        updates={
            "step_trunk": (("trunk",), torch.optim.Adam, 0.01),
            "step_actor": (("actor",), torch.optim.Adam, 0.02),
            "step_judge": (("judge",), torch.optim.SGD, 0.1),
        },
    ),
}


class Hand:
    """A loop by hand with a backward pass for every update."""

    def __init__(self, problem: Problem, start: Mapping[str, np.ndarray]) -> None:
        self.problem = problem
        self.tensors = {name: torch.tensor(value).requires_grad_() for name, value in start.items()}
        self.own = {op: self._pick(models) for op, (models, _, _) in problem.updates.items()}
        self.rules = {op: rule(self.own[op], rate) for op, (_, rule, rate) in problem.updates.items()}
        self.windows: dict[str, list[tuple[torch.Tensor, ...]]] = {op: [] for op in self.own}
        self.steps = 0

    def _pick(self, models: tuple[str, ...]) -> list[torch.Tensor]:
        return [each for model in models for name, each in self.tensors.items() if name.startswith(f"{model}.")]

    def _call(self, model: str, x: torch.Tensor) -> torch.Tensor:
        weighted = self._pick((model,))
        for index in range(0, len(weighted), 2):
            x = torch.tanh(x) if index else x
            x = x @ weighted[index].T + weighted[index + 1]
        return x

    def step(self, batch: Batch, *, accumulate: int = 1, clip: float | None = None, every: str = "") -> None:
        """Take a step; ``every`` is an update that takes place in every second one alone."""
        self.steps += 1
        losses = self.problem.losses(self._call, batch)
        taken = {
            op: torch.autograd.grad(loss, self.own[op], retain_graph=True)
            for op, loss in losses.items()
            if op != every or self.steps % 2 == 0
        }
        for op, gradients in taken.items():
            self.windows[op].append(gradients)
            if len(self.windows[op]) < accumulate:
                continue
            for value, found in zip(self.own[op], zip(*self.windows[op], strict=True), strict=True):
                value.grad = sum(found[1:], found[0]) / accumulate
            if clip is not None:
                norm = torch.stack([value.grad.square().sum() for value in self.own[op]]).sum().sqrt()
                for value in self.own[op]:
                    value.grad = value.grad * min(1.0, clip / float(norm))
            self.rules[op].step()
            self.windows[op] = []


def draw(text: str, number: int, rows: int = 5) -> dict[str, np.ndarray]:
    """Return the batch of a step."""
    noise, found = np.random.default_rng(number), dict[str, np.ndarray]()
    for name, entry in load(text).inputs.items():
        shape = (rows, *entry.shape[1:])
        found[name] = noise.integers(0, 3, shape) if entry.dtype == "int64" else noise.normal(size=shape)
    return found


def find_joint(plan: Plan) -> set[str]:
    """Return the gradients that are joined in train mode, as `one+other`."""
    instructions = [each for function in plan.program.mode("train").functions for each in function.instructions]
    return {"+".join(each.ops) for each in instructions if each.kind() == "gradient" and len(each.ops) > 1}


BENT = "  bent: {gradient: domain_loss, wrt: [critic, of_source], outputs: [bent, edge]}\n"
JOINT = {"dann": "features+critics", "gan": "step_d+step_g", "heads": "step_trunk+step_actor+step_judge"}


@pytest.mark.parametrize("how", ["plain", "accumulated", "clipped", "at times", "micro-batches"])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_a_loop_by_hand_with_a_backward_for_each_update_gives_the_same(name: str, how: str, backend: str) -> None:
    """Equal to the order of sums, whatever becomes of the gradients afterwards."""
    problem, last = PROBLEMS[name], list(PROBLEMS[name].updates)[-1]
    settings, told = {
        "plain": ([], {}),
        "accumulated": ([f"ops.{op}.accumulate=2" for op in problem.updates], {"accumulate": 2}),
        "clipped": ([f"ops.{op}.clip={{norm: 0.05}}" for op in problem.updates], {"clip": 0.05}),
        "at times": ([f"ops.{last}.every=2"], {"every": last}),
        "micro-batches": (["micro_batches=2"], {}),
    }[how]
    assert JOINT[name] in find_joint(compile_step(load(problem.text, settings), backend))
    step = build_step(problem.text, backend, settings)
    hand = Hand(problem, weights(step))
    for number in range(4):
        batch = draw(problem.text, number)
        step(batch)
        hand.step({key: torch.tensor(value) for key, value in batch.items()}, **told)
    for key, value in weights(step).items():
        np.testing.assert_allclose(value, hand.tensors[key].detach().numpy(), rtol=1e-12, atol=1e-13, err_msg=key)


def test_the_plan_says_which_gradients_are_one_and_why() -> None:
    """The decision is listed, both updates are explained by the one line, and the emitted code has one backward."""
    plan = compile_step(load(DANN))
    text = "features and critics take one gradient, of features.loss: for critic it is -0.1 times that of domain_loss"
    assert f"MERGE        {text}" in plan.text()
    for op in ("features", "critics"):
        assert f"MERGE: {text}" in plan.explain(op)
    train = emit(plan).split("def eval_step")[0]
    assert train.count("autograd.grad(") == 1
    assert "retain_graph" not in train
    assert "critics = scale_set(features_joint[critic_part], -10.0)" in train


def test_a_loss_that_nothing_reads_any_more_is_not_computed() -> None:
    """The critic's loss gives both gradients; minus one of its terms was but the generator's loss."""
    train = emit(compile_step(load(GAN))).split("def eval_step")[0]
    assert "step_g = scale_set(step_d_joint[generator_part], -1.0)" in train
    assert "step_g_loss" not in train
    returned = emit(compile_step(load(GAN.replace("step_g: {update: generator, loss: \"-d_fake\"}", """
  g_loss: {expr: "-d_fake"}
  step_g: {update: generator, loss: g_loss}""".strip()), ["outputs=[d_loss, g_loss]"])))  # fmt: skip
    assert "g_loss = -d_fake" in returned.split("def eval_step")[0]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (DANN, "label_loss - 0.1 * domain_loss", "label_loss - 0.1 * domain_loss + mean(source_side)"),
        (DANN, "label_loss - 0.1 * domain_loss", "label_loss - 0.1 * domain_loss ** 2"),
        (DANN, "label_loss - 0.1 * domain_loss", "label_loss - 0.0001 * domain_loss"),
        (DANN, "label_loss - 0.1 * domain_loss", "label_loss - label_loss * domain_loss"),
        (DANN, "label_loss - 0.1 * domain_loss", "label_loss - 0.0 * domain_loss"),
        (HEADS, "policy + 0.5 * value", "policy + 0.5 * value + mean(moves * guess)"),
        (GAN, "step_g: {", "step_g: {defer: never, "),
        (GAN, "step_g: {", "step_g: {missing: skip, "),
        (GAN, "outputs: [d_loss]", "join_gradients: false"),
        (DANN, "outputs: [label_loss, domain_loss]", "precision: {compute: bfloat16}"),
        (DANN, "outputs: [label_loss, domain_loss]", "parallel: {kind: replicated, buffers: rank0}"),
        (GAN, "layers: [{linear: 5}, tanh, {linear: 3}]", "class: tests.features.joined:Net"),
        (GAN, "layers: [{linear: 5}", "layers: [{linear: 90000}"),
        (DANN, "outputs:", f"{BENT}outputs:"),
    ],
    ids=[
        "another term reaches the critic", "no multiple", "too small a factor", "no constant", "zero",
        "a term of both heads", "at once", "parameters may be missed", "asked not to",
        "numbers of 16 bits", "processes", "a model of unknown size", "many parameters", "a gradient by a value",
    ],
)  # fmt: skip
def test_gradients_stay_apart(text: str, old: str, new: str) -> None:
    """Each of these differs in a point that matters from gradients that are joined."""
    assert text.count(old) == 1
    before = find_joint(compile_step(load(text)))
    after = find_joint(compile_step(load(text.replace(old, new))))
    assert len(before) == 1
    assert after < before or "bent" in new
    assert not any("bent" in each for each in after)


def test_of_two_gradients_one_of_which_needs_the_others_update_neither_waits() -> None:
    """The labels are judged after the critic's update. TensorFlow still has the weights from before it."""
    after = compile_step(load(DANN, ["ops.scores.after=critics"]), "tensorflow")
    assert find_joint(after) == set()
    assert find_joint(compile_step(load(DANN), "tensorflow")) == {"features+critics"}


def test_weights_are_in_a_joint_gradient_once() -> None:
    """Of two updates of one model one is joined: its second step is on the gradient of its own loss."""
    again = "  again: {update: judge, loss: value, after: step_judge}\noutputs: [policy"
    joint = find_joint(compile_step(load(HEADS.replace("outputs: [policy", again))))
    assert joint == {"step_trunk+step_actor+step_judge"}


@pytest.mark.parametrize("loss", ["domain_loss", "-0.5 * domain_loss", "label_loss + 2 * domain_loss"])
def test_factors_are_followed_through_sums_and_products(loss: str, backend: str) -> None:
    """Joined or apart, the step is the same; a loss of both is one backward."""
    text = DANN.replace("label_loss - 0.1 * domain_loss", loss).replace("[extractor, labeler]", "extractor")
    assert find_joint(compile_step(load(text), backend)) == {"features+critics"}
    joined, apart = (build_step(text, backend, [f"join_gradients={each}"]) for each in ("true", "false"))
    for number in range(3):
        batch = draw(text, number)
        one, other = joined(batch), apart(batch)
        np.testing.assert_allclose(np.asarray(one["domain_loss"]), np.asarray(other["domain_loss"]), rtol=1e-12)
    for name, value in weights(apart).items():
        np.testing.assert_allclose(weights(joined)[name], value, rtol=1e-12, atol=1e-14, err_msg=name)


def test_a_term_that_overflows_costs_only_the_update_that_it_reaches() -> None:
    """An infinite gradient of the label's loss skips the features, and not the critic, as with a backward for each."""
    text = DANN.replace("outputs:", "  wide: {call: mul, inputs: [source, 1.0]}\noutputs:")
    text = text.replace("{update: critic,", "{update: critic, on_overflow: own,")
    text = text.replace("{update: [extractor, labeler],", "{update: [extractor, labeler], on_overflow: own,")
    text = text.replace('loss: "label_loss - 0.1', 'loss: "label_loss + 1e300 * mean(exp(700 * scores)) - 0.1')
    assert find_joint(compile_step(load(text))) == {"features+critics"}
    step = build_step(text, "torch")
    before = weights(step)
    step(draw(text, 0))
    changed = {name.split(".")[0] for name, value in weights(step).items() if not np.array_equal(value, before[name])}
    assert changed == {"critic"}


DIVIDED = """
graphspec: 1
name: divided
inputs: {x: {shape: [batch, 4]}}
models:
  trunk: {layers: [{linear: 3}, tanh], optimizer: {name: sgd, lr: 0.1}}
  one:
    layers: [{linear: 3}, {linear: 2}]
    optimizer: {name: sgd, lr: 0.1}
    groups: [{match: "^1", optimizer: {name: adam, lr: 0.02}}]
  two: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
ops:
  seen: {forward: trunk, inputs: x}
  first: {forward: one, inputs: seen}
  second: {forward: two, inputs: seen}
  apart: {loss: mse, inputs: [first, second]}
  heads: {update: [one, two], loss: apart}
  below: {update: trunk, loss: apart}
outputs: [apart]
"""


def test_what_optimizers_divide_is_that_part_of_a_joint_gradient(backend: str) -> None:
    assert find_joint(compile_step(load(DIVIDED), backend)) == {"heads+below"}
    joined, single = (build_step(DIVIDED, backend, [f"join_gradients={each}"]) for each in ("true", "false"))
    for number in range(3):
        batch = {"x": np.random.default_rng(number).standard_normal((5, 4))}
        for step in (joined, single):
            step(batch)
    known = weights(single)
    for name, value in weights(joined).items():
        np.testing.assert_allclose(value, known[name], rtol=0, atol=1e-12, err_msg=name)
