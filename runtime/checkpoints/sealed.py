"""Sealed JSON: an object that carries a checksum of itself, so that a changed character is seen."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import NoReturn, cast

from runtime.state import Plain

SEAL = "checksum"
_DEEPEST = 64
_WIDEST = 4096
"""Bits of a whole number: the states of random generators have 128, and Python reads 14,000."""


def seal(content: Mapping[str, Plain]) -> bytes:
    """Return the JSON of an object with its checksum; numbers are read back exactly as they are.

    The checksum is the sha256 of the object without it, in order, without spaces and in ASCII. Raises ValueError for
    what JSON cannot hold, naming its path.
    """
    for key, value in content.items():
        _check(value, key, _DEEPEST)
    sealed = {**content, SEAL: _digest(content)}
    return (json.dumps(sealed, indent=2, allow_nan=False) + "\n").encode("ascii")


def unseal(sealed: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return a sealed object without its checksum; raise ValueError where the two do not agree."""
    content = {key: value for key, value in sealed.items() if key != SEAL}
    if sealed.get(SEAL) != _digest(content):
        raise ValueError("its content does not agree with its checksum")
    return content


def open_object(text: bytes) -> dict[str, Plain]:
    """Return the object in a JSON text, sealed or not; raise ValueError where there is none."""
    try:
        content = cast("Plain", json.loads(text.decode("utf-8"), parse_constant=_refuse))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def _digest(content: Mapping[str, Plain]) -> str:
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except (RecursionError, ValueError):
        # Only in a forged text: nesting that could just be read, or a number such as 1e999, which reads as infinity.
        raise ValueError("it holds what no checkpoint holds") from None
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _refuse(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's reader takes and JSON does not have."""
    raise ValueError(word)


def _check(value: object, path: str, depth: int) -> None:
    """Raise ValueError for what would be lost or changed on the way through JSON."""
    match value:
        case None | bool() | str():
            return
        case int() if value.bit_length() <= _WIDEST:
            return
        case float() if math.isfinite(value):
            return
        case list() | dict() if depth == 0:
            raise ValueError(f"{path} is nested too deeply")
        case list():
            for index, item in enumerate(cast("list[object]", value)):
                _check(item, f"{path}.{index}", depth - 1)
        case dict():
            _check_items(cast("dict[object, object]", value), path, depth)
        case _:
            raise ValueError(f"{path} is {_describe(value)}, which JSON does not have")


def _check_items(value: dict[object, object], path: str, depth: int) -> None:
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f"{path} has the key {key!r}, and keys in JSON are texts")
        _check(item, f"{path}.{key}", depth - 1)


def _describe(value: object) -> str:
    if isinstance(value, int):
        return "a whole number of more than 4096 bits"
    return str(value) if isinstance(value, float) else f"of the type {type(value).__name__}"
