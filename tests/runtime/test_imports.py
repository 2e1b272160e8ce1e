"""What a spec names is imported only from allowed packages, and every way to fail has its own message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from runtime.engine.imports import importable, is_allowed, is_package, resolve

MODELS = """
from collections import OrderedDict
from decimal import Decimal
import os

class Generator:
    class Small:
        pass

limit = 3
"""


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / "my_models.py").write_text(MODELS)
    return tmp_path


def refusal(path, allow, directory=None) -> str:
    with pytest.raises(SpecError, match="GS2") as caught:
        resolve(path, allow, directory=directory, span=None)
    return str(caught.value)


def test_a_class_of_an_allowed_module_beside_the_spec_is_found(beside):
    found = resolve("my_models:Generator", ["my_models"], directory=beside, span=None)
    assert (found.__module__, found.__qualname__) == ("my_models", "Generator")


def test_a_nested_class_and_a_plain_object_are_found_too(beside):
    assert resolve("my_models:Generator.Small", ["my_models"], directory=beside, span=None).__name__ == "Small"


def test_an_installed_class_needs_no_directory():
    assert resolve("fractions:Fraction", ["fractions"], directory=None, span=None)(1, 2) == 0.5


def test_a_package_that_is_not_allowed_is_refused_before_it_is_imported(tmp_path):
    (tmp_path / "harm.py").write_text("raise SystemExit('imported')")
    text = refusal("harm:Generator", ["models", "harmless"], tmp_path)
    assert "GS201" in text
    assert "--allow harm;" in text
    assert "allowed: harmless, models" in text
    assert "harm" not in sys.modules


@pytest.mark.parametrize(
    "path", ["my_models:os.system", "my_models:OrderedDict", "my_models:Decimal", "my_models:limit"]
)
def test_what_an_allowed_module_only_passes_on_is_refused(beside, path):
    assert "GS204" in refusal(path, ["my_models"], beside)


def test_a_package_allows_what_lies_in_it_and_nothing_that_begins_alike():
    assert is_allowed("zoo.gan", ["zoo"])
    assert is_allowed("zoo", ["zoo"])
    assert not is_allowed("zoology", ["zoo"])
    assert not is_allowed("zoo", ["zoo.gan"])
    assert not is_allowed("anything", [])


def test_a_package_has_a_name():
    assert is_package("zoo.gan")
    assert not any(map(is_package, ("", ".", "zoo.", "zoo gan", "--allow", "1st")))


def test_a_missing_module_names_the_file_that_was_probably_meant(beside):
    text = refusal("my_model:Generator", ["my_model"], beside)
    assert "GS202" in text
    assert "did you mean 'my_models', next to the spec?" in text


@pytest.mark.parametrize("path", ["my_models", "my_models:", ":Generator", "my models:G", "my_models:G:H", "../x:G"])
def test_a_path_of_another_form_is_refused(path):
    assert "is not of the form `package.module:Name`" in refusal(path, ["my_models"])


def test_a_missing_name_is_told_with_near_ones(beside):
    text = refusal("my_models:Generater", ["my_models"], beside)
    assert "GS203" in text
    assert "did you mean 'Generator'?" in text


LAZY = (
    MODELS
    + """
def __getattr__(name):
    if name == "Late":
        return type("Late", (), {"__module__": __name__})
    if name == "Broken":
        raise ValueError("no such backend")
    raise AttributeError(name)
"""
)


def test_a_name_that_a_module_makes_when_it_is_asked_for_is_found(tmp_path):
    (tmp_path / "my_models.py").write_text(LAZY)
    assert resolve("my_models:Late", ["my_models"], directory=tmp_path, span=None).__name__ == "Late"
    assert "GS203" in refusal("my_models:Later", ["my_models"], tmp_path)
    text = refusal("my_models:Broken", ["my_models"], tmp_path)
    assert "GS205" in text
    assert "no such backend" in text


def test_an_error_while_importing_shows_the_users_line_only(tmp_path):
    (tmp_path / "broken_models.py").write_text("size = 3\nhalf = size / 0\n")
    text = refusal("broken_models:Generator", ["broken_models"], tmp_path)
    assert "importing 'broken_models' raised ZeroDivisionError: division by zero" in text
    assert "broken_models.py:2 in <module>: half = size / 0" in text
    assert "importlib" not in text
    assert "imports.py" not in text


def test_a_module_that_the_users_module_misses_is_the_users_error(tmp_path):
    (tmp_path / "needy_models.py").write_text("import no_such_module_at_all\n")
    text = refusal("needy_models:Generator", ["needy_models"], tmp_path)
    assert "GS205" in text
    assert "No module named 'no_such_module_at_all'" in text


def test_invalid_python_is_shown_with_its_line(tmp_path):
    (tmp_path / "typo_models.py").write_text("x = 1\nclass Generator\n")
    text = refusal("typo_models:Generator", ["typo_models"], tmp_path)
    assert "'typo_models' is not valid Python" in text
    assert "typo_models.py:2: class Generator" in text


def test_a_module_that_ends_the_process_is_an_error_like_others(tmp_path):
    (tmp_path / "ending_models.py").write_text("raise SystemExit(3)\n")
    assert "raised SystemExit: 3" in refusal("ending_models:G", ["ending_models"], tmp_path)


def test_a_file_named_like_a_standard_module_is_ambiguous(tmp_path):
    (tmp_path / "colorsys.py").write_text("class Generator: pass\n")
    text = refusal("colorsys:Generator", ["colorsys"], tmp_path)
    assert "GS236" in text
    assert str(tmp_path / "colorsys.py") in text


def test_files_beside_the_spec_never_shadow_what_is_installed(tmp_path):
    (tmp_path / "sunau.py").write_text("shadow = True\n")
    (tmp_path / "sndhdr_models.py").write_text("import tabnanny\nclass G:\n    home = tabnanny.__file__\n")
    (tmp_path / "tabnanny.py").write_text("shadow = True\n")
    found = resolve("sndhdr_models:G", ["sndhdr_models"], directory=tmp_path, span=None)
    assert not found.home.startswith(str(tmp_path))


def test_two_specs_may_each_have_a_module_of_the_same_name(tmp_path):
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "twin_models.py").write_text(f"class G:\n    home = {name!r}\n")
        found.append(resolve("twin_models:G", ["twin_models"], directory=tmp_path / name, span=None))
    assert [each.home for each in found] == ["one", "two"]


def test_a_class_is_the_same_object_each_time(beside):
    first = resolve("my_models:Generator", ["my_models"], directory=beside, span=None)
    assert resolve("my_models:Generator", ["my_models"], directory=beside, span=None) is first


def test_the_path_is_left_as_it_was(beside):
    before = list(sys.path)
    with importable(beside):
        assert sys.path[:-1] == before
    assert sys.path == before
