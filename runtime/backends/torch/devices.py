"""Devices: which one a step runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import nn

from runtime.backends.torch.library.kernels import has_fused
from runtime.backends.torch.library.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer
from runtime.engine import setting
from runtime.probe import DeviceProbe, Probe
from runtime.problems import problem

BEST_FIRST = ("cuda", "mps", "cpu")


def choose_device(request: str) -> torch.device:
    """Return the device of a name, the best one for ``auto``; raise SpecError (GS207) where it is not available."""
    if request == "auto":
        return torch.device(next(kind for kind in BEST_FIRST if is_available(kind)))
    try:
        device = torch.device(request)
    except RuntimeError:
        raise problem(
            "GS207", f"{request!r} is not a device", help=f"choose one of auto, {', '.join(BEST_FIRST)}"
        ) from None
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if not is_available(device.type) or (device.type == "cuda" and (device.index or 0) >= count):
        here = ", ".join(kind for kind in BEST_FIRST if is_available(kind))
        help = f"this machine and this build of torch have {here}; `auto` takes the first of them"
        raise problem("GS207", f"device {request!r} is not available", help=help)
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


FUSED: Mapping[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "adagrad": Adagrad}
"""The rules that have a fused kernel on some device."""


def probe_torch() -> Probe:
    """Return the version of PyTorch and what each of its devices can do."""
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    names += ["mps"] if is_available("mps") else []
    devices: list[DeviceProbe] = []
    for device in map(torch.device, names):
        try:
            _multiply(device, torch.float32)
            free, memory = torch.cuda.mem_get_info(device) if device.type == "cuda" else (None, None)
            sample = [torch.zeros(2, device=device)]
            found = DeviceProbe(
                name=str(device),
                title=_find_title(device),
                memory=memory,
                free=free,
                bfloat16=_computes(device, torch.bfloat16),
                fused=tuple(name for name, rule in FUSED.items() if has_fused(sample, rule.kernel)),
            )
        except RuntimeError as error:
            found = DeviceProbe(name=str(device), title="", trouble=str(error).splitlines()[0])
        devices.append(found)
    return Probe(version=torch.__version__, default=str(choose_device("auto")), devices=tuple(devices))


def _multiply(device: torch.device, dtype: torch.dtype) -> None:
    """Raise RuntimeError where a device does not compute a product in a type."""
    ones = torch.ones(8, 8, device=device, dtype=dtype)
    found = (ones @ ones).sum().item()
    if found != 512:
        raise RuntimeError(f"a product of ones gave {found} instead of 512")


def _computes(device: torch.device, dtype: torch.dtype) -> bool:
    try:
        _multiply(device, dtype)
    except RuntimeError:
        return False
    return True


def _find_title(device: torch.device) -> str:
    match device.type:
        case "cuda":
            return torch.cuda.get_device_name(device)
        case "mps":
            return "Apple GPU"
        case _:
            threads = torch.get_num_threads()
            return f"{threads} thread{'s' if threads != 1 else ''}"


Setting: TypeAlias = setting.Setting[torch.device, torch.dtype, nn.Module]
"""Where and how a plan is built."""
