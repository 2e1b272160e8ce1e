"""Run a script until some updates and write what it leaves: `leave.py TO plain|audit UPDATES FILE ARGUMENTS`.

A row for each update has digests of all parameters, gradients, buffers and states of optimizers, and of the random
states.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
import runpy
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

secrets.randbits = random.Random(0).getrandbits  # NumPy takes the seeds of new generators from it
SEED = 7


class Stop(BaseException):
    """The script has made as many updates as were asked for."""


def main(to: str, how: str, updates: int, path: str, *arguments: str) -> None:
    """Run the script and write the rows."""
    import numpy
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    stop: type[BaseException] = Stop
    if how == "audit":
        from runtime.audit.recording import Enough

        stop = Enough
    rows: list[dict[str, str]] = []

    def look(*_: object) -> None:
        rows.append(take_digests())
        if len(rows) == updates:
            raise stop

    register_optimizer_step_post_hook(look)
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)
    try:
        if how == "audit":
            from runtime.audit.session import audit_script

            _, problem = audit_script(Path(path), arguments, updates + 1)
            if problem is not None:
                raise problem
        else:
            sys.argv[:] = [path, *arguments]
            sys.path[0] = str(Path(path).resolve().parent)
            runpy.run_path(path, run_name="__main__")
    except Stop:
        pass
    finally:
        Path(to).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def take_digests() -> dict[str, str]:
    """Return digests of everything that a run should leave as it is."""
    import numpy
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    gc.collect()
    there = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module | torch.optim.Optimizer)]
    modules = [each for each in there if isinstance(each, torch.nn.Module) and "_modules" in vars(each)]
    optimizers = [each for each in there if isinstance(each, torch.optim.Optimizer)]
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        groups = [group for each in optimizers for group in each.param_groups]
        owned = [tensor for group in groups for tensor in group["params"]]
        parameters = unique([*owned, *(each for module in modules for each in module._parameters.values())])
        settings = ({name: value for name, value in group.items() if name != "params"} for group in groups)
        return {
            "parameters": digest(parameters),
            "gradients": digest(each.grad for each in parameters),
            "buffers": digest(unique(each for module in modules for each in module._buffers.values())),
            "optimizers": digest([*(slots for each in optimizers for slots in each.state.values()), *settings]),
            "torch": digest([torch.get_rng_state()]),
            "numpy": digest([numpy.random.get_state()]),
            "python": digest([random.getstate()]),
        }


def unique(tensors: Iterable[Any]) -> list[Any]:
    """Return the tensors among some values, each once."""
    return list({id(each): each for each in tensors if each is not None}.values())


def digest(values: Iterable[Any]) -> str:
    """Return how many values there are, and a digest that does not depend on their order."""
    each = sorted(hashlib.sha256(b"\0".join(parts(value))).hexdigest() for value in values if value is not None)
    return f"{len(each)} {hashlib.sha256(''.join(each).encode()).hexdigest()[:16]}"


def parts(value: Any) -> Iterator[bytes]:
    """Yield the numbers in a value, bit for bit, with their types and shapes."""
    import numpy
    import torch

    match value:
        case torch.Tensor():
            dense = value.detach().to_dense().contiguous().cpu()
            yield f"{value.dtype}{tuple(value.shape)}".encode()
            yield bytes(dense.flatten().view(torch.uint8).numpy()) if dense.numel() else b""
        case numpy.ndarray():
            yield value.tobytes()
        case dict():
            for name, inner in value.items():
                yield str(name).encode()
                yield from parts(inner)
        case list() | tuple():
            for inner in value:
                yield from parts(inner)
        case None | bool() | int() | float() | str():
            yield repr(value).encode()
        case _:
            yield type(value).__name__.encode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
