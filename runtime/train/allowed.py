"""The packages that the user let a run import: kept with the user, never in the folder of the run.

A run's folder may come from anywhere, so what its record says is no permission.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from runtime.checkpoints.disk import replace_file
from runtime.data.open import find_classes
from runtime.engine.imports import is_allowed, require_allowed
from runtime.engine.user_models import find_imports
from runtime.problems import system_reason
from runtime.state import PlainModel
from runtime.terminal import complain
from runtime.train.run_folder import Texts

STATE = "STEPGRAPH_STATE"
"""The variable that names another folder for the user's state."""

_ID = re.compile(r"[0-9a-f]{32}")


class Allowed(PlainModel):
    """What a user typed after ``--allow`` for one run; it counts for this run in this folder and this spec's folder."""

    run: str
    spec: str
    """The folder of the spec, from which modules may be imported."""
    allow: Texts


def make_id() -> str:
    """Return a name that no other run has."""
    return secrets.token_hex(16)


def remember(folder: Path, id: str, directory: Path, allow: Sequence[str]) -> None:
    """Keep what the user allowed a run in a folder, with its spec in a directory; a note says where that fails."""
    path = _find_file(id)
    if not allow or path is None:
        return
    kept = Allowed(run=os.path.realpath(folder), spec=os.path.realpath(directory), allow=tuple(allow))
    content = kept.model_dump_json(indent=2).encode()
    try:
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        complain(f"note: `--allow` is not remembered for {folder}: cannot write {path}: {system_reason(error)}")


def recall(folder: Path, id: str, directory: Path) -> tuple[str, ...]:
    """Return what the user of this machine allowed a run; nothing for one that was copied, moved or made elsewhere."""
    path = _find_file(id)
    try:
        kept = None if path is None else Allowed.read(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return ()
    if kept is None or (kept.run, kept.spec) != (os.path.realpath(folder), os.path.realpath(directory)):
        return ()
    return kept.allow


def _find_file(id: str) -> Path | None:
    """Return where a run's permission is kept; None for an id that this version does not make."""
    if not _ID.fullmatch(id):
        return None
    if os.environ.get(STATE):
        return Path(os.environ[STATE]) / "allowed" / f"{id}.json"
    from platformdirs import user_state_path

    return user_state_path("stepgraph", appauthor=False) / "allowed" / f"{id}.json"


def require_all_allowed(
    spec: GraphSpec, roles: Sequence[str], allow: Sequence[str], compile: Callable[[], Program]
) -> None:
    """Raise SpecError (GS201) where the data of some roles may not be imported, for all else that may not be, too.

    Data is opened before a step is built; without this, what the step needs would be asked for in a second error.
    """
    sources = find_classes(spec, roles)
    if not all(is_allowed(path.split(":")[0], allow) for path in sources):
        require_allowed({**find_imports(compile(), spec), **sources}, allow, spec.texts())
