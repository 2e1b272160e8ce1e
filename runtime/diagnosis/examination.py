"""The whole examination of a machine, and of a spec on it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.diagnosis.frameworks import Framework, find_frameworks
from runtime.diagnosis.packages import Package, find_own_version, find_packages
from runtime.diagnosis.surroundings import Folder, find_folder, find_variables
from runtime.diagnosis.trial import Trial, try_build


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Everything that was found."""

    stepgraph: str | None
    python: str
    executable: str
    system: str
    packages: tuple[Package, ...]
    frameworks: tuple[Framework, ...]
    folder: Folder
    variables: Mapping[str, str]
    trial: Trial | None

    @property
    def is_sound(self) -> bool:
        """Return whether a step can run here; and the spec in question, if there is one."""
        return any(framework.works for framework in self.frameworks) and not (self.trial and self.trial.failed)

    def to_plain(self) -> dict[str, object]:
        """Return it as JSON holds it."""
        return {"doctor": 1, "sound": self.is_sound, **asdict(self)}


def examine(spec: Path | None, backend: str, allow: Sequence[str]) -> Examination:
    """Return what there is on this machine, and whether a spec can be built with a backend on it."""
    packages = find_packages()
    frameworks = tuple(find_frameworks({package.name: package for package in packages}))
    return Examination(
        stepgraph=find_own_version(),
        python=platform.python_version(),
        executable=sys.executable,
        system=f"{platform.system()} {platform.machine()}",
        packages=packages,
        frameworks=frameworks,
        folder=find_folder(),
        variables=find_variables(),
        trial=None if spec is None else _try(spec, backend, allow, frameworks),
    )


def _try(spec: Path, backend: str, allow: Sequence[str], frameworks: Sequence[Framework]) -> Trial:
    if any(framework.name == backend and framework.works for framework in frameworks):
        return try_build(spec, backend, allow)
    return Trial(backend=backend, problems=f"the backend {backend} runs nothing here")
