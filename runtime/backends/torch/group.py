"""The processes of a run as a group of torch.distributed, and their launcher."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, get_error_handler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.rendezvous import rendezvous

from graphspec.diagnostics import SpecError
from runtime.backends.torch.devices import choose_device
from runtime.backends.torch.equal import losing
from runtime.backends.torch.execution import ERRORS
from runtime.interrupt import SIGNALS
from runtime.problems import problem, quiet
from runtime.processes import LOST, Processes, Silent, lost_in_silence
from runtime.terminal import INTERRUPTED, PROBLEM, USAGE

T = TypeVar("T")
FAILED = "failed"
"""The key under which the first process that fails writes its rank."""
PATIENCE = 3.0
"""Seconds in which the others notice that one has left; who does not has ended itself, or hangs."""


@final
class Group(Processes):
    """This process in torch.distributed's default group, made as the environment says (RANK, WORLD_SIZE, ...).

    Errors go through the store of the group, which works when a collective does not.
    """

    def __init__(self, timeout: float, device: str) -> None:
        """Meet the others within a time in seconds. Raises SpecError (GS257) where that fails."""
        self.device = self.find_device(device)
        if torch.device(self.device).type == "cuda":
            torch.cuda.set_device(self.device)
        limit = timedelta(seconds=timeout)
        try:
            with mortal():
                store, self.rank, self.count = next(iter(rendezvous("env://", timeout=limit)))
                store.set_timeout(limit)
                # a launcher that starts the processes again may keep the store
                self.store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
                dist.init_process_group(
                    store=PrefixStore("group", self.store), rank=self.rank, world_size=self.count, timeout=limit
                )
                dist.barrier()  # connections are made at the first collective
        except (ValueError, RuntimeError) as error:
            help = "check RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or let torchrun set them"
            raise problem(
                "GS257", f"the processes cannot reach each other: {ERRORS.clean(error)}", help=help
            ) from error

    def share(self, make: Callable[[], T]) -> T:
        """Broadcast the first process's result to all."""
        held = [make() if self.rank == 0 else None]
        with losing("the first process"):
            dist.broadcast_object_list(held, src=0)
        return held[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        held: list[Any] = [None] * self.count
        with losing("all processes"):
            dist.all_gather_object(held, value)
        return held

    def agree(self, number: int) -> int:
        """Return the maximum over all processes."""
        found = torch.tensor([number], device=self.device)
        with losing("all processes"):
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return int(found.item())

    def find_device(self, request: str) -> str:
        """Return the device of this process: of several GPUs, the one of its number on its machine."""
        device = choose_device(request)
        if device.type == "cuda" and device.index is None:
            return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        return str(device)

    def has_failed(self) -> bool:
        """Return whether some process has ended the run by an error."""
        try:
            return self.store.check([FAILED])
        except RuntimeError:  # the process that keeps the store is gone
            return True

    def report(self, error: BaseException) -> BaseException:
        """Return what this process raises in place of an error: of all that fail, the first alone says why."""
        for number in SIGNALS:  # the launcher asks this process to end, as another one has: it does
            signal.signal(number, signal.SIG_IGN)
        code, is_first, rank = INTERRUPTED if isinstance(error, KeyboardInterrupt) else PROBLEM, True, str(self.rank)
        with suppress(RuntimeError):  # where the process that keeps the store is gone, all say it
            is_first = self.store.compare_set(FAILED, "", rank).decode() == rank
        self.leave()
        if not is_first:
            return Silent(code)
        where = f"on rank {self.rank} of {self.count}"
        if isinstance(error, SpecError):
            notes = (where,)
            if any(each.code == LOST for each in error.diagnostics):
                notes = (*self.name_missing(), where)
            error.diagnostics = tuple(replace(each, notes=(*each.notes, *notes)) for each in error.diagnostics)
        elif isinstance(error, Exception):
            error.add_note(where)
        if code == PROBLEM and "TORCHELASTIC_ERROR_FILE" in os.environ:
            get_error_handler().record_exception(error)  # what torchrun shows of the process that failed first
        return error

    def name_missing(self) -> tuple[str, ...]:
        """Return a note that names those who have not noticed by now that the run has ended; none where all have."""
        missing = [rank for rank in range(self.count) if rank != self.rank]
        end = time.monotonic() + PATIENCE
        with suppress(RuntimeError):
            while missing and time.monotonic() < end:
                missing = [rank for rank in missing if not self.store.check([f"left {rank}"])]
                time.sleep(0.02)
        return (f"without an answer: rank {', '.join(map(str, missing))}",) if missing else ()

    def leave(self) -> None:
        """Leave the others: who waits for this process gets an error at once."""
        with suppress(RuntimeError):
            self.store.set(f"left {self.rank}", "")
        with suppress(RuntimeError, ValueError, AssertionError):
            dist.destroy_process_group()


@contextmanager
def mortal() -> Generator[None]:
    """Let signals end the process at once: inside PyTorch waits for the others, and Python would not notice them.

    A process that has never come would be waited for until the timeout.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(count: int, arguments: Sequence[str]) -> int:
    """Run a command line of `stepgraph` in several processes on this machine, and return the exit code.

    The first process that fails says what went wrong; where none could, its end is reported here.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    with TemporaryDirectory() as logs, quiet():
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "runtime", *arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()  # others may have ended because they were asked to, after it
            if any(Path(logs).rglob("error.json")):
                return PROBLEM
            if failure.exitcode not in (PROBLEM, USAGE, INTERRUPTED):
                ended = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
                raise lost_in_silence(rank, count, ended) from None
            return failure.exitcode
        except SignalException:
            return INTERRUPTED
    return 0
