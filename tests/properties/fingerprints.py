"""Print a digest of everything that is compiled from some random specs: ``python -m tests.properties.fingerprints``."""

from __future__ import annotations

import hashlib
import json
import sys
from random import Random

from graphspec.diagnostics import SpecError
from runtime.api import emit
from tests.properties.plans import plan_of
from tests.properties.specs import random_spec

MERGED = 41
"""The seed of a spec some of whose forwards run once for all micro-batches."""


COMPILED = (("torch", "fewest"), ("torch", "memory"), ("tensorflow", "fewest"))
"""For which backend and by which policy."""


def fingerprint(count: int) -> str:
    """Return the digest of specs, plans, sources and errors: of so many behind the first, which is large, and one."""
    digest = hashlib.sha256()
    for seed in (*range(1, count), MERGED):
        document = random_spec(Random(seed))
        digest.update(json.dumps(document).encode())
        for backend, policy in COMPILED:
            try:
                plan = plan_of(document, policy, backend)
            except SpecError as error:
                digest.update(str(error).encode())
                continue
            modes = [program.mode for program in plan.program.modes]
            texts = [json.dumps(plan.to_json(mode)) + plan.text(mode) + plan.mermaid(mode) for mode in modes]
            digest.update("".join([*texts, emit(plan)]).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print(fingerprint(int(sys.argv[1])))
