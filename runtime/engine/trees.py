"""Trees of what users' objects keep: tensors in them become arrays, and the facts that an array cannot hold stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from runtime.state import Array, Tree

KIND, VALUES = "tensor", "values"
"""The keys of a mapping for values that an array alone cannot represent: a tensor of another type, or not a tensor."""
ARRAY, MAPPING = "numpy", "mapping"
"""Kinds that are not tensors: a NumPy array, and a mapping that has these very keys itself."""


def encode_tree(tree: object, to_array: Callable[[object], tuple[Array, str] | None]) -> Tree:
    """Return a tree with every tensor as an array; facts that an array cannot hold are put next to it.

    ``to_array`` returns the array of a tensor, and its type where the array has another; None for what is no tensor.
    """
    stored = to_array(tree)
    if stored is not None:
        array, kind = stored
        return {KIND: kind, VALUES: array} if kind else array
    match tree:
        case np.ndarray():
            return {KIND: ARRAY, VALUES: tree.copy()}
        case Mapping():
            items = cast("Mapping[str, object]", tree).items()
            found = {key: encode_tree(value, to_array) for key, value in items}
            return {KIND: MAPPING, VALUES: found} if found.keys() == {KIND, VALUES} else found
        case list() | tuple():
            return [encode_tree(value, to_array) for value in cast("Sequence[object]", tree)]
        case _:
            return cast("Tree", tree)


def decode_tree(tree: Tree, from_array: Callable[[Array, str], object]) -> object:
    """Return the tree that :func:`encode_tree` was given; ``from_array`` takes an array and the type of its tensor.

    The type is empty where it is that of the array.
    """
    match tree:
        case np.ndarray():
            return from_array(tree, "")
        case {"tensor": "numpy", "values": array, **others} if not others:
            return np.array(array)
        case {"tensor": "mapping", "values": dict() as found, **others} if not others:
            return {key: decode_tree(value, from_array) for key, value in found.items()}
        case {"tensor": str(kind), "values": array, **others} if not others:
            return from_array(cast("Array", array), kind)
        case Mapping():
            return {key: decode_tree(value, from_array) for key, value in tree.items()}
        case list():
            return [decode_tree(value, from_array) for value in tree]
        case _:
            return tree
