"""Gradients in the wrong place: left over, not detached, shared by reference, missing, zero for none, clipped."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from tests.catalogue.mathematics import World, clip, descend, high, low, mlp, mse, sgd, slopes
from tests.catalogue.references import all_losses_first, at_the_start, judged_by_the_new
from tests.catalogue.trial import SAME, WRONG, Loop, each_backend, told, train, waiting


class LeftOver(Loop):
    """The mistake: the generator's loss leaves gradients in the discriminator, which is stepped with them."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        high(d(fake)).backward()
        self.g.step()
        self.g.zero_grad()
        (high(d(image)) + low(d(fake.detach()))).backward()
        self.d.step()
        self.d.zero_grad()


@each_backend
def test_a_discriminator_gets_nothing_of_the_generators_loss(backend):
    trial = train("stored-fake", backend=backend)
    assert told(trial.plan, "FREEZE") == {"judged"}
    assert trial.error_of(at_the_start) <= SAME
    assert trial.error_of_loop(LeftOver) > WRONG


class NotDetached(Loop):
    """The mistake: the discriminator's loss runs back into the generator, which is stepped with both gradients."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        judged = d(g(z))
        self.g.zero_grad()
        high(judged).backward(retain_graph=True)
        self.d.zero_grad()
        (high(d(image)) + low(judged)).backward()
        self.g.step()
        self.d.step()


@each_backend
def test_a_generator_gets_nothing_of_the_discriminators_loss(backend):
    trial = train("shared-fake", backend=backend)
    gradients = [each for each in trial.plan.to_json()["functions"][0]["instructions"] if each["kind"] == "gradient"]
    assert {each["op"]: each["targets"] for each in gradients} == {"step_d": ["d"], "step_g": ["g"]}
    assert trial.error_of(at_the_start) <= SAME
    assert trial.error_of_loop(NotDetached) > WRONG


class InnerOptimizer(Loop):
    """The mistake: the inner step is taken by an optimizer on a copy, so that the outer gradient is of first order."""

    def prepare(self):
        self.outer = self.sgd("net")

    def step(self, x, y, query, answer):
        net = self.nets["net"]
        fast = deepcopy(net)
        fast.zero_grad()
        mse(fast(x), y).backward()
        torch.optim.SGD(fast.parameters(), lr=0.3).step()
        fast.zero_grad()
        mse(fast(query), answer).backward()
        for parameter, adapted in zip(net.parameters(), fast.parameters(), strict=True):
            parameter.grad = adapted.grad
        self.outer.step()


@each_backend
def test_an_outer_gradient_runs_through_the_inner_step(backend):
    def meta(world, x, y, query, answer):
        def outer(w):
            return mse(mlp(descend(lambda w: mse(mlp(w, x), y), w, 0.3), query), answer)

        return {"net": descend(outer, world["net"])}

    trial = train("inner-step", backend=backend)
    assert told(trial.plan, "CREATE_GRAPH") == {"fast"}
    assert trial.error_of(meta) <= SAME
    assert trial.error_of_loop(InnerOptimizer) > WRONG


class ByReference(Loop):
    """The mistake: gradients are kept as the ``.grad`` of the critic, to which the next backward adds."""

    def prepare(self):
        self.policy, self.critic = self.sgd("policy"), self.sgd("critic")

    def step(self, state, action, target):
        policy, critic = self.nets["policy"], self.nets["critic"]
        self.critic.zero_grad()
        mse(critic(torch.cat([state, action], 1)), target).backward()
        kept = [parameter.grad for parameter in critic.parameters()]
        self.policy.zero_grad()
        (-critic(torch.cat([state, policy(state)], 1)).mean()).backward()
        for parameter, gradient in zip(critic.parameters(), kept, strict=True):
            parameter.grad = gradient
        self.critic.step()
        self.policy.step()


@each_backend
@pytest.mark.parametrize("order", ["listed", "fewest"])
def test_a_gradient_that_was_taken_does_not_change(order, backend):
    trial = train("harvested", order=order, backend=backend)
    assert trial.error_of(all_losses_first) <= SAME
    assert trial.error_of_loop(ByReference) > WRONG


class NeverUnfrozen(Loop):
    """The mistake: the discriminator is frozen for the generator's step, and stays so."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        self.d.zero_grad()
        (high(d(image)) + low(d(fake))).backward(retain_graph=True)
        self.d.step()
        d.requires_grad_(False)
        self.g.zero_grad()
        high(d(fake)).backward()
        self.g.step()


@each_backend
def test_a_model_is_frozen_for_one_call_and_not_longer(backend):
    trial = train("alternating", backend=backend)
    assert told(trial.plan, "FREEZE") == {"judged"}
    assert trial.error_of(judged_by_the_new) <= SAME
    assert trial.error_of_loop(NeverUnfrozen) > WRONG


