"""Plain data of a document, and of its ops, with a part replaced."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec.read.source import Path, Plain


def put(node: Plain, path: Path, value: Plain) -> Plain:
    """Return plain data with another value at a path; a text in place of a list, or of a mapping, is replaced itself.

    >>> put({"inputs": ["x", "y"]}, ("inputs", 1), "z"), put({"inputs": "x"}, ("inputs", 0), "z")
    ({'inputs': ['x', 'z']}, {'inputs': 'z'})
    """
    if not path or isinstance(node, str):
        return value
    if isinstance(node, list):
        return [put(each, path[1:], value) if index == path[0] else each for index, each in enumerate(node)]
    assert isinstance(node, dict)
    return {key: put(each, path[1:], value) if key == path[0] else each for key, each in node.items()}


def rename_outputs(outputs: Plain, known: Mapping[str, str]) -> Plain:
    """Return the outputs of an op under other names.

    >>> rename_outputs(["y", {"h": {"tap": "0"}}], {"y": "u.y", "h": "u.h"})
    ['u.y', {'u.h': {'tap': '0'}}]
    """
    match outputs:
        case str():
            return known.get(outputs, outputs)
        case list():
            return [rename_outputs(each, known) for each in outputs]
        case dict():
            return {known.get(name, name): each for name, each in outputs.items()}
        case _:
            return outputs


def listed(value: Plain) -> list[Plain]:
    """Return a list; one name as a list of one, and nothing for None.

    >>> listed("a"), listed(["a", "b"]), listed(None)
    (['a'], ['a', 'b'], [])
    """
    return [] if value is None else value if isinstance(value, list) else [value]
