"""Mutants of what is refused, said or counted, whatever the numbers of a step are."""

from __future__ import annotations

from tests.properties import mutations as to
from tests.properties.mutant import Mutant

MUTANTS_OF_OUTCOMES = (
    Mutant(
        name="replicas-unseen",
        says="A module that is wrapped for several devices is a module like any other.",
        place="runtime.backends.torch.models:REMEDIES",
        change=lambda original: {},
        killer="outcomes",
        case="replicas",
    ),
    Mutant(
        name="hooks-unseen",
        says="Hooks of parameters that only `backward()` calls are not looked for.",
        place="runtime.backends.torch.models:find_late_hook",
        change=to.give(""),
        killer="outcomes",
        case="hooked",
    ),
    Mutant(
        name="open-shapes-unchecked",
        says="A loss takes what it gets where only the step knows its shapes.",
        place="types.infer_types:is_open",
        change=to.give(False),
        killer="outcomes",
        case="column-and-rows",
    ),
)
