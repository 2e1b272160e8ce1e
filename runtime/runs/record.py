"""The record of a run: what it was started with, in ``run.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.timing.units import Pace
from graphspec.diagnostics import SpecError
from runtime.checkpoints.disk import replace_file
from runtime.checkpoints.fields import Fields
from runtime.checkpoints.sealed import open_object, seal, unseal
from runtime.folder import RECORD, cannot_write
from runtime.problems import problem

FORMAT = 1
"""The version of the record that is written, and the newest that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that a run was started with and that going on with it needs."""

    name: str
    versions: Mapping[str, str]
    """The versions of Python and of the packages, by name."""
    seed: int
    device: str
    backend: str
    order: str
    steps: int
    """The steps that were asked for; 0 where the spec says how many."""
    spec: str
    """The spec with every default and interpolation resolved, as `graphspec.rendering.render` writes it."""
    overrides: tuple[str, ...]
    plan: str
    """What :func:`runtime.runs.fingerprint.fingerprint` says of the plan."""
    source: str
    """The generated Python."""
    allow: tuple[str, ...]
    spec_path: str
    """The path of the spec, from the folder of the run."""
    pace: Pace
    """How long epochs, steps and the run were known to be when the step was compiled."""

    def computes_as(self, other: Record) -> bool:
        """Tell whether a run that was made with either has the same numbers, for however many steps."""
        other = replace(other, steps=self.steps, overrides=self.overrides, allow=self.allow)
        return self == replace(other, spec_path=self.spec_path, pace=self.pace)


def write_record(folder: Path, record: Record, name: str = RECORD) -> None:
    """Write the record of a run into its folder, as a whole or not at all; raise SpecError (GS234) where it cannot."""
    content = seal(
        {
            "run": FORMAT,
            "name": record.name,
            "versions": dict(record.versions),
            "seed": record.seed,
            "device": record.device,
            "backend": record.backend,
            "order": record.order,
            "steps": record.steps,
            "spec": record.spec,
            "overrides": list(record.overrides),
            "plan": record.plan,
            "source": record.source,
            "allow": list(record.allow),
            "spec_path": record.spec_path,
            "pace": {"epoch": record.pace.epoch, "batch": record.pace.batch, "run": record.pace.run},
        }
    )
    try:
        replace_file(folder / name, content)
    except OSError as error:
        raise cannot_write(folder / name, error) from error


def read_record(folder: Path) -> Record:
    """Return the record of the run in a folder; raise SpecError (GS243) where it is missing, damaged or newer."""
    try:
        return _read(Fields(content=unseal(open_object((folder / RECORD).read_bytes()))))
    except (FileNotFoundError, NotADirectoryError) as error:
        help = f"name the folder of a run, which has a {RECORD} in it"
        raise problem("GS243", f"{str(folder)!r} is not the folder of a run: it has no {RECORD}", help=help) from error
    except OSError as error:
        raise _unreadable(folder, (error.strerror or str(error)).lower(), "check its permissions") from error
    except ValueError as error:
        help = f"put back the {RECORD} that the run wrote, or start a new run; its checkpoints are still there"
        raise _unreadable(folder, str(error), help) from error


def _unreadable(folder: Path, reason: str, help: str) -> SpecError:
    return problem("GS243", f"cannot read the record {str(folder / RECORD)!r}: {reason}", help=help)


def _read(fields: Fields) -> Record:
    version = fields.whole("run")
    if version != FORMAT:
        raise ValueError(f"it has format {version}, and this version of stepgraph reads format {FORMAT}")
    return Record(
        name=fields.text("name"),
        versions=fields.text_mapping("versions"),
        seed=fields.whole("seed"),
        device=fields.text("device"),
        backend=fields.text("backend"),
        order=fields.text("order"),
        steps=fields.size("steps"),
        spec=fields.text("spec"),
        overrides=fields.texts("overrides"),
        plan=fields.text("plan"),
        source=fields.text("source"),
        allow=fields.texts("allow"),
        spec_path=fields.text("spec_path"),
        pace=_read_pace(fields.part("pace")),
    )


def _read_pace(fields: Fields) -> Pace:
    """Return a pace; what nobody knew is null."""
    known = {name: fields.size(name) for name in ("epoch", "batch", "run") if fields.content.get(name) is not None}
    return Pace(**known)


def name_spec(folder: Path) -> str:
    """Return how messages call the spec in the record of a run."""
    return f"{folder / RECORD}: spec"
