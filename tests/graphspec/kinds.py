"""An op of every kind, as a line of a spec: what is tried with every kind takes its op from here."""

from __future__ import annotations

LINES = {
    "forward": "a: {forward: net, inputs: [x]}",
    "call": "a: {call: add, inputs: [x, 1]}",
    "random": "a: {random: normal, like: x}",
    "loss": "a: {loss: mse, inputs: [x, 0.0]}",
    "gradient": "a: {gradient: err, wrt: net}",
    "transform": "a: {transform: my:fn, inputs: g}\ng: {gradient: err, wrt: net}",
    "update": "a: {update: [net, other], loss: err}",
    "ema": "a: {ema: net, into: other, tau: 0.1}",
    "metric": "a: {metric: mean, inputs: x}",
    "copy": "a: {copy: net, into: other}",
    "assign": "a: {assign: held, value: 1}",
    "adapt": "a: {adapt: net, loss: err, lr: 0.1}",
    "schedule": "a: {schedule: step, from: 1, factor: 0.5, every: 100}",
}
"""By kind. The op is ``a``, and its spec has the models net and other, the input x, the loss err, the state held.

Some of these specs have an update of net, others none: an op that needs one adds an update of other, on a second line.
"""
