"""What crosses the end of a step beside weights: declared states, written once per step and without a graph."""

from __future__ import annotations

import torch

from tests.catalogue.mathematics import World, descend, mlp, mse
from tests.catalogue.trial import ROWS, SAME, WRONG, Loop, each_backend, train


def linear(w, x: torch.Tensor) -> torch.Tensor:
    """Return one linear layer of x."""
    return x @ w["0.weight"].T + w["0.bias"]


def centered_once(world: World, x: torch.Tensor, other_x: torch.Tensor) -> World:
    """Teach the student what two calls of the teacher say, seen from the centre of the steps before."""
    teacher, center = world["teacher"], world.get("state", {"center": torch.zeros(4, dtype=torch.float64)})["center"]
    seen = linear(teacher, x) + linear(teacher, other_x)
    student = descend(lambda w: mse(linear(w, x), seen - center), world["student"])
    return {"teacher": teacher, "student": student, "state": {"center": 0.95 * center + 0.05 * seen.mean(0)}}


class CenteredByForwards(Loop):
    """The mistake: the centre is moved by each forward, before it is used."""

    def prepare(self):
        self.center, self.optimizer = torch.zeros(4, dtype=torch.float64), self.sgd("student")

    def teach(self, x):
        with torch.no_grad():
            found = self.nets["teacher"](x)
            self.center.lerp_(found.mean(0), 0.05)
        return found

    def step(self, x, other_x):
        seen = self.teach(x) + self.teach(other_x)
        self.optimizer.zero_grad()
        mse(self.nets["student"](x), seen - self.center).backward()
        self.optimizer.step()


@each_backend
def test_a_center_is_written_once_per_step_however_many_forwards_there_are(backend, monkeypatch):
    trial = train("running-center", backend=backend)
    assert trial.error_of(centered_once) <= SAME
    monkeypatch.setattr("tests.catalogue.trial.make_net", make_linear)
    assert trial.error_of_loop(CenteredByForwards) > WRONG


def make_linear(weights) -> torch.nn.Module:
    """Return one linear layer with these weights."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4, dtype=torch.float64))
    net.load_state_dict(dict(weights))
    return net


def recurred(world: World, x: torch.Tensor) -> World:
    """Move a cell by the loss of this step alone, from the state that the step before left."""
    before = world.get("state", {"before": torch.zeros(ROWS, 4, dtype=torch.float64)})["before"]

    def follow(w):
        return torch.tanh(mlp(w, torch.cat([x, before], 1)))

    return {"cell": descend(lambda w: mse(follow(w), 1.0), world["cell"]), "state": {"before": follow(world["cell"])}}


@each_backend
def test_a_state_that_the_step_keeps_has_no_graph_and_is_what_the_last_step_made(backend):
    trial = train("kept-state", backend=backend)
    assert trial.error_of(recurred) <= SAME
    assert not any(each["before"].requires_grad for each in trial.outputs)
    assert all(torch.equal(each["before"], each["next"]) for each in trial.outputs)
