"""Changes of a spec: every one told by its path, and whether a run can go on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphspec import load
from graphspec.write.render import render
from runtime.train.resume import compare_specs, refuse_changes

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

SPEC = """
graphspec: 1
name: small
vars: {lr: 0.01}
inputs: {image: {shape: [batch, 64]}, label: {shape: [batch], dtype: int64}}
models:
  net:
    layers: [{linear: 32}, batch_norm, {leaky_relu: 0.2}, {dropout: 0.5}, {residual: [{linear: 32}, tanh]}, {linear: 9}]
    optimizer: {name: sgd, lr: "${lr}", momentum: 0.9}
    buffers: copy
  user: {class: "zoo:Net", args: {width: 16, norm: batch}, optimizer: {class: "zoo:Rule", lr: 0.1}}
  slow: {like: net}
  tuned:
    layers: [{linear: 64}]
    optimizer: sgd
    groups: [{match: bias, lr_scale: 0.5}]
    regularizer: {l2: 0.1}
    constraint: {max_norm: 1}
ops:
  scores: {forward: net, inputs: image}
  error: {loss: cross_entropy, inputs: [scores, label], args: {label_smoothing: 0.1}}
  guess: {forward: user, inputs: image}
  far: {loss: mse, inputs: [guess, 0.5], weight: 0.1}
  odd: {loss: "zoo:odd", inputs: guess, args: {p: 2, kind: soft}}
  total: {call: add, inputs: [far, odd]}
  learn: {update: net, loss: error, clip: {norm: 1.0}}
  teach: {update: user, loss: total, optimizer: {name: adam, lr: 0.001}, every: 2}
  average: {ema: net, into: slow, decay: 0.99}
  seen: {forward: tuned, inputs: image}
  own: {loss: mse, inputs: [seen, image]}
  tune: {update: tuned, loss: own}
outputs: [error, total]
data:
  train: {source: digits, batch: 32, shuffle: true, args: {flatten: true}}
  test: {source: digits, batch: 360, split: test, args: {flatten: true}}
