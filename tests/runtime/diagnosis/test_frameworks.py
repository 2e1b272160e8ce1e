"""Frameworks are probed where they can do no harm: missing, broken, crashing and stuck ones are lines of a report."""

from __future__ import annotations

import sys

import pytest

from runtime.cli import doctor
from runtime.cli.doctor import find_frameworks, find_packages, run_apart


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """Return a function that puts code in the place of PyTorch, for other processes."""

    def write(code):
        (tmp_path / "torch.py").write_text(code)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return write


def probe():
    known = {package.name: package for package in find_packages()}
    return next(each for each in find_frameworks(known) if each.name == "torch")


@pytest.mark.needs("torch")
def test_a_framework_that_works_tells_its_devices_and_a_file_in_this_folder_takes_no_modules_place(
    workdir, monkeypatch
):
    import torch

    (workdir / "torch.py").write_text("raise RuntimeError('the file beside it')")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    found = probe()
    assert found.works
    assert found.probe is not None
    assert found.probe.version == torch.__version__
    assert [device.trouble for device in found.probe.devices] == [""] * len(found.probe.devices)
    assert "adam" in found.probe.devices[0].fused


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.abort()", "it ended the process (SIGABRT)"),
        ("import os; os._exit(3)", "it ended the process (exit code 3)"),
        ("raise ImportError('libcudart.so: cannot open')", "ImportError: libcudart.so: cannot open"),
    ],
)
def test_a_framework_that_breaks_is_told_and_breaks_nothing(fake_torch, code, told):
    fake_torch(code)
    found = probe()
    assert not found.works
    assert told in found.trouble
    assert found.help == "install it anew: pip install 'stepgraph[torch]'"


def test_a_framework_that_never_comes_back_is_given_up(fake_torch):
    fake_torch("import time; time.sleep(60)")
    assert run_apart(("probe", "torch"), timeout=1.0).trouble == "nothing came of it within 1 seconds"


def test_a_framework_that_is_missing_is_told_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: (_ for _ in ()).throw(doctor.PackageNotFoundError(name)))
    found = probe()
    assert (found.works, found.trouble, found.help) == (False, "not installed", "pip install 'stepgraph[torch]'")


def test_what_is_printed_on_the_way_does_no_harm(fake_torch):
    fake_torch("print('{}'); raise SystemExit(0)")
    assert run_apart(("probe", "torch")).trouble == "it printed something else than its findings"
