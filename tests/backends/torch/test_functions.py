"""Emitted functions read as an expert would write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import emit
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from tests.backends.torch import programs
from tests.backends.torch.specs import OPS, plan_of, user

DCGAN = '''
def train_step(batch):
    """dcgan, train, active: step_d, step_g, average. Order: fewest."""
    image = batch["image"]                        # float32 [batch, 6]
    z = batch["z"]                                # float32 [batch, 3]
    fake = generator(z)                           # generator@0
    on_real = discriminator(image)                # discriminator@0
    on_fake = discriminator(fake.detach())        # discriminator@0
    d_real = bce_with_logits(on_real, 1.0)
    d_fake = bce_with_logits(on_fake, 0.0)
    d_loss = d_real + d_fake
    step_d = torch.autograd.grad(d_loss, discriminator_params)
    discriminator_sgd.apply(step_d)               # discriminator@0 -> @1
    del on_real, on_fake, step_d
    with frozen(discriminator_params):
        judged = discriminator(fake)              # discriminator@1
    g_loss = bce_with_logits(judged, 1.0)
    step_g = torch.autograd.grad(g_loss, generator_params)
    generator_sgd.apply(step_g)                   # generator@0 -> @1
    blend(sampler_params, generator_params, 0.9)  # sampler@0 -> @1, reads generator@1
    return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach()}
'''


def function(text: str, name: str = "train_step") -> str:
    """Return the source of one function of a module."""
    start = text.index(f"def {name}(")
    return text[start : text.index("\n\n\n", start)]


def test_dcgan_reads_like_a_loop_written_by_hand():
    assert function(emit_module(programs.dcgan(), TORCH).text) == DCGAN.strip()


def test_a_deferred_update_says_why_above_its_line():
    lines = function(emit_module(programs.shared_fake(), TORCH).text).splitlines()
    place = next(index for index, line in enumerate(lines) if "discriminator_sgd.apply" in line)
    assert lines[place - 1] == "    # apply step_d is deferred after gradient step_g: it reads discriminator@0"
    assert "retain_graph=True" in lines[place - 3]


def test_neighbours_without_a_graph_share_one_block():
    text = function(emit_module(programs.byol(), TORCH).text)
    assert text.count("torch.no_grad()") == 1
    assert "        target = teacher(image)  # teacher@0\n    goal = F.normalize(target, dim=-1)\n" in text


def test_neighbours_with_frozen_weights_share_one_block():
    path = Path(__file__).parents[3] / "examples" / "sac" / "sac.yaml"
    text = function(emit(compile_step(load(path))))
    assert "    with frozen(critic_1_params), frozen(critic_2_params):\n        judged_1 = critic_1(chosen)" in text
    once = function(emit(compile_step(load(path, ["ops.judged_2.forward=critic_1"]))))
    assert once.count("    with frozen(critic_1_params):\n") == 1


def test_a_call_with_weights_that_train_shares_no_block():
    layers = "{layers: [{linear: 3}, {linear: 3}], groups: [{match: '1.weight', frozen: true}], optimizer: sgd}"
    text = f"""graphspec: 1
name: half
inputs: {{x: {{shape: [batch, 3]}}}}
models: {{net: {layers}, judge: {{layers: [{{linear: 1}}], optimizer: sgd}}}}
ops:
  y: {{forward: net, inputs: x}}
  worth: {{forward: judge, inputs: y}}
  plain: {{forward: judge, inputs: x}}
  step_judge: {{update: judge, loss: "mse(plain, 1.0)"}}
  step: {{update: net, loss: "mse(worth, 1.0)"}}
"""
    found = function(emit(compile_step(load(text))))
    assert "    with frozen(net_frozen):\n        y = net(x)" in found
    assert "    with frozen(judge_params):\n        worth = judge(y)" in found


def test_an_unclipped_set_is_forgotten_before_the_clipped_one_is_applied():
    text = function(
        emit(plan_of("{layers: [{linear: 3}], optimizer: adam}", OPS.replace("loss}", "loss, clip: {norm: 1}}")))
    )
    assert "step_clipped = clip_norm(step_, 1" in text
    assert "    del y, step_\n    net_adam.apply(step_clipped)" in text


def test_a_function_that_takes_no_gradient_runs_without_a_graph_as_a_whole():
    text = emit(plan_of("{layers: [{linear: 3}], optimizer: adam}", outputs="[loss, y]"))
    assert "@torch.no_grad()\ndef eval_step(batch):" in text
    assert "with torch.no_grad()" not in text
    assert 'return {"loss": loss, "y": y}' in text


def test_a_model_switches_to_evaluation_and_back_where_ops_ask_for_it():
    ops = OPS.replace("inputs: x}", "inputs: x}\n  calm: {forward: net, inputs: x, train: false}")
    net = "{layers: [{linear: 3}, {batch_norm: {}}], optimizer: adam}"
    text = function(emit(plan_of(net, ops, outputs="[loss, calm]")))
    switch = text.index("net.train()" if "in_mode(net, False)" in text else "net.eval()")
    assert text.index("in_mode(net, ") < text.index("net(x)") < switch < text.rindex("net(x)")


def test_layers_that_know_no_modes_are_never_switched():
    text = emit(plan_of("{layers: [{linear: 3}], optimizer: adam}"))
    assert "in_mode" not in text


def test_a_gradient_with_respect_to_an_input_makes_it_a_leaf_of_its_own():
    ops = OPS + "  slope: {gradient: loss, wrt: x}\n"
    text = function(emit(plan_of("{layers: [{linear: 3}], optimizer: adam}", ops, outputs="[loss, slope]")))
    assert "    x = x.detach().requires_grad_()" in text
    assert "slope = torch.autograd.grad(loss, x" in text


def test_several_results_and_inner_layers_are_named_once():
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: net, inputs: x, outputs: [y, {h: {tap: inner}}]}")
    text = emit(plan_of(user("Tapped"), ops, outputs="[loss, h]"))
    assert 'h = net_taps.pop("inner")' in text
    assert 'net_taps = watch(net, "inner")' in text


def test_emission_loads_neither_torch_nor_anything_of_the_users():
    root = Path(__file__).parents[3]
    code = (
        "import sys\nfrom tests.backends.torch import programs\n"
        "from runtime.backends.torch.codegen.dialect import TORCH\n"
        "from runtime.codegen.module import emit_module\nemit_module(programs.dcgan(), TORCH)\n"
        "assert not {'torch', 'numpy', 'tensorflow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)


def test_models_behind_classes_cannot_be_emitted_before_someone_has_looked():
    others = "\n  head: {layers: [{linear: 3}], optimizer: adam}"
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: head, inputs: h}") + "  h: {forward: net, inputs: x}\n"
    plan = plan_of(user("Plain"), ops.replace("update: net", "update: [net, head]"), others)
    with pytest.raises(SpecError, match="the sizes of model 'head' are not known"):
        emit(plan)


def test_the_same_plan_is_emitted_the_same_every_time():
    text = "graphspec: 1\nname: t\ninputs: {x: {shape: [batch, 4]}}\n"
    text += "models: {m: {layers: [{linear: 1}], optimizer: sgd}}\nops:\n  y: {forward: m, inputs: x}\n"
    text += "  l: {call: mean, inputs: y}\n  u: {update: m, loss: l}\noutputs: [l]\n"
    assert emit(compile_step(load(text))) == emit(compile_step(load(text)))
