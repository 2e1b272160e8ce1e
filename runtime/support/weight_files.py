"""Weight files: the safetensors format, read as bytes by name, and whether they fit a model."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from runtime.support.model_errors import ModelError

WIDTHS = {
    **dict.fromkeys(("BOOL", "I8", "U8"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}
"""The types of the format, and the bytes of one number."""
FEW = 16
"""For how many names one that is near is looked for: each takes as long as there are others."""
FLOATING = ("F16", "BF16", "F32", "F64")
"""The types that are converted into each other."""


class StoredWeight(NamedTuple):
    """One tensor of a file: its type as the format calls it, its sizes, its bytes (little-endian, row by row)."""

    kind: str
    shape: tuple[int, ...]
    data: memoryview = memoryview(b"")


def read_weights(model: str, path: str) -> dict[str, StoredWeight]:
    """Return the tensors of a safetensors file by name: 8 bytes of length, a header of JSON, then the numbers.

    Raises ModelError (GS271) where it cannot be read, or is none.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "relative paths start from the folder of the spec"
        raise ModelError("GS271", model, f"cannot read the weights {path!r}: {reason}", (), remedy) from error
    try:
        return dict(parse_weights(content))
    except (ValueError, RecursionError) as error:
        reason = f"{path!r} is no whole safetensors file ({error})"
        raise ModelError("GS271", model, reason, (), "write it again, or take it from where it was written") from error


def parse_weights(content: bytes) -> Iterator[tuple[str, StoredWeight]]:
    """Yield name and tensor of a safetensors file; raise ValueError where it is none."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError("it ends within its header")
    header: object = json.loads(content[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError("its header is no mapping")
    numbers = memoryview(content)[8 + length :]
    for name, entry in cast("dict[str, object]", header).items():
        if name != "__metadata__":
            yield name, take_weight(name, entry, numbers)


def take_weight(name: str, entry: object, numbers: memoryview) -> StoredWeight:
    """Return one tensor out of the numbers of a file; raise ValueError where they are not all there."""
    fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    kind, sizes, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not (isinstance(kind, str) and kind in WIDTHS and isinstance(sizes, list) and isinstance(offsets, list)):
        raise ValueError(f"{name!r} is of a type that is not known")
    shape = tuple(int(str(size)) for size in cast("list[object]", sizes))
    start, stop = (int(str(each)) for each in cast("list[object]", offsets))
    if (
        min((0, *shape)) < 0
        or not 0 <= start <= stop <= len(numbers)
        or stop - start != WIDTHS[kind] * math.prod(shape)
    ):
        raise ValueError(f"the numbers of {name!r} are not all there")
    return StoredWeight(kind, shape, numbers[start:stop])


def require_fit(model: str, path: str, found: Mapping[str, StoredWeight], wanted: Mapping[str, StoredWeight]) -> None:
    """Raise ModelError (GS272) with everything in what a file differs from what a model wants."""
    notes = tuple(find_misfits(found, wanted))
    if notes:
        remedy = (
            "the names of a file are those of the model's parameters and buffers, as `stepgraph export` writes them"
        )
        raise ModelError("GS272", model, f"the weights in {path!r} are not its own", notes, remedy)


def find_misfits(found: Mapping[str, StoredWeight], wanted: Mapping[str, StoredWeight]) -> Iterator[str]:
    """Yield what is missing, not expected, or has other sizes or another kind of numbers."""
    missing, unexpected = [each for each in wanted if each not in found], [each for each in found if each not in wanted]
    yield from (
        f"missing: {name}{near}" for name, near in zip(missing, find_near(missing, unexpected, "file"), strict=True)
    )
    yield from (
        f"not expected: {name}{near}"
        for name, near in zip(unexpected, find_near(unexpected, missing, "model"), strict=True)
    )
    for name in (each for each in found if each in wanted):
        one, other = found[name], wanted[name]
        if one.shape != other.shape:
            yield f"{name} is {list(one.shape)}, expected {list(other.shape)}"
        elif one.kind != other.kind and not (one.kind in FLOATING and other.kind in FLOATING):
            yield f"{name} is {one.kind}, expected {other.kind}"


def find_near(names: Sequence[str], others: Sequence[str], owner: str) -> Iterator[str]:
    """Yield for every name what the owner of the others has that is called alike; nothing for all but the first few."""
    for place, name in enumerate(names):
        near = difflib.get_close_matches(name, others, n=1) if place < FEW else []
        yield f" (the {owner} has {near[0]})" if near else ""
