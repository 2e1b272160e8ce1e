"""The manifest of a checkpoint: what its arrays are called and look like, and the checksum of their file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.checkpoints.fields import Fields
from runtime.checkpoints.sealed import SEAL, open_object, seal, unseal
from runtime.checkpoints.tensors import Signature
from runtime.state import Plain

FORMAT = 1
"""The version of the format that is written, and the newest that is read."""


class ForeignError(ValueError):
    """A manifest that is whole, but not ours or of a newer format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """The file of the arrays: its name, its size in bytes and its sha256."""

    file: str
    bytes: int
    sha256: str

    @classmethod
    def describe(cls, file: str, content: bytes) -> StateFile:
        """Return the description of a file's content."""
        return cls(file=file, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint but its arrays."""

    sections: Mapping[str, Plain]
    tensors: Mapping[str, Signature]
    state: StateFile
    versions: Mapping[str, str]

    def to_json(self) -> bytes:
        """Return the manifest as sealed JSON; raise ValueError for sections that JSON cannot hold."""
        state = self.state
        tensors: dict[str, Plain] = {
            name: {"shape": list(signature.shape), "dtype": signature.dtype} for name, signature in self.tensors.items()
        }
        return seal(
            {
                "checkpoint": FORMAT,
                "sections": dict(self.sections),
                "state": {"file": state.file, "bytes": state.bytes, "sha256": state.sha256},
                "versions": dict(self.versions),
                "tensors": tensors,
            }
        )


def read_manifest(text: bytes) -> Manifest:
    """Return the manifest in a text.

    Raises ForeignError where it is none of ours or of a newer format, ValueError where it is damaged.
    """
    content = open_object(text)
    if "checkpoint" not in content and SEAL not in content:
        raise ForeignError("its manifest.json is not that of a checkpoint")
    fields = Fields(content=unseal(content))
    version = fields.whole("checkpoint")
    if version > FORMAT:
        raise ForeignError(f"it has format {version}, and this version of stepgraph reads format {FORMAT}")
    if version != FORMAT:
        raise ForeignError(f"there is no format {version}")
    return _read(fields)


def _read(fields: Fields) -> Manifest:
    state, tensors = fields.part("state"), fields.part("tensors")
    return Manifest(
        sections=fields.mapping("sections"),
        tensors={name: _read_signature(tensors.part(name)) for name in tensors.content},
        state=StateFile(file=state.text("file"), bytes=state.size("bytes"), sha256=state.text("sha256")),
        versions=fields.text_mapping("versions"),
    )


def _read_signature(fields: Fields) -> Signature:
    return Signature(shape=fields.sizes("shape"), dtype=fields.text("dtype"))
