"""A function that counts how often its Python runs: in TensorFlow only while a graph is traced."""

from __future__ import annotations

COUNT = [0]


def count(x):
    COUNT[0] += 1
    return x
