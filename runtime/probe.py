"""What a framework supports on a machine: its version, and its devices."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProbe:
    """A device as it was found; ``trouble`` is why it does not work, where it does not."""

    name: str
    title: str
    memory: int | None = None
    """All of its memory, in bytes, where that is a device's own."""
    free: int | None = None
    """Its free memory, in bytes."""
    bfloat16: bool = False
    fused: tuple[str, ...] = ()
    """The optimizers that step all parameters in one kernel there."""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A framework as it was found: its version, the device that ``auto`` takes, and all devices."""

    version: str
    default: str
    devices: tuple[DeviceProbe, ...]

    def to_plain(self) -> dict[str, object]:
        """Return a JSON-compatible value."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: object) -> Probe:
        """Return the probe of :meth:`to_plain`; raise pydantic's ValidationError for anything else."""
        return TypeAdapter(Probe).validate_python(plain)
