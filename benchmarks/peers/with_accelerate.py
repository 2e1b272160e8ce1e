"""The steps with Accelerate: models, optimizers and data are prepared, and losses go to ``accelerator.backward``.

https://huggingface.co/docs/accelerate/basic_tutorials/migration
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.peers.pace import Pace
from benchmarks.peers.steps import TAU, actor_losses, classify, critic_loss_of, fool, judge_both, name_losses
from benchmarks.workloads import Workload, follow, require


class Stream(IterableDataset):
    """The batches of a pace, as a data set of batches."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def __iter__(self) -> Iterator[Any]:
        """Yield batches."""
        return iter(self.pace)


def train_classifier(accelerator: Accelerator, workload: Any, pace: Pace, loader: Any) -> None:
    """Train the small classifier."""
    net, optimizer, loader = accelerator.prepare(workload.net, workload.optimizer(), loader)
    for batch in loader:
        optimizer.zero_grad()
        loss = classify(net, batch)
        accelerator.backward(loss)
        optimizer.step()
        pace.keep({"loss": loss.detach()})


def train_gan(accelerator: Accelerator, workload: Any, pace: Pace, loader: Any) -> None:
    """Train the GAN."""
    prepared = accelerator.prepare(workload.g, workload.d, *workload.optimizers(fused=True), loader)
    g, d, opt_g, opt_d, loader = prepared
    weights_of_d = list(d.parameters())
    for batch in loader:
        fake = g(batch["z"])
        d_loss = judge_both(d, batch["image"], fake.detach())
        opt_d.zero_grad()
        accelerator.backward(d_loss)
        opt_d.step()
        require(weights_of_d, False)
        g_loss = fool(d, fake)
        opt_g.zero_grad()
        accelerator.backward(g_loss)
        opt_g.step()
        require(weights_of_d, True)
        pace.keep({"d_loss": d_loss.detach(), "g_loss": g_loss.detach()})


def train_actor(accelerator: Accelerator, workload: Any, pace: Pace, loader: Any) -> None:
    """Train soft actor-critic."""
    nets = (workload.actor, workload.critic_1, workload.critic_2, workload.temperature)
    prepared = accelerator.prepare(*nets, *workload.optimizers(), loader)
    actor, critic_1, critic_2, temperature, opt_critics, opt_actor, loader = prepared
    critics, late = (critic_1, critic_2), (workload.late_1, workload.late_2)
    followed, followers = workload.critics(), workload.followers()
    for batch in loader:
        critic_loss = critic_loss_of(actor, critics, late, temperature, batch)
        opt_critics.zero_grad()
        accelerator.backward(critic_loss)
        opt_critics.step()
        require(followed, False)
        actor_loss, alpha_loss = actor_losses(actor, critics, temperature, batch)
        opt_actor.zero_grad()
        accelerator.backward(actor_loss + alpha_loss)
        opt_actor.step()
        require(followed, True)
        follow(followers, followed, 1 - TAU)
        pace.keep(name_losses(critic_loss.detach(), actor_loss.detach(), alpha_loss.detach()))


LOOPS = {"small-mlp": train_classifier, "mlp-gan": train_gan, "sac": train_actor}


def loop(workload: Workload, pace: Pace) -> None:
    """Take steps."""
    LOOPS[workload.name](Accelerator(cpu=True), workload, pace, DataLoader(Stream(pace), batch_size=None))
