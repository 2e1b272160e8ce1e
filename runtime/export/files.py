"""Exported files: the content of an export's folder, and its listing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.ir.program import Program
from runtime.checkpoints.format import find_versions, open_object
from runtime.engine.backend import PackedModel, PackedProgram
from runtime.export.pure import Pure
from runtime.state import Plain, PlainModel

LISTING = "export.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """The file of a model's weights; ``source`` is the model that owns them: the model itself, or its average."""

    file: str
    source: str
    packed: PackedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedProgram:
    """The file or folder of a program, and what it computes."""

    file: str
    pure: Pure
    packed: PackedProgram

    def files(self) -> dict[str, bytes]:
        """Return the content of every file by its path."""
        return {f"{self.file}/{path}" if path else self.file: content for path, content in self.packed.files.items()}

    def describe(self) -> dict[str, Plain]:
        """Return its files with their checksums, the mode, its inputs and how the step draws them, and its outputs."""
        pure, files = self.pure, self.packed.files
        inputs: dict[str, Plain] = {}
        for entry in pure.program.inputs:
            described: dict[str, Plain] = {"shape": [*(entry.shape or ())], "dtype": entry.dtype}
            drawn = pure.drawn.get(entry.name)
            if drawn is not None:
                described |= {"random": drawn.distribution, "args": json.loads(json.dumps(dict(drawn.options)))}
            inputs[entry.name] = described
        marks: dict[str, Plain] = {path: _mark(content) for path, content in files.items()}
        return {
            "file": self.file,
            **(_mark(files[""]) if "" in files else {"files": marks}),
            "mode": pure.mode,
            "inputs": inputs,
            "outputs": [*pure.outputs],
            "left_out": [*pure.left_out],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was exported, and its folder."""

    folder: Path
    models: Mapping[str, ExportedModel]
    program: ExportedProgram | None

    def __repr__(self) -> str:
        """Return the folder and the names in it, short for any export."""
        names = [*(model.file for model in self.models.values()), *([self.program.file] if self.program else [])]
        return f"<exported into {str(self.folder)!r}: {', '.join(names)}>"

    def files(self) -> dict[str, bytes]:
        """Return the content of every file but the listing."""
        files = {model.file: model.packed.content for model in self.models.values()}
        return files if self.program is None else {**files, **self.program.files()}

    def describe(self, program: Program, origin: Mapping[str, Plain]) -> bytes:
        """Return the listing as JSON: what every file is, and where it comes from."""
        listing: dict[str, Plain] = {"export": FORMAT, "name": program.name, **origin, "backend": program.backend}
        weights: dict[str, Plain] = {}
        for name, model in self.models.items():
            found = model.packed.tensors.items()
            tensors: Plain = {key: {"shape": [*shape], "dtype": dtype} for key, (shape, dtype) in found}
            weights[name] = {
                "file": model.file,
                **_mark(model.packed.content),
                "of": model.source,
                "tensors": tensors,
            }
        listing["weights"] = weights
        if self.program is not None:
            listing["program"] = self.program.describe()
        listing["versions"] = dict[str, Plain](find_versions(program.backend))
        return (json.dumps(listing, indent=2) + "\n").encode("ascii")


class ListedFile(PlainModel):
    """The file, or the folder of files, of a model or program in a listing."""

    file: str
    files: dict[str, object] | None = None


class Listing(PlainModel):
    """The files of an export."""

    export: int
    weights: dict[str, ListedFile]
    program: ListedFile | None = None


def find_listed(folder: Path) -> frozenset[str]:
    """Return the names of the files that an export wrote into a folder; none where it is not an export."""
    try:
        listing = Listing.read(open_object((folder / LISTING).read_bytes()))
    except (OSError, ValueError):
        return frozenset()
    found = {LISTING}
    for part in (*listing.weights.values(), *([] if listing.program is None else [listing.program])):
        found.update([part.file] if part.files is None else [f"{part.file}/{path}" for path in part.files])
    return frozenset(found)


def _mark(content: bytes) -> dict[str, Plain]:
    """Return the size and checksum of a file's content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
