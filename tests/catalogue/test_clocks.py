"""Clocks, averages and schedules: what an average takes, when it is written, and what a clock counts."""

from __future__ import annotations

import pytest
import torch

from graphspec import SpecError
from tests.catalogue.mathematics import World, descend, high, lerp, mlp, mse
from tests.catalogue.trial import SAME, WRONG, Loop, each_backend, order_of, plan_of, told, train


def follow(slow: torch.nn.Module, net: torch.nn.Module, share: float = 0.1) -> None:
    """Average by hand, past the version counter, as published code mostly does."""
    for old, new in zip(slow.parameters(), net.parameters(), strict=True):
        old.data.mul_(1 - share).add_(new.data, alpha=share)


def after_the_update(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a student, then its teacher towards what the student has become."""
    student = descend(lambda w: mse(mlp(w, x), y), world["student"])
    return {"student": student, "teacher": lerp(world["teacher"], student, 0.1)}


class AverageFirst(Loop):
    """The mistake: the teacher follows before the student is stepped."""

    def prepare(self):
        self.student = self.sgd("student")

    def step(self, x, y):
        self.student.zero_grad()
        mse(self.nets["student"](x), y).backward()
        follow(self.nets["teacher"], self.nets["student"])
        self.student.step()


@each_backend
def test_an_average_takes_the_weights_of_after_the_update(backend):
    trial = train("follow", backend=backend)
    assert order_of(trial.plan).index("apply step") < order_of(trial.plan).index("blend follow")
    assert trial.error_of(after_the_update) <= SAME
    assert trial.error_of_loop(AverageFirst) > WRONG


class TeacherInTheOptimizer(Loop):
    """The mistake: weight decay and gradients of zero move the teacher, besides its average."""

    def prepare(self):
        self.student, self.teacher = self.sgd("student"), self.sgd("teacher", weight_decay=0.1)

    def step(self, x, y):
        student, teacher = self.nets["student"], self.nets["teacher"]
        self.student.zero_grad()
        (mse(student(x), y) + 0 * teacher(x).sum()).backward()
        self.student.step()
        self.teacher.step()
        follow(teacher, student)


@each_backend
def test_a_teacher_is_moved_by_its_average_alone(backend):
    trial = train("follow", backend=backend)
    assert trial.error_of(after_the_update) <= SAME
    assert trial.error_of_loop(TeacherInTheOptimizer) > WRONG
    with pytest.raises(SpecError, match="E-EMA-TARGET"):
        plan_of("refused/average-in-update")


def judged_by_the_old_average(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move a critic, its average, and a generator that the average judges as it was before."""
    critic = descend(lambda c: high(mlp(c, image)), world["critic"])
    return {
        "g": descend(lambda g: high(mlp(world["slow"], mlp(g, z))), world["g"]),
        "critic": critic,
        "slow": lerp(world["slow"], critic, 0.5),
    }


class AverageMeanwhile(Loop):
    """The mistake: the average is written while the generator's graph still needs it."""

    def prepare(self):
        self.g, self.critic = self.sgd("g"), self.sgd("critic")

    def step(self, image, z):
        g, critic, slow = (self.nets[name] for name in ("g", "critic", "slow"))
        g_loss = high(slow(g(z)))
        self.critic.zero_grad()
        high(critic(image)).backward()
        self.critic.step()
        follow(slow, critic, 0.5)
        self.g.zero_grad()
        g_loss.backward(inputs=list(g.parameters()))
        self.g.step()


@each_backend
@pytest.mark.parametrize("order", ["listed", "fewest"])
def test_an_average_waits_for_the_gradients_that_run_through_it(order, backend):
    trial = train("average-on-the-path", order=order, backend=backend)
    sequence = order_of(trial.plan)
    waits = sequence.index("gradient step_g") < sequence.index("blend follow")
    assert waits == (backend == "torch")  # a tape keeps what it has read
    assert trial.error_of(judged_by_the_old_average) <= SAME
    assert trial.error_of_loop(AverageMeanwhile) > WRONG


def every_second_step(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a model and its average in every second step."""
    count = world.get("count", 1)
    if count % 2:
        return {**world, "count": count + 1}
    net = descend(lambda w: mse(mlp(w, x), y), world["net"])
    return {"net": net, "slow": lerp(world["slow"], net, 0.1), "count": count + 1}


class AverageInEveryStep(Loop):
    """The mistake: the average goes on while its source rests."""

    def prepare(self):
        self.net, self.count = self.sgd("net"), 0

    def step(self, x, y):
        self.count += 1
        if self.count % 2 == 0:
            self.net.zero_grad()
            mse(self.nets["net"](x), y).backward()
            self.net.step()
        follow(self.nets["slow"], self.nets["net"])


@each_backend
def test_an_average_rests_with_its_source(backend):
    trial = train("resting-source", backend=backend)
    assert trial.error_of(every_second_step) <= SAME
    assert trial.error_of_loop(AverageInEveryStep) > WRONG


class AverageInEveryMicroBatch(Loop):
    """The mistake: the average goes on in every micro-batch, whether the model moves or not."""

    def prepare(self):
        self.net = self.sgd("net")

    def step(self, x, y):
        self.net.zero_grad()
        for part, aim in zip(x.tensor_split(4), y.tensor_split(4), strict=True):
            (mse(self.nets["net"](part), aim) * len(part) / len(x)).backward()
            follow(self.nets["slow"], self.nets["net"])
        self.net.step()


def averaged_once(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a model by its whole batch, then its average."""
    net = descend(lambda w: mse(mlp(w, x), y), world["net"])
    return {"net": net, "slow": lerp(world["slow"], net, 0.1)}


@each_backend
def test_an_average_follows_the_update_of_all_micro_batches_once(backend):
    trial = train("average-per-update", backend=backend)
    assert [line for line in order_of(trial.plan) if line.startswith("blend")] == ["blend follow"]
    assert trial.error_of(averaged_once) <= SAME
    assert trial.error_of_loop(AverageInEveryMicroBatch) > WRONG


def halved_by_updates(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a model in every second step, with a rate that is halved by every move."""
    count = world.get("count", 1)
    if count % 2:
        return {**world, "count": count + 1}
    rate = 0.8 * 0.5 ** (count // 2 - 1)
    return {"net": descend(lambda w: mse(mlp(w, x), y), world["net"], lr=rate), "count": count + 1}


class ScheduleInEveryStep(Loop):
    """The mistake: the schedule goes on in steps without an update."""

    def prepare(self):
        self.net, self.count = self.sgd("net", lr=0.8), 0
        self.schedule = torch.optim.lr_scheduler.StepLR(self.net, 1, 0.5)

    def step(self, x, y):
        self.count += 1
        self.net.zero_grad()
        if self.count % 2 == 0:
            mse(self.nets["net"](x), y).backward()
        self.net.step()  # without gradients it moves nothing
        self.schedule.step()


@each_backend
def test_a_schedule_counts_applied_updates(backend):
    trial = train("resting-schedule", backend=backend)
    assert told(trial.plan, "DEFER") == set()
    assert trial.error_of(halved_by_updates) <= SAME
    assert trial.error_of_loop(ScheduleInEveryStep) > WRONG


def penalised_in_every_fourth_step(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a model by a loss, to which four times a penalty is added in every fourth step."""
    count = world.get("count", 1)
    share = 4 * (count % 4 == 0)

    def loss(weights):
        return mse(mlp(weights, x), y) + share * mlp(weights, x).square().mean()

    return {"net": descend(loss, world["net"]), "count": count + 1}


class PenaltyAsItIs(Loop):
    """The mistake: the penalty is computed in every fourth step, and not made larger."""

    def prepare(self):
        self.net, self.count = self.sgd("net"), 0

    def step(self, x, y):
        self.count += 1
        self.net.zero_grad()
        out = self.nets["net"](x)
        penalty = out.square().mean() if self.count % 4 == 0 else 0.0
        (mse(out, y) + penalty).backward()
        self.net.step()


@each_backend
def test_a_lazy_term_counts_for_the_steps_without_it(backend):
    trial = train("lazy-penalty", backend=backend)
    assert trial.error_of(penalised_in_every_fourth_step) <= SAME
    assert trial.error_of_loop(PenaltyAsItIs) > WRONG
    plain = train("lazy-penalty", "ops.penalty.lazy=none", backend=backend)
    assert plain.error_of_loop(PenaltyAsItIs) <= SAME
