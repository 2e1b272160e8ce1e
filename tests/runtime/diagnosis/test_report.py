"""The report of `stepgraph doctor`: what it says of machines that are not this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.cli.doctor import (
    Examination,
    Folder,
    Framework,
    Package,
    Trial,
    find_folder,
    find_variables,
    format_examination,
)
from runtime.probe import DeviceProbe, Probe

CPU = DeviceProbe(name="cpu", title="8 threads", bfloat16=True, fused=("adam",))
GPU = DeviceProbe(
    name="cuda:0", title="NVIDIA H200", memory=150 * 2**30, free=149 * 2**30, bfloat16=True, fused=("adam",)
)
BROKEN = DeviceProbe(name="cuda:1", title="", trouble="CUDA error: out of memory")


def examination(*devices, trial=None, trouble=""):
    probe = Probe(version="2.11.0", default="cuda:0", devices=devices) if devices else None
    return Examination(
        stepgraph="0.1.0",
        python="3.12.1",
        executable="/usr/bin/python3",
        system="Linux x86_64",
        packages=(Package(name="keras", version=None, purpose="steps", install="pip install 'stepgraph[tensorflow]'"),),
        frameworks=(Framework(name="torch", probe=probe, trouble=trouble),),
        folder=Folder(path="/data", trouble="", free=2**31),
        variables={"OMP_NUM_THREADS": "4"},
        trial=trial,
    )


def test_devices_stand_in_columns_with_their_memory():
    lines = format_examination(examination(CPU, GPU), None).splitlines()
    assert "backend torch 2.11.0: runs on cuda:0 by default" in lines
    gpu = "  cuda:0  NVIDIA H200, 150.0 GiB (149.0 GiB free)  float32 and bfloat16  fused adam"
    assert gpu in lines
    assert lines[lines.index(gpu) - 1].index("float32") == gpu.index("float32")


def test_a_device_that_fails_is_told_and_the_others_count():
    found = examination(CPU, BROKEN)
    assert found.is_sound
    assert "  cuda:1  does not work: CUDA error: out of memory" in format_examination(found, None)


@pytest.mark.parametrize("devices", [(), (BROKEN,)])
def test_without_a_device_nothing_is_sound(devices):
    assert not examination(*devices, trouble="not installed").is_sound


def test_what_is_missing_comes_with_its_command():
    assert "  keras  missing  needed for steps: pip install 'stepgraph[tensorflow]'" in format_examination(
        examination(CPU), None
    )


@pytest.mark.parametrize(
    ("trial", "told", "is_sound"),
    [
        (Trial(backend="torch", device="cpu", parameters=1234), "can be built: 1,234 parameters on cpu (torch)", True),
        (Trial(backend="torch", refused=("'zoo:A' may not be imported",)), "names code that may not be imported", True),
        (Trial(backend="torch", problems="error"), "cannot be built here", False),
    ],
)
def test_a_spec_can_be_built_or_not(trial, told, is_sound):
    found = examination(CPU, trial=trial)
    assert told in format_examination(found, Path("a.yaml"))
    assert found.is_sound is is_sound


def test_a_folder_that_refuses_files_says_why(workdir, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert find_folder().trouble == "permission denied"


def test_a_folder_that_takes_files_is_left_as_it_was(workdir):
    assert find_folder().trouble == ""
    assert list(workdir.iterdir()) == []


def test_only_variables_that_matter_and_are_set_are_told(monkeypatch):
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "1", "HOME": "/root"})
    assert find_variables() == {"CUDA_VISIBLE_DEVICES": "1"}
