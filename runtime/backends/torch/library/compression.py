"""Compressed gradients: a process sends less than a set has, and what it leaves out it adds to the next one.

What is left out is state (error feedback, Seide et al. 2014): nothing of a gradient is lost, it is sent later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from runtime.backends.torch.library.processes import Message, Replicas, require_others


class Compressor(ABC):
    """What this process has left out so far of a gradient set over some parameters."""

    def __init__(self, replicas: Replicas, parameters: Sequence[torch.Tensor]) -> None:
        self.replicas, self.parameters = replicas, parameters
        self.rests = [torch.zeros_like(each, requires_grad=False) for each in parameters]

    @torch.no_grad()
    def start(self, gradients: Sequence[torch.Tensor | None]) -> Message:
        """Begin to add up a set over all processes, as far as these send it; absent gradients stay absent."""
        present = {place: each for place, each in enumerate(gradients) if each is not None}
        if self.replicas.count == 1:
            require_others(self.replicas)
            return Message((), lambda: [tuple(gradients)])
        for place, each in present.items():
            self.rests[place] = self.rests[place] + each
        message = self._send([*present])

        def finish() -> list[Any]:
            """Return the sums in place of the gradients."""
            found: list[torch.Tensor | None] = [None] * len(gradients)
            for place, each in zip(present, message.wait_all(), strict=True):
                found[place] = each
            return [tuple(found)]

        return Message((), finish)

    @abstractmethod
    def _send(self, places: Sequence[int]) -> Message:
        """Begin to send what is left out at some places, and leave out what is not sent of it."""

    def state(self) -> list[torch.Tensor]:
        """Return what all processes have left out, by parameter: theirs by rank, along a new first axis."""
        found: list[torch.Tensor] = []
        for each in self.rests:
            theirs = [torch.empty_like(each) for _ in range(self.replicas.count)]
            if self.replicas.count > 1:
                dist.all_gather(theirs, each.contiguous())
            found.append(torch.stack(theirs if self.replicas.count > 1 else [each]))
        return found

    def load(self, rests: Sequence[torch.Tensor] | None) -> None:
        """Take over such a state; other processes than those which left it out share it evenly. None: nothing is."""
        for place, own in enumerate(self.rests):
            if rests is None:
                self.rests[place] = torch.zeros_like(own)
                continue
            all_of = rests[place].to(own)
            is_same = len(all_of) == self.replicas.count
            self.rests[place] = all_of[self.replicas.rank] if is_same else all_of.sum(0) / self.replicas.count


class Bits(Compressor):
    """A few bits for each number: every process receives those of all, as MXNet's servers do."""

    width: int
    """The bits of a number, which divide 8."""

    def __init__(self, replicas: Replicas, parameters: Sequence[torch.Tensor], *, threshold: float) -> None:
        super().__init__(replicas, parameters)
        self.threshold = threshold

    @abstractmethod
    def _encode(self, rest: torch.Tensor) -> torch.Tensor:
        """Return the code of each number, and leave out what that does not stand for."""

    @abstractmethod
    def _decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Return what codes stand for."""

    def _send(self, places: Sequence[int]) -> Message:
        sizes = [self.rests[place].numel() for place in places]
        # what is not finite has no code: it makes the whole set NaN, on all
        broken = torch.stack([each.isfinite().all() for each in (self.rests[place] for place in places)]).logical_not()
        codes = torch.cat([self._encode(self.rests[place].view(-1)) for place in places])
        per_byte = 8 // self.width
        codes = torch.nn.functional.pad(codes, (0, -len(codes) % per_byte)).view(-1, per_byte)
        shifts = torch.arange(per_byte, dtype=torch.uint8, device=codes.device) * self.width
        sent = torch.cat([(codes << shifts).sum(1, dtype=torch.uint8), broken.any().to(torch.uint8).reshape(1)])
        theirs = [torch.empty_like(sent) for _ in range(self.replicas.count)]
        work = dist.all_gather(theirs, sent, async_op=True)

        def finish() -> list[Any]:
            """Return the sums of what was sent."""
            total = sum(
                self._decode(((each[:-1, None] >> shifts) & ((1 << self.width) - 1)).view(-1)[: sum(sizes)])
                for each in theirs
            )
            assert isinstance(total, torch.Tensor)
            total = torch.where(torch.stack(theirs)[:, -1].bool().any(), torch.nan, total)
            parts = zip(total.split(sizes), places, strict=True)
            return [each.to(self.rests[place].dtype).view(self.rests[place].shape) for each, place in parts]

        return Message([work], finish)


class Threshold(Bits):
    """Two bits for each number: the threshold, if so much is left out, its negative, or nothing (MXNet's 2-bit)."""

    width = 2

    def _encode(self, rest: torch.Tensor) -> torch.Tensor:
        """Return 1 for the threshold, 2 for its negative."""
        up, down = rest >= self.threshold, rest <= -self.threshold
        rest.sub_(up.to(rest.dtype) - down.to(rest.dtype), alpha=self.threshold)
        return up.to(torch.uint8) + 2 * down.to(torch.uint8)

    def _decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the threshold, its negative, or zero."""
        return ((codes == 1).to(torch.float64) - (codes == 2).to(torch.float64)) * self.threshold


class Sign(Bits):
    """One bit for each number: 1, if more than the threshold is left out, or -1 (MXNet's 1-bit)."""

    width = 1

    def _encode(self, rest: torch.Tensor) -> torch.Tensor:
        """Return 1 for what is above the threshold."""
        up = rest > self.threshold
        rest.sub_(2 * up.to(rest.dtype) - 1)
        return up.to(torch.uint8)

    def _decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Return 1 or -1."""
        return 2 * codes.to(torch.float64) - 1


class PowerSGD(Compressor):
    """Two thin factors for each matrix, found by a step of the power method (Vogels et al. 2019, Algorithms 1 and 2).

    It begins with the factor of the step before (warm start). What is no matrix, or no larger than its factors, is sent
    as it is; of other tensors the first axis are the rows.
    """

    def __init__(self, replicas: Replicas, parameters: Sequence[torch.Tensor], *, rank: int) -> None:
        super().__init__(replicas, parameters)
        self.rank = rank
        self.factors: dict[int, torch.Tensor] = {}
        self.draw()

    def draw(self) -> None:
        """Draw the first factors, the same on all."""
        for place, each in enumerate(self.rests):
            rows, columns = (len(each), each[0].numel()) if each.dim() > 1 and each.numel() else (0, 0)
            thin = min(rows, columns, self.rank)
            if (rows + columns) * thin < rows * columns:
                drawn = torch.randn(columns, thin, generator=torch.Generator().manual_seed(place), dtype=torch.float64)
                self.factors[place] = drawn.to(each)

    def _send(self, places: Sequence[int]) -> Message:
        whole = {place: self.rests[place] for place in places}
        matrices = {place: each.view(len(each), -1) for place, each in whole.items() if place in self.factors}
        sent = {place: matrices[place] @ self.factors[place] if place in matrices else whole[place] for place in places}
        first = self.replicas.send([*sent.values()])

        def finish() -> list[Any]:
            """Return the sums as far as they are sent, and keep the rest."""
            sums = dict(zip(places, first.wait_all(), strict=True))
            left = {place: torch.linalg.qr(sums[place])[0] for place in matrices}
            own = {place: each.T @ left[place] for place, each in matrices.items()}
            if own:
                self.factors |= zip(own, self.replicas.send([*own.values()]).wait_all(), strict=True)
            for place in places:
                if place not in matrices:
                    self.rests[place] = torch.zeros_like(whole[place])
                    continue
                sums[place] = (left[place] @ self.factors[place].T).view(whole[place].shape)
                self.rests[place] = whole[place] - (left[place] @ own[place].T).view(whole[place].shape)
            return [sums[place] for place in places]

        return Message((), finish)