run: {steps: 100}
"""

RUN = {
    "name=other": "name: small -> other",
    "run.steps=200": "run.steps: 100 -> 200",
    "run.log=csv": "run.log: [jsonl, csv] -> [csv]",
    "run.checkpoint=50 steps": "run.checkpoint: nothing -> {every: 50 steps, keep: 3}",
    "outputs=[total, error, far]": "outputs: [error, total] -> [total, error, far]",
    "parallel={kind: replicated}": "parallel: nothing -> {kind: replicated, reduce: mean, buffers: rank0, compress: …",
    "ops.far.doc=far off": "ops.far.doc: nothing -> far off",
    "ops.total.mode=train": "ops.total.mode: [train, eval, test, infer] -> [train]",
    "ops.learn.defer=end": "ops.learn.defer: auto -> end",
    "data.test.batch=100": "data.test.batch: 360 -> 100",
    "data.eval={source: npz, path: x.npz, batch: 9}": "data.eval: nothing -> {source: npz, batch: 9, shuffle: false",
}
HYPER = {
    "vars.lr=0.02": "models.net.optimizer.lr: 0.01 -> 0.02",
    "models.net.optimizer.momentum=0.5": "models.net.optimizer.momentum: 0.9 -> 0.5",
    "models.net.optimizer.nesterov=true": "models.net.optimizer.nesterov: false -> true",
    "models.net.layers.3={dropout: 0.1}": "models.net.layers.3.dropout: 0.5 -> 0.1",
    "models.net.layers.2={leaky_relu: 0.1}": "models.net.layers.2.leaky_relu: 0.2 -> 0.1",
    "models.net.layers.1={batch_norm: {momentum: 0.2}}": "models.net.layers.1.batch_norm.momentum: 0.1 -> 0.2",
    "models.user.args.width=32": "models.user.args.width: 16 -> 32",
    "models.user.args.width=16.0": "models.user.args.width: 16 -> 16.0",
    "models.user.args.norm=layer": "models.user.args.norm: batch -> layer",
    "models.user.optimizer.lr=0.2": "models.user.optimizer.lr: 0.1 -> 0.2",
    "ops.error.args.label_smoothing=0": "ops.error.args.label_smoothing: 0.1 -> 0",
    "ops.far.inputs.1=0.25": "ops.far.inputs.1: 0.5 -> 0.25",
    "ops.far.weight=1": "ops.far.weight: 0.1 -> 1",
    "ops.odd.args.p=3": "ops.odd.args.p: 2 -> 3",
    "ops.learn.clip.norm=2.0": "ops.learn.clip.norm: 1.0 -> 2.0",
    "ops.learn.start=5 steps": "ops.learn.start: nothing -> 5 steps",
    "ops.teach.optimizer.betas=[0.5, 0.9]": "ops.teach.optimizer.betas: [0.9, 0.999] -> [0.5, 0.9]",
    "ops.teach.every=3": "ops.teach.every: 2 -> 3",
    "ops.average.decay=0.9": "ops.average.decay: 0.99 -> 0.9",
    "outputs=[error]": "outputs: [error, total] -> [error]",
    "data.train.batch=64": "data.train.batch: 32 -> 64",
    "data.train.shuffle=false": "data.train.shuffle: true -> false",
    "data.train.seed=5": "data.train.seed: nothing -> 5",
    "seed=7": "seed: 0 -> 7",
}
STRUCTURE = {
    "inputs.image.dtype=float64": "inputs.image.dtype: float32 -> float64",
    "models.more={parameter: {shape: []}}": "models.more: nothing -> {parameter: {shape: [], init: zeros}}",
    "models.net.layers.0={linear: 16}": "models.net.layers.0.linear.out: 32 -> 16",
    "models.net.layers.4={residual: [{linear: 32}, relu]}": "models.net.layers.4.residual.1: tanh -> relu",
    "models.net.layers.2=relu": "models.net.layers.2: {leaky_relu: 0.2} -> relu",
    "models.net.optimizer=adam": "models.net.optimizer: sgd -> adam",
    'models.net.optimizer={class: "zoo:Rule"}': "models.net.optimizer: sgd -> zoo:Rule",
    "models.net.optimizer.momentum=0": "models.net.optimizer.momentum: 0.9 -> 0",
    "models.net.optimizer.momentum_form=lr_inside": "models.net.optimizer.momentum_form: lr_outside -> lr_inside",
    "models.net.buffers=average": "models.net.buffers: copy -> average",
    "models.tuned.groups=[{match: bias, lr_scale: 0.1}]": "models.tuned.groups.0.lr_scale: 0.5 -> 0.1",
    "models.tuned.groups=[{match: weight, lr_scale: 0.5}]": "models.tuned.groups.0.match: bias -> weight",
    "models.tuned.regularizer={l2: 0.2}": "models.tuned.regularizer.0.l2: 0.1 -> 0.2",
    "models.tuned.constraint={max_norm: 2}": "models.tuned.constraint.0.max_norm: 1.0 -> 2.0",
    "models.slow.init=fresh": "models.slow.init: copy -> fresh",
    "models.user.class=zoo:Other": "models.user.class: zoo:Net -> zoo:Other",
    "ops.guess.train=false": "ops.guess.train: true -> false",
    "ops.far.inputs.1=label": "ops.far.inputs.1: 0.5 -> label",
    "ops.far.loss=l1": "ops.far.loss: mse -> l1",
    "ops.far.reduction=sum": "ops.far.reduction: mean -> sum",
    "ops.odd.reduction=mean": "ops.odd.reduction: nothing -> mean",
    "ops.odd.args.kind=hard": "ops.odd.args.kind: soft -> hard",
    "ops.scores.after=teach": "ops.scores.after: [] -> teach",
    "ops.average.decay={kind: tf_warm, max: 0.99}": "ops.average.decay: 0.99 -> {",
    "ops.teach.every=learn": "ops.teach.every: 2 -> learn",
    "ops.total={call: sub, inputs: [far, odd]}": "ops.total.call: add -> sub",
    "ops.extra={metric: accuracy, inputs: [scores, label]}": "ops.extra: nothing -> {metric: accuracy, inputs: ",
    "data.train.split=train": "data.train.split: nothing -> train",
    "rng=portable": "rng: native -> portable",
}
SAME = [
    "models.net.layers.0={linear: {out: 32, bias: true}}",
    "models.net.optimizer.dampening=0",
    "models.user.class={torch: zoo:Net, tensorflow: zoo:Net}",
    "ops.scores.train=true",
    "ops.scores.inputs=[image]",
    "ops.scores.every=1",
    "ops.guess.mode=[infer, test, eval, train]",
    "ops.guess.after=[]",
    "ops.error.args.axis=1",
    "ops.error.weight=1",
    "ops.error.reduction=mean",
    "ops.learn.mode=train",
    "ops.learn.clip.eps=0",
    "ops.average.interval_correction=none",
    "data.train.drop_last=true",
    "data.train.seed=0",
    "run.log_every=50",
]
CASES = [
    *((assignment, told, "run") for assignment, told in RUN.items()),
    *((assignment, told, "hyper") for assignment, told in HYPER.items()),
    *((assignment, told, "structure") for assignment, told in STRUCTURE.items()),
]


def changes(*assignments, old=SPEC, new=SPEC):
    return compare_specs(load(old), load(new, assignments))


@pytest.mark.parametrize(("assignment", "told", "kind"), CASES, ids=[case[0] for case in CASES])
def test_a_change_is_told_by_its_path_and_weighed(assignment, told, kind):
    (change,) = changes(assignment)
    assert (str(change)[: len(told)], change.kind) == (told, kind)


@pytest.mark.parametrize("assignment", SAME)
def test_what_holds_anyway_is_no_change(assignment):
    assert changes(assignment) == ()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_a_rendered_spec_has_no_changes_in_either_direction(path):
    spec = load(path)
    rendered = load(render(spec))
    assert compare_specs(spec, rendered) == compare_specs(rendered, spec) == ()


def test_what_is_taken_away_is_told_as_such():
    (change,) = changes("ops.learn={update: net, loss: error}")
    assert (str(change), change.kind) == ("ops.learn.clip: {norm: 1.0, eps: 0.0, per: global} -> nothing", "hyper")


def test_long_values_are_cut():
    (change,) = changes("ops.learn.doc=" + 100 * "long ")
    assert change.after == 11 * "long " + "long…"


def test_several_changes_come_in_the_order_of_the_document():
    found = changes("run.steps=5", "vars.lr=1", "ops.far.loss=l1", "name=b")
    assert [change.path for change in found] == ["name", "models.net.optimizer.lr", "ops.far.loss", "run.steps"]


def test_a_schedule_is_a_number_and_the_length_of_the_run_too_where_it_lasts_a_share_of_it():
    constant, cosine = SPEC, SPEC.replace('"${lr}"', "{schedule: cosine, from: 0.1, over: 0.5 run, clock: steps}")
    (change,) = changes(old=constant, new=cosine)
    assert (change.path, change.kind) == ("models.net.optimizer.lr", "hyper")
    (change,) = changes("run.steps=200", old=cosine, new=cosine)
    assert (change.path, change.kind) == ("run.steps", "hyper")


BOTH = SPEC.replace("  guess:", "  again: {forward: net, inputs: image}\n  guess:").replace(
    "outputs: [error, total]", "outputs: [again]"
)


def test_the_order_of_ops_says_nothing():
    lines = SPEC.splitlines(keepends=True)
    start, end = lines.index("ops:\n") + 1, lines.index("outputs: [error, total]\n")
    assert changes(new="".join([*lines[:start], *reversed(lines[start:end]), *lines[end:]])) == ()


def test_the_order_among_the_forwards_of_a_model_with_batch_norm_does():
    moved = BOTH.replace("  scores: {forward: net, inputs: image}\n", "")
    moved = moved.replace("  guess:", "  scores: {forward: net, inputs: image}\n  guess:")
    (change,) = changes(old=BOTH, new=moved)
    assert (str(change), change.kind) == ("order of the forwards of net: scores, again -> again, scores", "structure")
    without = (text.replace("batch_norm", "relu").replace("buffers: copy", "") for text in (BOTH, moved))
    assert compare_specs(*map(load, without)) == ()


def test_all_structural_changes_are_refused_in_one_error():
    found = changes("ops.far.loss=l1", "rng=portable", "vars.lr=1")
    told = str(refuse_changes(Path("runs/small"), found))
    assert (
        "error[GS245]: the run in 'runs/small' cannot be resumed: its saved state belongs to a different step" in told
    )
    assert "note: ops.far.loss: mse -> l1" in told
    assert "note: rng: native -> portable" in told
    assert "lr" not in told
    assert "undo that, or start a new run in another folder" in told
