"""The frameworks: which of them is here, whether it works, and on which devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from runtime.diagnosis.child import PROBE
from runtime.diagnosis.packages import Package
from runtime.diagnosis.process import run_apart
from runtime.probe import Probe
from runtime.registry import BACKENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework and what came of probing it; ``trouble`` says why it runs nothing here, ``help`` what to do."""

    name: str
    probe: Probe | None = None
    trouble: str = ""
    help: str = ""

    @property
    def works(self) -> bool:
        """Return whether a step can run with it."""
        return self.probe is not None and any(not device.trouble for device in self.probe.devices)


def find_frameworks(packages: Mapping[str, Package]) -> Iterator[Framework]:
    """Yield every framework that steps are built for, probed in a process of its own."""
    for name in BACKENDS:
        package = packages[name]
        if package.version is None:
            yield Framework(name=name, trouble="not installed", help=package.install)
        else:
            yield _probe(name, package)


def _probe(name: str, package: Package) -> Framework:
    report = run_apart((PROBE, name))
    if report.found is None:
        help = f"install it anew: {package.install}"
        return Framework(name=name, trouble=f"it is installed and cannot be used: {report.trouble}", help=help)
    try:
        return Framework(name=name, probe=Probe.from_plain(report.found))
    except ValidationError:
        return Framework(name=name, trouble="its probe gave something unexpected")
