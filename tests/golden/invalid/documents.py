"""Broken files that cannot be small text files: written when they are needed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
_DEEP = 50_000
_LARGE = 16 * 2**20 + 1


def _make_deep(before: str, after: str = "") -> bytes:
    return f"{before}{'[' * _DEEP}{']' * _DEEP}{after}".encode()


def _make_alias_bomb() -> bytes:
    """Return a document that would have 10^9 items if its aliases were followed."""
    lists = [
        f"  {name}: &{name} [{', '.join([f'*{inner}'] * 10)}]"
        for inner, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(["graphspec: 1", "vars:", f"  a: &a [{', '.join(['ha'] * 10)}]", *lists, ""]).encode()


def _make_arrays(y: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.zeros((32, 4)), y=np.asarray(y, dtype=object if isinstance(y, list) else None))
    return stream.getvalue()


FILES: Mapping[str, Callable[[], bytes]] = {
    "empty.yaml": lambda: b"",
    "binary.yaml": lambda: b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "latin1.yaml": lambda: "graphspec: 1\nname: café\n".encode("latin-1"),
    "utf16.yaml": lambda: "graphspec: 1\nname: wide\n".encode("utf-16"),
    "deep.yaml": lambda: _make_deep("graphspec: 1\nname: deep\nops: "),
    "deep.json": lambda: _make_deep('{"graphspec": 1,\n "name": "deep",\n "ops": ', "}"),
    "alias_bomb.yaml": _make_alias_bomb,
    "too_large.yaml": lambda: b"graphspec: 1\n#" + b"x" * (_LARGE - 14),
    "points.npz": lambda: _make_arrays(np.ones((32, 1))),
    "pickled.npz": lambda: _make_arrays([{"label": 1}] * 32),
    "shared_broken.yml": lambda: b"vars: {lr: 1e-3\n",
    "shared_circle.yml": lambda: b"include: shared_circle.yml\nvars: {a: 1}\n",
    "shared_models.yml": lambda: b"models:\n  critic: {layers: [{linear: 1}]}\n",
    "shared_nothing.yml": lambda: b"",
    "shared_ops.yml": lambda: b"ops:\n  z: {call: neg, inputs: y}\n",
    "shared_section.yml": lambda: b"model:\n  head: {layers: [{linear: 1}]}\n",
    "unfinished.py": lambda: b"class Net(:\n    pass\n",
}
"""Name of the file -> what makes its content."""


def write_documents(folder: Path) -> None:
    """Write every broken spec, and what belongs to them, into a folder."""
    for path in (*HERE.glob("*.yaml"), *HERE.glob("*.json"), HERE / "pieces.py", HERE / "explodes.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    for name, make in FILES.items():
        (folder / name).write_bytes(make())
    (folder / "folder.yaml").mkdir()
