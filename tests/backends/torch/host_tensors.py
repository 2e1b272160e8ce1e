"""Which graphs of examples could not be recorded on a device, as something in them is on the host.

``python -m tests.backends.torch.host_tensors [NAME ...]``, in a process of its own: a kind of device that PyTorch does
not know is registered once for all. Its tensors have no numbers, and graphs are traced, but not run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils import backend_registration

from runtime.backends.torch import capture
from runtime.backends.torch.execution import load_program
from tests.backends.torch import other_device
from tests.backends.torch.recorder import HostRecorder
from tests.conformance.captured import scenarios
from tests.conformance.scenario import Scenario

UNTRACED = {
    "lookahead": "makes a tensor of a number of Python, for which the device has no kernels",
    "sparse-embeddings": "is not captured",
}


def make_device(name: str) -> None:
    """Register a device, of which tensors can be made."""
    backend_registration._setup_privateuseone_for_python_backend(name)
    other_device.DEVICE = name


def find_obstacles(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield by function that a graph can hold why it cannot be recorded, empty where it can."""
    plan, device = scenario.plan("torch"), torch.device(other_device.DEVICE)
    with other_device.elsewhere():
        loaded = load_program(plan.program, captured=True)
        loaded.names["has_fused"] = other_device.has_fused
        loaded.names["build"](seed=0, device=other_device.DEVICE, dtype=torch.float32)
        batch = other_device.place(next(iter(scenario.batches(plan.spec))))
        for function in (each for mode in plan.program.modes for each in mode.functions):
            if capture.is_heavy(function) and not any(capture.find_obstacle(function, loaded)):
                made = capture._make(function, function.name, loaded, print, HostRecorder(), device)
                _, reason = capture.attempt(made, batch, loaded)
                yield function.name, reason or "".join(made.recorded.obstacles if made.recorded else ("not recorded",))


def main(names: list[str]) -> None:
    """Print a line of JSON for every example, or for those with some names."""
    make_device("other")
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl(
        "empty_strided",
        lambda size, stride, dtype=None, **given: torch._C._acc.create_empty_tensor(size, dtype or torch.float32),
        "PrivateUse1",
    )
    kernels.impl("_copy_from", lambda source, target, non_blocking=False: target, "PrivateUse1")
    for scenario in scenarios():
        if scenario.name in names or (not names and scenario.name not in UNTRACED):
            sys.path.append(str(Path(scenario.source).parent))
            print(json.dumps([scenario.name, dict(find_obstacles(scenario))]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
