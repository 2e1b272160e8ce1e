"""Schedules of learning rates in the language: what advances the rate of an optimizer, as a curve over its updates."""

from __future__ import annotations

import gc
from itertools import accumulate, pairwise
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from compiler.ir.value import Json
from runtime.port.tape import Schedule


def find_schedule(optimizer: Optimizer) -> Schedule | None:
    """Return what advances the learning rate of an optimizer; None where nothing does."""
    objects = (each for each in gc.get_objects() if issubclass(type(each), LRScheduler | ReduceLROnPlateau))
    found = [each for each in objects if getattr(each, "optimizer", None) is optimizer]
    inner = {id(part) for each in found for part in getattr(each, "_schedulers", ())}
    outer = [each for each in found if id(each) not in inner]
    if not outer:
        return None
    curve = _describe(outer[0]) if len(outer) == 1 else None
    return Schedule(kind=" and ".join(type(each).__name__ for each in outer), curve=curve)


def _describe(schedule: Any) -> dict[str, Json] | None:
    """Return a schedule in the language; None where it is none of its curves."""
    if isinstance(schedule, lr_scheduler.SequentialLR):
        parts = [_describe(each) for each in schedule._schedulers]
        ends = schedule._milestones
        spans = [end - start for start, end in pairwise([0, *ends])]
        if None in parts:
            return None
        timed: list[Json] = [
            {**part, "for": span} for part, span in zip(parts, spans, strict=False) if part is not None
        ]
        return {"schedule": "join", "parts": [*timed, parts[-1]]}
    rate = float(schedule.base_lrs[0]) if hasattr(schedule, "base_lrs") else 0.0
    match schedule:
        case lr_scheduler.ExponentialLR(gamma=gamma):
            return {"schedule": "exponential", "from": rate, "rate": gamma}
        case lr_scheduler.StepLR(step_size=size, gamma=gamma):
            return {"schedule": "step", "from": rate, "factor": gamma, "every": size}
        case lr_scheduler.CosineAnnealingLR(T_max=steps, eta_min=end):
            return {"schedule": "cosine", "from": rate, "to": end, "over": steps}
        case lr_scheduler.PolynomialLR(total_iters=steps, power=power):
            return {"schedule": "polynomial", "from": rate, "over": steps, "power": power}
        case lr_scheduler.LinearLR(start_factor=first, end_factor=last, total_iters=steps):
            return {"schedule": "linear", "from": rate * first, "to": rate * last, "over": steps}
        case lr_scheduler.ConstantLR(factor=factor, total_iters=steps):
            return {"schedule": "piecewise", "at": {"0": rate * factor, str(steps): rate}}
        case lr_scheduler.MultiStepLR(gamma=gamma, milestones=counts):
            places = sorted(counts)
            rates = accumulate((gamma ** counts[each] for each in places), lambda one, other: one * other, initial=rate)
            return {"schedule": "piecewise", "at": dict(zip(map(str, [0, *places]), rates, strict=True))}
        case _:
            return None
