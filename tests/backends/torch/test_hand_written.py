"""Programs written by hand train exactly as loops written by hand."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from compiler.ir.program import Program
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.execution import Loaded, load_module
from runtime.codegen.module import emit_module
from tests.backends.torch import programs

STEPS = 10


def built(program: Program) -> Loaded:
    """Return the executed module of a program, built in float64."""
    loaded = load_module(emit_module(program, TORCH), program)
    loaded.call("build", 3, "cpu", torch.float64)
    return loaded


def batches():
    """Yield ten batches."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        image = torch.randn(5, 6, generator=generator, dtype=torch.float64)
        yield {"image": image, "z": torch.randn(5, 3, generator=generator, dtype=torch.float64)}


def twins(loaded: Loaded):
    """Return copies of the built models, their parameters trainable."""
    models = copy.deepcopy(loaded.names["MODELS"])
    return {name: model.requires_grad_(True) for name, model in models.items()}


def momentum(model):
    """Return the optimizer a person would write."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def judge(logits, target):
    """Return the binary cross-entropy against one number."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def greatest_difference(loaded: Loaded, models):
    """Return the largest difference of any weight."""
    ours = loaded.names["MODELS"]
    pairs = [pair for name in models for pair in zip(ours[name].parameters(), models[name].parameters(), strict=True)]
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


def follow(average, model, decay):
    """Average weights as the formula says."""
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.copy_(decay * old + (1 - decay) * new)


def test_dcgan_steps_equal_a_loop_with_backward_and_zero_grad():
    loaded = built(programs.dcgan())
    twin = twins(loaded)
    generator, discriminator = twin["generator"], twin["discriminator"]
    step_g, step_d = momentum(generator), momentum(discriminator)
    for batch in batches():
        outputs = loaded.call("step", batch)
        fake = generator(batch["z"])
        d_loss = judge(discriminator(batch["image"]), 1.0) + judge(discriminator(fake.detach()), 0.0)
        step_d.zero_grad()
        d_loss.backward()
        step_d.step()
        g_loss = judge(discriminator(fake), 1.0)
        step_g.zero_grad()
        g_loss.backward()
        step_g.step()
        follow(twin["sampler"], generator, 0.9)
        assert float(outputs["d_loss"]) == pytest.approx(d_loss.item(), abs=1e-14)
    assert greatest_difference(loaded, twin) < 1e-14


def test_a_deferred_update_leaves_both_gradients_at_the_weights_of_the_forward():
    loaded = built(programs.shared_fake())
    twin = twins(loaded)
    generator, discriminator = twin["generator"], twin["discriminator"]
    step_g, step_d = momentum(generator), momentum(discriminator)
    for batch in batches():
        loaded.call("step", {"z": batch["z"]})
        of_d = torch.autograd.grad(judge(discriminator(generator(batch["z"])), 0.0), [*discriminator.parameters()])
        of_g = torch.autograd.grad(0.5 * judge(discriminator(generator(batch["z"])), 1.0), [*generator.parameters()])
        for optimizer, model, gradients in ((step_d, discriminator, of_d), (step_g, generator, of_g)):
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    assert greatest_difference(loaded, twin) < 1e-14


def test_a_teacher_without_a_graph_follows_its_student():
    loaded = built(programs.byol())
    twin = twins(loaded)
    student, teacher = twin["student"], twin["teacher"]
    optimizer = momentum(student)
    for batch in batches():
        outputs = loaded.call("step", {"image": batch["image"]})
        goal = F.normalize(teacher(batch["image"]).detach(), dim=-1)
        optimizer.zero_grad()
        F.mse_loss(student(batch["image"]), goal).backward()
        optimizer.step()
        assert float((outputs["goal"] - goal).abs().max()) < 1e-14
        follow(teacher, student, 0.99)
    assert greatest_difference(loaded, twin) < 1e-14


def test_the_comparison_would_notice_a_generator_judged_before_the_discriminators_step():
    loaded = built(programs.dcgan())
    twin = twins(loaded)
    generator, discriminator = twin["generator"], twin["discriminator"]
    step_g, step_d = momentum(generator), momentum(discriminator)
    for batch in batches():
        loaded.call("step", batch)
        fake = generator(batch["z"])
        g_loss = judge(discriminator(fake), 1.0)
        step_g.zero_grad()
        g_loss.backward()
        step_d.zero_grad()
        (judge(discriminator(batch["image"]), 1.0) + judge(discriminator(fake.detach()), 0.0)).backward()
        step_d.step()
        step_g.step()
    assert greatest_difference(loaded, {"generator": generator}) > 1e-4


def test_draws_are_the_same_for_a_seed_and_new_in_every_step():
    first, second = built(programs.noisy()), built(programs.noisy())
    image = {"image": torch.ones(4, 6, dtype=torch.float64)}
    one, two, again = first.call("step", image), first.call("step", image), second.call("step", image)
    assert torch.equal(one["z"], again["z"])
    assert not torch.equal(one["z"], two["z"])
    assert one["z"].dtype == torch.float64
