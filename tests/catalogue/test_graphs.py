"""Graph lifetime and higher order: which graphs are kept, and which gradients are differentiated themselves."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad

from tests.catalogue.mathematics import World, descend, mlp, mse
from tests.catalogue.references import at_the_start
from tests.catalogue.trial import SAME, WRONG, Loop, batches, each_backend, make_net, told, train


def by_one_loss(world: World, x: torch.Tensor) -> World:
    """Move an encoder and a decoder by one loss, both gradients taken at the weights of the start."""
    encoder, decoder = world["encoder"], world["decoder"]
    return {
        "encoder": descend(lambda e: mse(mlp(decoder, mlp(e, x)), x), encoder),
        "decoder": descend(lambda d: mse(mlp(d, mlp(encoder, x)), x), decoder, lr=0.2),
    }


class BackwardTwice(Loop):
    """The mistake: two backward passes through one graph."""

    def prepare(self):
        self.encoder, self.decoder = self.sgd("encoder"), self.sgd("decoder", lr=0.2)

    def step(self, x):
        loss = mse(self.nets["decoder"](self.nets["encoder"](x)), x)
        loss.backward(inputs=list(self.nets["decoder"].parameters()))
        loss.backward(inputs=list(self.nets["encoder"].parameters()))


@each_backend
def test_two_gradients_of_one_loss_are_one_or_the_first_keeps_its_graph(backend):
    for setting, code in (("join_gradients=true", "MERGE"), ("join_gradients=false", "RETAIN")):
        trial = train("one-loss-two-updates", setting, order="listed", backend=backend)
        assert [told(trial.plan, each) for each in (code, *{"MERGE", "RETAIN"} - {code})] == [{"step_decoder"}, set()]
        assert trial.error_of(by_one_loss) <= SAME
    with pytest.raises(RuntimeError, match="a second time"):
        trial.error_of_loop(BackwardTwice)


@each_backend
def test_no_graph_is_kept_where_only_a_value_is_shared(backend):
    trial = train("stored-fake", order="listed", backend=backend)
    assert told(trial.plan, "RETAIN") == set()
    assert trial.error_of(at_the_start) <= SAME


def with_a_penalty(world: World, x: torch.Tensor) -> World:
    """Move a critic by its scores and a penalty on the length of their slope."""

    def loss(w: dict) -> torch.Tensor:
        slope = grad(lambda x: mlp(w, x).sum())(x)
        return mlp(w, x).mean() + 10 * mse(slope.norm(dim=1), 1.0)

    return {"critic": descend(loss, world["critic"])}


class PenaltyOfAConstant(Loop):
    """The mistake: the slope is taken without ``create_graph``."""

    def prepare(self):
        self.critic = self.sgd("critic")

    def step(self, x):
        x = x.requires_grad_()
        score = self.nets["critic"](x)
        (slope,) = torch.autograd.grad(score.sum(), x, retain_graph=True)
        self.critic.zero_grad()
        (score.mean() + 10 * mse(slope.norm(dim=1), 1.0)).backward(inputs=list(self.nets["critic"].parameters()))
        self.critic.step()


@each_backend
def test_a_gradient_that_is_differentiated_is_recorded(backend):
    trial = train("gradient-penalty", backend=backend)
    assert told(trial.plan, "CREATE_GRAPH") == {"slope"}
    assert trial.error_of(with_a_penalty) <= SAME
    assert trial.error_of_loop(PenaltyOfAConstant) > WRONG


def test_by_hand_a_compiled_critic_has_no_second_derivative():
    trial = train("gradient-penalty")
    net, batch = make_net(trial.start["critic"]), next(batches(trial.plan))
    critic, x = torch.compile(net, backend="aot_eager"), batch["x"].requires_grad_()
    # A compiled backward that gives its buffers away is refused one gradient earlier, with another message.
    with torch._functorch.config.patch(donated_buffer=False):
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="double backward"):
            torch.autograd.grad(slope.square().sum(), list(net.parameters()))
