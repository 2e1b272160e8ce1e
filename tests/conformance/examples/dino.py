"""DINO with two views: a centre that is read as the step before left it, and moved once per step."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors


def make_head() -> nn.Module:
    """Return a student."""
    hidden = [nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU()]
    return nn.Sequential(*hidden, nn.Linear(64, 32, bias=False)).double()


class Distillation(HandLoop):
    """The order of the paper: one loss of both views, one step of the student, then average and centre."""

    def __init__(self) -> None:
        self.student = make_head()
        self.teacher = copy.deepcopy(self.student)
        self.nets = {"student": self.student, "teacher": self.teacher}
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=1e-3, weight_decay=0.01)
        self.center = torch.zeros(32, dtype=torch.float64)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        views = [batch["image"] + drawn[f"grain_{i}"] for i in (1, 2)]
        with torch.no_grad():
            said = [self.teacher(view) for view in views]
        goals = self.aim(said)
        guesses = [self.student(view) for view in views]
        loss = 0.5 * (apart(guesses[0], goals[1]) + apart(guesses[1], goals[0]))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow()
        return {"loss": loss.detach(), "center": self.center.clone()}

    def aim(self, said: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what the student is to say, then move the centre."""
        goals = [F.softmax((each - self.center) / 0.04, dim=1) for each in said]
        self.center = 0.9 * self.center + 0.1 * torch.cat(said).mean(0)
        return goals

    @torch.no_grad()
    def follow(self) -> None:
        """Average the student."""
        for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            old.mul_(0.99).add_(new, alpha=0.01)


class CenteredByForwards(Distillation):
    """The mistake: each call of the teacher moves the centre, before it is used."""

    def aim(self, said: list[torch.Tensor]) -> list[torch.Tensor]:
        goals = []
        for each in said:
            self.center = 0.9 * self.center + 0.1 * each.mean(0)
            goals.append(F.softmax((each - self.center) / 0.04, dim=1))
        return goals


def apart(guess: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of a guess at a temperature of 0.1 with a goal."""
    return -(goal * F.log_softmax(guess / 0.1, dim=1)).sum(1).mean()


EXAMPLE = Example(
    name="dino",
    loop=Distillation,
    mutant=CenteredByForwards,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("loss", "center"),
    drawn=("grain_1", "grain_2"),
)
