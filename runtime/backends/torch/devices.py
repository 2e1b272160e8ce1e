"""Devices: which one a step runs on."""

from __future__ import annotations

import torch

from runtime.problems import problem

BEST_FIRST = ("cuda", "mps", "cpu")


def choose_device(wish: str) -> torch.device:
    """Return the wished device, for ``auto`` the best there is; raise SpecError (GS207) where it is not available."""
    if wish == "auto":
        return torch.device(next(kind for kind in BEST_FIRST if is_available(kind)))
    try:
        device = torch.device(wish)
    except RuntimeError:
        raise problem("GS207", f"{wish!r} is no device", help=f"choose one of auto, {', '.join(BEST_FIRST)}") from None
    if not is_available(device.type) or not _exists(device):
        here = ", ".join(kind for kind in BEST_FIRST if is_available(kind))
        help = f"this machine and this build of torch have {here}; `auto` takes the first of them"
        raise problem("GS207", f"device {wish!r} is not available", help=help)
    return device


def is_available(kind: str) -> bool:
    """Return whether this machine, with this build of torch, has a kind of device."""
    match kind:
        case "cuda":
            return torch.cuda.is_available()
        case "mps":
            return torch.backends.mps.is_available()
        case "cpu" | "meta":
            return kind == "cpu"
        case _:
            return False


def _exists(device: torch.device) -> bool:
    """Return whether there is a device of this number."""
    return device.type != "cuda" or (device.index or 0) < torch.cuda.device_count()
