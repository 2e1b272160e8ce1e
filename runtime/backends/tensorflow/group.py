"""The processes of a run as workers of tf.distribute, and their launcher."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast, final

import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from graphspec.diagnostics import SpecError
from runtime.backends.tensorflow.execution import ERRORS
from runtime.interrupt import SIGNALS
from runtime.problems import problem
from runtime.processes import Processes, Silent, lost_in_message, lost_in_silence
from runtime.terminal import INTERRUPTED, PROBLEM, USAGE

T = TypeVar("T")
FAILED = "STEPGRAPH_FAILED"
"""The environment variable with the path of a file that the first process which fails makes."""
PATIENCE = 10.0
"""Seconds in which the others notice that one has left; who does not is ended by the launcher."""


@final
class Workers(Processes):
    """This process among the workers that TF_CONFIG names; steps are built in the scope of their strategy."""

    def __init__(self, timeout: float) -> None:
        """Meet the others; a message that takes longer than a time in seconds is lost.

        Raises SpecError (GS257) where that fails.
        """
        options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        try:
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
            self.local = len(self.strategy.extended.worker_devices)
            self.count = self.strategy.num_replicas_in_sync // self.local
            self.rank = int(self.strategy.cluster_resolver.task_id or 0)
            self.graphs = {
                "numbers": tf.function(self._send_number, [tf.TensorSpec((), tf.int32)], autograph=False),
                "rows": tf.function(self._send_rows, [tf.TensorSpec((None,), tf.int32)], autograph=False),
            }
            self.agree(0)  # connections are made at the first collective
        except (RuntimeError, ValueError, tf.errors.OpError) as error:
            help = "check TF_CONFIG: the addresses of `cluster`, the same for all, and `task`"
            raise problem("GS257", f"the workers cannot reach each other: {ERRORS.clean(error)}", help=help) from error
        self.scope: Any = self.strategy.scope()
        self.scope.__enter__()

    def share(self, make: Callable[[], T]) -> T:
        """Broadcast the first process's result to all."""
        return cast("T", self.gather(None if self.rank else make())[0])

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        own = np.frombuffer(pickle.dumps(value), np.uint8).astype(np.int32)  # a type that all collectives take
        with losing("all processes"):
            sizes = self.graphs["rows"](tf.constant([len(own)], tf.int32)).numpy()
            packed = self.graphs["rows"](tf.constant(own)).numpy()
        ends = np.cumsum(sizes)
        return [pickle.loads(packed[end - size : end].astype(np.uint8)) for size, end in zip(sizes, ends, strict=True)]

    def agree(self, number: int) -> int:
        """Return the maximum over all processes."""
        with losing("all processes"):
            return int(self.graphs["numbers"](tf.constant(number, tf.int32)).numpy().max())

    def _send_number(self, number: tf.Tensor) -> tf.Tensor:
        """Return the numbers of all replicas: the sum of vectors with one at its place."""

        def send() -> tf.Tensor:
            """Add them up."""
            context = tf.distribute.get_replica_context()
            own = tf.one_hot(context.replica_id_in_sync_group, self.strategy.num_replicas_in_sync, number, 0)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

        return self.strategy.experimental_local_results(self.strategy.run(send))[0]

    def _send_rows(self, own: tf.Tensor) -> tf.Tensor:
        """Return the rows of all processes, each of which sends them from one of its replicas."""

        def send() -> tf.Tensor:
            """Gather them."""
            context = tf.distribute.get_replica_context()
            rank = int(tf.get_static_value(context.replica_id_in_sync_group))
            return context.all_gather(tf.identity(own) if rank % self.local == 0 else own[:0], axis=0)

        return self.strategy.experimental_local_results(self.strategy.run(send))[0]

    def find_device(self, request: str) -> str:
        """Return the device as asked for: the strategy has chosen those of this process."""
        return request

    def has_failed(self) -> bool:
        """Return whether some process has ended the run by an error, as far as a launcher lets them say so."""
        return FAILED in os.environ and Path(os.environ[FAILED]).exists()

    def report(self, error: BaseException) -> BaseException:
        """Return what this process raises in place of an error: of those of a launcher, the first alone says why."""
        try:
            if FAILED in os.environ:
                Path(os.environ[FAILED]).touch(exist_ok=False)
        except FileExistsError:
            return Silent(INTERRUPTED if isinstance(error, KeyboardInterrupt) else PROBLEM)
        where = f"on rank {self.rank} of {self.count}"
        if isinstance(error, SpecError):
            error.diagnostics = tuple(replace(each, notes=(*each.notes, where)) for each in error.diagnostics)
        elif isinstance(error, Exception):
            error.add_note(where)
        return error

    def leave(self) -> None:
        """Leave the scope of the strategy."""
        self.scope.__exit__(None, None, None)


@contextmanager
def losing(whom: str) -> Generator[None]:
    """Raise SpecError (GS259) where a collective inside fails because another process is gone, or does not answer."""
    try:
        yield
    except tf.errors.OpError as error:
        raise lost_in_message(whom, f"TensorFlow: {ERRORS.clean(error)}") from error


def launch(count: int, arguments: Sequence[str]) -> int:
    """Run a command line of `stepgraph` in several processes on this machine, and return the exit code.

    The first process that fails says what went wrong; where none could, its end is reported here.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    workers = [f"localhost:{port}" for port in find_ports(count)]
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        """Pass a signal on to all."""
        for each in started:
            each.send_signal(number)

    with TemporaryDirectory() as folder:
        before = {number: signal.signal(number, forward) for number in SIGNALS}
        for rank in range(count):
            configuration = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
            words = [sys.executable, "-m", "runtime", *arguments]
            given = {**os.environ, "TF_CONFIG": configuration, FAILED: str(Path(folder) / "failed")}
            started.append(subprocess.Popen(words, env=given, start_new_session=True))  # a terminal asks this one alone
        try:
            codes = wait_all(started)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    said = [code for code in codes if code in (PROBLEM, USAGE, INTERRUPTED)]
    if any(codes) and not said:
        rank, code = next((rank, code) for rank, code in enumerate(codes) if code)
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise lost_in_silence(rank, count, ended)
    return max(said, default=0)


def wait_all(started: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Return the exit codes of processes; the others are ended some time after one has failed."""
    end = math.inf
    while any(each.poll() is None for each in started):
        if end == math.inf and any(each.returncode for each in started):
            end = time.monotonic() + PATIENCE
        if time.monotonic() > end:
            for each in started:
                each.kill()
        time.sleep(0.05)
    return [each.returncode for each in started]


def find_ports(count: int) -> list[int]:
    """Return free ports of this machine."""
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
