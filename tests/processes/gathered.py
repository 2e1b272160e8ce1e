"""Specs whose ops read the rows of all processes; SGD, as Adam hides the scale of a gradient."""

from __future__ import annotations

VIEWS = """
inputs: {a: {shape: [batch, 4]}, b: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: sgd, lr: 0.3}}
  head: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.3}}
"""
SIMCLR = (
    VIEWS
    + """
ops:
  h_a: {forward: net, inputs: a}
  h_b: {forward: net, inputs: b}
  z_a: {forward: head, inputs: h_a}
  z_b: {forward: head, inputs: h_b}
  all_a: {call: all_gather, inputs: z_a}
  all_b: {call: all_gather, inputs: z_b}
  loss: {loss: nt_xent, inputs: [all_a, all_b], args: {temperature: 0.5}}
  step: {update: [net, head], loss: loss}
outputs: [loss, z_a]
"""
)
CLIP = """
inputs: {image: {shape: [batch, 4]}, text: {shape: [batch, 3]}}
models:
  seeing: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: sgd, lr: 0.3}}
  reading: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.3}}
  heat: {parameter: {shape: [], init: ones}, optimizer: {name: sgd, lr: 0.3}}
ops:
  seen: {forward: seeing, inputs: image}
  read: {forward: reading, inputs: text}
  warm: {forward: heat}
  u: {expr: "normalize(all_gather(seen))"}
  v: {expr: "normalize(all_gather(read))"}
  scores: {expr: "exp(warm) * (u @ permute(v, dims=[1, 0]))"}
  right: {expr: "exp(warm) * sum(u * v, axis=1)"}
  loss: {expr: "mean(logsumexp(scores, axis=1) + logsumexp(scores, axis=0) - 2 * right)"}
  step: {update: [seeing, reading, heat], loss: loss}
outputs: [loss]
"""
"""The loss of CLIP, written out: a temperature that is learned reads what is gathered on every process."""
MIXED = (
    VIEWS
    + """
  mean_of_a: {like: net}
  level: {parameter: {shape: [3], init: ones}, optimizer: {name: sgd, lr: 0.3}}
state: {centre: {shape: [3], init: zeros}}
ops:
  z_a: {forward: net, inputs: a}
  z_b: {forward: net, inputs: b}
  all_a: {call: all_gather, inputs: z_a}
  all_b: {call: all_gather, inputs: z_b}
  p_a: {forward: head, inputs: all_a}
  far: {loss: nt_xent, inputs: [p_a, all_b]}
  near: {loss: mse, inputs: [z_a, 0.3], weight: 0.5}
  size: {loss: l1, inputs: [z_b, 0.0], reduction: sum, weight: 0.1}
  rare: {loss: huber, inputs: [z_a, 0.5], every: 2}
  rarely: {loss: nt_xent, inputs: [all_b, all_a], every: 3, weight: 0.2}
  middle: {call: all_mean, inputs: z_b}
  target: {forward: level}
  off: {loss: mse, inputs: [middle, target]}
  half: {call: mul, inputs: [size, 0.5]}
  loss: {call: add, inputs: [far, near, half, rare, off, rarely]}
  step: {update: [net, head, level], loss: loss, clip: {norm: 0.5}}
  slow: {ema: net, decay: 0.9}
  keep: {assign: centre, value: middle}
  spread: {metric: mean, inputs: all_a}
  seen: {metric: mean, inputs: all_b, reset: never}
outputs: [loss, far, near, size, off, middle, spread, seen, all_a, z_b]
"""
)
SLOPES = (
    VIEWS
    + """
ops:
  z_a: {forward: net, inputs: a}
  z_b: {forward: net, inputs: b}
  p_a: {forward: head, inputs: z_a}
  all_a: {call: all_gather, inputs: p_a}
  all_b: {call: all_gather, inputs: z_b}
  far: {loss: nt_xent, inputs: [all_a, all_b]}
  of_rows: {gradient: far, wrt: z_a}
  of_all: {gradient: far, wrt: all_b}
  score: {forward: net, inputs: a}
  total: {call: sum, inputs: score}
  slope: {gradient: total, wrt: a}
  length: {call: norm, inputs: slope, args: {axis: 1}}
  penalty: {loss: mse, inputs: [length, 1.0]}
  loss: {call: add, inputs: [far, penalty]}
  step: {update: [net, head], loss: loss}
outputs: [loss, far, of_rows, of_all]
"""
)
"""Gradients by rows, by gathered rows, and a penalty whose gradient is taken on the rows of each process."""
COUNTED = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models: {net: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: sgd, lr: 0.3}}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: cross_entropy, inputs: [out, y], args: {ignore_index: 0}}
  all_out: {call: all_gather, inputs: out}
  all_y: {call: all_gather, inputs: y}
  known: {loss: cross_entropy, inputs: [all_out, all_y], args: {ignore_index: 1}}
  far: {loss: nt_xent, inputs: [all_out, all_out]}
  loss: {call: add, inputs: [far, fit, known]}
  step: {update: net, loss: loss}
  right: {metric: accuracy, inputs: [all_out, all_y]}
outputs: [loss, fit, known, right]
"""
