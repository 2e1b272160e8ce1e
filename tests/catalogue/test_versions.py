"""Weight versions and update order: which weights a gradient is taken at, and when an update may be written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.catalogue.mathematics import World, descend, high, low, mlp, mse, sgd, slopes
from tests.catalogue.references import all_losses_first, at_the_start, judged_by_the_new
from tests.catalogue.trial import SAME, WRONG, Loop, each_backend, plan_of, told, train, waiting
from tests.catalogue.user_code import PastTheCounter

PAST = "models.d.optimizer={class: 'tests.catalogue.user_code:PastTheCounter', lr: 0.1}"
FUSED = "models.d.optimizer.fused=true"


class DiscriminatorFirst(Loop):
    """The mistake: the discriminator is written while the generator's graph still needs it."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        judged = d(g(z))
        d_loss, g_loss = high(d(image)) + low(judged), high(judged)
        self.d.zero_grad()
        d_loss.backward(retain_graph=True)
        self.d.step()
        self.g.zero_grad()
        g_loss.backward(inputs=list(g.parameters()))
        self.g.step()


class FirstPastTheCounter(DiscriminatorFirst):
    """The same with an optimizer that PyTorch does not see writing."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), PastTheCounter(self.nets["d"].parameters(), lr=0.1)


class FirstFused(DiscriminatorFirst):
    """The same with PyTorch's own fused kernel."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d", fused=True)


@each_backend
@pytest.mark.parametrize("order", ["listed", "fewest", "latest"])
def test_a_discriminator_that_steps_first_waits_for_the_generators_gradient(order, backend):
    trial = train("shared-fake", order=order, backend=backend)
    assert told(plan_of("shared-fake", order="listed"), "DEFER") == {"step_d"}
    assert told(plan_of("shared-fake", order="fewest"), "DEFER") == set()
    assert trial.error_of(at_the_start) <= SAME
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trial.error_of_loop(DiscriminatorFirst)


@pytest.mark.parametrize(("override", "loop"), [(PAST, FirstPastTheCounter), (FUSED, FirstFused)])
def test_a_write_that_pytorch_does_not_see_comes_no_earlier(override, loop):
    trial = train("shared-fake", override, order="listed")
    assert told(trial.plan, "DEFER") == {"step_d"}
    assert trial.error_of(at_the_start) <= SAME
    assert trial.error_of_loop(loop) > WRONG


def both_at_one_forward(world: World, image: torch.Tensor) -> World:
    """Apply two gradients, both taken at the weights of one forward, one after the other."""

    def out(w: dict) -> torch.Tensor:
        return torch.nn.functional.conv2d(image, w["0.weight"], w["0.bias"])

    w = world["net"]
    first, second = slopes(lambda w: mse(out(w), 0.0), w), slopes(lambda w: mse(out(w), 1.0), w)
    return {"net": sgd(sgd(w, first), second)}


@each_backend
def test_two_gradients_of_one_convolution_are_both_taken_before_it_is_written(backend):
    trial = train("conv-on-data", order="listed", backend=backend)
    assert (told(trial.plan, "DEFER"), told(trial.plan, "W-STALE")) == (waiting({"step", "again"}, backend), {"again"})
    assert trial.error_of(both_at_one_forward) <= SAME
    net, image = nn.Conv2d(1, 2, 3), torch.ones(6, 1, 4, 4)
    out = net(image)
    out.square().mean().backward(retain_graph=True)
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (out - 1).square().mean().backward()


class Alternating(Loop):
    """The mistake where simultaneous updates are meant: judging anew, after the discriminator has moved."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        self.d.zero_grad()
        (high(d(image)) + low(d(fake.detach()))).backward()
        self.d.step()
        self.g.zero_grad()
        high(d(fake)).backward()
        self.g.step()


@each_backend
def test_judging_by_the_old_and_by_the_new_discriminator_are_two_specs(backend):
    old, new = train("shared-fake", backend=backend), train("alternating", backend=backend)
    assert old.error_of(at_the_start) <= SAME
    assert new.error_of(judged_by_the_new) <= SAME
    assert old.error_of_loop(Alternating) > WRONG
    assert new.error_of_loop(Alternating) <= SAME
    assert told(plan_of("undecided"), "W-ADVERSARY") == {"judged"}


class CriticFirst(Loop):
    """The mistake: the critic is written before the policy's gradient has run back through it."""

    def prepare(self):
        self.policy, self.critic = self.sgd("policy"), self.sgd("critic", fused=True)

    def step(self, state, action, target):
        policy, critic = self.nets["policy"], self.nets["critic"]
        q_loss = mse(critic(torch.cat([state, action], 1)), target)
        pi_loss = -critic(torch.cat([state, policy(state)], 1)).mean()
        self.critic.zero_grad()
        q_loss.backward()
        self.critic.step()
        self.policy.zero_grad()
        pi_loss.backward(inputs=list(policy.parameters()))
        self.policy.step()


@each_backend
def test_only_the_critic_waits_and_only_where_it_comes_first(backend):
    trial = train("critic-and-policy", order="listed", backend=backend)
    assert told(trial.plan, "DEFER") == waiting({"step_q"}, backend)
    assert told(plan_of("critic-and-policy"), "DEFER") == set()
    assert trial.error_of(all_losses_first) <= SAME
    assert train("critic-and-policy", backend=backend).error_of(all_losses_first) <= SAME
    assert trial.error_of_loop(CriticFirst) > WRONG


def on_a_fresh_fake(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move the generator, then the discriminator on a fake that the moved generator makes."""
    g = at_the_start(world, image, z)["g"]
    fake = mlp(g, z)
    return {"g": g, "d": descend(lambda d: high(mlp(d, image)) + low(mlp(d, fake)), world["d"])}


class MadeAnew(Loop):
    """The mistake where the stored fake is meant: making it again after the generator has moved."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        self.g.zero_grad()
        high(d(g(z))).backward(inputs=list(g.parameters()))
        self.g.step()
        self.d.zero_grad()
        (high(d(image)) + low(d(g(z).detach()))).backward()
        self.d.step()


@each_backend
def test_a_fake_stays_what_it_was_when_its_generator_moves(backend):
    stored, fresh = train("stored-fake", order="listed", backend=backend), train("fresh-fake", backend=backend)
    assert told(stored.plan, "DEFER") == set()
    assert stored.error_of(at_the_start) <= SAME
    assert fresh.error_of(on_a_fresh_fake) <= SAME
    assert stored.error_of_loop(MadeAnew) > WRONG
    assert fresh.error_of_loop(MadeAnew) <= SAME
