"""A debug build refuses a gradient at weights its forwards did not read, which torch itself lets pass."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from compiler import Plan, compile_step
from compiler.ir.instructions import Apply, Forward, Gradient
from graphspec import SpecError, load
from runtime import StepError, build
from runtime.codegen.flow import find_gradient_paths, find_through
from tests.backends.torch.specs import USERS, batch_of
from tests.compiler.random_steps import random_step

GOLDEN = Path(__file__).parents[2] / "golden" / "valid"
OPTIMIZER = f"{{class: '{USERS}:DataSGD', lr: 0.5}}"
SPEC = f"""
graphspec: 1
name: shared
join_gradients: false
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  g: {{layers: [{{linear: 4}}, {{linear: 4}}], optimizer: {OPTIMIZER}}}
  d: {{layers: [{{linear: 4}}, batch_norm, {{linear: 1}}], optimizer: {OPTIMIZER}}}
ops:
  fake: {{forward: g, inputs: x}}
  judged: {{forward: d, inputs: fake, train: MODE}}
  d_loss: {{call: mean, inputs: judged}}
  g_loss: {{call: neg, inputs: d_loss}}
  step_d: {{update: d, loss: d_loss}}
  step_g: {{update: g, loss: g_loss}}
outputs: [d_loss]
"""


def plan_of(train=True) -> Plan:
    """Return the plan of a GAN whose two losses share one forward of the discriminator."""
    return compile_step(load(SPEC.replace("MODE", str(train).lower())), order="listed")


def mutated(plan: Plan) -> Plan:
    """Return the plan with the discriminator's write moved before the gradient of the generator."""
    mode, *others = plan.program.modes
    (function,) = mode.functions
    left = [each for each in function.instructions if not (isinstance(each, Apply) and each.op == "step_d")]
    (write,) = (each for each in function.instructions if each not in left)
    place = next(index for index, each in enumerate(left) if isinstance(each, Gradient) and each.op == "step_g")
    early = replace(function, instructions=(*left[:place], write, *left[place:]))
    return replace(plan, program=replace(plan.program, modes=(replace(mode, functions=(early,)), *others)))


def built(plan, *, debug):
    """Return a build with the same weights every time."""
    return build(plan, device="cpu", seed=1, allow=[USERS], debug=debug)


def moved(step):
    """Return how far the generator goes in one step."""
    before = [p.detach().clone() for p in step.models["g"].parameters()]
    step(batch_of())
    return torch.cat([(p - old).flatten() for p, old in zip(step.models["g"].parameters(), before, strict=True)])


def refusal(step):
    """Take a step that must not succeed; return the diagnostic."""
    with pytest.raises(StepError) as raised:
        step(batch_of())
    (found,) = raised.value.diagnostics
    return found


def scale(*tensors):
    """Return a hook that writes tensors where autograd does not see it."""

    def hook(*_):
        for tensor in tensors:
            tensor.data.mul_(1.5)

    return hook


def test_a_write_moved_before_a_gradient_gives_other_numbers_and_no_error():
    right, wrong = moved(built(plan_of(), debug=False)), moved(built(mutated(plan_of()), debug=False))
    assert (right - wrong).norm() > 0.05 * right.norm()


def test_a_write_moved_before_a_gradient_is_refused_with_its_writer():
    found = refusal(built(mutated(plan_of()), debug=True))
    assert found.code == "GS262"
    assert found.message == "op 'step_g' (gradient): the forward 'judged' read d.params@0, which is no longer there"
    assert found.notes[1] == "op 'step_d' wrote d.params@1 before the gradient of 'g_loss' was taken"
    assert found.span.line == 15


def test_autograd_itself_refuses_it_after_a_write_that_is_announced():
    step = built(plan_of(), debug=True)
    module = step._built.engine.loaded.names
    judged = module["d"](torch.ones(3, 4, requires_grad=True)).sum()
    module["checks"].start()
    module["d_optimizer"].apply([torch.ones_like(p) for p in module["d_params"]])
    module["checks"].contents.announce(("d.params@1",))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(judged, module["d_params"])


def test_a_hook_that_writes_weights_gives_other_numbers_and_no_error():
    honest, hooked = built(plan_of(), debug=False), built(plan_of(), debug=False)
    hooked.models["d"].register_forward_hook(scale(*hooked.models["d"].parameters()))
    right, wrong = moved(honest), moved(hooked)
    assert (right - wrong).norm() > 0.1 * right.norm()


def test_a_hook_that_writes_weights_is_refused_with_the_op_it_ran_in():
    step = built(plan_of(), debug=True)
    step.models["d"].register_forward_hook(scale(*step.models["d"].parameters()))
    found = refusal(step)
    assert found.code == "GS262"
    assert found.message == "op 'step_d' (gradient): the forward 'judged' read d.params@0, which is no longer there"
    assert found.notes[1] == "'d.0.weight' was written by no op of the step, while op 'judged' ran, or before it"


def test_a_hook_that_writes_another_models_weights_is_refused():
    step = built(plan_of(), debug=True)
    step.models["d"].register_forward_hook(scale(*step.models["g"].parameters()))
    found = refusal(step)
    assert found.message == "op 'step_g' (gradient): the forward 'fake' read g.params@0, which is no longer there"
    assert found.notes[1] == "'g.0.weight' was written by no op of the step, after the last op that read it"


def test_statistics_written_behind_a_forward_in_evaluation_are_refused():
    step = built(plan_of(train=False), debug=True)
    step.models["d"].register_forward_hook(scale(step.models["d"][1].running_var))
    assert "the forward 'judged' read d.buffers@0" in refusal(step).message


def test_a_write_between_two_steps_is_allowed():
    step = built(plan_of(), debug=True)
    step(batch_of())
    scale(*step.models["d"].parameters())()
    step(batch_of())
    assert step.report.step == 2


def plans():
    """Yield plans of published steps and of random ones, with shared calls, second derivatives and clones."""
    yield from (compile_step(load(path)) for path in sorted(GOLDEN.glob("*.yaml")))
    for seed in range(20):
        with suppress(SpecError):  # two versions of one model would have to be live at once
            yield compile_step(load(json.dumps(random_step(seed)) + "\n"))


def test_the_path_of_a_gradient_is_the_compilers():
    count = 0
    for plan in plans():
        for function in (function for mode in plan.program.modes for function in mode.functions):
            makers = {value: each for each in function.instructions for value in each.defines}
            paths = find_gradient_paths(function.instructions, makers, plan.program)
            graph = plan.graphs[function.name]
            for gradient in (each for each in function.instructions if isinstance(each, Gradient)):
                (node,) = (name for name, each in graph.nodes.items() if each.derivative and each.op == gradient.op)
                members = {graph.nodes[name].op for name in graph.paths[node].nodes}
                forwards = (each for each in function.instructions if isinstance(each, Forward) and each.op in members)
                through = find_through(function.instructions, paths[id(gradient)])
                assert set(through) == {f.op for f in forwards if f.snapshot != "all"}
                count += 1
    assert count > 80
