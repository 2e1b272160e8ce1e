"""Mutants of the tables by which layers, calls and losses are written for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tests.properties.mutant import Mutant

LAYERS = "runtime.backends.torch.library.table:LAYERS"
FUNCTIONS = "runtime.backends.torch.library.table:FUNCTIONS"


def drop_option(kind: str, *options: str) -> Callable[[Any], Any]:
    """Return a table in which a layer is not told some of its options."""
    return lambda table: {**table, kind: replace(table[kind], unused=(*table[kind].unused, *options))}


def change_call(family: str, name: str, **fields: object) -> Callable[[Any], Any]:
    """Return the tables of functions in which one of them is called otherwise."""
    return lambda tables: {
        **tables,
        family: {**tables[family], name: replace(tables[family][name], **fields)},
    }


MUTANTS_OF_LIBRARY = (
    Mutant(
        name="later-positions-seen",
        says="`multi_head_attention` ignores `causal`.",
        place=LAYERS,
        change=drop_option("multi_head_attention", "causal"),
        killer="numbers",
        case="library",
    ),
    Mutant(
        name="eps-of-pytorch",
        says="`rms_norm` adds PyTorch's own `eps`.",
        place=LAYERS,
        change=drop_option("rms_norm", "eps"),
        killer="numbers",
        case="library",
    ),
    Mutant(
        name="rolled-along-the-batch",
        says="`roll` shifts along the first axis.",
        place=FUNCTIONS,
        change=change_call("call", "roll", fills={"axis": 0}),
        killer="numbers",
        case="library",
    ),
    Mutant(
        name="focal-without-focus",
        says="`focal` weights easy and hard samples alike.",
        place=FUNCTIONS,
        change=change_call("loss", "focal", unused=("gamma",), fills={"gamma": 0.0}),
        killer="numbers",
        case="library",
    ),
)
