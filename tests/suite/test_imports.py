"""What a module needs is found by reading it, through everything that it imports at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.imports import find_needed

ROOT = Path(__file__).parents[2]


def needed(root: Path, **modules: str) -> frozenset[str]:
    """Return what the module `test` needs, of modules of a folder tests/ with these texts."""
    for name, text in modules.items():
        (root / "tests").mkdir(exist_ok=True)
        (root / "tests" / f"{name}.py").write_text(text)
    return find_needed(root / "tests" / "test.py", root)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch.nn.functional as F", {"torch"}),
        ("from torch import nn", {"torch"}),
        ("import numpy, keras", {"tensorflow"}),
        ("from tensorflow.python import ops\nimport torch", {"tensorflow", "torch"}),
        ("def test():\n    import torch", set()),
        ("if True:\n    import torch", set()),
        ("text = 'import torch'\nimport torchvision", set()),
    ],
)
def test_a_framework_is_needed_where_it_is_imported_at_once(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert needed(tmp_path, test=text) == expected


@pytest.mark.parametrize("written", ["import tests.other", "from tests.other import name", "from tests import other"])
def test_a_module_needs_what_it_imports_needs(tmp_path: Path, written: str) -> None:
    assert needed(tmp_path, test=written, other="import tests.third", third="import torch") == {"torch"}


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    assert needed(tmp_path, test="import tests.other", other="import tests.test\nimport keras") == {"tensorflow"}


def test_the_packages_of_a_module_count(tmp_path: Path) -> None:
    (tmp_path / "runtime" / "deep").mkdir(parents=True)
    (tmp_path / "runtime" / "__init__.py").write_text("import torch")
    (tmp_path / "runtime" / "deep" / "one.py").write_text("")
    assert needed(tmp_path, test="from runtime.deep.one import name") == {"torch"}


def test_modules_of_this_project_need_what_they_are_known_to() -> None:
    known = {
        "tests/backends/torch/test_swap.py": {"torch"},
        "tests/backends/tensorflow/library/test_layers.py": {"torch", "tensorflow"},
        "tests/conformance/test_necessity.py": {"torch", "tensorflow"},
        "tests/compiler/test_hazards.py": set(),
    }
    assert {name: find_needed(ROOT / name, ROOT) for name in known} == known
