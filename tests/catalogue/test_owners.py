"""What writes weights besides a plain optimizer, what is written twice, and what crosses the end of a step."""

from __future__ import annotations

import pytest
import torch

from runtime import build
from tests.catalogue.mathematics import Weights, World, descend, mlp, mse, slopes
from tests.catalogue.trial import (
    SAME,
    WRONG,
    Loop,
    batches,
    distance,
    each_backend,
    make_net,
    plan_of,
    told,
    train,
    waiting,
    world_of,
)

LIMIT = 0.2


def clamped_afterwards(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move both players of a WGAN, and put the critic's weights back within limits."""
    g, critic = world["g"], world["critic"]
    fake = mlp(g, z)
    moved = descend(lambda c: mlp(c, fake).mean() - mlp(c, image).mean(), critic)
    return {
        "g": descend(lambda g: -mlp(critic, mlp(g, z)).mean(), g),
        "critic": {name: value.clamp(-LIMIT, LIMIT) for name, value in moved.items()},
    }


class ClampedMeanwhile(Loop):
    """The mistake: the weights are clamped through ``.data`` while the generator's graph still needs them."""

    def prepare(self):
        self.g, self.critic = self.sgd("g"), self.sgd("critic")

    def step(self, image, z):
        g, critic = self.nets["g"], self.nets["critic"]
        judged = critic(g(z))
        self.critic.zero_grad()
        (judged.mean() - critic(image).mean()).backward(inputs=list(critic.parameters()), retain_graph=True)
        for parameter in critic.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1).clamp_(-LIMIT, LIMIT)
        self.g.zero_grad()
        (-judged.mean()).backward(inputs=list(g.parameters()))
        self.g.step()


@each_backend
def test_a_projection_waits_with_its_update(backend):
    trial = train("clipped-critic", order="listed", backend=backend)
    assert told(trial.plan, "DEFER") == waiting({"step_c"}, backend)
    assert trial.error_of(clamped_afterwards) <= SAME
    assert trial.error_of_loop(ClampedMeanwhile) > WRONG


def weighed_by_the_old_rate(world: World, state: torch.Tensor) -> World:
    """Move a rate and the policy that it weighs, both gradients taken at the weights of the start."""
    policy, rate = world["policy"], world["rate"]
    (name,) = rate
    kept = mlp(policy, state) + 1.0
    return {
        "policy": descend(lambda p: (rate[name] * mlp(p, state)).mean(), policy),
        "rate": descend(lambda r: -(r[name] * kept).mean(), rate),
    }


@each_backend
def test_a_temperature_that_steps_first_leaves_the_policys_loss_alone(backend):
    trial = train("temperature", order="listed", backend=backend)
    assert trial.error_of(weighed_by_the_old_rate) <= SAME
    policy, rate = make_net(trial.start["policy"]), torch.nn.Parameter(*trial.start["rate"].values())
    (batch, *_) = batches(trial.plan)
    weighed = (rate * policy(batch["state"])).mean()
    right = torch.autograd.grad(weighed, list(policy.parameters()), retain_graph=True)
    rate.grad = torch.ones_like(rate)
    torch.optim.SGD([rate], lr=0.1, fused=True).step()
    wrong = torch.autograd.grad(weighed, list(policy.parameters()))
    assert max((a - b).abs().max().item() for a, b in zip(right, wrong, strict=True)) > WRONG


def recur(cell, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return the next state."""
    return torch.tanh(cell(torch.cat([x, before], 1)))


def test_a_state_that_the_caller_carries_has_no_graph():
    step = build(plan_of("carried-state"), device="cpu", dtype="float64")
    world, state = world_of(step.tensors()), torch.zeros(6, 4, dtype=torch.float64)
    cell, carried = world["cell"], state
    for batch in batches(step.plan):
        x, before = batch["x"], carried
        carried = recur(lambda both, w=cell: mlp(w, both), x, before)
        cell = descend(lambda w, x=x, before=before: mse(recur(lambda both: mlp(w, both), x, before), 1.0), cell)
        state = step({"x": x, "before": state})["state"]
        assert not state.requires_grad
    assert distance(world_of(step.tensors()), {"cell": cell}) <= SAME


def test_by_hand_a_carried_state_drags_the_last_step_along():
    plan = plan_of("carried-state")
    net = make_net(train("carried-state").start["cell"])
    optimizer, state = torch.optim.SGD(net.parameters(), lr=0.1), torch.zeros(6, 4, dtype=torch.float64)

    def follow(keep: bool, state: torch.Tensor) -> None:
        for batch in batches(plan):
            state = recur(net, batch["x"], state)
            mse(state, 1.0).backward(retain_graph=keep)
            optimizer.step()

    with pytest.raises(RuntimeError, match="a second time"):
        follow(False, state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        follow(True, state)


def adam(w: Weights, g: Weights, moments: World, count: int) -> tuple[Weights, World]:
    """Return the weights and moments after step `count` of Adam, as its paper has it."""
    first = {name: 0.9 * moments["first"].get(name, 0.0) + 0.1 * g[name] for name in g}
    second = {name: 0.999 * moments["second"].get(name, 0.0) + 0.001 * g[name] ** 2 for name in g}
    rate = {name: (second[name] / (1 - 0.999**count)).sqrt() + 1e-8 for name in g}
    stepped = {name: w[name] - 0.01 * first[name] / (1 - 0.9**count) / rate[name] for name in g}
    return stepped, {"first": first, "second": second}


def one_step_for_all(world: World, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> World:
    """Move a body and two heads by one Adam on the sum of the losses."""
    models = ("body", "head_a", "head_b")
    flat = {f"{model} {name}": value for model in models for name, value in world[model].items()}

    def loss(w: Weights) -> torch.Tensor:
        of = {model: {n.split()[1]: v for n, v in w.items() if n.startswith(model)} for model in models}
        h = mlp(of["body"], x)
        on_a, on_b = (h @ of[head]["0.weight"].T + of[head]["0.bias"] for head in models[1:])
        return mse(on_a, a) + mse(on_b, b)

    moments, count = world.get("moments", {"first": {}, "second": {}}), world.get("count", 1)
    stepped, moments = adam(flat, slopes(loss, flat), moments, count)
    of = {model: {n.split()[1]: v for n, v in stepped.items() if n.startswith(model)} for model in models}
    return {**of, "moments": moments, "count": count + 1}


class TwoOwners(Loop):
    """The mistake: two optimizers step the body, each on the gradients of both losses."""

    def prepare(self):
        body, a, b = (list(self.nets[name].parameters()) for name in ("body", "head_a", "head_b"))
        self.optimizers = [torch.optim.Adam(body + head, lr=0.01) for head in (a, b)]

    def step(self, x, a, b):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        h = self.nets["body"](x)
        mse(self.nets["head_a"](h), a).backward(retain_graph=True)
        mse(self.nets["head_b"](h), b).backward()
        for optimizer in self.optimizers:
            optimizer.step()


@each_backend
def test_a_shared_body_has_one_owner(backend):
    trial = train("one-owner", backend=backend)
    assert trial.error_of(one_step_for_all) <= SAME
    assert trial.error_of_loop(TwoOwners) > WRONG
