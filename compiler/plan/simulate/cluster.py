"""The machines that a step is simulated on, and how long their collectives take.

The formulas are those of R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication Operations
in MPICH, IJHPCA 19(1), 2005: a message of n bytes takes ``latency + n / bandwidth`` from one process to another. That a
ring sends the fewest bytes there can be is shown by P. Patarasuk and X. Yuan, Bandwidth Optimal All-reduce Algorithms
for Clusters of Workstations, JPDC 69(2), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Collectives: TypeAlias = Literal["auto", "ring", "tree"]
"""How values are combined; ``auto``: sums by what takes less time, as NCCL chooses, and rows around a ring."""
Scaling: TypeAlias = Literal["strong", "weak"]


class Cluster(Struct, frozen=True, kw_only=True):
    """Processes and the network between them; times in seconds, sizes in bytes.

    The speed of a process is given by ``flops``, or by what was measured: ``step``, a step of one process with the
    whole batch. ``overhead`` is the part of a step that does not get smaller with its rows, measured with one row.
    """

    ranks: tuple[int, ...]
    """The numbers of processes, ascending."""
    bandwidth: float
    """Bytes that each process sends in a second."""
    latency: float
    """From one process to the next, of a message without content."""
    flops: float | None = None
    """Floating-point operations of one process in a second."""
    step: float | None = None
    overhead: float = 0.0
    memory: float | None = None
    """Of one process."""
    cores: int | None = None
    """Of a machine that all processes share; None where each has its own."""
    scaling: Scaling = "strong"
    """``strong``: the batch is divided among the processes; ``weak``: each process has as many rows as the batch."""
    collectives: Collectives = "auto"
    sizes: Mapping[str, int] = {}
    """Free dimensions of the inputs, such as ``batch`` in place of that of the spec."""
    parameters: Mapping[str, int] = {}
    """Model of a class -> how many parameters it has."""
    costs: Mapping[str, float] = {}
    """Model of a class -> the floating-point operations of its forward, for each row."""


class ClusterProblem(Exception):
    """What a cluster lacks, or has too much of, for a step: in words, and the remedy."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class Duration(Struct, frozen=True):
    """Seconds of a message: those that every message takes, and those that its bytes take."""

    latency: float = 0.0
    transfer: float = 0.0

    @property
    def total(self) -> float:
        """Return both together."""
        return self.latency + self.transfer

    def __add__(self, other: Duration) -> Duration:
        """Return one after the other."""
        return Duration(self.latency + other.latency, self.transfer + other.transfer)

    def scale(self, factor: float) -> Duration:
        """Return a part of it, or it several times."""
        return Duration(factor * self.latency, factor * self.transfer)


def time_collective(
    collective: Literal["sum", "gather", "broadcast"], size: float, processes: int, cluster: Cluster
) -> Duration:
    """Return how long processes take to combine what each has, ``size`` bytes.

    The rows that are gathered are ``processes`` times as many bytes. A set that is scattered takes as long as its
    parts, gathered.
    """
    others, hops = processes - 1, (processes - 1).bit_length()  # of a tree, log2 rounded up
    bytes_, latency = size / cluster.bandwidth, cluster.latency
    match collective:
        case "sum":
            ring = Duration(2 * others * latency, 2 * others / processes * bytes_)
            tree = Duration(2 * hops * latency, 2 * hops * bytes_)
        case "broadcast":  # a ring passes on pieces of what a tree has scattered
            ring = Duration((hops + others) * latency, 2 * others / processes * bytes_)
            tree = Duration(hops * latency, hops * bytes_)
        case "gather":
            ring = Duration(others * latency, others * bytes_)
            tree = Duration(hops * latency, others * bytes_)
    match cluster.collectives:
        case "ring":
            return ring
        case "tree":
            return tree
        case "auto":
            return ring if collective == "gather" else min(ring, tree, key=lambda each: each.total)
