"""Mean teacher: cross entropy, consistency with the average, and the average after the update."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors
from tests.conformance.examples.views import move

WITHOUT_DROPOUT = (
    "models.student.layers=[{conv2d: {out: 4, kernel: 3, padding: 1}}, relu, {max_pool: 2}, flatten, {linear: 10}]"
)


class MeanTeacher(HandLoop):
    """The order of the paper: loss, step of the student, then the teacher follows."""

    def __init__(self) -> None:
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)]
        self.student = nn.Sequential(*layers).double()
        self.teacher = copy.deepcopy(self.student)
        self.nets = {"student": self.student, "teacher": self.teacher}
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=3e-3)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        view = move(batch["image"], drawn["move"]) + drawn["grain"]
        view_1 = move(batch["unlabelled"], drawn["move_1"]) + drawn["grain_1"]
        view_2 = move(batch["unlabelled"], drawn["move_2"]) + drawn["grain_2"]
        with torch.no_grad():
            taught = self.teacher(view_2).softmax(dim=1)
        label_loss = F.cross_entropy(self.student(view), batch["label"])
        consistency = 30 * F.mse_loss(self.student(view_1).softmax(dim=1), taught)
        self.optimizer.zero_grad()
        (label_loss + consistency).backward()
        self.move_on()
        losses = {"loss": label_loss + consistency, "label_loss": label_loss, "consistency": consistency}
        return {name: loss.detach() for name, loss in losses.items()}

    def move_on(self) -> None:
        self.optimizer.step()
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            old.mul_(0.99).add_(new, alpha=0.01)


class EarlyTeacher(MeanTeacher):
    """The mistake: the teacher follows the student as it was before its update."""

    def move_on(self) -> None:
        self.follow()
        self.optimizer.step()


EXAMPLE = Example(
    name="mean-teacher",
    loop=MeanTeacher,
    mutant=EarlyTeacher,
    shapes={"image": (6, 1, 8, 8), "unlabelled": (6, 1, 8, 8)},
    classes={"label": ((6,), 10)},
    losses=("loss", "label_loss", "consistency"),
    drawn=("move", "grain", "move_1", "grain_1", "move_2", "grain_2"),
    settings=(WITHOUT_DROPOUT,),
    allow=("partly",),
)
