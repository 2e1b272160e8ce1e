"""Names: what a spec calls things never clashes with Python, torch or the emitted module itself."""

from __future__ import annotations

import builtins
import keyword

import pytest
import torch
from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.program import Program
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.execution import load_module
from runtime.codegen.module import emit_module
from runtime.codegen.resources import FIXED, choose_names
from tests.backends.torch import programs

HOSTILE = (
    "torch",
    "F",
    "nn",
    "print",
    "batch",
    "step",
    "random",
    "mode",
    "build",
    "MODELS",
    "blend",
    "dict",
    "made",
    "p",
)


def renamed(value: object, names: dict[str, str]) -> object:
    """Return plain data with strings replaced throughout."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(renamed(each, names) for each in value)
    if isinstance(value, Struct):
        return replace(value, **{name: renamed(getattr(value, name), names) for name in value.__struct_fields__})
    return value


def with_names(program: Program, names: dict[str, str]) -> Program:
    """Return a program with models, ops and values renamed, and what it trains: its weights after two steps."""
    return renamed(program, names)


def weights_after_two_steps(program: Program) -> list[torch.Tensor]:
    """Return all weights, starting from ones."""
    loaded = load_module(emit_module(program, TORCH), program)
    loaded.call("build", 0, "cpu", torch.float64)
    models = loaded.names["MODELS"].values()
    with torch.no_grad():
        for parameter in (each for model in models for each in model.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64).view_as(parameter))
    names = [entry.name for entry in program.inputs]
    for _ in range(2):
        sizes = zip(names, (6, 3), strict=True)
        loaded.call("step", {name: torch.full((4, size), 0.5, dtype=torch.float64) for name, size in sizes})
    return [parameter.detach() for model in models for parameter in model.parameters()]


def test_a_spec_may_call_its_models_and_ops_like_everything_the_module_uses():
    ours = ("generator", "discriminator", "sampler", "fake", "on_real", "on_fake", "d_real", "d_fake", "d_loss")
    ours += ("step_d", "judged", "g_loss", "step_g", "image")
    names = dict(zip(ours, HOSTILE, strict=True))
    plain, hostile = programs.dcgan(), with_names(programs.dcgan(), names)
    pairs = zip(weights_after_two_steps(plain), weights_after_two_steps(hostile), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", [*keyword.softkwlist, "__builtins__", "__name__", "print", "Adam", "lambda_"])
def test_a_free_name_is_found_for_any_identifier(name):
    program = with_names(programs.byol(), {"goal": name})
    names = choose_names(program, ["Adam"])
    assert names.value(name).startswith(name.lstrip("_"))
    assert names.value(name) not in {*keyword.kwlist, *dir(builtins), *FIXED, "Adam", "__builtins__", "__name__"}


def test_derived_names_give_way_to_the_specs_own():
    program = with_names(programs.byol(), {"goal": "student_params"})
    names = choose_names(program, [])
    assert names.value("student_params") == "student_params"
    assert names.parameters("student") == "student_params_"


def test_gradient_sets_with_a_dot_in_their_name_become_identifiers():
    program = with_names(programs.byol(), {"goal": "step.clipped"})
    assert choose_names(program, []).value("step.clipped") == "step_clipped"


def test_library_names_are_only_avoided_where_they_are_used():
    program = with_names(programs.byol(), {"goal": "l1", "answer": "blend"})
    text = emit_module(program, TORCH).text
    assert "    l1 = F.normalize(" in text
    assert "    blend_ = student(image)" in text
