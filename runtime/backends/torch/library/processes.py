"""Replicas: processes that take one step together, each with all weights and its own rows of the batch.

All of them run one program, so that they meet in every collective in the same order.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable


class Message:
    """Values on their way between the processes, while the step continues."""

    def __init__(self, works: Sequence[Any], finish: Callable[[], list[Any]]) -> None:
        self.works = works
        self.finish = finish
        self.parts: list[Any] | None = None

    def wait(self, place: int) -> Any:
        """Return what all processes have of the value that was sent at a place; raise DistError where one is lost."""
        return self.wait_all()[place]

    def wait_all(self) -> list[Any]:
        """Return what all processes have of every value that was sent."""
        if self.parts is None:
            try:
                for work in self.works:
                    work.wait()
            except RuntimeError as error:
                raise dist.DistError(str(error)) from error
            self.parts = self.finish()
        return self.parts


def is_set(part: Any) -> bool:
    """Return whether a part of a message is a gradient set."""
    return isinstance(part, (tuple, list))


def _join(sizes: Sequence[int | None], flat: Sequence[Any]) -> list[Any]:
    """Return flat values as parts: each a value (size None), or as many as a set has, as a tuple."""
    values = iter(flat)
    return [next(values) if size is None else tuple(next(values) for _ in range(size)) for size in sizes]


class Joined(torch.autograd.Function):
    """What all processes have of a value, with the graph of what this one has: its rows, or its term of a sum.

    Every process differentiates its share of one loss: the loss times its fraction of all rows. Divided by that, what
    arrives is the gradient of the loss. It has no gradient itself, as that of each process is another.
    """

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, whole: torch.Tensor, replicas: Replicas, axis: int | None) -> torch.Tensor:
        """Return the whole; ``axis``: that of the rows, None for a sum."""
        ctx.replicas, ctx.axis = replicas, axis
        return whole.view_as(whole)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return the gradient of what this process has."""
        (gradient,), replicas = gradients, ctx.replicas
        own = gradient if ctx.axis is None else replicas.own_rows(gradient, ctx.axis)
        return own / replicas.share(own), None, None, None


