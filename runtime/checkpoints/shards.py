"""Checkpoints that several processes write together: each its own rows, into one folder that all of them see."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from runtime.checkpoints.disk import replacing, sync_folder, write_file
from runtime.checkpoints.format import Checkpoint, ShardFile, Signature, cannot_hold, describe_file, make_files, pack
from runtime.folder import cannot_write
from runtime.processes import Processes
from runtime.state import Array, Part


def write_shards(folder: Path, checkpoint: Checkpoint, parts: Mapping[str, Part], processes: Processes) -> None:
    """Write a checkpoint of which every process has rows of the arrays in ``parts``; all of them call it.

    The other arrays, and the sections, are those of the first process. It moves the folder into place once all files
    are on the disk. Raises SpecError: GS234 where the system does not allow it.
    """
    own = {name: array for name, array in checkpoint.arrays.items() if name in parts}
    rest = {name: array for name, array in checkpoint.arrays.items() if name not in parts}
    try:
        if processes.rank:
            hidden = processes.share(str)
            try:
                written = _write_own(folder.parent / hidden, own, parts, processes)
            except FileNotFoundError:  # the first process has given up and removed it, if this raises: another is lost
                processes.gather(None)
                raise
            processes.gather(written)
            return
        with replacing(folder) as making:
            processes.share(lambda: making.name)
            gathered: list[ShardFile | None] = processes.gather(_write_own(making, own, parts, processes))
            files = [each for each in gathered if each is not None]
            if len(files) < processes.count:  # some do not see this folder, as on another machine
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(making))
            divided = {name: Signature(shape=parts[name].shape, dtype=array.dtype.name) for name, array in own.items()}
            kept = Checkpoint(arrays=rest, sections=checkpoint.sections)
            for name, content in make_files(folder, kept, files, divided).items():
                write_file(making / name, content)
            sync_folder(making)
    except OSError as error:
        raise cannot_write(folder, error) from error


def _write_own(folder: Path, arrays: Mapping[str, Array], parts: Mapping[str, Part], processes: Processes) -> ShardFile:
    """Write the file of this process, and return what the manifest says of it."""
    name = f"shard-{processes.rank + 1:05d}-of-{processes.count:05d}.safetensors"
    try:
        content = pack(arrays)
    except ValueError as error:
        raise cannot_hold(folder, error) from error
    write_file(folder / name, content)
    described = describe_file(name, content)
    return ShardFile(
        file=described.file,
        bytes=described.bytes,
        sha256=described.sha256,
        rows={each: parts[each].begin for each in arrays},
    )
