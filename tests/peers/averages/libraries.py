"""Run averages of seven libraries beside the numbers of the tests: ``python -m tests.peers.averages.libraries WHEELS``.

WHEELS is a folder with wheels, as ``pip download --no-deps -d WHEELS timm==1.0.31 diffusers==0.42.1 mosaicml==0.32.1
mmengine==0.10.7 ema-pytorch==0.8.3`` fills it; torch and Keras are the installed ones. Of a wheel the classes alone are
run, since their packages import much that averages do not need. Ends with exit code 1 where a number is another one.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.peers.averages.test_trajectories import CASES

Step = Callable[[nn.Module], float]
"""Takes the model after a step, and returns the average."""


def take(wheels: Path, start: str, path: str, *names: str) -> dict[str, Any]:
    """Return classes and functions of a module in a wheel, without the rest of its package."""
    wheel = next(wheels.glob(f"{start}*.whl"))
    tree = ast.parse(zipfile.ZipFile(wheel).read(path))
    kinds = (ast.ClassDef, ast.FunctionDef)
    tree.body = [each for each in tree.body if isinstance(each, kinds) and (not names or each.name in names)]
    future = ast.ImportFrom(module="__future__", names=[ast.alias("annotations")], level=0)
    code = compile(ast.fix_missing_locations(ast.Module([future, *tree.body], [])), str(wheel / path), "exec")
    registry = SimpleNamespace(register_module=lambda: lambda each: each)
    given: dict[str, Any] = {"torch": torch, "nn": nn, "Tensor": Tensor, "Module": nn.Module, "MODELS": registry}
    given |= {"deepcopy": copy.deepcopy, "abstractmethod": lambda each: each, "contextlib": contextlib}
    given |= {"itertools": itertools, "get_model_context_manager": lambda _: contextlib.nullcontext()}
    given |= {
        "EMAPytree": object,
        "partial": partial,
        "EMAParameters": tuple,
        "is_transformers_available": lambda: False,
        "__name__": start,
    }
    exec(code, given)
    return given


def value_of(module: nn.Module) -> float:
    """Return the one weight of a model."""
    return float(next(module.parameters()).detach())


def averaged(make: Callable[[nn.Module], Any], update: str, held: str) -> Callable[[nn.Module], Step]:
    """Return what makes an average by a class: the name of its update, and of the model that it holds."""

    def begin(model: nn.Module) -> Step:
        average = make(model)

        def step(model: nn.Module) -> float:
            getattr(average, update)(model)
            return value_of(getattr(average, held))

        return step

    return begin


def make_diffusers(kind: Any, **options: Any) -> Callable[[nn.Module], Step]:
    """Return what makes an average of diffusers, which holds parameters."""

    def begin(model: nn.Module) -> Step:
        average = kind(model.parameters(), **options)

        def step(model: nn.Module) -> float:
            average.step(model.parameters())
            return float(average.shadow_params[0])

        return step

    return begin


def make_timm(kind: Any, *, counts: bool = False, **options: Any) -> Callable[[nn.Module], Step]:
    """Return what makes an average of timm; some are told how many updates there were, this one included."""

    def begin(model: nn.Module) -> Step:
        average, number = kind(model, **options), itertools.count(1)

        def step(model: nn.Module) -> float:
            average.update(model, **({"step": next(number)} if counts else {}))
            return value_of(average.module)

        return step

    return begin


def make_composer(compute: Any) -> Callable[[nn.Module], Step]:
    """Return what makes an average by the function of Composer."""

    def begin(model: nn.Module) -> Step:
        average = copy.deepcopy(model)

        def step(model: nn.Module) -> float:
            compute(model, average, smoothing=0.9)
            return value_of(average)

        return step

    return begin


def make_keras(watch: str, **options: Any) -> Callable[[nn.Module], Step]:
    """Return what takes steps of Keras's SGD, whose gradient of -1 moves the weight by 1."""
    import keras

    def begin(model: nn.Module) -> Step:
        variable = keras.Variable([0.0], dtype="float64")
        optimizer = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.9, **options)
        optimizer.build([variable])

        def step(model: nn.Module) -> float:
            optimizer.apply_gradients([(keras.ops.array([-1.0], dtype="float64"), variable)])
            held = optimizer._model_variables_moving_average[0] if watch == "average" else variable
            return float(held.numpy()[0])

        return step

    return begin


