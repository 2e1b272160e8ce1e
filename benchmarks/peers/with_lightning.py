"""The steps in Lightning, with manual optimization as its documentation shows it; every step has what is optional off.

https://lightning.ai/docs/pytorch/stable/model/manual_optimization.html
"""

from __future__ import annotations

from typing import Any

import lightning as L

from benchmarks.peers.pace import Pace
from benchmarks.peers.steps import (
    TAU,
    Sac,
    SmallMlp,
    actor_losses,
    classify,
    critic_loss_of,
    fool,
    judge_both,
    name_losses,
)
from benchmarks.workloads import Batch, MlpGan, Workload, follow


class Manual(L.LightningModule):
    """A module that optimizes by hand."""

    def __init__(self, workload: Any, pace: Pace) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.workload, self.keep = workload, pace.keep


class Classifier(Manual):
    """The small classifier."""

    def __init__(self, workload: SmallMlp, pace: Pace) -> None:
        super().__init__(workload, pace)
        self.net = workload.net

    def configure_optimizers(self) -> Any:
        return self.workload.optimizer()

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = classify(self.net, batch)
        self.manual_backward(loss)
        optimizer.step()
        self.keep({"loss": loss.detach()})


class Gan(Manual):
    """The GAN."""

    def __init__(self, workload: MlpGan, pace: Pace) -> None:
        super().__init__(workload, pace)
        self.g, self.d = workload.g, workload.d

    def configure_optimizers(self) -> Any:
        return self.workload.optimizers(fused=True)

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        opt_g, opt_d = self.optimizers()
        fake = self.g(batch["z"])
        d_loss = judge_both(self.d, batch["image"], fake.detach())
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()
        self.toggle_optimizer(opt_g)
        g_loss = fool(self.d, fake)
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        opt_g.step()
        self.untoggle_optimizer(opt_g)
        self.keep({"d_loss": d_loss.detach(), "g_loss": g_loss.detach()})


class SoftActorCritic(Manual):
    """Soft actor-critic."""

    def __init__(self, workload: Sac, pace: Pace) -> None:
        super().__init__(workload, pace)
        self.actor, self.temperature = workload.actor, workload.temperature
        self.critic_1, self.critic_2 = workload.critic_1, workload.critic_2
        self.late_1, self.late_2 = workload.late_1, workload.late_2
        self.critics, self.followers = workload.critics(), workload.followers()

    def configure_optimizers(self) -> Any:
        return self.workload.optimizers()

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        opt_critics, opt_actor = self.optimizers()
        pair, late = (self.critic_1, self.critic_2), (self.late_1, self.late_2)
        critic_loss = critic_loss_of(self.actor, pair, late, self.temperature, batch)
        opt_critics.zero_grad()
        self.manual_backward(critic_loss)
        opt_critics.step()
        self.toggle_optimizer(opt_actor)
        actor_loss, alpha_loss = actor_losses(self.actor, pair, self.temperature, batch)
        opt_actor.zero_grad()
        self.manual_backward(actor_loss + alpha_loss)
        opt_actor.step()
        self.untoggle_optimizer(opt_actor)
        follow(self.followers, self.critics, 1 - TAU)
        self.keep(name_losses(critic_loss.detach(), actor_loss.detach(), alpha_loss.detach()))


MODULES = {"small-mlp": Classifier, "mlp-gan": Gan, "sac": SoftActorCritic}


def fit(workload: Workload, pace: Pace) -> None:
    """Take steps inside of `fit`."""
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(MODULES[workload.name](workload, pace), train_dataloaders=pace)
