"""Replicas: processes that take one step together, each with all weights and its own rows of the batch.

All of them run one program, so that they meet in every collective in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


class Replicas:
    """This process among those of torch.distributed's default group; alone where there is none.

    ``rows``: how many rows of the batch each has in this step, by rank.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        is_group = dist.is_available() and dist.is_initialized()
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
        self.rows = [0] * self.count

    def leave(self) -> None:
        """Take steps alone from now on."""
        self.rank, self.count = 0, 1

    def begin(self, rows: int, parts: int = 1) -> int:
        """Begin a step with so many rows here, and return those of all; raise ValueError where one has too few.

        All raise it, as all know the rows of each.
        """
        if self.count > 1:
            found = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.count)]
            dist.all_gather(found, torch.tensor([rows], device=self.device))
            self.rows = torch.cat(found).tolist()
        else:
            self.rows = [rows]
        if min(self.rows) < parts:
            rank = self.rows.index(min(self.rows))
            raise ValueError(f"rank {rank} has {self.rows[rank]} rows of the batch, and needs {parts} or more")
        return sum(self.rows)

    def key(self, op: str) -> str:
        """Return the key of an op's draws on the rows of this process; the first has that of one process."""
        return f"{op}@{self.rank}" if self.rank else op

    def share(self, x: torch.Tensor) -> float:
        """Return the share of all rows that this process has; ``x``: the input that counts them."""
        return self.rows[self.rank] / sum(self.rows)

    def shares(self, x: torch.Tensor, count: int, axis: int = 0) -> tuple[float, ...]:
        """Return the share of all rows that each of the micro-batches of this process has, the larger ones first."""
        rows = x.shape[axis]
        return tuple(((rows + count - 1 - part) // count) / sum(self.rows) for part in range(count))

    def own_rows(self, whole: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """Return the rows of this process of a value that has the rows of all, in the order of ranks."""
        sizes = [whole.shape[axis] * each // sum(self.rows) for each in self.rows]
        return whole.narrow(axis, sum(sizes[: self.rank]), sizes[self.rank])

    @torch.no_grad()
    def all_rows(self, own: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """Return the rows of all processes in the order of ranks."""
        own = own.detach()
        if self.count == 1:
            return own
        sizes = [own.shape[axis] * each // self.rows[self.rank] for each in self.rows]
        rows = (own.to(torch.uint8) if own.dtype == torch.bool else own).movedim(axis, 0)
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))  # all send as much
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded)
        whole = torch.cat([each[:size] for each, size in zip(found, sizes, strict=True)])
        return whole.to(own.dtype).movedim(0, axis)

    @torch.no_grad()
    def all_sum(self, own: Any) -> torch.Tensor:
        """Return the sum over all processes."""
        total = torch.as_tensor(own, device=self.device).detach().clone()
        if self.count > 1:
            dist.all_reduce(total)
        return total

    @torch.no_grad()
    def reduce(self, gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        """Return a gradient set summed over all processes: one message for each type of number."""
        found = list(gradients)
        if self.count == 1:
            return tuple(found)
        places: dict[torch.dtype, list[int]] = {}
        for place, each in enumerate(gradients):
            if each is not None:
                places.setdefault(each.dtype, []).append(place)
        for group in places.values():
            each_of = [gradients[place] for place in group]
            tensors = [each for each in each_of if each is not None]
            bucket = torch.cat([each.detach().reshape(-1) for each in tensors])
            dist.all_reduce(bucket)
            parts = bucket.split([each.numel() for each in tensors])
            for place, each, part in zip(group, tensors, parts, strict=True):
                found[place] = part.view(each.shape)
        return tuple(found)

    @torch.no_grad()
    def agree(self, finite: torch.Tensor) -> torch.Tensor:
        """Return whether a verdict is true on all processes."""
        if self.count == 1:
            return finite
        flag = finite.to(torch.uint8)
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return flag.to(torch.bool)

    @torch.no_grad()
    def share_buffers(self, buffers: Sequence[torch.Tensor], how: str) -> None:
        """Give all processes the buffers of the first ("rank0"), or their mean; whole numbers are the first's."""
        for each in buffers if self.count > 1 else ():
            if how == "mean" and each.is_floating_point():
                dist.all_reduce(each)
                each.div_(self.count)
            else:
                dist.broadcast(each, src=0)