class Memory:
    """Memory for messages on the CPU, kept from step to step: new pages from the system cost as much as a copy.

    A piece is used again once no tensor refers to it, so a value of a message stays as it is. Allocators of other
    devices keep memory themselves.
    """

    least = 1 << 17  # bytes; malloc asks the system for this much and more

    def __init__(self) -> None:
        self.kept: dict[int, list[tuple[bytearray, weakref.ref[memoryview]]]] = {}  # by size, each with its user

    def join(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the numbers of vectors of one type in one."""
        first, size = tensors[0], sum(each.numel() * each.element_size() for each in tensors)
        if first.device.type != "cpu" or size < self.least:
            return torch.cat([*tensors])
        pieces = self.kept.setdefault(size, [])
        place = next((place for place, (_, user) in enumerate(pieces) if user() is None), len(pieces))
        piece = pieces[place][0] if place < len(pieces) else bytearray(size)
        view = memoryview(piece)  # lives as long as the tensor and all views of it
        pieces[place : place + 1] = [(piece, weakref.ref(view))]
        return torch.cat([*tensors], out=torch.frombuffer(view, dtype=first.dtype))


class Buckets:
    """The gradients of a set, in buckets that leave while it is taken: those of the last parameters are there first.

    The last bucket stays, for the message that sends all else.
    """

    def __init__(self, replicas: Replicas, parameters: Sequence[torch.Tensor]) -> None:
        self.replicas = replicas
        self.parameters = parameters
        self.found: dict[int, torch.Tensor] = {}  # by place in the set
        self.sent: dict[int, tuple[Message, int]] = {}
        self.handles: list[Any] = []
        places = [place for place in reversed(range(len(parameters))) if parameters[place].requires_grad]
        full = replicas.divide([parameters[place] for place in places])[:-1]
        # all processes send these in the same order
        self.waiting = [[places[each] for each in bucket] for bucket in full] if replicas.count > 1 else []

    def __enter__(self) -> None:
        """Watch for the gradients."""
        for place in (place for bucket in self.waiting for place in bucket):
            self.handles.append(self.parameters[place].register_hook(partial(self._take, place)))

    def __exit__(self, *_: object) -> None:
        """Watch no longer."""
        for handle in self.handles:
            handle.remove()

    def is_of(self, gradients: Sequence[torch.Tensor | None]) -> bool:
        """Return whether a set is the one that was taken."""
        return bool(self.sent) and all(
            place < len(gradients) and gradients[place] is self.found[place] for place in self.sent
        )

    def _take(self, place: int, gradient: torch.Tensor) -> None:
        """Send the buckets that a gradient makes full, if those before them have left."""
        self.found[place] = gradient
        while self.waiting and all(each in self.found for each in self.waiting[0]):
            bucket = self.waiting.pop(0)
            message = self.replicas.send([self.replicas.shorten(self.found[each]) for each in bucket])
            self.sent |= {each: (message, at) for at, each in enumerate(bucket)}


class Replicas:
    """This process among those of torch.distributed's default group; alone where there is none."""

    def __init__(
        self,
        device: torch.device | str,
        *,
        bucket_mb: float | None = None,
        half: str | None = None,
        alone: bool = False,
    ) -> None:
        self.device = torch.device(device)
        is_group = dist.is_available() and dist.is_initialized() and not alone
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
        self.begun: tuple[Message, int] | None = None  # how many rows each has, on its way, and how many it needs
        self.known: list[int] = [0] * self.count
        self.expected: int | None = None  # how many rows all have in the next step, where the caller knows it
        self.most = math.inf if bucket_mb is None else 1e6 * bucket_mb  # bytes, from which on a bucket is full
        self.half: torch.dtype | None = None if half is None else getattr(torch, half)
        self.early: list[Buckets] = []
        self.memory = Memory()
        self.is_lonely = self.count == 1 and not alone

    def __deepcopy__(self, memo: object) -> Replicas:
        """Return this one, for copies of layers that know it."""
        return self

    def leave(self) -> None:
        """Take steps alone from now on."""
        self.rank, self.count = 0, 1

    def begin(self, rows: int, parts: int = 1) -> None:
        """Begin a step with so many rows here: tell all of them. Whoever has fewer than ``parts`` waits for the rest.

        What needs to know the rows of all waits then, and raises ValueError where one has too few: on all. If all rows
        are ``expected``, nothing is sent: the first processes have one row more, if the number does not divide.
        """
        if self.begun is not None:
            self.count_rows()
        self.early.clear()  # of a step that failed
        expected, self.expected = self.expected, None
        if expected is not None and self.count > 1:
            size, larger = divmod(expected, self.count)
            self.known = [size + (rank < larger) for rank in range(self.count)]
            if self.known[self.rank] != rows:
                share = f"which are {self.known[self.rank]} of {expected}"
                raise ValueError(f"rank {self.rank} has {rows} rows of the batch, and not its share, {share}")
            self.require_rows(parts)
            return
        found = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.count)]
        own = torch.tensor([rows], device=self.device)
        works = [dist.all_gather(found, own, async_op=True)] if self.count > 1 else []
        self.begun = Message(works, lambda: torch.cat(found if self.count > 1 else [own]).tolist()), parts
        if rows < parts:
            self.count_rows()

    def count_rows(self) -> list[int]:
        """Return how many rows of the batch each has in this step, by rank; raise ValueError where one has too few."""
        if self.begun is not None:
            (message, parts), self.begun = self.begun, None
            self.known = [message.wait(rank) for rank in range(self.count)]
            self.require_rows(parts)
        return self.known

    def require_rows(self, parts: int) -> None:
        """Raise ValueError where a process has fewer rows than ``parts``."""
        fewest = min(self.known)
        if fewest < parts:
            rank = self.known.index(fewest)
            raise ValueError(f"rank {rank} has {fewest} rows of the batch, and needs {parts} or more")

    @property
    def batch_size(self) -> int:
        """Return the rows of all."""
        return sum(self.count_rows())

    def key(self, op: str) -> str:
        """Return the key of an op's draws on the rows of this process; the first has that of one process."""
        return f"{op}@{self.rank}" if self.rank else op

    def share(self, x: torch.Tensor) -> float:
        """Return the share of all rows that this process has; ``x``: the input that counts them."""
        return self.count_rows()[self.rank] / self.batch_size

    def shares(self, x: torch.Tensor, count: int, axis: int = 0) -> tuple[float, ...]:
        """Return the share of all rows that each of the micro-batches of this process has, the larger ones first."""
        rows = x.shape[axis]
        return tuple(((rows + count - 1 - part) // count) / self.batch_size for part in range(count))

    def own_rows(self, whole: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """Return the rows of this process of a value that has the rows of all, in the order of ranks."""
        sizes = [whole.shape[axis] * each // self.batch_size for each in self.count_rows()]
        return whole.narrow(axis, sum(sizes[: self.rank]), sizes[self.rank])

    def join_rows(self, whole: torch.Tensor, own: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """Return the rows of all, where ``own`` are those of this process; the gradient of a share of one loss."""
        return own if self.count == 1 else Joined.apply(own, whole, self, axis)

    def join_sum(self, whole: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the sum of all, where ``own`` is the term of this process; the gradient of a share of one loss."""
        return own if self.count == 1 else Joined.apply(own, whole, self, None)

    def sending(self, parameters: Sequence[torch.Tensor]) -> Buckets:
        """Return a context in which the first gradients of a set leave while the others are taken.

        The message that sends the set sends what is left of it.
        """
        buckets = Buckets(self, parameters)
        self.early.append(buckets)
        return buckets

    @torch.no_grad()
    def start_sum(self, *parts: Any, exact: bool = False) -> Message:
        """Begin to add up numbers and gradient sets over all processes: one message for each type of number.

        Of a truth value, such as a verdict, all have whether it is true everywhere. Sets travel in buckets, where these
        have a size, and in a shorter type, where there is one and they need not be ``exact``.
        """
        flat = [(each, is_set(part)) for part in parts for each in (part if is_set(part) else (part,))]
        sizes, in_sets = [len(part) if is_set(part) else None for part in parts], [each for _, each in flat]
        own = [each if each is None else torch.as_tensor(each, device=self.device).detach() for each, _ in flat]
        is_short = self.half is not None and not exact
        if self.count == 1:
            if is_short and any(map(is_set, parts)):
                require_others(self)
            return Message((), lambda: _join(sizes, own))
        floating = (each.dtype for each in own if each is not None and each.is_floating_point())
        kind = next(floating, torch.int32)  # in which truth values are counted, as what is not true
        truths = [each is not None and each.dtype == torch.bool for each in own]
        places = {place: each for place, each in enumerate(own) if each is not None}
        places |= {place: each.logical_not().to(kind) for place, each in places.items() if truths[place]}
        if is_short:
            places |= {place: self.shorten(each) for place, each in places.items() if in_sets[place]}
        sent = self._find_sent(parts)
        rest = [place for place in places if place not in sent]
        for chunk in self.divide([places[place] for place in rest]):
            chosen = [rest[each] for each in chunk]
            message = self.send([places[place] for place in chosen])
            sent |= {place: (message, at) for at, place in enumerate(chosen)}
        dtypes = [None if each is None else each.dtype for each in own]

        def finish() -> list[Any]:
            """Return the sums in place of the parts; what was sent is in the message, and need not be kept."""
            found: list[torch.Tensor | None] = []
            for place, is_truth in enumerate(truths):
                total = sent[place][0].wait(sent[place][1]) if place in sent else None
                if total is not None and not in_sets[place]:  # a loss that is kept does not keep the whole message
                    total = total == 0 if is_truth else total.clone()
                found.append(total)
            if is_short:  # as they were
                pairs = zip(found, dtypes, strict=True)
                found = [each if each is None or dtype is None else each.to(dtype) for each, dtype in pairs]
            return _join(sizes, found)

        return Message((), finish)

    def shorten(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient as it travels."""
        return gradient if self.half is None else gradient.to(self.half)

    def divide(self, tensors: Sequence[torch.Tensor]) -> list[list[int]]:
        """Return the places of tensors in the buckets in which they travel, in order; all in one without a size."""
        buckets: list[list[int]] = [[]]
        size = 0
        for place, each in enumerate(tensors):
            if size >= self.most:
                buckets.append([])
                size = 0
            buckets[-1].append(place)
            size += each.numel() * each.element_size()
        return buckets if tensors else []

    @torch.no_grad()
    def send(self, tensors: Sequence[torch.Tensor]) -> Message:
        """Begin to add up tensors in one message for each type of number."""
        kinds = [(each.dtype, each.shape) for each in tensors]
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in tensors:
            groups.setdefault(each.dtype, []).append(each.reshape(-1))
        buckets = {dtype: self.memory.join(group) for dtype, group in groups.items()}
        works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets.values()]

        def finish() -> list[Any]:
            """Return the sums in place of the tensors."""
            totals = {
                dtype: iter(bucket.split([shape.numel() for each, shape in kinds if each == dtype]))
                for dtype, bucket in buckets.items()
            }
            return [next(totals[dtype]).view(shape) for dtype, shape in kinds]

        return Message(works, finish)

    def _find_sent(self, parts: Sequence[Any]) -> dict[int, tuple[Message, int]]:
        """Return which of the values of parts have left already, by place: the message of each, and its place there."""
        found: dict[int, tuple[Message, int]] = {}
        begin = 0
        for part in parts:
            buckets = next((each for each in self.early if each.is_of(part)), None) if is_set(part) else None
            if buckets is not None:
                self.early.remove(buckets)
                found |= {begin + place: known for place, known in buckets.sent.items()}
            begin += len(part) if is_set(part) else 1
        return found

    @torch.no_grad()
    def start_gather(self, *parts: tuple[torch.Tensor, int]) -> Message:
        """Begin to gather rows in the order of ranks, each with the axis along which they lie; as :meth:`start_sum`."""
        own = [each.detach() for each, _ in parts]
        if self.count == 1:
            return Message((), lambda: own)
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        sizes: list[list[int]] = []
        for each, (_, axis) in zip(own, parts, strict=True):
            sizes.append([each.shape[axis] * rows // self.known[self.rank] for rows in self.count_rows()])
            rows = (each.to(torch.uint8) if each.dtype == torch.bool else each).movedim(axis, 0)
            padded = rows.new_zeros((max(sizes[-1]), *rows.shape[1:]))  # all send as much
            padded[: len(rows)] = rows
            groups.setdefault(rows.dtype, []).append(padded)
        works: list[Any] = []
        found: dict[torch.dtype, list[torch.Tensor]] = {}
        for dtype, group in groups.items():
            sent = torch.cat([each.reshape(-1) for each in group])
            found[dtype] = [torch.empty_like(sent) for _ in range(self.count)]
            works.append(dist.all_gather(found[dtype], sent, async_op=True))

        def finish() -> list[Any]:
            """Return the rows of all in place of those of this process."""
            pieces = {
                dtype: iter(zip(*(each.split([one.numel() for one in groups[dtype]]) for each in all_of), strict=True))
                for dtype, all_of in found.items()
            }
            shapes = {dtype: iter([each.shape for each in group]) for dtype, group in groups.items()}
            whole: list[torch.Tensor] = []
            for each, (_, axis), counts in zip(own, parts, sizes, strict=True):
                dtype = torch.uint8 if each.dtype == torch.bool else each.dtype
                shape = next(shapes[dtype])
                kept = [piece.view(shape)[:size] for piece, size in zip(next(pieces[dtype]), counts, strict=True)]
                whole.append(torch.cat(kept).to(each.dtype).movedim(0, axis))
            return whole

        return Message(works, finish)

    @torch.no_grad()
    def share_buffers(self, buffers: Sequence[torch.Tensor], how: str) -> None:
        """Give all processes the buffers of the first ("rank0"), or their mean; whole numbers are the first's."""
        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in buffers if self.count > 1 else ():
            groups.setdefault(each.dtype, []).append(each)
        for dtype, group in groups.items():  # one message for each type of number
            bucket = torch.cat([each.reshape(-1) for each in group])
            if how == "mean" and dtype.is_floating_point:
                dist.all_reduce(bucket)
                bucket.div_(self.count)
            else:
                dist.broadcast(bucket, src=0)
            for each, part in zip(group, bucket.split([each.numel() for each in group]), strict=True):
                each.copy_(part.view(each.shape))


def require_others(replicas: Replicas) -> None:
    """Raise ValueError where gradients are to be compressed and there are no others to send them to."""
    if replicas.is_lonely:
        raise ValueError("one process sends no gradients that `compress` could shorten")
