"""State written by forwards: running statistics, frozen networks, averages over them, merged calls, dropout."""

from __future__ import annotations

import pytest
import torch

from graphspec import SpecError
from tests.catalogue.mathematics import (
    BUFFERS,
    Weights,
    World,
    descend,
    high,
    lerp,
    low,
    mlp,
    moved,
    mse,
    normed,
)
from tests.catalogue.trial import (
    SAME,
    WRONG,
    Loop,
    Trial,
    batches,
    distance,
    each_backend,
    plan_of,
    told,
    train,
    waiting,
)


def judged_by_the_old_statistics(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move a generator, judged with the running statistics of the start, and a discriminator that moves them."""
    g, d = world["g"], world["d"]
    stepped = descend(lambda d: high(normed(d, image, train=True)), d)
    seen = moved(d, image)
    return {
        "g": descend(lambda g: high(normed(d, mlp(g, z), train=False)), g),
        "d": {**stepped, **{name: seen[name] for name in BUFFERS}},
    }


class StatisticsMoved(Loop):
    """The mistake: the statistics that a pending graph reads are moved by a forward in train mode."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        g_loss = high(d.eval()(g(z)))
        d_loss = high(d.train()(image))
        self.g.zero_grad()
        g_loss.backward(inputs=list(g.parameters()))
        self.d.zero_grad()
        d_loss.backward()
        self.g.step()
        self.d.step()


@each_backend
@pytest.mark.parametrize("order", ["listed", "fewest", "latest"])
def test_a_gradient_reads_the_statistics_that_its_forward_read(order, backend):
    trial = train("statistics-read-early", order=order, backend=backend)
    assert trial.error_of(judged_by_the_old_statistics) <= SAME
    assert trial.error_of_loop(StatisticsMoved) > WRONG


def steady_then_moving(world: World, x: torch.Tensor) -> World:
    """Call a model with its running statistics, and on the result with those of the batch."""
    net = world["net"]

    def steady(w: Weights) -> torch.Tensor:
        return normed(w, x, train=False)

    stepped = descend(lambda w: mse(normed(w, steady(w), train=True), x), net)
    seen = moved(net, steady(net))
    return {"net": {**stepped, **{name: seen[name] for name in BUFFERS}}}


class CalledInACircle(Loop):
    """The mistake: the same two calls of one BatchNorm."""

    def prepare(self):
        self.net = self.sgd("net")

    def step(self, x):
        net = self.nets["net"]
        steady = net.eval()(x)
        self.net.zero_grad()
        mse(net.train()(steady), x).backward()
        self.net.step()


@each_backend
def test_statistics_that_no_order_can_keep_are_cloned(backend):
    trial = train("statistics-in-a-circle", backend=backend)
    assert told(trial.plan, "SNAPSHOT") == waiting({"steady"}, backend)
    assert trial.error_of(steady_then_moving) <= SAME
    assert trial.error_of_loop(CalledInACircle) > WRONG


def taught_by_a_fixed_teacher(world: World, x: torch.Tensor) -> World:
    """Move a student towards a teacher that stays as it is."""
    aim = normed(world["teacher"], x, train=False)
    return {"student": descend(lambda w: mse(mlp(w, x), aim), world["student"]), "teacher": world["teacher"]}


class TeacherInTrainMode(Loop):
    """The mistake: the teacher has no gradients, but it is in train mode."""

    def prepare(self):
        self.student = self.sgd("student")

    def step(self, x):
        with torch.no_grad():
            aim = self.nets["teacher"].train()(x)
        self.student.zero_grad()
        mse(self.nets["student"](x), aim).backward()
        self.student.step()


@each_backend
def test_a_model_that_nobody_updates_does_not_drift(backend):
    trial = train("teacher", backend=backend)
    assert trial.error_of(taught_by_a_fixed_teacher) <= SAME
    assert trial.error_of_loop(TeacherInTrainMode) > WRONG
    assert told(plan_of("teacher-in-train-mode"), "W-FROZEN-TRAIN") == {"aim"}


def averaged_with_statistics(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a model, average its weights, and copy its statistics."""
    net, slow = world["net"], world["slow"]
    seen = moved(net, x)
    net = {**descend(lambda w: mse(normed(w, x, train=True), y), net), **{name: seen[name] for name in BUFFERS}}
    return {"net": net, "slow": {**lerp(slow, net, 0.1), **{name: net[name] for name in BUFFERS}}}


class WeightsAlone(Loop):
    """The mistake: the average is over the parameters, and its statistics stay what they were at first."""

    def prepare(self):
        self.net = self.sgd("net")

    def step(self, x, y):
        net, slow = self.nets["net"], self.nets["slow"]
        self.net.zero_grad()
        mse(net(x), y).backward()
        self.net.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters(), strict=True):
                old.lerp_(new, 0.1)


@each_backend
def test_an_average_over_statistics_says_what_becomes_of_them(backend):
    trial = train("average-with-statistics", backend=backend)
    assert trial.error_of(averaged_with_statistics) <= SAME
    assert trial.error_of_loop(WeightsAlone) > WRONG
    with pytest.raises(SpecError, match="E-BUFFERS"):
        plan_of("refused/average-without-policy")


def in_two_calls(world: World, real: torch.Tensor, fake: torch.Tensor) -> World:
    """Move a discriminator that normalizes real and generated images apart, real ones first."""
    d, shifted = world["d"], fake + 3.0
    stepped = descend(lambda w: high(normed(w, real, train=True)) + low(normed(w, shifted, train=True)), d)
    seen = moved(moved(d, real), shifted)
    return {"d": {**stepped, **{name: seen[name] for name in BUFFERS}}}


def in_one_call(world: World, real: torch.Tensor, fake: torch.Tensor) -> World:
    """Move a discriminator that normalizes all images together."""
    d, every, rows = world["d"], torch.cat([real, fake + 3.0]), len(real)

    def loss(w: Weights) -> torch.Tensor:
        scores = normed(w, every, train=True)
        return high(scores[:rows]) + low(scores[rows:])

    seen = moved(d, every)
    return {"d": {**descend(loss, d), **{name: seen[name] for name in BUFFERS}}}


class Merged(Loop):
    """The mistake where two calls are meant: one call on both batches, to save time."""

    def prepare(self):
        self.d = self.sgd("d")

    def step(self, real, fake):
        scores = self.nets["d"](torch.cat([real, fake + 3.0]))
        self.d.zero_grad()
        (high(scores[: len(real)]) + low(scores[len(real) :])).backward()
        self.d.step()


@each_backend
def test_calls_of_a_model_with_batch_norm_are_neither_merged_nor_split(backend):
    two, one = train("two-calls", backend=backend), train("one-call", backend=backend)
    assert two.error_of(in_two_calls) <= SAME
    assert one.error_of(in_one_call) <= SAME
    assert two.error_of_loop(Merged) > WRONG
    assert one.error_of_loop(Merged) <= SAME


def with_masks(trial: Trial, for_d: str, for_g: str) -> float:
    """Return how far a trial is from a reference whose dropout keeps what the named outputs kept."""
    g, d = trial.start["g"], trial.start["d"]
    for batch, given in zip(batches(trial.plan), trial.outputs, strict=True):
        masks = [2.0 * (given[name] != 0) for name in (for_d, for_g)]
        g, d = dropped_out(g, d, batch["z"], *masks)
    return distance(trial.end, {"g": g, "d": d})


def dropped_out(g: Weights, d: Weights, z: torch.Tensor, of_d: torch.Tensor, of_g: torch.Tensor):
    """Move both players of a GAN, where each loss has a mask for the discriminator's hidden layer."""

    def judge(w: Weights, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x @ w["0.weight"].T + w["0.bias"]) * mask @ w["2.weight"].T + w["2.bias"]

    fake = mlp(g, z)
    return descend(lambda g: high(judge(d, mlp(g, z), of_g)), g), descend(lambda d: low(judge(d, fake, of_d)), d)


@each_backend
def test_two_calls_have_two_masks_and_one_call_has_one(backend):
    two, one = train("two-masks", backend=backend), train("one-mask", backend=backend)
    assert with_masks(two, "d_kept", "g_kept") <= SAME
    assert with_masks(two, "d_kept", "d_kept") > WRONG
    assert with_masks(one, "kept", "kept") <= SAME


@each_backend
def test_a_call_elsewhere_changes_no_mask(backend):
    outputs = "outputs=[d_kept, g_kept, elsewhere]"
    alone = train("two-masks", backend=backend)
    beside = train("two-masks", "ops.elsewhere={forward: d, inputs: image}", outputs, backend=backend)
    for one, other in zip(alone.outputs, beside.outputs, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in ("d_kept", "g_kept"))


def test_by_hand_a_draw_elsewhere_changes_every_mask_that_follows():
    layer, x, masks = torch.nn.Dropout(0.5), torch.ones(64), []
    for draws in (1, 2):
        torch.manual_seed(0)
        masks.append([layer(x) for _ in range(draws)][-1])
    assert not torch.equal(*masks)
