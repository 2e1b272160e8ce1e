"""Emitted TensorFlow functions: tapes where an expert would put them, one where a graph is used twice, else several."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from compiler import compile_step
from graphspec import load
from runtime import emit

GAN = """
graphspec: 1
name: gan
inputs: {image: {shape: [batch, 8]}}
models:
  generator: {layers: [{linear: 8}, tanh], optimizer: {name: adam, lr: 0.01}}
  discriminator: {layers: [{linear: 8}, {dropout: 0.3}, {linear: 1}], optimizer: {name: adam, lr: 0.01}}
ops:
  z: {random: normal, shape: [batch, 4]}
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: image}
  on_fake: {forward: discriminator, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: discriminator, loss: d_loss}
  judged: {forward: discriminator, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: g_loss}
outputs: [d_loss, g_loss]
"""
BY_HAND = '''
def train_step(batch, number):
    """gan, train, active: step_d, step_g. Order: fewest."""
    random.start("train", number)  # keys the step's draws
    image = batch["image"]  # float32 [batch, 8]
    batch_size = tf.shape(image)[0]
    z = random.normal("z", (batch_size, 4))
    with tf.GradientTape(watch_accessed_variables=False) as step_g_tape:
        step_g_tape.watch(generator_params)
        fake = generator(z)  # generator@0
        with tf.GradientTape(watch_accessed_variables=False) as step_d_tape:
            step_d_tape.watch(discriminator_params)
            random.seek("on_real")
            on_real = discriminator(image, training=True)  # discriminator@0
            random.seek("on_fake")
            on_fake = discriminator(tf.stop_gradient(fake), training=True)  # discriminator@0
            d_real = bce_with_logits(on_real, 1.0)
            d_fake = bce_with_logits(on_fake, 0.0)
            d_loss = d_real + d_fake
        step_d = gradients(step_d_tape, d_loss, discriminator_params)
        discriminator_adam.apply(step_d)  # discriminator@0 -> @1
        random.seek("judged")
        judged = discriminator(fake, training=True)  # discriminator@1
        g_loss = bce_with_logits(judged, 1.0)
    step_g = gradients(step_g_tape, g_loss, generator_params)
    generator_adam.apply(step_g)  # generator@0 -> @1
    return {"d_loss": d_loss, "g_loss": g_loss}
'''
SHARED = """
graphspec: 1
name: shared
join_gradients: false
inputs: {x: {shape: [batch, 3]}}
models:
  trunk: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
  head: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  code: {forward: trunk, inputs: x}
  score: {forward: head, inputs: code}
  up: {loss: wasserstein, inputs: score}
  step_head: {update: head, loss: up}
  step_trunk: {update: trunk, loss: up}
outputs: [up]
"""
PENALTY = """
graphspec: 1
name: penalty
inputs: {x: {shape: [batch, 3]}}
models:
  critic: {layers: [{linear: 4}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  score: {forward: critic, inputs: x}
  total: {call: sum, inputs: score}
  slope: {gradient: total, wrt: x}
  length: {call: norm, inputs: slope, args: {axis: 1}}
  penalty: {loss: mse, inputs: [length, 1.0]}
  step: {update: critic, loss: penalty}
outputs: [penalty]
"""


def function(spec: str, name: str = "train_step") -> ast.FunctionDef:
    """Return a function of the emitted module as a tree: comments and line breaks are no matter."""
    tree = ast.parse(emit(compile_step(load(spec), "tensorflow")))
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def tapes(spec: str) -> list[tuple[str, bool, int]]:
    """Return name, persistence and depth of every tape."""
    found: list[tuple[str, bool, int]] = []

    def look(node: ast.AST, depth: int) -> None:
        if isinstance(node, ast.With):
            for item in node.items:
                options = {each.arg for each in item.context_expr.keywords}
                found.append((item.optional_vars.id, "persistent" in options, depth))
        for child in ast.iter_child_nodes(node):
            look(child, depth + isinstance(node, ast.With))

    look(function(spec), 0)
    return found


def test_a_gan_reads_like_a_function_written_by_hand():
    assert ast.dump(function(GAN)) == ast.dump(ast.parse(BY_HAND).body[0])


def test_two_gradients_through_one_graph_share_a_persistent_tape():
    assert tapes(SHARED) == [("tape", True, 0)]


def test_a_gradient_that_is_differentiated_is_taken_inside_the_tape_of_the_other():
    assert tapes(PENALTY) == [("step_tape", False, 0), ("slope_tape", False, 1)]
    outer = next(node for node in function(PENALTY).body if isinstance(node, ast.With))
    assert any("gradients(slope_tape, total, (x,))" in ast.unparse(each) for each in outer.body)


def test_no_tape_watches_what_it_is_not_told_to():
    for spec in (GAN, SHARED, PENALTY):
        text = ast.unparse(function(spec))
        assert text.count("tf.GradientTape(") == text.count("watch_accessed_variables=False")


def test_weights_may_be_written_while_a_gradient_through_them_is_pending():
    before, after = (
        compile_step(load(SHARED), backend, "listed").explain("step_head") for backend in ("torch", "tensorflow")
    )
    assert "DEFER" in before
    assert "DEFER" not in after


def test_emission_loads_no_framework():
    code = (
        "import sys\nfrom compiler import compile_step\nfrom graphspec import load\nfrom runtime import emit\n"
        f"emit(compile_step(load({GAN!r}), 'tensorflow'))\n"
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("spec", [GAN, SHARED, PENALTY], ids=["gan", "shared", "penalty"])
def test_what_is_emitted_is_a_module(spec):
    compile(emit(compile_step(load(spec), "tensorflow")), "emitted", "exec")
