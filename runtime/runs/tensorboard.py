"""Logged rows as events that TensorBoard shows."""

from __future__ import annotations

import importlib
import math
import os
import re
import socket
import struct
import time
from pathlib import Path
from types import ModuleType
from typing import cast

from runtime.checkpoints.disk import append_file
from runtime.folder import cannot_write
from runtime.problems import problem
from runtime.runs.metrics import Row

FOLDER = "tensorboard"
_PACKAGE = "tensorboardX"
_VERSION = "brain.Event:2"
_PREFIX = "events.out.tfevents"
_NAME = re.compile(rf"{re.escape(_PREFIX)}\.([0-9]{{20}})\.")


class Events:
    """A file of events in the folder ``tensorboard`` of a run; values that are not finite are left out.

    tensorboardX gives the events and their checksums. Its writer is not used: it writes in a thread of its own, so a
    kill would lose the last rows, and on a full disk it would wait for ever.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        """Go on after a step: what earlier files say of later steps is not shown any more.

        Raises SpecError: GS234 the file cannot be written, GS254 tensorboardX is not installed.
        """
        self._proto = _import("proto.event_pb2")
        self._checksum = _import("record_writer").masked_crc32c
        place = folder / FOLDER
        place.mkdir(exist_ok=True)
        # The files are read in the order of their names: also where the clock was set back, this one comes last.
        before = [int(name[1]) for name in map(_NAME.match, os.listdir(place)) if name is not None]
        number = max([time.time_ns(), *(each + 1 for each in before)])
        self.path = place / f"{_PREFIX}.{number:020d}.{socket.gethostname()}"
        self._write(file_version=_VERSION)
        self._write(step=after + 1, session_log={"status": self._proto.SessionLog.START})

    def add(self, row: Row) -> None:
        """Add a row's values, each under its own name."""
        finite = [{"tag": name, "simple_value": value} for name, value in row.values.items() if math.isfinite(value)]
        self._write(step=row.step, summary={"value": finite})

    def close(self) -> None:
        """Do nothing: every row is in the file."""

    def _write(self, **fields: object) -> None:
        """Append an event: its length and its content, each with a checksum (TensorFlow's format of records)."""
        content = cast("bytes", self._proto.Event(wall_time=time.time(), **fields).SerializeToString())
        length = struct.pack("<Q", len(content))
        sums = (struct.pack("<I", self._checksum(part)) for part in (length, content))
        try:
            append_file(self.path, b"".join((length, next(sums), content, next(sums))))
        except OSError as error:
            raise cannot_write(self.path, error) from error


def _import(name: str) -> ModuleType:
    """Return a module of tensorboardX. Raises SpecError: GS254 it is not installed."""
    try:
        importlib.import_module(_PACKAGE)
        return importlib.import_module(f"{_PACKAGE}.{name}")
    except ImportError as error:
        help = "pip install 'stepgraph[tensorboard]', or take `tensorboard` out of `run.log`"
        raise problem("GS254", "logging for TensorBoard needs the package tensorboardX", help=help) from error