def find_runs(wheels: Path) -> Mapping[str, Callable[[nn.Module], Step]]:
    """Return what makes the average of each case."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    timm = take(wheels, "timm", "timm/utils/model_ema.py", "ModelEmaV2", "ModelEmaV3")
    diffusers = take(wheels, "diffusers", "diffusers/training_utils.py", "EMAModel")["EMAModel"]
    composer = take(wheels, "mosaicml", "composer/algorithms/ema/ema.py", "compute_ema")["compute_ema"]
    mm = take(wheels, "mmengine", "mmengine/model/averaged_model.py")
    lucid = take(wheels, "ema_pytorch", "ema_pytorch/ema_pytorch.py")["EMA"]

    def of_mm(name: str, **options: Any) -> Callable[[nn.Module], Step]:
        return averaged(lambda model: mm[name](model, **options), "update_parameters", "module")

    def of_lucid(**options: Any) -> Callable[[nn.Module], Step]:
        def begin(model: nn.Module) -> Step:
            average = lucid(model, **options)

            def step(model: nn.Module) -> float:
                average.update()
                return value_of(average.ema_model)

            return step

        return begin

    def of_torch(**options: Any) -> Callable[[nn.Module], Step]:
        return averaged(lambda model: AveragedModel(model, **options), "update_parameters", "module")

    v3 = timm["ModelEmaV3"]
    return {
        "model_ema.py::ModelEmaV2[decay=0.9]": make_timm(timm["ModelEmaV2"], decay=0.9),
        "model_ema.py::ModelEmaV3[decay=0.9]": make_timm(v3, decay=0.9),
        "model_ema.py::ModelEmaV3[decay=0.9, step]": make_timm(v3, decay=0.9, counts=True),
        "model_ema.py::ModelEmaV3[decay=0.9, use_warmup=True, step]": make_timm(
            v3, decay=0.9, use_warmup=True, counts=True
        ),
        "model_ema.py::ModelEmaV3[decay=0.5, warmup_gamma=2, warmup_power=0.75, min_decay=0.25, step]": make_timm(
            v3, decay=0.5, use_warmup=True, warmup_gamma=2, warmup_power=0.75, min_decay=0.25, counts=True
        ),
        "training_utils.py::EMAModel[decay=0.9999]": make_diffusers(diffusers),
        "training_utils.py::EMAModel[decay=0.3]": make_diffusers(diffusers, decay=0.3),
        "training_utils.py::EMAModel[min_decay=0.25]": make_diffusers(diffusers, min_decay=0.25),
        "training_utils.py::EMAModel[update_after_step=3]": make_diffusers(diffusers, update_after_step=3),
        "training_utils.py::EMAModel[use_ema_warmup=True]": make_diffusers(diffusers, use_ema_warmup=True),
        "training_utils.py::EMAModel[use_ema_warmup=True, inv_gamma=2, power=0.75]": make_diffusers(
            diffusers, use_ema_warmup=True, inv_gamma=2, power=0.75
        ),
        "ema.py::compute_ema[smoothing=0.9]": make_composer(composer),
        "averaged_model.py::ExponentialMovingAverage[momentum=0.1]": of_mm("ExponentialMovingAverage", momentum=0.1),
        "averaged_model.py::ExponentialMovingAverage[momentum=0.1, interval=2]": of_mm(
            "ExponentialMovingAverage", momentum=0.1, interval=2
        ),
        "averaged_model.py::MomentumAnnealingEMA[momentum=0.1, gamma=2]": of_mm(
            "MomentumAnnealingEMA", momentum=0.1, gamma=2
        ),
        "averaged_model.py::StochasticWeightAverage": of_mm("StochasticWeightAverage"),
        "averaged_model.py::StochasticWeightAverage[interval=2]": of_mm("StochasticWeightAverage", interval=2),
        "ema_pytorch.py::EMA[beta=0.9, update_after_step=0, update_every=1]": of_lucid(
            beta=0.9, update_after_step=0, update_every=1
        ),
        "ema_pytorch.py::EMA[beta=0.9, update_after_step=0, update_every=2]": of_lucid(
            beta=0.9, update_after_step=0, update_every=2
        ),
        "ema_pytorch.py::EMA[beta=0.5, update_after_step=2, update_every=1]": of_lucid(
            beta=0.5, update_after_step=2, update_every=1
        ),
        "swa_utils.py::AveragedModel": of_torch(),
        "swa_utils.py::AveragedModel[get_ema_multi_avg_fn(0.9)]": of_torch(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        "optimizer.py::SGD[use_ema=True, ema_momentum=0.9]": make_keras("average"),
        "optimizer.py::SGD[ema_overwrite_frequency=3, its average]": make_keras("average", ema_overwrite_frequency=3),
        "optimizer.py::SGD[ema_overwrite_frequency=3, its weight]": make_keras("weight", ema_overwrite_frequency=3),
    }


def walk(begin: Callable[[nn.Module], Step], steps: int) -> Iterator[float]:
    """Yield the average after every step; the weight is 0 before, and t after step t."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    step = begin(model)
    for t in range(1, steps + 1):
        with torch.no_grad():
            model.weight.fill_(t)
        yield step(model)


def main(given: Iterable[str]) -> int:
    """Print what every library gives, and whether the tests have the same; return 1 where they have not."""
    (folder,) = map(Path, given)
    runs, differing = find_runs(folder), 0
    assert {case.test for case in CASES} == runs.keys()
    for case in CASES:
        found = list(walk(runs[case.test], len(case.says)))
        wanted = [float(numbers[0]) for numbers in case.says.values()]
        # ema-pytorch has its decay as a float32.
        is_same = all(abs(one - other) < 1e-7 for one, other in zip(found, wanted, strict=True))
        differing += not is_same
        print(f"{'same' if is_same else 'DIFFERS'}  {case.test}: {' '.join(f'{each:.6g}' for each in found)}")
    print(f"{len(CASES) - differing} of {len(CASES)} are those of the tests")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
