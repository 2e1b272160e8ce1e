"""Distillation: the teacher's lesson, and after it those of the student and of its twin."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors

TEACHER = "models.teacher.layers=[flatten, {linear: 256}, relu, {linear: 256}, relu, {linear: 10}]"
FIRST = 4


class Distillation(HandLoop):
    """Four steps of the teacher, then six of the student and the twin."""

    def __init__(self) -> None:
        wide = [nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
        self.teacher = nn.Sequential(*wide).double()
        self.student, self.alone = (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).double() for _ in range(2)
        )
        self.nets = {"teacher": self.teacher, "student": self.student, "alone": self.alone}
        self.optimizers = {
            name: torch.optim.Adam(net.parameters(), lr=1e-3 if name == "teacher" else 3e-3)
            for name, net in self.nets.items()
        }
        self.steps = 0

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        self.steps += 1
        noisy = batch["few_image"] + drawn["noise"]
        losses = {
            "teacher_loss": F.cross_entropy(self.teacher(batch["image"]), batch["label"]),
            "student_loss": self.compare(noisy),
            "alone_loss": F.cross_entropy(self.alone(noisy), batch["few_label"]),
        }
        for name in ["teacher"] if self.steps <= FIRST else ["student", "alone"]:
            self.optimizers[name].zero_grad()
            losses[f"{name}_loss"].backward()
            self.optimizers[name].step()
        return {name: loss.detach() for name, loss in losses.items()}

    def compare(self, noisy: torch.Tensor) -> torch.Tensor:
        """Return 16 times the divergence of the answers at temperature 4, averaged over the batch."""
        with torch.no_grad():
            told = F.softmax(self.teacher(noisy) / 4, dim=1)
        return 16 * F.kl_div(F.log_softmax(self.student(noisy) / 4, dim=1), told, reduction="batchmean")


class Forgotten(Distillation):
    """The mistake: the factor temperature^2 is left out."""

    def compare(self, noisy: torch.Tensor) -> torch.Tensor:
        return super().compare(noisy) / 16


EXAMPLE = Example(
    name="distillation",
    loop=Distillation,
    mutant=Forgotten,
    shapes={"image": (6, 1, 8, 8), "few_image": (6, 1, 8, 8)},
    classes={"label": ((6,), 10), "few_label": ((6,), 10)},
    losses=("teacher_loss", "student_loss", "alone_loss"),
    drawn=("noise",),
    settings=(TEACHER, f"vars.first={FIRST}", f"vars.then={FIRST + 1}"),
)
