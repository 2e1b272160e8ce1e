"""The code that is emitted for every published spec, as checksums and some whole texts: a change shows, and is read.

To write all of it anew: ``python -m tests.golden.emitted``, with paths (``examples/gan-digits/gan-digits.yaml``) for
these specs alone; then read the difference as a reviewer of that code would.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compiler import Pace, Plan, compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from runtime.codegen.resources import Extras

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "tests/golden/valid", "tests/conformance/specs", "benchmarks/specs")
SUMS = Path(__file__).with_name("emitted.json")
TEXTS = Path(__file__).with_name("emitted")
DIALECTS = {"torch": TORCH, "tensorflow": TENSORFLOW}
KINDS = {"plain": Extras(), "debug": Extras(debug=True), "measured": Extras(norms=True, profile=True)}
PLAIN = "tests/conformance/specs"
"""Specs that are emitted in one kind only."""
WHOLE = ("examples/gan-digits/gan-digits.yaml", "examples/td3/td3.yaml", "tests/golden/valid/wgan_gp.yaml")
"""Specs of which the code is kept as it is."""


def find_specs() -> list[str]:
    """Return the paths of all published specs."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.yaml"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def emit_all(path: str) -> Mapping[str, str]:
    """Return the code of a spec by backend and kind, its support code apart; why there is none, where there is none.

    Nothing that the spec names is imported, so what waits for a look at its classes has no code here.
    """
    return dict(_emit_all(path))


def _emit_all(path: str) -> Iterator[tuple[str, str]]:
    for backend, dialect in DIALECTS.items():
        program = _compile(path, backend).program
        if any(model.kind == "layers" and not model.layers for model in program.models):
            yield backend, "E-SHAPE"
            continue
        for kind in KINDS if not path.startswith(PLAIN) else ["plain"]:
            emitted = emit_module(program, dialect, extras=KINDS[kind])
            yield f"{backend} {kind}", emitted.own
            if kind == "plain":
                yield f"{backend} support", emitted.support_text


def _compile(path: str, backend: str) -> Plan:
    """Return the plan of a spec; where it does not say how long its data are, of data of some length."""
    spec = load(ROOT / path)
    try:
        return compile_step(spec, backend)
    except SpecError:
        return compile_step(spec, backend, pace=Pace(epoch=4, batch=2, run=20))


def shorten(text: str) -> str:
    """Return the checksum of a text, or its few letters."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] if "\n" in text else text


def name_text(path: str, kind: str) -> Path:
    """Return where the code of a spec is kept."""
    return TEXTS / f"{Path(path).stem}.{kind.partition(' ')[0]}.txt"


def write(paths: Sequence[str]) -> None:
    """Write the checksums and texts of some specs; without paths, of all."""
    made = {path: emit_all(path) for path in paths or find_specs()}
    kept = json.loads(SUMS.read_text(encoding="utf-8")) if paths else {}
    sums = kept | {path: {kind: shorten(text) for kind, text in found.items()} for path, found in made.items()}
    SUMS.write_text(json.dumps({path: sums[path] for path in sorted(sums)}, indent=1) + "\n", encoding="utf-8")
    TEXTS.mkdir(exist_ok=True)
    for path in made.keys() & {*WHOLE}:
        for backend in DIALECTS:
            name_text(path, backend).write_text(made[path][f"{backend} plain"], encoding="utf-8")


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - {*find_specs()}:
        sys.exit(f"no such published specs: {', '.join(sorted(unknown))}; name a path as in {SUMS.name}")
    write(sys.argv[1:])
