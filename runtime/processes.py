"""Processes that take a run together: this one among them, and what they exchange outside of steps."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, final

from graphspec.diagnostics import SpecError
from runtime.problems import problem

T = TypeVar("T")
LOST = "GS259"
"""The code of a process that has ended, or does not answer."""


def lost_in_message(whom: str, found: str) -> SpecError:
    """Return the error (GS259) of a collective in which others did not answer; ``found``: what the framework says."""
    return _lose(f"{whom} did not answer: a process has ended, or hangs", found)


def lost_in_silence(rank: int, count: int, ended: str) -> SpecError:
    """Return the error (GS259) of a process that has ended without a word; ``ended``: by which signal or exit code."""
    return _lose(f"rank {rank} of {count} has ended by {ended}")


def _lose(message: str, *notes: str) -> SpecError:
    help = "see what it has printed last; --resume continues the run from its newest checkpoint"
    return problem(LOST, message, notes=notes, help=help)


class Gathering(Protocol):
    """Processes that know what each of them has."""

    @property
    def count(self) -> int:
        """Return how many there are."""
        ...

    def gather(self, value: dict[str, str]) -> list[dict[str, str]]:
        """Return the values of all processes, by rank."""
        ...


class Silent(Exception):
    """This process ends because another one did, which has said why; ``code``: its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Processes(ABC):
    """This process among those of a run. All of them call the methods in the same order, but for the last four.

    ``rank`` is its number, from 0; ``count`` is how many there are.
    """

    rank: int
    count: int

    @abstractmethod
    def share(self, make: Callable[[], T]) -> T:
        """Broadcast the first process's result to all; only that process calls ``make``."""

    @abstractmethod
    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""

    @abstractmethod
    def agree(self, number: int) -> int:
        """Return the maximum over all processes."""

    @abstractmethod
    def find_device(self, request: str) -> str:
        """Return the device of this process where the user asks for ``request``."""

    @abstractmethod
    def has_failed(self) -> bool:
        """Return whether some process has ended the run by an error."""

    @abstractmethod
    def report(self, error: BaseException) -> BaseException:
        """Return what this process raises in place of an error: of all that fail, the first alone says why."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the others: nothing is exchanged after that."""


@final
class Alone(Processes):
    """The only process of a run."""

    rank, count = 0, 1

    def share(self, make: Callable[[], T]) -> T:
        """Make it."""
        return make()

    def gather(self, value: T) -> list[T]:
        """Return the value."""
        return [value]

    def agree(self, number: int) -> int:
        """Return the number."""
        return number

    def find_device(self, request: str) -> str:
        """Return the device as asked for."""
        return request

    def has_failed(self) -> bool:
        """Return False."""
        return False

    def report(self, error: BaseException) -> BaseException:
        """Return the error."""
        return error

    def leave(self) -> None:
        """Do nothing."""


def count_started() -> int:
    """Return how many processes a launcher has started for the run, as it says in the environment."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdecimal() else 1


def count_workers() -> int:
    """Return how many workers of tf.distribute the environment names for the run, in TF_CONFIG; 1 where it does not."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
        return max(1, sum(len(cluster.get(job, ())) for job in ("chief", "worker")))
    except (ValueError, AttributeError, TypeError):
        return 1  # TensorFlow says what is wrong with it


def find_launch() -> str:
    """Return what identifies the launcher of this process, the same when it starts it again; empty without one.

    torchrun and ``--nproc`` start processes again themselves, so the launcher is the parent.
    """
    launch = os.environ.get("TORCHELASTIC_RUN_ID")
    return "" if launch is None else f"{launch}:{os.getppid()}"


def is_restarted() -> bool:
    """Return whether the launcher has started this process again, after one had failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


SAME = "start all processes by the same command, in the same environment, on the same files"


def compare(processes: Gathering, find: Callable[[], Mapping[str, str]], *, when: str = "", help: str = SAME) -> None:
    """Raise SpecError (GS258), on all processes, where some differ in what all must have in common, with a remedy.

    The message names those that differ from the most common value; of several such values, from that of the first rank.
    ``find`` returns that: what it is -> its value, or a digest of it, as a message shows it. A process that is alone
    need not know.
    """
    if processes.count == 1:
        return
    held = processes.gather(dict(find()))
    found: list[tuple[int, str]] = []
    for name in dict.fromkeys(name for each in held for name in each):
        values = [each.get(name, "none") for each in held]
        value, count = Counter(values).most_common(1)[0]  # of several, that of the first rank
        most = f"rank {values.index(value)} has {value}" if count == 1 else f"{count} ranks have {value}"
        found += [
            (rank, f"{when}rank {rank} has another {name}: {each}, and {most}")
            for rank, each in enumerate(values)
            if each != value
        ]
    found.sort(key=lambda each: each[0])  # of each rank in order
    if found:
        (_, message), *others = found
        raise problem("GS258", message, notes=tuple(each for _, each in others), help=help)
