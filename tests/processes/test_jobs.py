"""The jobs for clusters are scripts that bash reads, YAML, and commands whose options there are."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from runtime.cli import train

JOBS = Path(__file__).parents[2] / "docs" / "jobs"


def check(script: str) -> None:
    """Assert that bash reads a script, and that its last command is one of torchrun with options that there are."""
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    line = script.replace("\\\n", " ").strip().splitlines()[-1]
    line = re.sub(r"\$\((test .*? && echo (--resume))\)", r"\2", line).replace('"${resume[@]}"', "--resume")
    words = shlex.split(re.sub(r"\$[A-Za-z_]+", "1", line))
    given = words[words.index("torchrun") + 1 :]
    from torch.distributed.run import get_args_parser

    parsed = get_args_parser().parse_args(given)
    assert (parsed.module, parsed.training_script, parsed.nproc_per_node) == (True, "runtime", "4")
    command, spec, *options = parsed.training_script_args
    assert (command, spec) == ("run", "gan.yaml")
    known = set(inspect.signature(train.run).parameters)
    assert {each.removeprefix("--") for each in options if each.startswith("--")} == {"plain", "out", "resume"} <= known


@pytest.mark.needs("torch")
def test_the_job_for_slurm() -> None:
    check((JOBS / "slurm.sh").read_text())


@pytest.mark.needs("torch")
def test_the_job_for_kubernetes() -> None:
    service, job = yaml.safe_load_all((JOBS / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"] == job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (container,) = pod["containers"]
    assert container["command"] == ["bash", "-c"]
    check(container["args"][0])