def idle_in_odd_steps(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move one model in every step, and one with momentum and weight decay in every second."""
    count, idle = world.get("count", 1), world["idle"]
    velocity = world.get("velocity", {name: torch.zeros_like(value) for name, value in idle.items()})
    if count % 2 == 0:
        g = slopes(lambda w: mse(mlp(w, x), y), idle)
        velocity = {name: 0.9 * velocity[name] + g[name] + 0.1 * idle[name] for name in idle}
        idle = sgd(idle, velocity)
    busy = descend(lambda w: mse(mlp(w, x), y), world["busy"])
    return {"busy": busy, "idle": idle, "velocity": velocity, "count": count + 1}


class ZeroForNone(Loop):
    """The mistake: the resting model is stepped with gradients of zero."""

    def prepare(self):
        self.busy, self.idle = self.sgd("busy"), self.sgd("idle", momentum=0.9, weight_decay=0.1)
        self.count = 0

    def step(self, x, y):
        self.count += 1
        self.busy.zero_grad()
        self.idle.zero_grad(set_to_none=False)
        mse(self.nets["busy"](x), y).backward()
        if self.count % 2 == 0:
            mse(self.nets["idle"](x), y).backward()
        self.busy.step()
        self.idle.step()


@each_backend
def test_a_model_that_rests_does_not_move(backend):
    trial = train("resting-model", backend=backend)
    assert trial.error_of(idle_in_odd_steps) <= SAME
    assert trial.error_of_loop(ZeroForNone) > WRONG


def towards_a_constant(world: World, now: torch.Tensor, later: torch.Tensor, reward: torch.Tensor) -> World:
    """Move a value towards a target that is computed first, and then a constant."""
    target = reward + 0.9 * mlp(world["critic"], later)
    return {"critic": descend(lambda w: mse(mlp(w, now), target), world["critic"])}


class MovingTarget(Loop):
    """The mistake: the target is not detached."""

    def prepare(self):
        self.critic = self.sgd("critic")

    def step(self, now, later, reward):
        critic = self.nets["critic"]
        self.critic.zero_grad()
        mse(critic(now), reward + 0.9 * critic(later)).backward()
        self.critic.step()


@each_backend
def test_a_target_that_moves_along_is_asked_about(backend):
    still, moving = train("bootstrap", backend=backend), train("moving-target", backend=backend)
    assert told(still.plan, "W-TARGET") == set()
    assert told(moving.plan, "W-TARGET") == {"loss"}
    assert still.error_of(towards_a_constant) <= SAME
    assert still.error_of_loop(MovingTarget) > WRONG
    assert moving.error_of_loop(MovingTarget) <= SAME


def each_clipped_apart(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move both players, each by its own gradient, clipped to a length of its own."""
    g, d = world["g"], world["d"]
    fake = mlp(g, z)
    of_d = slopes(lambda d: 50 * high(mlp(d, image)) + 50 * low(mlp(d, fake)), d)
    of_g = slopes(lambda g: high(mlp(d, mlp(g, z))), g)
    return {"g": sgd(g, clip(of_g, 0.5)), "d": sgd(d, clip(of_d, 0.5))}


class ClippedTogether(Loop):
    """The mistake: one clip over the parameters of both models."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        self.g.zero_grad()
        high(d(fake)).backward(inputs=list(g.parameters()))
        self.d.zero_grad()
        (50 * high(d(image)) + 50 * low(d(fake.detach()))).backward()
        torch.nn.utils.clip_grad_norm_([*g.parameters(), *d.parameters()], 0.5)
        self.g.step()
        self.d.step()


@each_backend
def test_a_clip_is_over_the_gradient_of_one_update(backend):
    trial = train("clipped-apart", order="listed", backend=backend)
    assert told(trial.plan, "DEFER") == waiting({"step_d"}, backend)
    assert trial.error_of(each_clipped_apart) <= SAME
    assert trial.error_of_loop(ClippedTogether) > WRONG
    clips = [each for each in trial.plan.to_json()["functions"][0]["instructions"] if each["kind"] == "transform"]
    assert {each["op"]: each["inputs"] for each in clips} == {"step_d": ["step_d"], "step_g": ["step_g"]}


def each_gathers_its_own(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move both players in every fourth step, each by the mean of its own four gradients."""
    g, d = world["g"], world["d"]
    fake = mlp(g, z)
    of_d = slopes(lambda d: high(mlp(d, image)) + low(mlp(d, fake)), d)
    of_g = slopes(lambda g: high(mlp(d, mlp(g, z))), g)
    seen = (*world.get("seen", ()), {"g": of_g, "d": of_d})
    if len(seen) < 4:
        return {**world, "seen": seen}
    means = {net: {key: sum(each[net][key] for each in seen) / 4 for key in seen[0][net]} for net in ("g", "d")}
    return {"g": sgd(g, means["g"]), "d": sgd(d, means["d"]), "seen": ()}


class GatheredTogether(Loop):
    """The mistake: the discriminator's `.grad` also gathers what the generator's losses leave there."""

    def prepare(self):
        self.g, self.d, self.count = self.sgd("g"), self.sgd("d"), 0

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        (high(d(image)) / 4 + low(d(fake.detach())) / 4).backward()
        (high(d(fake)) / 4).backward()
        self.count += 1
        if self.count % 4 == 0:
            for optimizer in (self.g, self.d):
                optimizer.step()
                optimizer.zero_grad()


@each_backend
def test_each_player_gathers_its_own_gradients(backend):
    trial = train("accumulated-gan", backend=backend)
    gathered = [each for each in trial.plan.to_json()["functions"][0]["instructions"] if each["kind"] == "accumulate"]
    assert {each["op"]: each["inputs"] for each in gathered} == {"step_d": ["step_d"], "step_g": ["step_g"]}
    assert trial.error_of(each_gathers_its_own) <= SAME
    assert trial.error_of_loop(GatheredTogether) > WRONG
